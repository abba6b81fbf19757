"""`make ssh` logs into the running container; `make ssh-config` prints what VS Code and ssh need for it.

Both ask the container where its sshd is and which keys it has, so they fit one that was started in any way.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scripts import container, keys, names, process, ui
from scripts.container import Container
from scripts.engine import Engine

USER = "user"
HOST_KEYS = f"{container.RUN_DIRECTORY}/host_keys"
AUTHORIZED = f"{container.RUN_DIRECTORY}/authorized_keys.d/{USER}"
EVERYWHERE = ("0.0.0.0", "[::]", "::")


@dataclass(frozen=True)
class Door:
    """Where sshd of a container answers, and how it is known."""

    name: str
    address: str  # as published: 0.0.0.0 is every address of this machine
    port: int
    identity: Path | None = None

    @property
    def here(self) -> str:
        """Give the address for this machine itself."""
        return "127.0.0.1" if self.address in EVERYWHERE else self.address


def main() -> int:
    """`config` prints the entry; without an argument become the ssh session."""
    engine, found = container.running("log into")
    door = find_door(engine, found)
    if sys.argv[1:] == ["config"]:
        print(config(door, os.environ))
        return 0
    if not shutil.which("ssh"):
        raise ui.UserError("there is no ssh command here", "no ssh on the PATH", "make shell   (needs none)")
    process.become(session(door, remember(engine, door)))


def find_door(engine: Engine, found: Container) -> Door:
    """Ask the container which port its sshd has, and the engine where that is on this machine."""
    inside = sshd_port(engine, found.name)
    address, port = outside(engine, found.name, inside)
    allowed = engine.ask("exec", found.name, *container.READ, AUTHORIZED).out
    return Door(found.name, address, port, keys.private_key(allowed))


def sshd_port(engine: Engine, name: str) -> int:
    """Read sshd's port inside from what the container wrote down about its services."""
    answer = engine.ask("exec", name, *container.READ, f"{container.RUN_DIRECTORY}/services.json")
    try:
        services = {service["name"]: service for service in json.loads(answer.out)["services"]}
    except (ValueError, KeyError, TypeError):
        services = {}
    if "sshd" not in services:
        raise ui.UserError(
            f"no SSH server runs in {name}",
            f"it runs: {', '.join(services) or 'no service'}",
            "it needs a public key: ssh-keygen -t ed25519, if ~/.ssh has none; then make stop, and make run",
        )
    return int(services["sshd"]["port"])


def outside(engine: Engine, name: str, inside: int) -> tuple[str, int]:
    """Ask where the port is on this machine; under host networking it is there itself."""
    published = engine.ask("port", name, f"{inside}/tcp")
    if published.ok and published.out.strip():
        address, _, port = published.out.split()[0].rpartition(":")
        return address, int(port)
    if engine.ask("container", "inspect", "--format", "{{.HostConfig.NetworkMode}}", name).out.strip() == "host":
        return "0.0.0.0", inside
    raise ui.UserError(
        f"the SSH server of {name} is not published on this machine",
        f"its port {inside} has no port here",
        f"make shell, or start it with -p 127.0.0.1:2222:{inside}",
    )


def remember(engine: Engine, door: Door) -> Path:
    """Write down the host keys as the engine shows them: no question at the first login, no stranger later."""
    shown = engine.ask("exec", door.name, *container.SHELL, f"/bin/busybox cat {HOST_KEYS}/*.pub")
    lines = [f"{door.name} {' '.join(line.split()[:2])}\n" for line in shown.out.splitlines() if line.strip()]
    if not lines:
        do = "make logs shows what the start said; make shell needs no SSH"
        raise ui.UserError("the server's host keys cannot be read", shown.last_words, do)
    path = names.LOGS / "ssh" / f"known_hosts-{door.name}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(lines), encoding="utf-8")
    except OSError as error:
        do = f"sudo chown -R $(id -u) {names.LOGS}   (an earlier command ran as root)"
        raise ui.UserError("the server's host keys cannot be noted", str(error), do) from None
    return path


def session(door: Door, known_hosts: Path) -> list[str]:
    """Write the command that logs in."""
    options = {
        "HostKeyAlias": door.name,
        "UserKnownHostsFile": f'"{known_hosts}"',
        "StrictHostKeyChecking": "yes",
        "Port": str(door.port),
    }
    identity = ["-i", str(door.identity)] if door.identity else []
    return [
        "ssh",
        *(part for key, value in options.items() for part in ("-o", f"{key}={value}")),
        *identity,
        f"{USER}@{door.here}",
    ]


def config(door: Door, environ: Mapping[str, str]) -> str:
    """Write the entry for ~/.ssh/config of the computer in front of the user."""
    host, jump = door.here, ""
    remote = environ.get("SSH_CONNECTION", "").split()
    if remote:
        if door.here == "127.0.0.1" and door.address not in EVERYWHERE:
            jump = f"{environ.get('SUDO_USER') or environ.get('USER') or 'USER'}@{remote[2]}"
        else:
            host = remote[2]
    lines = [f"Host {door.name}", f"    HostName {host}", f"    Port {door.port}", f"    User {USER}"]
    if door.identity and not remote:
        lines.append(f"    IdentityFile {_quoted(str(door.identity))}")
    # Under a name of its own: on 127.0.0.1 the next container would look like an impostor.
    lines.append(f"    HostKeyAlias {door.name}")
    if jump:
        lines.append(f"    ProxyJump {jump}")
    return "\n".join(lines)


def _quoted(path: str) -> str:
    return f'"{path}"' if " " in path else path


if __name__ == "__main__":
    ui.entry("ssh", main)
