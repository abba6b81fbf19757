"""One environment in every way in: the same PATH, the same python, the same variables, and no secret."""

from __future__ import annotations

import pytest

from tests.support import ways_in
from tests.support.containers import Containers, Tracked
from tests.support.folders import Folders
from tests.support.lab import Lab
from tests.support.laptop import Laptop, Servers

SECRET = "a-Secret_Text.that:no-way-in-shows"
PYTHON = b"/opt/conda/envs/pytorch/bin/python"
FIRST = b"/opt/pytorch-cuda/bin:/opt/conda/envs/pytorch/bin:"


@pytest.fixture(scope="module")
def furnished(shared_containers: Containers, thin: str, laptop: Laptop) -> Tracked:
    """A server with awkward variables."""
    options = [*ways_in.options(ways_in.AWKWARD), "--env", "GRANT_SUDO=1"]
    return Servers(shared_containers, laptop).start(thin, *options)


def check(seen: dict[str, ways_in.Environment]) -> None:
    wanted = seen["exec"]
    assert {name: wanted.get(name.encode(), b"").decode() for name in ways_in.AWKWARD} == ways_in.AWKWARD
    assert wanted[b"PATH"].startswith(FIRST)
    assert wanted[b"python"] == PYTHON
    odd = {way: ways_in.differences(way, found, wanted) for way, found in seen.items()}
    assert not any(odd.values()), "\n".join(f"{way}: [docker exec, here] {text}" for way, text in odd.items() if text)
    users = {way: (found[b"HOME"], found[b"USER"], found[b"LOGNAME"]) for way, found in seen.items() if way != "exec"}
    root = users.pop("sudo")
    assert root == (b"/root", b"root", b"root")
    assert set(users.values()) == {(b"/home/user", b"user", b"user")}, users


def test_every_way_in_shows_the_same(furnished: Tracked, laptop: Laptop) -> None:
    check(ways_in.look(furnished, laptop))


def test_jupyter_shows_the_same_and_no_way_in_shows_a_secret(
    servers: Servers, image: str, laptop: Laptop, folders: Folders
) -> None:
    path = folders.file(folders.new() / "token", SECRET, 0o400, (0, 0))
    secret = ["--volume", f"{path}:/run/secrets/token:ro", "--env", "JUPYTER_TOKEN_FILE=/run/secrets/token"]
    values = [*ways_in.options(ways_in.AWKWARD), "--env", "GRANT_SUDO=1", "--publish", "127.0.0.1::8888"]
    container = servers.start(image, *secret, *values, mode="all")
    lab = Lab.of(container, SECRET)
    seen = {**ways_in.look(container, laptop), **ways_in.look_in_jupyter(container, lab)}
    # `docker exec` shows where the secret lies, as it shows every -e; the other ways need not know.
    assert dict(seen["exec"]).pop(b"JUPYTER_TOKEN_FILE")
    seen["exec"] = {name: value for name, value in seen["exec"].items() if name != b"JUPYTER_TOKEN_FILE"}
    check(seen)
    for way, found in seen.items():
        assert SECRET.encode() not in b"".join(found.values()), way
    files = "cat /run/pytorch-cuda/environment* /run/pytorch-cuda/sshd_config"
    assert SECRET not in container.exec("sh", "-c", files).ok().out


def test_programs_that_no_shell_starts_get_the_simple_values(furnished: Tracked) -> None:
    said = furnished.exec("sshd", "-T").ok().out.splitlines()
    given = dict(line[len("setenv ") :].split("=", 1) for line in said if line.startswith("setenv "))
    assert given["PATH"].startswith(FIRST.decode())
    assert given["BLANKS"] == ways_in.AWKWARD["BLANKS"]
    assert given["LONG"] == ways_in.AWKWARD["LONG"]
    assert "NEWLINES" not in given


