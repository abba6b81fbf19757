"""Folders of images: torchvision's order, and the right pixels or a named reason."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pinfeed import images
from pinfeed.errors import PinfeedError
from tests.pinfeed.pictures import encoded, gradient, jpeg, photo_folder


def near(found: np.ndarray, meant: np.ndarray, within: int = 6) -> bool:
    return found.shape == meant.shape and int(np.abs(found.astype(int) - meant.astype(int)).max()) <= within


def test_the_order_is_torchvisions(tmp_path: Path) -> None:
    datasets = pytest.importorskip("torchvision.datasets")
    for name in (
        "b/10.jpg",
        "b/9.PNG",
        "b/z/1.webp",
        "b/a/2.jpeg",
        "B/1.bmp",
        "a/.hidden.jpg",
        "a b/x.tiff",
        "b/a.ppm",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    (tmp_path / "b" / "notes.txt").write_text("no image")
    ours, theirs = images.list_folder(tmp_path), datasets.ImageFolder(tmp_path)
    assert list(ours.classes) == theirs.classes
    assert [(ours.path(k), int(ours.labels[k])) for k in range(len(ours))] == theirs.samples
    assert ours.ignored == 1


def test_folders_within_a_class_and_links_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    photo_folder(tmp_path / "set", {"a": 1, "a/deep": 2})
    photo_folder(tmp_path, {"elsewhere": 1})
    (tmp_path / "set" / "b").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "set" / "a" / "up").symlink_to(tmp_path / "set" / "a")
    listing = images.list_folder(tmp_path / "set")
    assert listing.paths == ["a/0000.png", "a/deep/0000.png", "a/deep/0001.png", "b/0000.png"]
    assert listing.labels.tolist() == [0, 0, 0, 1]


def test_listing_opens_no_file_and_asks_for_no_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a million files each of those costs minutes on a network disk."""
    folders = 20
    for folder in range(folders):
        (tmp_path / f"class{folder}").mkdir()
        for number in range(100):
            (tmp_path / f"class{folder}" / f"{number}.jpg").touch()
    asked: list[object] = []
    stat = os.stat

    def noted(path: str, **more: bool) -> os.stat_result:
        asked.append(path)
        return stat(path, **more)

    monkeypatch.setattr(os, "stat", noted)
    monkeypatch.setattr(os, "open", lambda *args, **more: asked.append(args))
    listing = images.list_folder(tmp_path)
    monkeypatch.undo()
    assert len(listing) == 100 * folders
    assert len(asked) <= folders


def test_names_of_any_bytes_can_be_listed_read_and_printed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    name = os.fsdecode(b"caf\xe9\n.png")
    (tmp_path / "a" / name).write_bytes(encoded(Image.new("RGB", (4, 4)), "PNG"))
    listing = images.list_folder(tmp_path)
    assert images.decode(images.read(listing.path(0))).pixels.shape == (4, 4, 3)
    assert images.shown(listing.paths[0]) == "a/caf\\xe9\\n.png"
    images.shown(listing.paths[0]).encode("utf-8")
    assert listing.fingerprint()


