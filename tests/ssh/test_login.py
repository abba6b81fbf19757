"""Who is let in, who is not, and what a session finds."""

from __future__ import annotations

import re

import pytest

from tests.support.containers import Containers, Tracked
from tests.support.laptop import Laptop


def test_a_command_prints_its_own_output_and_not_a_byte_more(laptop: Laptop, server: Tracked) -> None:
    done = laptop.ssh(server, "true").ok()
    assert (done.raw_out, done.raw_err) == (b"", b"")
    done = laptop.ssh(server, "printf 'a\\0b'; echo err >&2; exit 7").ended(7)
    assert (done.raw_out, done.raw_err) == (b"a\0b", b"err\n")


def test_a_login_on_a_terminal_shows_a_prompt_and_no_noise(laptop: Laptop, server: Tracked) -> None:
    done = laptop.ssh(server, options=["-tt"], stdin=b"tty; exit\n").ok()
    assert re.search(r"/dev/pts/\d+", done.out), done
    for noise in ("Last login", "Debian", "GNU", "warranty", "mail", "bash:", "cannot"):
        assert noise not in done.out + done.err


def test_the_session_is_the_users(laptop: Laptop, server: Tracked) -> None:
    done = laptop.ssh(
        server, "id -un; id -u; echo $HOME; pwd; umask; ulimit -n; ulimit -l; grep CapEff /proc/self/status"
    )
    name, uid, home, folder, umask, files, locked, capabilities = done.ok().out.splitlines()
    assert (name, uid, home, folder, umask) == ("user", "1000", "/home/user", "/home/user", "0002")
    assert capabilities.split()[1] == "0" * 16
    inside = server.exec("bash", "-c", "ulimit -n; ulimit -l", user="user").ok().out.split()
    assert [files, locked] == inside, "a session has the container's limits"


@pytest.mark.parametrize("user", ["user", "root", "nobody", "www-data", "no-such-user"])
def test_another_key_is_refused_whoever_asks(laptop: Laptop, server: Tracked, user: str) -> None:
    laptop.make_key("stranger")
    assert "Permission denied (publickey)" in laptop.ssh(server, "true", user=user, key="stranger").ended(255).err


@pytest.mark.parametrize("user", ["root", "nobody"])
def test_the_right_key_is_good_for_the_user_alone(laptop: Laptop, server: Tracked, user: str) -> None:
    assert "Permission denied (publickey)" in laptop.ssh(server, "true", user=user).ended(255).err


@pytest.mark.parametrize("method", ["password", "keyboard-interactive", "hostbased", "gssapi-with-mic", "none"])
@pytest.mark.parametrize("user", ["user", "root"])
def test_nothing_but_a_key_is_even_offered(laptop: Laptop, server: Tracked, method: str, user: str) -> None:
    options = ["-o", f"PreferredAuthentications={method}", "-o", "PubkeyAuthentication=no"]
    said = laptop.ssh(server, "true", user=user, options=options).ended(255).err
    assert "Permission denied (publickey)." in said


def test_no_account_has_a_password(server: Tracked) -> None:
    for line in server.exec("getent", "shadow").ok().out.splitlines():
        assert line.split(":")[1] in ("*", "!", "!*", "!!"), line.split(":")[0]


def test_after_twenty_refusals_the_right_key_still_opens(laptop: Laptop, server: Tracked) -> None:
    laptop.make_key("stranger")
    options = " ".join(laptop.options("stranger"))
    refuse = f"for i in $(seq 20); do ssh {options} user@{server.address} true; done 2>&1 | grep -c denied"
    assert laptop.sh(refuse).ok().out == "20\n"
    laptop.ssh(server, "true").ok()


