"""Data files: found, checked, split; and what is said when one is not what it should be."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from pinfeed import data
from pinfeed.errors import PinfeedError
from tests.pinfeed.support import three_parts, train, write_idx, write_set

TRAIN_IMAGES = "train-images-idx3-ubyte"


def load(folder: Path, seed: int = 0, limit: int | None = None, checksum: bool = False) -> data.Splits:
    return data.load(str(folder), {}, seed=seed, limit=limit, checksum=checksum)


def test_the_real_files_are_read_checked_and_split(real: Path) -> None:
    splits = load(real, checksum=True)
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [55_000, 5_000, 10_000]
    assert splits.train.images.dtype == torch.uint8
    assert splits.train.images.shape[1:] == (1, 28, 28)
    together = torch.cat([splits.train.labels, splits.validation.labels])
    assert together.bincount().tolist() == [6_000] * 10
    assert splits.test.labels.bincount().tolist() == [1_000] * 10


def test_train_and_validation_share_no_image_and_the_test_part_is_the_test_files(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "set")
    numbers: np.ndarray = np.arange(480, dtype=np.uint16).view(np.uint8).reshape(480, 2)
    images: np.ndarray = np.zeros((480, 28, 28), np.uint8)
    images[:, 0, :2] = numbers  # each image now carries its own number
    write_idx(folder / TRAIN_IMAGES, images)
    splits = load(folder)
    seen = [
        int(low) + 256 * int(high)
        for part in (splits.train, splits.validation)
        for low, high in part.images[:, 0, 0, :2].tolist()
    ]
    assert sorted(seen) == list(range(480))
    raw = (folder / "t10k-images-idx3-ubyte").read_bytes()[16:]
    assert splits.test.images.numpy().tobytes() == raw


def test_the_seed_decides_the_split(small: Path) -> None:
    assert torch.equal(load(small, seed=1).train.images, load(small, seed=1).train.images)
    assert not torch.equal(load(small, seed=1).train.images, load(small, seed=2).train.images)


def test_packed_files_are_as_good_as_plain_ones(small: Path, tmp_path: Path) -> None:
    for file in small.iterdir():
        (tmp_path / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
    assert torch.equal(load(tmp_path).train.images, load(small).train.images)
    assert load(tmp_path).fingerprint == load(small).fingerprint


def test_a_limit_shortens_every_part(small: Path) -> None:
    splits = load(small, limit=100)
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [100, 10, 10]


def cut_off(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def cut_within_the_header(path: Path) -> None:
    os.truncate(path, 7)


def made_empty(path: Path) -> None:
    path.write_bytes(b"")


def made_longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def another_kind_of_file(path: Path) -> None:
    path.write_bytes(b"<html>" + path.read_bytes())


def images_of_another_size(path: Path) -> None:
    write_idx(path, np.zeros((480, 32, 32), np.uint8))


def fewer_images(path: Path) -> None:
    write_idx(path, np.zeros((479, 28, 28), np.uint8))


def no_images(path: Path) -> None:
    write_idx(path, np.zeros((0, 28, 28), np.uint8))


DAMAGES = (
    cut_off, cut_within_the_header, made_empty, made_longer, another_kind_of_file,
    images_of_another_size, fewer_images, no_images,
)  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_file_is_named(
    damage: Callable[[Path], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_set(tmp_path / "set")
    damage(folder / TRAIN_IMAGES)
    assert train(folder, tmp_path / "out") == 65
    message = capsys.readouterr().err
    assert three_parts(message)
    named = "train-labels-idx1-ubyte" if damage is fewer_images else TRAIN_IMAGES
    assert named in message
    assert not (tmp_path / "out").exists()


def test_a_damaged_gz_is_named(small: Path, tmp_path: Path) -> None:
    write_set(tmp_path)
    (tmp_path / TRAIN_IMAGES).unlink()
    packed = gzip.compress((small / TRAIN_IMAGES).read_bytes())
    for content in (packed[: len(packed) // 2], b"no gzip at all", packed[:100] + bytes(50) + packed[150:]):
        (tmp_path / f"{TRAIN_IMAGES}.gz").write_bytes(content)
        with pytest.raises(PinfeedError, match=rf"{TRAIN_IMAGES}\.gz is damaged") as caught:
            load(tmp_path)
        assert caught.value.code == 65


def test_a_label_out_of_range_is_refused(tmp_path: Path) -> None:
    folder = write_set(tmp_path)
    write_idx(folder / "t10k-labels-idx1-ubyte", np.full(96, 10, np.uint8))
    with pytest.raises(PinfeedError, match="t10k-labels"):
        load(folder)


def test_one_changed_byte_is_noticed(real: Path, tmp_path: Path) -> None:
    for name in data.SHA256:
        plain, packed = real / name, real / f"{name}.gz"
        content = plain.read_bytes() if plain.exists() else gzip.decompress(packed.read_bytes())
        if name == "t10k-labels-idx1-ubyte":
            content = content[:5_000] + bytes([(content[5_000] + 1) % 10]) + content[5_001:]
        (tmp_path / name).write_bytes(content)
    with pytest.raises(PinfeedError, match="t10k-labels") as caught:
        load(tmp_path, checksum=True)
    assert caught.value.code == 65


def test_a_missing_file_is_named_with_what_is_there(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_set(tmp_path / "set")
    (folder / "t10k-labels-idx1-ubyte").unlink()
    assert train(folder, tmp_path / "out") == 66
    message = capsys.readouterr().err
    assert three_parts(message)
    assert "t10k-labels-idx1-ubyte is missing" in message
    assert "t10k-images-idx3-ubyte" in message


def test_a_folder_in_the_place_of_a_file_is_no_traceback(tmp_path: Path) -> None:
    folder = write_set(tmp_path)
    (folder / TRAIN_IMAGES).unlink()
    (folder / TRAIN_IMAGES).mkdir()
    with pytest.raises(PinfeedError, match="cannot be read"):
        load(folder)


def test_an_unknown_name_is_answered_with_the_known_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(Path("no-such-set"), tmp_path / "out") == 64
    message = capsys.readouterr().err
    assert three_parts(message)
    assert "known: fashion-mnist" in message


def test_pinfeed_data_says_where_the_known_set_lies(small: Path, tmp_path: Path) -> None:
    assert data.find("fashion-mnist", {"PINFEED_DATA": str(small)}) == small
    (tmp_path / "fashion-mnist").mkdir()
    assert data.find("fashion-mnist", {"PINFEED_DATA": str(tmp_path)}) == tmp_path / "fashion-mnist"


def test_a_wrong_pinfeed_data_is_not_passed_over_in_silence(tmp_path: Path) -> None:
    with pytest.raises(PinfeedError, match="not on this machine") as caught:
        data.find("fashion-mnist", {"PINFEED_DATA": str(tmp_path / "nowhere")})
    assert "PINFEED_DATA" in caught.value.seen
