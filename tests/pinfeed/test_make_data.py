"""Photo-like JPEGs: the same for everybody, near the size asked for, and checksummed."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pinfeed import images, make_data
from pinfeed.cli import main
from tests.pinfeed.support import three_parts

# Of the pixels, made on x86-64 with Pillow 13 and NumPy 2.4: a change here makes old measurements void.
PIXELS_OF_THE_FIRST = "90cbba64f4eaba23a68e1d0328cc821060c47b2a16f43a767749b72a804bb897"


def run(out: Path, *more: str) -> int:
    return main(["make-data", "--out", str(out), "--count", "12", "--classes", "4", *more])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small set. Not to be changed."""
    out = tmp_path_factory.mktemp("made") / "set"
    assert run(out) == 0
    return out


def manifest(out: Path) -> dict[str, object]:
    return dict(json.loads((out / "manifest.json").read_text()))


def test_the_pixels_are_those_that_everybody_gets() -> None:
    pixels, _, _ = make_data.make(make_data.MakeConfig(out=""), 0)
    assert hashlib.sha256(pixels).hexdigest() == PIXELS_OF_THE_FIRST


def test_the_same_seed_gives_the_same_files_and_another_seed_others(made: Path, tmp_path: Path) -> None:
    assert run(tmp_path / "again", "--workers", "1") == 0
    assert (tmp_path / "again" / "manifest.json").read_bytes() == (made / "manifest.json").read_bytes()
    assert run(tmp_path / "other", "--seed", "1") == 0
    first, second = manifest(made)["files"], manifest(tmp_path / "other")["files"]
    assert not set(first.values()) & set(second.values())  # type: ignore[attr-defined]
    assert len(set(first.values())) == 12  # type: ignore[attr-defined]


def test_the_manifest_has_the_sha256_of_every_file(made: Path) -> None:
    about = manifest(made)
    found = {str(path.relative_to(made)): hashlib.sha256(path.read_bytes()).hexdigest() for path in made.rglob("*.jpg")}
    assert found == about["files"]
    lines = "".join(f"{digest}  {name}\n" for name, digest in sorted(found.items()))
    assert hashlib.sha256(lines.encode()).hexdigest() == about["sha256"]
    assert "libjpeg" in str(about["encoder"])


@pytest.mark.parametrize(("asked", "size"), [("40k", 40_000), ("110k", 110_000)])
def test_files_are_as_large_as_asked_for(asked: str, size: int) -> None:
    config = make_data.MakeConfig(out="", bytes=asked)
    sizes = [len(make_data.make(config, number)[1]) for number in range(6)]
    assert abs(sum(sizes) / len(sizes) / size - 1) < 0.05
    assert all(abs(one / size - 1) < 0.15 for one in sizes)


def test_they_are_jpegs_of_the_size_asked_for_in_class_folders(made: Path) -> None:
    listing = images.list_folder(made)
    assert listing.classes == ("class-000", "class-001", "class-002", "class-003")
    assert np.bincount(listing.labels).tolist() == [3] * 4
    with Image.open(listing.path(0)) as image:
        assert (image.format, image.size, image.mode) == ("JPEG", (500, 375), "RGB")


def test_they_have_detail_of_all_sizes_as_photographs_have() -> None:
    """A JPEG of flat colour or of noise would be decoded faster or slower than a photograph."""
    config = make_data.MakeConfig(out="")
    pixels = np.frombuffer(make_data.make(config, 3)[0], np.uint8).reshape(375, 500, 3).mean(2)
    spectrum = np.abs(np.fft.rfft2(pixels - pixels.mean())) ** 2
    rings = [spectrum[1 : 2**k, 1 : 2**k].mean() for k in range(2, 8)]
    assert all(large > 1.5 * small for large, small in zip(rings, rings[1:], strict=False))
    assert 30 < pixels.std() < 90
    buffer = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).convert("RGB").save(buffer, "JPEG", quality=85)
    assert 20_000 < buffer.tell() < 60_000


@pytest.mark.parametrize(
    ("argv", "code", "named"),
    [
        (["--size", "500"], 64, "--size 500"),
        (["--size", "8x8"], 64, "--size 8x8"),
        (["--bytes", "forty"], 64, "--bytes forty"),
        (["--bytes", "900k"], 64, "out of reach"),
        (["--bytes", "200"], 64, "out of reach"),
        (["--count", "0"], 64, "--count 0"),
        (["--classes", "30"], 64, "--classes 30 --count 12"),
        (["--seed", "-1"], 64, "--seed -1"),
        (["--workers", "x"], 64, "--workers x"),
        (["--count", "100000000", "--bytes", "110k"], 73, "GB are needed"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_mistake_is_one_message_in_three_parts(
    argv: list[str], code: int, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path / "out", *argv) == code
    message = capsys.readouterr().err
    assert three_parts(message)
    assert named in message
    assert not (tmp_path / "out").exists()


def test_a_folder_with_something_in_it_is_left_alone(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (made / "manifest.json").read_bytes()
    assert run(made, "--seed", "5") == 64
    assert three_parts(capsys.readouterr().err)
    assert (made / "manifest.json").read_bytes() == before
