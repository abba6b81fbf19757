"""After an edit to our own code a rebuild is quick, and the big layers keep their digests: nobody pulls torch again."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from scripts import build, names
from scripts.engine import ensure_engine
from tests.support.folders import Folders

pytestmark = pytest.mark.slow

LONGEST_SECONDS = 15
TAG = f"{names.TEST_REPOSITORY}:rebuild"
# What an edit may change: our programs and the facts about the image, a few hundred kB.
BIG = 5_000_000


def copy_of_the_checkout(folders: Folders) -> Path:
    path = folders.new(name="checkout")
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=names.ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (names.ROOT / name).is_file():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(names.ROOT / name, path / name)
    return path


def rebuild(checkout: Path, target: str) -> float:
    """Build the target from this checkout under a tag of the test's own, as `make build` does; the seconds."""
    command = build.bake_command(ensure_engine(need_build=True), [target])
    command[command.index("--file") + 1] = str(checkout / "docker-bake.hcl")
    begun = time.monotonic()
    done = subprocess.run(
        [*command, "--set", f"{target}.tags={TAG}"],
        cwd=checkout,
        env=build.bake_environ(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return time.monotonic() - begun


def layers(client: Any) -> list[tuple[str, int]]:
    """Digest and size of each layer, from the bottom."""
    image = client.images.get(TAG)
    sizes = [entry["Size"] for entry in reversed(image.history()) if entry["Size"]]
    digests = image.attrs["RootFS"]["Layers"]
    # A layer that holds nothing has a digest and no size: only the count of the others must agree.
    return list(zip(digests[-len(sizes) :], sizes))


@pytest.mark.parametrize("edited", ["entrypoint/__main__.py", "pinfeed/__init__.py"])
def test_an_edit_is_rebuilt_quickly_and_leaves_the_big_layers_alone(
    client: Any, image: str, folders: Folders, edited: str
) -> None:
    target = next(target for target in names.bake_targets() if names.image_of(target) == image)
    checkout = copy_of_the_checkout(folders)
    try:
        rebuild(checkout, target)
        before = layers(client)
        with (checkout / edited).open("a", encoding="utf-8") as file:
            file.write(f"\n# edited by a test at {time.time_ns()}\n")
        seconds = rebuild(checkout, target)
        after = layers(client)
    finally:
        client.images.remove(TAG, force=True)
    print(f"\nrebuilt after an edit to {edited} in {seconds:.1f} s")
    assert before != after, "the edit is not in the image"
    assert [layer for layer in before if layer[1] > BIG] == [layer for layer in after if layer[1] > BIG]
    assert len([layer for layer in before if layer[1] > BIG]) > 6
    assert seconds < LONGEST_SECONDS
