"""What the entrypoint costs, beside a plain `jupyter lab` and beside no entrypoint at all: paired, taken in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import pytest

from tests.support.containers import Containers
from tests.support.lab import Lab

pytestmark = pytest.mark.slow

PAIRS = 7
LARGEST_RATIO = 1.15
COMMAND_PAIRS = 11
LARGEST_EXTRA_SECONDS = 0.2
PUBLISH = ("--publish", "127.0.0.1::8888")
# What a user of any other image types; root_dir and the address are as ours are.
PLAIN = ("lab", "--ip=0.0.0.0", "--no-browser", "--ServerApp.root_dir=/workspace")
PLAIN_OPTIONS = ("--user", "1000:0", "--entrypoint", "/opt/conda/envs/pytorch/bin/jupyter")


def seconds_to_answer(containers: Containers, image: str, command: Sequence[str], options: Sequence[str]) -> float:
    """From `docker run` to the first answer over the published port."""
    begun = time.monotonic()
    container = containers.start(image, *command, options=[*options, *PUBLISH], quiet=False)
    Lab(f"http://127.0.0.1:{container.port(8888)}/", "", container).wait(pause=0.01)
    seconds = time.monotonic() - begun
    container.remove()
    return seconds


def told(name: str, values: Sequence[float]) -> str:
    return f"{name}: median {statistics.median(values):.3f} s, {min(values):.3f} to {max(values):.3f}, n={len(values)}"


def test_jupyterlab_answers_about_as_soon_as_a_plain_one(containers: Containers, image: str) -> None:
    ours: list[float] = []
    plain: list[float] = []
    for number in range(PAIRS + 1):
        first = seconds_to_answer(containers, image, (), ())
        second = seconds_to_answer(containers, image, PLAIN, PLAIN_OPTIONS)
        if number:  # the first pair warms the page cache
            ours.append(first)
            plain.append(second)
    ratio = statistics.median(one / other for one, other in zip(ours, plain))
    print(f"\n{told('with our entrypoint', ours)}\n{told('plain jupyter lab', plain)}\nmedian ratio {ratio:.3f}")
    assert ratio <= LARGEST_RATIO


def test_a_command_starts_about_as_soon_as_without_the_entrypoint(containers: Containers, image: str) -> None:
    ours: list[float] = []
    plain: list[float] = []
    for number in range(COMMAND_PAIRS + 1):
        first = containers.run(image, "true").ok().seconds
        second = containers.run(image, options=["--entrypoint", "/usr/bin/true"]).ok().seconds
        if number:
            ours.append(first)
            plain.append(second)
    extra = statistics.median(one - other for one, other in zip(ours, plain))
    print(
        f"\n{told('docker run IMAGE true', ours)}\n{told('entrypoint overridden', plain)}\nmedian extra {extra:.3f} s"
    )
    assert extra <= LARGEST_EXTRA_SECONDS
