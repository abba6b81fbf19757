"""sshd as a service: whether it can run here, its configuration for the version at hand, what the user is told."""

from __future__ import annotations

import errno
import os
import pwd
import re
import shutil
import socket
import stat
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from entrypoint.errors import StartError
from entrypoint.folders import open_folder
from entrypoint.hostkeys import CLEAN_ENVIRONMENT, prepare_host_keys
from entrypoint.identity import PLAIN, ROOTLESS, Identity
from entrypoint.keys import Keys, gather, refusal
from entrypoint.login_environment import render_set_env, write_login_environment
from entrypoint.rundir import RUN, make_folder, write_file
from entrypoint.secrets import reader_for
from entrypoint.settings import Settings
from entrypoint.supervise import Service
from entrypoint.user import User

SSHD = "/usr/sbin/sshd"
CONFIG = "sshd_config"  # /etc/ssh/sshd_config leads to it
KEYS_FOLDER = "authorized_keys.d"
PRIVILEGE_SEPARATION = "/run/sshd"

_NEEDED = ("SETUID", "SETGID", "SYS_CHROOT", "KILL")
_FOR_TERMINALS = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "AUDIT_WRITE")
HOW = 'docker run -p 2222:22 -e SSH_PUBLIC_KEY="$(cat ~/.ssh/id_ed25519.pub)" ...'
_UNKNOWN_OPTION = re.compile(r"line (\d+): (?:Bad configuration|Unsupported|Deprecated) option")


@dataclass(frozen=True)
class Sshd:
    """All that starts sshd, and the lines that tell of it."""

    service: Service
    probe: dict[str, object]
    lines: tuple[str, ...]
    warnings: tuple[str, ...]


def read_keys(settings: Settings, user: User) -> Keys:
    """The public keys that were given in any of the ways."""
    return gather(settings["SSH_PUBLIC_KEY"], user.identity.home, reader_for(user.identity))


def refuse(settings: Settings, user: User, keys: Keys) -> None:
    """Stop where sshd cannot run, or nobody could log in. Changes nothing."""
    _refuse_profile(user.identity)
    _refuse_capabilities(user.capabilities)
    seen = refusal(keys)
    if seen:
        raise StartError("ssh needs a public key that may log in", seen, HOW)
    _refuse_name(user)
    _refuse_port(settings["SSH_PORT"])


def how_to_turn_on(user: User) -> str:
    """For a start that was given no key: one line, which is true for this way of starting."""
    try:
        _refuse_profile(user.identity)
        _refuse_capabilities(user.capabilities)
    except StartError as error:
        return f"sshd is off, and {error.what} ({error.seen})"
    return f"sshd is off; this turns it on: {HOW}"


def plan_sshd(settings: Settings, user: User, keys: Keys) -> Sshd:
    """Write all that sshd reads, for this start alone: a key that was taken away is gone."""
    port = settings["SSH_PORT"]
    _make_run_folders()
    _write_keys(keys, user)
    write_login_environment(user.environ, user.identity, user.rundir)
    host_keys = prepare_host_keys(user.rundir)
    config = user.rundir / CONFIG
    write_config(config, options(port, list(host_keys), user), render_set_env(user.environ))
    return Sshd(
        service=Service("sshd", [SSHD, "-D", "-e", "-f", str(config)], _environment(user), "/", None),
        probe={"name": "sshd", "probe": "banner", "port": port},
        lines=(
            f"sshd: port {port}; after docker run -p 2222:{port} log in with: ssh -p 2222 {user.identity.name}@HOST",
            keys.summary,
            *(f"host key {fingerprint}" for fingerprint in host_keys.values()),
        ),
        warnings=(*keys.problems, *_terminal_warning(user)),
    )


def _environment(user: User) -> dict[bytes, bytes]:
    """Root's own, and under a read-only /etc the library that knows the user; never the user's own LD_PRELOAD."""
    names = {name: value.partition(":")[0] for name, value in user.names.items()}
    return {os.fsencode(name): os.fsencode(value) for name, value in {**CLEAN_ENVIRONMENT, **names}.items()}


def _refuse_profile(identity: Identity) -> None:
    if not os.path.exists(SSHD):
        raise StartError("this image has no sshd", f"{SSHD} is missing", "docker run IMAGE --version shows what it is")
    if identity.profile == PLAIN:
        ids = "-e PUID=$(id -u) -e PGID=$(id -g); everything but sshd then runs with them"
        raise StartError(
            "ssh needs a container that starts as root",
            f"it was started with --user {identity.uid}:{identity.gid}",
            "leave --user out; in a rootless engine uid 0 is you"
            if identity.mapped
            else f"leave --user out and give your ids instead: {ids}",
        )


def _refuse_capabilities(held: frozenset[str]) -> None:
    missing = [name for name in _NEEDED if name not in held]
    if missing:
        raise StartError(
            "sshd cannot run without some capabilities of root",
            f"missing here: {', '.join(missing)}",
            f"docker run {' '.join(f'--cap-add {name}' for name in missing)} ...; "
            f"for a terminal (ssh -t) also {', '.join(_FOR_TERMINALS)}",
        )


def _terminal_warning(user: User) -> tuple[str, ...]:
    # A user namespace has no audit, and sshd does not ask for it there.
    wanted = [name for name in _FOR_TERMINALS if not (user.identity.mapped and name == "AUDIT_WRITE")]
    missing = [name for name in wanted if name not in user.capabilities]
    if not missing:
        return ()
    return (f"ssh gives no terminal without {', '.join(missing)}: docker run --cap-add {' --cap-add '.join(missing)}",)


