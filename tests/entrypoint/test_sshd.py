"""sshd as a service: where it may run, what its configuration says, and how it fits the version at hand."""

from __future__ import annotations

import os
import pwd
import socket
from pathlib import Path
from typing import Any

import pytest

from entrypoint import sshd
from entrypoint.errors import StartError
from entrypoint.identity import Identity
from entrypoint.keys import Keys
from entrypoint.settings import Settings, used_by
from entrypoint.user import User

ALL = frozenset({*sshd._NEEDED, *sshd._FOR_TERMINALS})
KEYS = Keys(("ssh-ed25519 AAAA",), (("SSH_PUBLIC_KEY", 1),))

# Stands in for `sshd -t`: complains of the options in $UNKNOWN as sshd does, with the number of their line.
SSHD = r"""#!/bin/sh
shift; config="$2"; status=0
for option in UNKNOWN; do
    grep -n "^$option" "$config" | while IFS=: read -r number rest; do
        echo "$config: line $number: Bad configuration option: $option" >&2
    done
    grep -q "^$option" "$config" && status=255
done
[ "$status" = 0 ] || echo "$config: terminating, 1 bad configuration options" >&2
exit $status
"""


def user(profile: str = "root", capabilities: frozenset[str] = ALL, uid: int = 1000, **more: Any) -> User:
    mapped = more.pop("mapped", False)
    identity = Identity(uid, uid, (), "user", "/home/user", True, profile, mapped=mapped)
    return User(identity, Path("/run/pytorch-cuda"), {}, capabilities, **more)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def write(*unknown: str) -> None:
        (tmp_path / "sshd").write_text(SSHD.replace("UNKNOWN", " ".join(unknown) or "none"))
        (tmp_path / "sshd").chmod(0o755)

    write()
    monkeypatch.setattr(sshd, "SSHD", str(tmp_path / "sshd"))
    account = pwd.struct_passwd(("user", "x", 1000, 1000, "", "/home/user", "/bin/bash"))
    monkeypatch.setattr(pwd, "getpwnam", lambda _: account)
    return write


def settings(**environ: str) -> Settings:
    given = {name.encode(): value.encode() for name, value in environ.items()}
    return Settings.read({b"SSH_PORT": str(free_port()).encode(), **given}, used_by("ssh"))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_an_ordinary_start_is_not_refused(program: Any) -> None:
    sshd.refuse(settings(), user(), KEYS)


def test_a_start_with_user_is_told_of_puid(program: Any) -> None:
    with pytest.raises(StartError, match="starts as root") as caught:
        sshd.refuse(settings(), user("user"), KEYS)
    assert "PUID" in caught.value.do


@pytest.mark.parametrize("missing", sshd._NEEDED)
def test_each_missing_capability_is_named(program: Any, missing: str) -> None:
    with pytest.raises(StartError, match="capabilities") as caught:
        sshd.refuse(settings(), user(capabilities=ALL - {missing}), KEYS)
    assert caught.value.seen == f"missing here: {missing}"
    assert f"--cap-add {missing} " in caught.value.do
    assert all(name in caught.value.do for name in sshd._FOR_TERMINALS)


def test_those_for_a_terminal_are_only_warned_of(program: Any) -> None:
    few = user(capabilities=ALL - {"FOWNER"})
    sshd.refuse(settings(), few, KEYS)
    assert sshd._terminal_warning(few) == ("ssh gives no terminal without FOWNER: docker run --cap-add FOWNER",)
    assert sshd._terminal_warning(user()) == ()


def test_a_rootless_engine_has_other_remedies_and_needs_no_audit(program: Any) -> None:
    with pytest.raises(StartError, match="starts as root") as caught:
        sshd.refuse(settings(), user("user", mapped=True), KEYS)
    assert "PUID" not in caught.value.do
    assert sshd._terminal_warning(user(capabilities=ALL - {"AUDIT_WRITE"}, mapped=True)) == ()
    assert sshd._terminal_warning(user(capabilities=ALL - {"AUDIT_WRITE"})) != ()