def test_an_agent_with_many_keys_is_no_reason_to_refuse(laptop: Laptop, server: Tracked) -> None:
    """Each key that does not fit counts as a try; six, the usual limit, are soon in an agent."""
    for number in range(12):
        laptop.make_key(f"many{number}")
    options = " ".join(option for option in laptop.options() if not option.startswith(("IdentitiesOnly", "/keys")))
    options = options.replace("-o -i", "").replace(" -i", "")
    login = f"ssh {options} user@{server.address} echo in"
    done = laptop.sh(
        f"eval $(ssh-agent) >/dev/null; (ssh-add -q /keys/many? /keys/many?? /keys/id; {login}); kill $SSH_AGENT_PID"
    )
    assert done.ok().out == "in\n"


def test_each_login_is_one_record_in_the_log_and_none_is_a_complaint(laptop: Laptop, server: Tracked) -> None:
    before = len(server.log().splitlines())
    laptop.ssh(server, "tty", options=["-tt"]).ok()
    lines = server.log().splitlines()[before:]
    assert len([line for line in lines if line.startswith("Accepted publickey for user")]) == 1
    odd = [line for line in lines if not line.startswith(("Accepted publickey", "Received disconnect", "Disconnected"))]
    assert odd == []


def test_the_configuration_is_the_one_that_runs(server: Tracked) -> None:
    said = dict(line.split(" ", 1) for line in server.exec("sshd", "-T").ok().out.splitlines())
    wanted = {
        "permitrootlogin": "no",
        "passwordauthentication": "no",
        "permitemptypasswords": "no",
        "permituserenvironment": "no",
        "allowtcpforwarding": "yes",
        "allowstreamlocalforwarding": "yes",
        "gatewayports": "no",
        "maxsessions": "20",
        "clientaliveinterval": "60",
        "usedns": "no",
        "strictmodes": "yes",
        "usepam": "yes",
    }
    assert {name: said[name] for name in wanted} == wanted


def test_200_logins_leave_no_zombie_and_nothing_that_grows(laptop: Laptop, server: Tracked) -> None:
    def count() -> tuple[int, int, int]:
        processes = server.exec("ps", "-eo", "stat").ok().out.split()[1:]
        used = "du -s /run /var/log /tmp 2>/dev/null | awk '{n += $1} END {print n}'"
        return len(processes), sum("Z" in one for one in processes), int(server.exec("sh", "-c", used).ok().out)

    options = " ".join(laptop.options())
    login = f"ssh {options} user@{server.address} 'sleep 0 & true'"
    laptop.sh(login).ok()
    before = count()
    done = laptop.sh(f"seq 200 | xargs -P 4 -I N {login} 2>&1", budget="many logins")
    assert done.ok().out == ""
    after = count()
    assert after[:2] == (before[0], 0), server.exec("ps", "-ef").out
    assert after[2] - before[2] <= 16, f"{before[2]} kB became {after[2]} kB"


def test_the_umask_and_the_owner_of_files_are_right_in_sftp_too(laptop: Laptop, server: Tracked) -> None:
    options = " ".join(laptop.options())
    laptop.sh(
        f"echo hello > /tmp/f; echo 'put /tmp/f /tmp/by-sftp' | sftp -q -b - {options} user@{server.address}"
    ).ok()
    assert server.exec("stat", "-c", "%u:%g %a", "/tmp/by-sftp").ok().out == "1000:1000 644\n"
    assert laptop.ssh(server, "touch /tmp/by-ssh; stat -c '%u:%g %a' /tmp/by-ssh").ok().out == "1000:1000 664\n"


def test_a_restart_asks_for_no_new_trust_and_lets_in_again(containers: Containers, thin: str, laptop: Laptop) -> None:
    container = containers.start(thin, "ssh", options=["--env", f"SSH_PUBLIC_KEY={laptop.public}", "--tmpfs", "/run"])
    laptop.wait_for(container)
    before = laptop.sh(f"ssh-keyscan {container.address} 2>/dev/null | cut -d' ' -f2- | sort").ok().out
    assert before
    container.restart()
    laptop.wait_for(container)
    laptop.ssh(container, "true").ok()
    assert laptop.sh(f"ssh-keyscan {container.address} 2>/dev/null | cut -d' ' -f2- | sort").ok().out == before
