"""Small data sets, and ways to run pinfeed: in this process, or as a program that can be stopped."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pinfeed.cli import main

ROOT = Path(__file__).resolve().parents[2]


def write_idx(path: Path, array: np.ndarray) -> None:
    """Write `array` in the format of Fashion-MNIST's files."""
    header = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(header + array.tobytes())


def write_set(folder: Path, train: int = 480, test: int = 96) -> Path:
    """A small set of four files, easy to learn: class k has its bright square at a place of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    for prefix, count in (("train", train), ("t10k", test)):
        labels = random.integers(0, 10, count, dtype=np.uint8)
        images = random.integers(0, 60, (count, 28, 28), dtype=np.uint8)
        for image, label in zip(images, labels, strict=True):
            row, column = 14 * (label % 2), 5 * (label // 2)
            image[row : row + 10, column : column + 5] += 150
        write_idx(folder / f"{prefix}-images-idx3-ubyte", images)
        write_idx(folder / f"{prefix}-labels-idx1-ubyte", labels)
    return folder


def arguments(data: Path, out: Path, *more: str) -> list[str]:
    """`pinfeed train` on a set made by `write_set`: 440 images to train, 13 steps an epoch."""
    where = ["--data", str(data), "--no-checksum", "--out", str(out)]
    # One thread: these batches are too small to share out, and other tests may want the other processor.
    return ["train", *where, "--batch-size", "32", "--epochs", "2", "--workers", "1", *more]


def train(data: Path, out: Path, *more: str) -> int:
    """Train in this process; the exit code."""
    return main(arguments(data, out, *more))


def start(*argv: str, **options: Any) -> subprocess.Popen[str]:
    """Start pinfeed as a program of its own."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pinfeed", *argv]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    return subprocess.Popen(command, env=environ, **pipes)


def weights(out: Path) -> dict[str, torch.Tensor]:
    """The model's numbers in the checkpoint of a run."""
    content = torch.load(out / "checkpoint.pt", weights_only=True)
    return dict(content["learner"]["model"])


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """Equal to the last bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def three_parts(message: str) -> bool:
    """Is this one error as pinfeed tells it: what failed, what was seen, what to do, and nothing more?"""
    lines = message.splitlines()
    return (
        len(lines) == 3
        and lines[0].startswith("pinfeed: ")
        and lines[1:]
        == [line for line, mark in zip(lines[1:], ("  seen: ", "  do:   "), strict=True) if line.startswith(mark)]
    )