def _refuse_name(user: User) -> None:
    """sshd looks the user up by name: it must not find somebody else, or nobody."""
    try:
        uid = user.identity.uid if user.names else pwd.getpwnam(user.identity.name).pw_uid
    except KeyError:
        uid = -1
    if uid != user.identity.uid:
        raise StartError(
            f"ssh cannot log in as uid {user.identity.uid}",
            f"the name {user.identity.name!r} belongs to uid {uid}: /etc/passwd is a mount, or read-only",
            "leave the mount of /etc/passwd out, or start with that uid: -e PUID=...",
        )


def _refuse_port(port: int) -> None:
    """Try it, as sshd will: its own words for a taken port do not say what to do."""
    problems = [_try_port(family, port) for family in (socket.AF_INET, socket.AF_INET6)]
    problem = next((found for found in problems if found), None)
    if problem is None:
        return
    taken = problem.errno == errno.EADDRINUSE
    raise StartError(
        f"sshd cannot listen on port {port}",
        "another program listens there (with --network host: the host's own sshd)" if taken else str(problem.strerror),
        "give another port: -e SSH_PORT=2222" + ("" if taken else ", or docker run --cap-add NET_BIND_SERVICE ..."),
    )


def _try_port(family: socket.AddressFamily, port: int) -> OSError | None:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind(("", port))
            sock.listen()
    except OSError as error:
        # A network without IPv6 (or IPv4) is no problem of the port.
        return error if error.errno in (errno.EADDRINUSE, errno.EACCES) else None
    return None


def _make_run_folders() -> None:
    """/run/sshd is gone whenever /run is new, and `--tmpfs /run` lets everybody write there, which sshd refuses."""
    with open_folder(RUN) as fd:
        seen = os.fstat(fd)
        if seen.st_uid == os.geteuid() and seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            os.fchmod(fd, 0o755)
    make_folder(Path(PRIVILEGE_SEPARATION))
    # Who is logged in on a terminal (`who`); without it sshd complains at each logout.
    with suppress(OSError):
        os.close(os.open(RUN / "utmp", os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644))


def _write_keys(keys: Keys, user: User) -> None:
    """Root's own files, so that the owner of what was mounted does not matter; sshd reads nothing else."""
    folder = user.rundir / KEYS_FOLDER
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)
    make_folder(folder)
    write_file(folder / user.identity.name, keys.render(), 0o644)


def options(port: int, host_keys: Sequence[str], user: User) -> list[tuple[str, bool]]:
    """The lines of the configuration, and whether a version of sshd may do without that line."""
    identity = user.identity
    needed = [
        f"Port {port}",
        *(f"HostKey {path}" for path in host_keys),
        "PidFile none",
        # Keys alone. In a rootless engine the user is uid 0, so that the name is what keeps root out.
        f"PermitRootLogin {'prohibit-password' if identity.profile == ROOTLESS else 'no'}",
        f"AllowUsers {identity.name}",
        "AuthenticationMethods publickey",
        "PubkeyAuthentication yes",
        "PasswordAuthentication no",
        "PermitEmptyPasswords no",
        "ChallengeResponseAuthentication no",
        "HostbasedAuthentication no",
        "UsePAM yes",
        f"AuthorizedKeysFile {user.rundir / KEYS_FOLDER}/%u",
        "StrictModes yes",
        "PermitUserEnvironment no",
        # An agent may hold many keys, and each one that does not fit counts as a try.
        "MaxAuthTries 20",
        # What VS Code needs.
        "AllowTcpForwarding yes",
        "AllowStreamLocalForwarding yes",
        "AllowAgentForwarding yes",
        "GatewayPorts no",
        "PermitTunnel no",
        "X11Forwarding no",
        "MaxSessions 20",
        "ClientAliveInterval 60",
        "UseDNS no",
        "PrintMotd no",
        "PrintLastLog no",
        "Subsystem sftp internal-sftp",
    ]
    # Not LC_*: the image has one locale, and bash complains at every start of one that is not there.
    wanted = [
        "AcceptEnv COLORTERM NO_COLOR",
        # From 9.8 on a few refusals would lock out everybody behind the same address.
        "PerSourcePenalties no",
    ]
    return [(line, True) for line in needed] + [(line, False) for line in wanted]


def write_config(path: Path, lines: Sequence[tuple[str, bool]], set_env: bytes) -> None:
    """Write the configuration, without the lines that the sshd at hand does not know and need not."""
    kept = list(lines)
    while True:
        text = "".join(f"{line}\n" for line, _ in kept).encode()
        write_file(path, text + set_env, 0o600)
        problem = _test_config(path)
        if problem is None:
            return
        unknown = {int(number) - 1 for number in _UNKNOWN_OPTION.findall(problem)}
        if not unknown or any(number >= len(kept) or kept[number][1] for number in unknown):
            raise StartError(
                "sshd does not take the configuration that was written for it",
                problem.strip().replace("\n", "; "),
                "please report these three lines together with the docker run command",
                70,
            )
        kept = [line for number, line in enumerate(kept) if number not in unknown]


def _test_config(path: Path) -> str | None:
    """What `sshd -t` complains of."""
    command = [SSHD, "-t", "-f", str(path)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=CLEAN_ENVIRONMENT, check=False)
    said = (done.stderr + done.stdout).decode("utf-8", "replace")
    return said if done.returncode or _UNKNOWN_OPTION.search(said) else None