def test_no_key_is_refused_with_the_way_to_give_one(program: Any) -> None:
    with pytest.raises(StartError, match="needs a public key") as caught:
        sshd.refuse(settings(), user(), Keys(problems=("/k, line 1: it is cut off",)))
    assert caught.value.seen == "/k, line 1: it is cut off"
    assert "SSH_PUBLIC_KEY=" in caught.value.do


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_taken_port_is_refused_with_the_way_to_another(program: Any, host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        server = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip(f"this machine has no {host}")
    with server, pytest.raises(StartError, match="cannot listen on port") as caught:
        sshd.refuse(settings(SSH_PORT=str(server.getsockname()[1])), user(), KEYS)
    assert "SSH_PORT=2222" in caught.value.do


def test_a_name_that_means_somebody_else_is_refused(program: Any) -> None:
    with pytest.raises(StartError, match="as uid 4321"):
        sshd.refuse(settings(), user(uid=4321), KEYS)
    sshd.refuse(settings(), user(uid=4321, names={"LD_PRELOAD": "x"}), KEYS)


def test_sshd_gets_the_library_that_knows_the_user_and_never_the_users_own() -> None:
    names = {"LD_PRELOAD": "/usr/lib/libnss_wrapper.so:/home/user/trap.so", "NSS_WRAPPER_PASSWD": "/run/passwd"}
    environ = sshd._environment(user(names=names))
    assert environ[b"LD_PRELOAD"] == b"/usr/lib/libnss_wrapper.so"
    assert set(environ) == {b"PATH", b"LANG", b"LD_PRELOAD", b"NSS_WRAPPER_PASSWD"}


@pytest.mark.parametrize(
    ("who", "words"), [(user(), "SSH_PUBLIC_KEY="), (user("user"), "--user"), (user(capabilities=frozenset()), "KILL")]
)
def test_without_a_key_one_true_line_tells_how(program: Any, who: User, words: str) -> None:
    line = sshd.how_to_turn_on(who)
    assert line.startswith("sshd is off")
    assert words in line
    assert "\n" not in line


def written(tmp_path: Path, **profile: Any) -> list[str]:
    tmp_path.chmod(0o755)
    sshd.write_config(tmp_path / "config", sshd.options(2222, ["/run/key"], user(**profile)), b"SetEnv A=1\n")
    assert (tmp_path / "config").stat().st_mode & 0o777 == 0o600
    return (tmp_path / "config").read_text().splitlines()


def test_only_keys_of_one_user_are_accepted(program: Any, tmp_path: Path) -> None:
    lines = written(tmp_path)
    assert {
        "AllowUsers user",
        "AuthenticationMethods publickey",
        "PasswordAuthentication no",
        "ChallengeResponseAuthentication no",
        "PermitEmptyPasswords no",
        "PermitRootLogin no",
        "PermitUserEnvironment no",
        "AuthorizedKeysFile /run/pytorch-cuda/authorized_keys.d/%u",
        "StrictModes yes",
        "SetEnv A=1",
        "Port 2222",
    } <= set(lines)
    assert "PermitRootLogin prohibit-password" in written(tmp_path, profile="rootless-root")


def test_an_option_that_this_version_does_not_know_is_left_out(program: Any, tmp_path: Path) -> None:
    assert "PerSourcePenalties no" in written(tmp_path)
    program("PerSourcePenalties", "AcceptEnv")
    lines = written(tmp_path)
    assert not any(line.startswith(("PerSourcePenalties", "AcceptEnv")) for line in lines)
    assert "PermitRootLogin no" in lines


@pytest.mark.parametrize("option", ["PermitRootLogin", "SetEnv"])
def test_an_option_that_is_needed_is_never_left_out(program: Any, tmp_path: Path, option: str) -> None:
    program(option)
    with pytest.raises(StartError, match="does not take the configuration"):
        written(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="these are root's folders")
def test_the_folders_of_a_start_are_made_and_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--tmpfs /run` is open to everybody; and a key of an earlier start must not stay."""
    run = tmp_path / "run"
    run.mkdir()
    run.chmod(0o1777)
    monkeypatch.setattr(sshd, "RUN", run)
    monkeypatch.setattr(sshd, "PRIVILEGE_SEPARATION", str(run / "sshd"))
    for _ in range(2):
        sshd._make_run_folders()
    assert run.stat().st_mode & 0o7777 == 0o755
    assert (run / "sshd").is_dir()
    rundir = run / "pytorch-cuda"
    rundir.mkdir()
    somebody = User(user().identity, rundir, {})
    (rundir / "authorized_keys.d").mkdir()
    (rundir / "authorized_keys.d" / "root").write_text("old")
    sshd._write_keys(KEYS, somebody)
    assert [path.name for path in (rundir / "authorized_keys.d").iterdir()] == ["user"]
    assert (rundir / "authorized_keys.d" / "user").read_text() == "ssh-ed25519 AAAA\n"
