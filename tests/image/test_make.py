"""`make run`, `make stop` and `make train` from a checkout of its own, with the image that is tested."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.caller import ORDINARY, as_ordinary_user, environment
from tests.support.containers import Containers, Done, call
from tests.support.folders import Folders, owner
from tests.support.lab import Lab

ROOT = Path(__file__).resolve().parents[2]
URL = r"JupyterLab: (http://127\.0\.0\.1:\d+/)lab\?token=([0-9a-f]{48})"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Checkout:
    """A copy of this repository, somebody's, in which `make` is typed."""

    path: Path
    name: str
    prefix: list[str]
    image: str
    port: int
    ssh_port: int

    def make(self, *arguments: str, budget: str = "JupyterLab to answer") -> Done:
        """Type `make ...`, with ports and a container name that are no other's."""
        given = [f"NAME={self.name}", f"PORT={self.port}", f"SSH_PORT={self.ssh_port}", f"IMAGE={self.image}"]
        environ = {**environment(self.path), "NO_INSTALL": "1"}
        command = [*self.prefix, "make", *given, *arguments]
        return call(*command, cwd=str(self.path), environ=environ, budget=budget)

    def close(self) -> None:
        """Take away the container, its home volume, and what it was renamed to."""
        listed = call("docker", "ps", "--all", "--quiet", "--filter", f"name=^{self.name}").ok().out.split()
        if listed:
            call("docker", "rm", "--force", "--volumes", *listed)
        call("docker", "volume", "rm", "--force", f"{self.name}-home")


def checkout(folders: Folders, image: str, caller: str) -> Checkout:
    """Copy what git would bring: the tracked files, as they are now."""
    path = folders.new(name="checkout")
    listed = call("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", cwd=str(ROOT)).ok()
    for name in filter(None, listed.out.split("\0")):
        if (ROOT / name).is_file():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, path / name)
    prefix = []
    if caller == "ordinary":
        prefix = as_ordinary_user()
        for entry in (path, *path.rglob("*")):
            folders.give(entry, ORDINARY)
    return Checkout(path, f"pct-{uuid.uuid4().hex[:8]}", prefix, image, free_port(), free_port())


@pytest.fixture(scope="module", params=["root", "ordinary"])
def mine(request: pytest.FixtureRequest, client: object, folders: Folders, image: str) -> Iterator[Checkout]:
    """A checkout of root's, and one of an ordinary user's."""
    if request.param == "root" and os.geteuid() != 0:
        pytest.skip("this run is an ordinary user's")
    made = checkout(folders, image, request.param)
    yield made
    made.close()


def expected_owner(mine: Checkout) -> tuple[int, int]:
    """Root's files belong to 1000: nothing runs as root inside."""
    return ORDINARY if mine.prefix else (1000, 1000)


def test_make_run_starts_prints_a_url_that_works_and_is_quick_again(mine: Checkout) -> None:
    first = mine.make("run").ok()
    url = re.search(URL, first.out)
    assert url, first
    lab = Lab(url[1], url[2])
    lab.wait()
    assert lab.lets_in()
    lab.write("code/note.txt", "written")
    assert owner(mine.path / "code/note.txt") == expected_owner(mine)
    assert owner(mine.path / "code") == expected_owner(mine)
    begun = time.monotonic()
    again = mine.make("run").ok()
    seconds = time.monotonic() - begun
    assert url[0] in again.out, again
    assert "runs already" in again.out
    assert seconds < 5, again


def test_make_stop_and_run_keep_the_token_the_home_and_the_files(mine: Checkout) -> None:
    before = re.search(URL, mine.make("run").ok().out)
    assert before
    lab = Lab(before[1], before[2])
    lab.run("import pathlib; (pathlib.Path.home() / 'kept').write_text('')")
    mine.make("stop").ok()
    assert "Nothing to stop" in mine.make("stop").ok().out
    after = re.search(URL, mine.make("run").ok().out)
    assert after
    assert after[0] == before[0]
    assert lab.run("import pathlib; print((pathlib.Path.home() / 'kept').exists())") == "True\n"


def test_make_run_names_a_port_that_is_taken(mine: Checkout, containers: Containers) -> None:
    mine.make("stop").ok()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", mine.port))
        other.listen()
        done = mine.make("run")
    assert done.code != 0
    assert f"port {mine.port} of this machine is taken" in done.err
    assert f"PORT={mine.port + 1}" in done.err
    assert "Traceback" not in done.err


def test_make_run_refuses_an_image_that_is_not_there(mine: Checkout) -> None:
    done = mine.make("run", "IMAGE=pytorch-cuda:nonsense")
    assert done.code != 0
    assert "there is no image pytorch-cuda:nonsense here" in done.err


def test_make_train_leaves_its_results_beside_the_checkout(mine: Checkout) -> None:
    arguments = "TRAIN_ARGS=--limit 500 --epochs 1"
    done = mine.make("train", "RUN=first", arguments, budget="a short training").ok()
    run = mine.path / "code/runs/first"
    assert {path.suffix for path in run.iterdir()} >= {".json", ".jsonl", ".png", ".pt"}, done
    assert {owner(path) for path in (run, *run.iterdir())} == {expected_owner(mine)}
    assert json.loads((run / "metrics.json").read_text())["limit"] == 500


def test_make_train_passes_the_exit_code_on(mine: Checkout) -> None:
    done = mine.make("train", "RUN=wrong", "TRAIN_ARGS=--epochs -1", budget="a short training")
    assert done.code != 0
    assert "--epochs must be a whole number" in done.err + done.out


def test_make_train_learns(folders: Folders, image: str) -> None:
    """The promise of the README: 88 % on the real test set, within three minutes on two cores."""
    made = checkout(folders, image, "ordinary")
    try:
        begun = time.monotonic()
        done = made.make("train", "RUN=real", budget="the whole training").ok()
        seconds = time.monotonic() - begun
        metrics = json.loads((made.path / "code/runs/real/metrics.json").read_text())
        print(f"{metrics['test_accuracy']:.2%} after {seconds:.0f} s")
        assert metrics["test_accuracy"] >= 0.88, done
        assert metrics["limit"] is None
        assert metrics["samples"]["test"] == 10_000
        assert seconds < 180, done
    finally:
        made.close()
