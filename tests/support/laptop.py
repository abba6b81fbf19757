"""The computer in front of the user: a container with an ssh client, keys, and nothing else.

It is a container so that the tests need no ssh on this machine, and so that an agent or a forwarded port of theirs
meets none of the developer's.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.containers import Containers, Done, Tracked
from tests.support.wait import until

KEYS = "/keys"
HOST_KEYS = "/etc/ssh/host_keys"
QUIET = (
    *("-F", "none"),
    *("-o", "BatchMode=yes"),
    *("-o", "UserKnownHostsFile=/dev/null"),
    *("-o", "StrictHostKeyChecking=no"),
    *("-o", "LogLevel=ERROR"),
    *("-o", "ConnectTimeout=20"),
)


class Laptop:
    """Runs ssh and its relatives against other containers."""

    def __init__(self, containers: Containers, image: str) -> None:
        program = ["--entrypoint", "/bin/busybox", "--env", "PYTORCH_CUDA_SESSION=1"]
        self.machine: Tracked = containers.start(image, "sleep", "7200", options=program)
        self.sh(f"mkdir -m 700 {KEYS}; mkdir /var/empty; chmod 755 /var/empty").ok()
        self.public = self.make_key("id")
        # Making an RSA key takes a second; the servers of tests share theirs, unless it is what they test.
        self.host_keys = containers.volume()

    def make_key(self, name: str, kind: str = "ed25519") -> str:
        """A key pair, the same one whenever it is asked for; the public line."""
        path = f"{KEYS}/{name}"
        make = f"test -e {path} || ssh-keygen -q -t {kind} -N '' -C {name}@laptop -f {path}; cat {path}.pub"
        return self.sh(make).ok().out

    def sh(self, script: str, stdin: bytes = b"", budget: str = "a command") -> Done:
        """A shell script on the laptop."""
        return self.machine.exec("bash", "-c", script, stdin=stdin, budget=budget)

    def options(self, key: str = "id", port: int = 22) -> list[str]:
        """What every client of these tests is given."""
        return [*QUIET, "-o", f"Port={port}", "-o", "IdentitiesOnly=yes", "-i", f"{KEYS}/{key}"]

    def ssh(
        self,
        server: Tracked,
        *command: str,
        options: Sequence[str] = (),
        stdin: bytes = b"",
        user: str = "user",
        key: str = "id",
        port: int = 22,
        budget: str = "a command",
    ) -> Done:
        """`ssh user@server command`."""
        line = ["ssh", *self.options(key, port), *options, f"{user}@{server.address}", *command]
        return self.machine.exec(*line, stdin=stdin, budget=budget)

    def start(
        self, server: Tracked, *command: str, options: Sequence[str] = (), key: str = "id", port: int = 22
    ) -> None:
        """The same in the background; it ends with the server or the laptop."""
        line = ["ssh", *self.options(key, port), *options, f"user@{server.address}", *command]
        self.machine.container.exec_run(line, detach=True, tty="-tt" in options)

    def wait_for(self, server: Tracked, port: int = 22) -> Tracked:
        """Wait until sshd greets."""
        ask = f"exec 3<>/dev/tcp/{server.address}/{port}; head -c 4 <&3; printf 'SSH-2.0-test\\r\\n' >&3"

        def probe() -> bool:
            assert server.state["Running"], f"{server.name} ended:\n{server.log()}"
            return "listening on" in server.log() and self.sh(ask).out == "SSH-"

        until("a line in the log", probe, server.log)
        return server


class Servers:
    """Starts containers with sshd that let the laptop in."""

    def __init__(self, containers: Containers, laptop: Laptop) -> None:
        self._containers = containers
        self._laptop = laptop

    def start(
        self,
        image: str,
        *options: str,
        mode: str = "ssh",
        expect: Sequence[str] = (),
        quiet: bool = True,
        port: int = 22,
        own_host_keys: bool = False,
    ) -> Tracked:
        """Start one and wait until it greets."""
        if not own_host_keys and not any(HOST_KEYS in option for option in options):
            options = (*options, "--volume", f"{self._laptop.host_keys}:{HOST_KEYS}")
        container = self.start_only(image, *options, mode=mode, expect=expect, quiet=quiet)
        return self._laptop.wait_for(container, port)

    def start_only(
        self, image: str, *options: str, mode: str = "ssh", expect: Sequence[str] = (), quiet: bool = True
    ) -> Tracked:
        """Start one; a mode of "" is that of the variable MODE."""
        given = [*options, "--env", f"SSH_PUBLIC_KEY={self._laptop.public}"]
        command = [mode] if mode else []
        return self._containers.start(image, *command, options=given, expect=expect, quiet=quiet)
