"""A machine that is made up: what its programs answer, and a record of what was called."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, Optional, Union

import pytest

from scripts import daemon, process
from scripts.process import NOT_FOUND, Result

Answer = Union[Result, Callable[[], Result]]
DOCKER = "/usr/bin/docker"


class BecameError(Exception):
    """Raised where a program would have become another."""

    def __init__(self, command: list[str]) -> None:
        super().__init__(command)
        self.command = command


class FakeMachine:
    """Answers by the beginning of the command line; the latest rule that fits wins."""

    def __init__(self) -> None:
        self.rules: list[tuple[str, Answer]] = []
        self.calls: list[str] = []

    def when(self, beginning: str, answer: Union[Answer, str]) -> None:
        """Let command lines that begin so get this answer; a text is what a success prints."""
        self.rules.insert(0, (beginning, Result(0, answer) if isinstance(answer, str) else answer))

    def capture(self, command: Any, timeout: float = 60, environ: Any = None) -> Result:
        """Stand in for process.capture."""
        line = " ".join(command)
        self.calls.append(line)
        for beginning, answer in self.rules:
            if line.startswith(beginning):
                return answer if isinstance(answer, Result) else answer()
        return Result(NOT_FOUND, err=f"{command[0]}: no such program")

    def stream(self, command: Any, log: Path, on_line: Callable[[str], None], environ: Any = None) -> Result:
        """Stand in for process.stream."""
        result = self.capture(command)
        for line in result.out.splitlines():
            on_line(line)
        return result

    def has_docker(self, version: str = "26.1.5", buildx: bool = True, security: str = "[]") -> None:
        """Give it a Docker that answers."""
        self.when(f"{DOCKER} version", server(version))
        self.when(f"{DOCKER} info --format {{{{json .SecurityOptions", security)
        self.when(
            f"{DOCKER} buildx version", "v0.13.1" if buildx else Result(1, err="'buildx' is not a docker command")
        )

    def called(self, beginning: str) -> list[str]:
        """Give the command lines that began so."""
        return [line for line in self.calls if line.startswith(beginning)]


def server(version: str) -> str:
    """Write what `docker version --format '{{json .}}'` says with a server."""
    return json.dumps({"Client": {"Version": "28.2.2"}, "Server": {"Version": version}})


def inspected(
    image: str = "sha256:new", running: bool = True, published: str = "127.0.0.1:8888:2222", **more: Any
) -> str:
    """Write what `docker container inspect` says."""
    config = {"Labels": {"pytorch-cuda.published": published}, "Env": more.get("env", [])}
    state = {"Running": running, "ExitCode": more.get("exit_code", 0)}
    return json.dumps([{"Id": "1", "Image": image, "State": state, "Config": config}])


def make_machine(monkeypatch: pytest.MonkeyPatch, clients: Optional[list[str]] = None) -> FakeMachine:
    """Put the made-up machine in the place of the real one: no program is started, nothing is installed."""
    from scripts import engine

    fake = FakeMachine()
    monkeypatch.setattr(process, "capture", fake.capture)
    monkeypatch.setattr(process, "stream", fake.stream)
    monkeypatch.setattr(process, "become", lambda command: (_ for _ in ()).throw(BecameError(list(command))))
    monkeypatch.setattr(engine, "clients", lambda: [DOCKER] if clients is None else clients)
    monkeypatch.setattr(engine, "_look_at_podman", lambda: engine.Finding(None))
    monkeypatch.setattr(daemon, "program", lambda: "/usr/sbin/dockerd")
    for name in (
        "NO_INSTALL",
        "DOCKER_HOST",
        "NAME",
        "IMAGE",
        "VARIANT",
        "PORT",
        "SSH_PORT",
        "BIND",
        "SUDO_UID",
        "MODE",
    ):
        monkeypatch.delenv(name, raising=False)
    return fake