def test_the_fingerprint_follows_names_and_classes(tmp_path: Path) -> None:
    photo_folder(tmp_path, {"a": 2, "b": 1})
    before = images.list_folder(tmp_path).fingerprint()
    assert images.list_folder(tmp_path).fingerprint() == before
    (tmp_path / "b" / "0000.png").rename(tmp_path / "b" / "1.png")
    assert images.list_folder(tmp_path).fingerprint() != before


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda root: None, "in it: nothing"),
        (lambda root: (root / "1.jpg").touch(), "1.jpg"),
        (lambda root: (root / "a").mkdir(), "none ending in"),
        (lambda root: root.rmdir(), "No such file"),
    ],
    ids=["empty", "no class folders", "empty classes", "missing"],
)
def test_a_folder_without_images_is_said(make: object, named: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    make(root)  # type: ignore[operator]
    with pytest.raises(PinfeedError) as caught:
        images.list_folder(root)
    assert caught.value.code == 66
    assert named in str(caught.value)


def test_an_error_of_the_walk_is_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photo_folder(tmp_path, {"a": 1, "b": 1})
    scandir = os.scandir

    def refused(path: object) -> object:
        if str(path).endswith("/b"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)  # type: ignore[call-overload]

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(PinfeedError, match="b cannot be read") as caught:
        images.list_folder(tmp_path)
    assert "Permission denied" in caught.value.seen


def test_train_and_val_are_parts_and_other_folders_are_classes(tmp_path: Path) -> None:
    split = photo_folder(tmp_path / "split", {"train/a": 1, "train/b": 1, "val/a": 1})
    assert images.parts_of(split) == {"train": split / "train", "val": split / "val"}
    flat = photo_folder(tmp_path / "flat", {"train": 1, "test": 1})  # of railways, say
    assert images.parts_of(flat) == {"": flat}
    listing = images.list_folder(split / "val", ("a", "b"))
    assert (listing.classes, listing.labels.tolist()) == (("a", "b"), [0])
    with pytest.raises(PinfeedError, match="classes that the training part has not"):
        images.list_folder(split / "train", ("a",))


# --- pixels --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["PNG", "BMP", "PPM", "TIFF"])
def test_lossless_files_give_their_pixels(kind: str) -> None:
    assert np.array_equal(images.decode(encoded(Image.fromarray(gradient()), kind)).pixels, gradient())


def test_a_jpeg_gives_its_pixels_nearly() -> None:
    decoded = images.decode(jpeg(gradient()), ".jpg")
    assert near(decoded.pixels, gradient())
    assert decoded.notes == ()


def test_grey_becomes_three_equal_channels() -> None:
    grey = gradient()[..., 0]
    decoded = images.decode(encoded(Image.fromarray(grey), "PNG"), ".png")
    assert np.array_equal(decoded.pixels, np.stack([grey] * 3, 2))
    assert decoded.notes == ("grey",)


def test_cmyk_is_turned_into_the_colours_that_it_means() -> None:
    red = Image.new("CMYK", (8, 8), (0, 255, 255, 0))
    decoded = images.decode(encoded(red, "JPEG", quality=100), ".jpg")
    assert near(decoded.pixels, np.full((8, 8, 3), (255, 0, 0), np.uint8))
    assert decoded.notes == ("CMYK",)


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM"])
def test_sixteen_bits_are_scaled_and_not_cut_off(kind: str) -> None:
    levels: np.ndarray = np.arange(0, 65536, 16, dtype=np.uint16).reshape(64, 64)
    decoded = images.decode(encoded(Image.fromarray(levels), kind))
    meant: np.ndarray = np.rint(levels / 257).astype(np.uint8)
    assert np.array_equal(decoded.pixels, np.stack([meant] * 3, 2))
    assert "16-bit" in decoded.notes


def test_32_bit_numbers_are_refused_and_not_guessed() -> None:
    wide: np.ndarray = np.full((4, 4), 1 << 20, np.int32)
    fractions: np.ndarray = np.full((4, 4), 0.5, np.float32)
    for levels in (wide, fractions):
        with pytest.raises(images.BadImage, match="range"):
            images.decode(encoded(Image.fromarray(levels), "TIFF"))


def test_a_palette_and_transparency_give_the_colours_below() -> None:
    colours = Image.fromarray(gradient()).quantize(16)
    decoded = images.decode(encoded(colours, "PNG", transparency=0))
    assert np.array_equal(decoded.pixels, np.asarray(colours.convert("RGB")))
    clear = Image.new("RGBA", (4, 4), (10, 20, 30, 0))
    decoded = images.decode(encoded(clear, "PNG"))
    assert (decoded.pixels == (10, 20, 30)).all()
    assert decoded.notes == ("transparent",)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_is_turned_upright(orientation: int) -> None:
    stored = {
        1: lambda p: p, 2: lambda p: p[:, ::-1], 3: lambda p: p[::-1, ::-1], 4: lambda p: p[::-1],
        5: lambda p: p.transpose(1, 0, 2), 6: lambda p: np.rot90(p, 1), 7: lambda p: p[::-1, ::-1].transpose(1, 0, 2),
        8: lambda p: np.rot90(p, -1),
    }  # fmt: skip
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = jpeg(np.ascontiguousarray(stored[orientation](gradient())), exif=exif)
    decoded = images.decode(content, ".jpg")
    assert near(decoded.pixels, gradient())
    assert decoded.notes == (("turned by EXIF",) if orientation > 1 else ())


def test_damaged_remarks_do_not_cost_the_picture() -> None:
    decoded = images.decode(jpeg(gradient(), exif=b"Exif\0\0II*\0\xff\xff\xff\xff\x01"))
    assert near(decoded.pixels, gradient())


@pytest.mark.parametrize(("kind", "ending"), [("GIF", ".gif"), ("PNG", ".png"), ("TIFF", ".tiff"), ("WEBP", ".webp")])
def test_of_an_animation_the_first_frame_is_taken(kind: str, ending: str) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ((200, 0, 0), (0, 200, 0), (0, 0, 200))]
    lossless = {"lossless": True} if kind == "WEBP" else {}
    content = encoded(frames[0], kind, save_all=True, append_images=frames[1:], **lossless)
    decoded = images.decode(content, ending)
    assert (decoded.pixels == (200, 0, 0)).all()
    assert decoded.notes == ("several frames, the first taken",)


def test_a_wrong_ending_is_noticed_and_does_no_harm() -> None:
    decoded = images.decode(encoded(Image.fromarray(gradient()), "PNG"), ".JPG")
    assert np.array_equal(decoded.pixels, gradient())
    assert decoded.notes == ("other format than its name says",)


