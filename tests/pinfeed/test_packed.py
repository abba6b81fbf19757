"""Packed folders: read as they are, and every way of being damaged named."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from pinfeed.errors import PinfeedError
from pinfeed.packed import InMemory, Packed, is_packed
from pinfeed.ring import Ring

COUNT = 40


def write(folder: Path, **changes: object) -> Path:
    """A packed folder in which image k is filled with k."""
    folder.mkdir(parents=True, exist_ok=True)
    images = np.broadcast_to(np.arange(COUNT, dtype=np.uint8)[:, None, None, None], (COUNT, 6, 5, 3))
    meta = {"version": 1, "classes": ["a", "b"], "shape": [6, 5, 3], "source": "test"}
    np.save(folder / "images.npy", changes.get("images", np.ascontiguousarray(images)))
    np.save(folder / "labels.npy", changes.get("labels", np.arange(COUNT) % 2))
    (folder / "meta.json").write_text(json.dumps({**meta, **changes.get("meta", {})}))  # type: ignore[dict-item]
    return folder


@pytest.mark.parametrize("io", ["map", "read", "auto"])
def test_rows_come_as_they_lie_in_the_file(io: str, tmp_path: Path) -> None:
    data = Packed(write(tmp_path), io)
    assert (len(data), data.shape, data.classes) == (COUNT, (6, 5, 3), ("a", "b"))
    assert is_packed(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns of memory that it may not write to
        with Ring(data, 7, "cpu", seed=1) as feed:
            seen = []
            for batch in feed.epoch(0):
                assert bool((batch.images.amin((1, 2, 3)) == batch.images.amax((1, 2, 3))).all())
                assert torch.equal(batch.images[:, 0, 0, 0].long() % 2, batch.labels)
                seen += batch.images[:, 0, 0, 0].tolist()
            assert seen == feed.order(0).tolist()
    data.close()


def test_both_ways_of_reading_give_the_same_bytes(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (COUNT, 6, 5, 3), np.uint8)
    folder, rows = write(tmp_path, images=images), np.array([5, 3, 39, 0, 3])
    for io in ("map", "read"):
        target = np.empty((5, 6, 5, 3), np.uint8)
        Packed(folder, io).gather(rows, target)
        assert np.array_equal(target, images[rows])


@pytest.mark.parametrize("io", ["map", "read"])
def test_a_set_that_is_cut_off_while_it_is_read_is_named(io: str, tmp_path: Path) -> None:
    data = Packed(write(tmp_path), io)
    with Ring(data, 8, "cpu") as feed:
        batches = feed.epoch(0)
        next(batches)
        os.truncate(tmp_path / "images.npy", 500)
        with pytest.raises(PinfeedError, match=r"images\.npy changed while it was read"):
            for _ in range(5):
                next(batches)


def test_a_set_that_is_written_to_while_it_is_read_is_named(tmp_path: Path) -> None:
    data = Packed(write(tmp_path))
    os.utime(tmp_path / "images.npy", ns=(1, 1))
    with Ring(data, 8, "cpu") as feed, pytest.raises(PinfeedError, match="changed"):
        next(feed.epoch(0))


def test_a_set_larger_than_half_of_the_memory_is_not_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pinfeed.packed._memory", lambda: 2 * COUNT * 90.0)
    assert Packed(write(tmp_path))._map is not None
    monkeypatch.setattr("pinfeed.packed._memory", lambda: 2 * COUNT * 90.0 - 1)
    assert Packed(tmp_path)._map is None


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def test_the_ways_of_being_damaged_are_told_apart(tmp_path: Path) -> None:
    cases: dict[str, tuple[dict[str, object], str, str]] = {
        "short": ({"cut": "images.npy"}, "images.npy", "cut off: 3,718 bytes, where its header promises 3,728"),
        "header": ({"empty": "images.npy"}, "images.npy", ""),
        "type": ({"images": np.zeros((COUNT, 6, 5, 3), np.float32)}, "images.npy", "float32"),
        "planar": ({"images": np.zeros((COUNT, 6, 5), np.uint8)}, "images.npy", "shape (40, 6, 5)"),
        "shape": ({"meta": {"shape": [8, 8, 3]}}, "images.npy", "(8, 8, 3)"),
        "none": (
            {"images": np.zeros((0, 6, 5, 3), np.uint8), "labels": np.zeros(0, np.int64)},
            "images.npy",
            "no image",
        ),
        "fewer": ({"labels": np.zeros(39, np.int64)}, "labels.npy", "39 labels for 40 images"),
        "labels": ({"labels": np.full(COUNT, 7)}, "labels.npy", "7 to 7, where meta.json has 2 classes"),
        "floats": ({"labels": np.zeros(COUNT)}, "labels.npy", "float64"),
        "cut labels": ({"cut": "labels.npy"}, "labels.npy", ""),
        "version": ({"meta": {"version": 9}}, "meta.json", "version 9"),
        "json": ({"empty": "meta.json"}, "meta.json", "no JSON"),
    }
    for name, (changes, file, seen) in cases.items():
        folder = write(tmp_path / name, **changes)
        if "cut" in changes:
            cut(folder / str(changes["cut"]))
        if "empty" in changes:
            (folder / str(changes["empty"])).write_bytes(b"")
        with pytest.raises(PinfeedError, match="is damaged") as caught:
            Packed(folder)
        assert str(folder / file) in caught.value.what, name
        assert seen in caught.value.seen, name
        assert caught.value.code == 65


@pytest.mark.parametrize("file", ["images.npy", "labels.npy", "meta.json"])
def test_a_missing_file_is_named(file: str, tmp_path: Path) -> None:
    (write(tmp_path) / file).unlink()
    with pytest.raises(PinfeedError, match=file) as caught:
        Packed(tmp_path)
    assert caught.value.code == 66


def test_what_is_no_image_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="uint8 images"):
        InMemory(torch.zeros(4, 3, 3), torch.zeros(4, dtype=torch.int64))
    with pytest.raises(ValueError, match="uint8 images"):
        InMemory(torch.zeros(4, 3, 3, 1, dtype=torch.uint8), torch.zeros(5, dtype=torch.int64))
