"""What the ssh tests share: the laptop, and one server a module that no test changes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.conftest import image_of
from tests.support.containers import Containers, Tracked
from tests.support.laptop import Laptop, Servers

# More than sshd's ClientAliveInterval.
IDLE_SECONDS = 65.0


@dataclass(frozen=True)
class Idle:
    """Connections on which nothing happens, by their control sockets on the laptop."""

    since: float
    connections: dict[str, Tracked]


@pytest.fixture(scope="session")
def laptop(client: Any, request: pytest.FixtureRequest) -> Iterator[Laptop]:
    """One client for all tests: the newest OpenSSH that we have."""
    containers = Containers(client)
    try:
        yield Laptop(containers, str(request.config.getoption("--thin")))
    finally:
        containers.close()


@pytest.fixture(scope="module")
def server(shared_containers: Containers, thin: str, laptop: Laptop) -> Tracked:
    """sshd alone, with the laptop's key."""
    return Servers(shared_containers, laptop).start(thin)


@pytest.fixture(scope="session")
def lean(request: pytest.FixtureRequest) -> str:
    """One thin image, for what does not depend on the version of sshd."""
    return image_of(request, "--thin")


@pytest.fixture
def servers(containers: Containers, laptop: Laptop) -> Servers:
    """Servers of one test."""
    return Servers(containers, laptop)


@pytest.fixture(scope="session", autouse=True)
def idle(client: Any, request: pytest.FixtureRequest, laptop: Laptop) -> Iterator[Idle]:
    """Opened before all tests, so that these pass the time."""
    containers = Containers(client)
    try:
        connections = {}
        for number, option in enumerate(("--thin", "--thin-glibc231")):
            control = f"/tmp/idle{number}"
            connections[control] = Servers(containers, laptop).start(image_of(request, option))
            laptop.start(connections[control], options=["-N", "-M", "-S", control])
        yield Idle(time.monotonic(), connections)
    finally:
        containers.close()