@pytest.mark.parametrize(
    "command",
    [
        "bash -c 'echo $PATH $FOO'",
        "bash -ic 'echo $PATH $FOO'",
        "bash -lc 'echo $PATH $FOO'",
        "bash -lic 'echo $PATH $FOO'",
        "sh -lc 'echo $PATH $FOO'",
        "tmux -L t new-session -d 'echo $PATH $FOO > /tmp/kept' && sleep 0.5 && cat /tmp/kept",
        "tmux -L u new-session -d && tmux -L u send-keys 'echo $PATH $FOO > /tmp/typed' Enter && sleep 1.5"
        " && cat /tmp/typed",
    ],
)
def test_a_shell_in_a_session_keeps_what_its_parent_changed(furnished: Tracked, laptop: Laptop, command: str) -> None:
    """As an activated environment does, a tmux in one, and VS Code's own PATH; a login shell, too."""
    script = f"export PATH=/mine/bin:$PATH FOO=mine PLAIN=changed; {command}"
    done = laptop.ssh(furnished, script, options=["-tt"]).ok()
    last = done.out.strip().splitlines()[-1]
    assert last.startswith(f"/mine/bin:{FIRST.decode()}")
    assert last.endswith(" mine")


def test_docker_exec_keeps_a_variable_that_it_is_given(furnished: Tracked) -> None:
    line = "echo $PLAIN; echo $PATH"
    options = ["env", "PLAIN=given", "PATH=/given:/usr/bin:/bin"]
    for shell in ("-lc", "-ic", "-lic"):
        done = furnished.exec(*options, "bash", shell, line, user="user").ok()
        assert done.out.splitlines() == ["given", "/given:/usr/bin:/bin"], shell


def test_su_to_the_user_gives_the_environment_too(furnished: Tracked) -> None:
    done = furnished.exec("su", "-", "user", "-c", "echo $PLAIN; command -v python").ok()
    assert done.out.splitlines() == ["plain", PYTHON.decode()]


def test_files_go_byte_for_byte(furnished: Tracked, laptop: Laptop) -> None:
    """A start-up file that prints would break these (field report B032)."""
    options = " ".join(laptop.options())
    server = f"user@{furnished.address}"
    script = f"""
        set -e
        head -c 300000 /dev/urandom > /tmp/f; cd /tmp; rm -rf back; mkdir back
        echo "put f by-sftp" | sftp -q -b - {options} {server} >&2
        echo "get by-sftp back/1" | sftp -q -b - {options} {server} >&2
        scp -q {options} f {server}:by-scp; scp -q {options} {server}:by-scp back/2
        scp -q -O {options} f {server}:by-old-scp; scp -q -O {options} {server}:by-old-scp back/3
        rsync -e "ssh {options}" f {server}:by-rsync; rsync -e "ssh {options}" {server}:by-rsync back/4
        ssh {options} {server} cat < f > back/5
        for n in 1 2 3 4 5; do cmp f back/$n; done
    """
    done = laptop.sh(script).ok()
    assert done.out == ""


def test_a_conda_that_is_there_can_activate_and_does_not_come_first(
    servers: Servers, lean: str, laptop: Laptop, folders: Folders
) -> None:
    """A stand-in for conda's own file, which does what it does: a function, and its folder in front of PATH."""
    folder = folders.new()
    text = 'conda() { echo "activated $*"; }\nPATH=/opt/conda/condabin:$PATH\n'
    folders.file(folder / "conda.sh", text)
    container = servers.start(lean, "--volume", f"{folder}:/opt/conda/etc/profile.d:ro")
    for options in (["-T"], ["-tt"]):
        done = laptop.ssh(container, "conda activate base && echo $PATH", options=options).ok()
        activated, path = done.out.split("\n")[:2]
        assert activated.strip() == "activated activate base"
        assert path.startswith(FIRST.decode())


def test_a_users_own_start_up_files_still_count(furnished: Tracked, laptop: Laptop) -> None:
    write = "echo 'export FROM_RC=$PLAIN-rc' > ~/.bashrc; echo 'export FROM_PROFILE=1' > ~/.bash_profile"
    laptop.ssh(furnished, write).ok()
    assert laptop.ssh(furnished, "echo $FROM_RC").ok().out == "plain-rc\n"
    assert laptop.ssh(furnished, "bash -lc 'echo $FROM_PROFILE'").ok().out == "1\n"
    laptop.ssh(furnished, "rm ~/.bashrc ~/.bash_profile").ok()
