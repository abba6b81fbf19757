"""Which images are tested, and the fixtures of image and browser tests. A missing image fails; it never skips."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # tests/pinfeed runs in the image, where there is no docker package
    from tests.support.containers import Containers
    from tests.support.folders import Folders

ROOT = Path(__file__).resolve().parent.parent
REPOSITORY = "pytorch-cuda"
IMAGES = {
    "--image": (f"{REPOSITORY}:v2.7-embedded", "embedded", "the image under test"),
    "--thin": (f"{REPOSITORY}:v2.7-embedded-thin", "embedded-thin", "the same without the wheels"),
    "--thin-glibc231": (f"{REPOSITORY}:glibc231-thin", "glibc231-thin", "the thin image on the oldest glibc"),
    "--glibc-image": (f"{REPOSITORY}-test:glibc-check", "glibc-check", "the image with the report of glibc_check.py"),
    "--browser-image": (f"{REPOSITORY}-test:browser", "browser", "the image with Chromium"),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """One option an image, and where the browser tests leave their pictures."""
    group = parser.getgroup("images")
    for option, (default, _, what) in IMAGES.items():
        group.addoption(option, default=default, help=f"{what} [{default}]")
    group.addoption(
        "--screenshots",
        default=str(ROOT / "build" / "screenshots"),
        help="where the browser tests leave their pictures [build/screenshots]",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`thin` means both thin images, one after the other."""
    if "thin" in metafunc.fixturenames:
        metafunc.parametrize("thin", ["--thin", "--thin-glibc231"], ids=["embedded", "glibc231"], indirect=True)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Show the logs of the containers that run while a test fails."""
    outcome = yield
    report = outcome.get_result()
    if report.failed and "client" in getattr(item, "fixturenames", ()):
        from tests.support.containers import logs_of_all

        report.sections.extend(logs_of_all())


@pytest.fixture(scope="session")
def client() -> Iterator[Any]:
    """The engine, through its SDK."""
    import docker

    from tests.support.containers import remove_left_overs

    client = docker.from_env(timeout=120)
    remove_left_overs(client)
    yield client
    client.close()


def image_of(request: pytest.FixtureRequest, option: str) -> str:
    """The name of an image that exists; a missing one fails the test."""
    import docker.errors

    name = str(request.config.getoption(option))
    try:
        request.getfixturevalue("client").images.get(name)
    except docker.errors.ImageNotFound:
        target = IMAGES[option][1]
        pytest.fail(f"{option}: there is no image {name}; python3 -m scripts.build {target}   makes it", pytrace=False)
    return name


@pytest.fixture(scope="session")
def image(request: pytest.FixtureRequest) -> str:
    """The image under test."""
    return image_of(request, "--image")


@pytest.fixture(scope="session")
def thin(request: pytest.FixtureRequest) -> str:
    """A thin image: on the embedded base and, in a second run of the test, on the oldest glibc."""
    return image_of(request, request.param)


@pytest.fixture(scope="session")
def glibc_image(request: pytest.FixtureRequest) -> str:
    """The image that holds the report of glibc_check.py."""
    return image_of(request, "--glibc-image")


@pytest.fixture(scope="session")
def browser_image(request: pytest.FixtureRequest) -> str:
    """The image with Chromium."""
    return image_of(request, "--browser-image")


@pytest.fixture
def containers(client: Any) -> Iterator[Containers]:
    """Containers of one test."""
    yield from _containers(client)


@pytest.fixture(scope="module")
def shared_containers(client: Any) -> Iterator[Containers]:
    """Containers that the tests of one file share."""
    yield from _containers(client)


def _containers(client: Any) -> Iterator[Containers]:
    from tests.support.containers import Containers

    containers = Containers(client)
    try:
        yield containers
    finally:
        containers.close()


@pytest.fixture(scope="module")
def folders(request: pytest.FixtureRequest) -> Iterator[Folders]:
    """Folders of the host, for mounting."""
    from tests.support.folders import Folders

    folders = Folders(image_of(request, "--thin"))
    yield folders
    folders.close()