def test_every_cut_of_every_kind_is_pixels_or_a_reason_and_nothing_else() -> None:
    """Any other exception would end the work on a million files."""
    named = 0
    for kind in ("JPEG", "PNG", "TIFF", "WEBP", "BMP", "PPM", "GIF"):
        content = encoded(Image.fromarray(gradient()), kind)
        for cut in range(0, len(content), max(1, len(content) // 40)):
            try:
                images.decode(content[:cut])
            except images.BadImage as problem:
                named += bool(str(problem))
    assert named > 200


def test_flipped_bytes_are_pixels_or_a_reason_and_nothing_else() -> None:
    random = np.random.default_rng(0)
    for kind in ("JPEG", "PNG", "TIFF", "WEBP", "GIF"):
        content = bytearray(encoded(Image.fromarray(gradient()), kind))
        for _ in range(60):
            damaged = bytearray(content)
            for place in random.integers(0, len(content), 8):
                damaged[place] = int(random.integers(0, 256))
            with contextlib.suppress(images.BadImage):
                assert images.decode(bytes(damaged)).pixels.dtype == np.uint8


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (jpeg(gradient())[:900], "damaged: image file is truncated"),
        (b"<html><body>404</body></html>", "no image: it begins with b'<html><b'"),
        (bytes(500), "no image"),
    ],
    ids=["truncated", "html", "zeros"],
)
def test_a_bad_file_is_told_why(content: bytes, why: str) -> None:
    with pytest.raises(images.BadImage, match=why.split("(")[0]):
        images.decode(content)


def test_files_that_cannot_be_read_are_told_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty, folder, pipe = tmp_path / "empty", tmp_path / "folder", tmp_path / "pipe"
    empty.touch()
    folder.mkdir()
    os.mkfifo(pipe)  # nobody writes to it: an ordinary read would wait for ever
    with open(tmp_path / "huge", "wb") as file:
        file.truncate(5 << 30)
    reasons = {
        empty: "zero bytes", folder: "no file but", pipe: "no file but", tmp_path / "no": "No such",
        Path("/dev/zero"): "no file but", tmp_path / "huge": "too large: 5,368,709,120 bytes",
    }  # fmt: skip
    files = len(os.listdir("/proc/self/fd"))
    for path, why in reasons.items():
        with pytest.raises(images.BadImage, match=why):
            images.read(str(path))
    assert len(os.listdir("/proc/self/fd")) == files
    growing = tmp_path / "growing"
    growing.write_bytes(b"123")
    fstat, calls = os.fstat, []

    def changing(descriptor: int) -> os.stat_result:
        calls.append(descriptor)
        if len(calls) == 2:
            growing.write_bytes(b"12345")
        return fstat(descriptor)

    monkeypatch.setattr(os, "fstat", changing)
    with pytest.raises(images.BadImage, match="changed while it was read"):
        images.read(str(growing))


# --- to one size ---------------------------------------------------------------------------------


def test_a_square_is_cut_from_the_middle_and_resampled_well() -> None:
    pixels = gradient(90, 60)
    square = images.decode(encoded(Image.fromarray(pixels), "PNG"), size=30).pixels
    middle = Image.fromarray(pixels[:, 15:75])
    assert near(square, np.asarray(middle.resize((30, 30), Image.Resampling.BILINEAR)), within=1)


def test_it_agrees_with_torchvisions_resize_and_crop() -> None:
    functional = pytest.importorskip("torchvision.transforms.functional")
    pixels = np.random.default_rng(0).integers(0, 256, (75, 100, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    theirs = functional.center_crop(functional.resize(image, 30), 30)
    assert near(images.decode(encoded(image, "PNG"), size=30).pixels, np.asarray(theirs), within=12)


def test_halving_while_decoding_changes_no_picture() -> None:
    """A large photograph is decoded at half its size; the result is nearly that of the whole one."""
    random = np.random.default_rng(0).integers(0, 256, (150, 200, 3), dtype=np.uint8)
    photo = Image.fromarray(random).resize((1600, 1200), Image.Resampling.BICUBIC)
    content = encoded(photo, "JPEG", quality=90)
    fast: np.ndarray = images.decode(content, size=128).pixels.astype(float)
    whole = np.asarray(images.fit(Image.fromarray(images.decode(content).pixels), 128)).astype(float)
    assert 10 * np.log10(255**2 / max(1e-9, float(((fast - whole) ** 2).mean()))) > 42  # 47; 37 if halved once more


def test_a_picture_of_one_pixel_and_a_strip_have_their_square() -> None:
    for shape in ((1, 1), (1, 400), (400, 1)):
        content = encoded(Image.new("RGB", shape, (1, 2, 3)), "PNG")
        assert (images.decode(content, size=8).pixels == (1, 2, 3)).all()
