"""Folders of images: what is in them, and the right pixels of each file, or the reason why there are none.

It knows neither torch nor processes, so a worker that only decodes starts fast.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import os
import stat
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

import numpy as np
from PIL import Image, ImageOps

from pinfeed.errors import BAD_DATA, NO_INPUT, PinfeedError

# torchvision's list (datasets.folder.IMG_EXTENSIONS), so that both see the same files in the same order.
EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
PARTS = ("train", "val", "validation", "valid", "test")

_FORMATS = {
    ".jpg": "JPEG", ".jpeg": "JPEG", ".png": "PNG", ".ppm": "PPM", ".bmp": "BMP", ".pgm": "PPM",
    ".tif": "TIFF", ".tiff": "TIFF", ".webp": "WEBP",
}  # fmt: skip
_LARGEST = 1 << 30  # bytes of a file; a log that somebody named .jpg must not fill the memory
_TURNED = range(2, 9)
_SIXTEEN_BITS = ("I;16", "I;16L", "I;16B", "I;16N")


class BadImage(Exception):  # noqa: N818 - it tells of the file, not of the program
    """A file that gives no pixels; the text says why, in a few words."""


@dataclasses.dataclass(frozen=True)
class ImageFolder:
    """The images of a folder with a subfolder for each class, in the order of torchvision's ImageFolder."""

    root: Path
    classes: tuple[str, ...]
    paths: list[str]  # below root
    labels: np.ndarray  # int64
    ignored: int  # files whose ending is not an image's

    def __len__(self) -> int:
        return len(self.paths)

    def path(self, index: int) -> str:
        """Where image `index` lies."""
        return os.path.join(self.root, self.paths[index])

    def fingerprint(self) -> str:
        """A digest of names and classes: the same as long as no file comes, goes or is renamed."""
        digest = hashlib.sha256()
        for path in (*self.classes, *self.paths):
            digest.update(os.fsencode(path) + b"\0")
        return digest.hexdigest()


@dataclasses.dataclass(frozen=True)
class Decoded:
    """Pixels (uint8, height x width x 3), and what was noticed about the file on the way."""

    pixels: np.ndarray
    notes: tuple[str, ...]


# --- what is there -------------------------------------------------------------------------------


def parts_of(root: Path) -> dict[str, Path]:
    """The sets in a folder: {"": root}, or train and the others where it is split into such."""
    names = _folders(root)
    if not names or not set(names) <= set(PARTS):
        return {"": root}
    # A class may be called `test`; a part has classes below it, and a class only files.
    if all(_folders(root / name) for name in names):
        return {name: root / name for name in sorted(names, key=PARTS.index)}
    return {"": root}


def list_folder(root: Path, classes: Optional[tuple[str, ...]] = None) -> ImageFolder:
    """List the images below `root`. No file is opened or asked for its size: a million take seconds.

    With `classes` (those of the training part) another class is an error, and labels are theirs.
    """
    names = sorted(_folders(root))
    if not names:
        raise _no_classes(root)
    unknown = [name for name in names if classes is not None and name not in classes]
    if unknown:
        raise PinfeedError(
            f"{shown(str(root))} has classes that the training part has not",
            ", ".join(map(shown, unknown[:5])) + (f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""),
            "the parts must have the same classes: rename or move the folders",
            BAD_DATA,
        )
    paths: list[str] = []
    labels: list[int] = []
    ignored = 0
    for name in names:
        label = (classes or names).index(name)
        for path in _files_below(root, name):
            if os.path.splitext(path)[1].lower() in EXTENSIONS:
                paths.append(path)
                labels.append(label)
            else:
                ignored += 1
    if not paths:
        raise PinfeedError(
            f"there is no image in {shown(str(root))}",
            f"{len(names)} class folders with {ignored} files, none ending in {', '.join(EXTENSIONS)}",
            "give the folder that holds a subfolder of images for each class",
            NO_INPUT,
        )
    return ImageFolder(root, tuple(classes or names), paths, np.array(labels, np.int64), ignored)


def shown(path: str) -> str:
    """A file name as it can be printed, whatever bytes are in it."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def _folders(root: Path) -> list[str]:
    try:
        with os.scandir(root) as entries:
            return [entry.name for entry in entries if entry.is_dir()]
    except OSError as error:
        raise _unreadable(str(root), error) from None


def _files_below(root: Path, name: str) -> Iterator[str]:
    """All files below a class folder, links followed, in torchvision's order: by folder, then by name."""

    def refuse(error: OSError) -> None:
        raise _unreadable(str(error.filename), error)

    top, found = os.path.join(root, name), []
    seen: set[tuple[int, int]] = set()
    for folder, below, files in os.walk(top, onerror=refuse, followlinks=True):
        if below:  # only then can a link lead back up, and a walk go on for ever
            known = os.stat(folder)
            if (known.st_dev, known.st_ino) in seen:
                below.clear()
                continue
            seen.add((known.st_dev, known.st_ino))
        found.append((folder, sorted(files)))
    cut = len(os.path.join(root, ""))
    for folder, files in sorted(found):
        for file in files:
            yield os.path.join(folder, file)[cut:]


def _no_classes(root: Path) -> PinfeedError:
    with os.scandir(root) as entries:
        names = sorted(entry.name for entry in entries)
    listed = ", ".join(map(shown, names[:5])) + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")
    return PinfeedError(
        f"{shown(str(root))} has no class folders",
        f"in it: {listed or 'nothing'}",
        "put the images of each class into a subfolder of its own: FOLDER/cat/1.jpg, FOLDER/dog/2.jpg",
        NO_INPUT,
    )


def _unreadable(path: str, error: OSError) -> PinfeedError:
    return PinfeedError(
        f"the folder {shown(path)} cannot be read",
        f"{error.strerror} (as uid {os.getuid()})",
        "check the path and its permissions",
        NO_INPUT,
    )


# --- pixels --------------------------------------------------------------------------------------


def read(path: str) -> bytes:
    """The bytes of a file. Raises BadImage when it is empty, unreadable, or changes while it is read."""
    try:
        # Not blocking: a named pipe that lies among the images would hold up everything.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return _contents(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise BadImage(f"cannot be read: {error.strerror}") from None


def _contents(descriptor: int) -> bytes:
    before = os.fstat(descriptor)
    if not stat.S_ISREG(before.st_mode):
        raise BadImage("no file but a folder, a pipe or a device")
    if before.st_size > _LARGEST:
        raise BadImage(f"too large: {before.st_size:,} bytes")
    with open(descriptor, "rb", closefd=False) as file:
        content = file.read()
    after = os.fstat(descriptor)
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise BadImage("changed while it was read")
    if not content:
        raise BadImage("empty: zero bytes")
    return content


def decode(content: bytes, ending: str = "", size: Optional[int] = None) -> Decoded:
    """The pixels of a file's bytes: upright, RGB, 8 bits. Raises BadImage, and nothing else.

    `ending` is the one of its name, to notice a wrong one. With `size` the pixels are a square of that
    side: the short side is fitted to it, and the middle kept.
    """
    try:
        with warnings.catch_warnings():
            # Of Pillow's about strange metadata: this module says itself what is wrong with a file.
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(content)) as image:
                return _decoded(image, ending, size)
    except BadImage:
        raise
    except Image.UnidentifiedImageError:
        raise BadImage(f"no image: it begins with {content[:8]!r}") from None
    # Any decoder may stumble over damaged data in any way; one file must not end the work on a million.
    except Exception as error:
        text = f"{type(error).__name__}: {error}" if not isinstance(error, (OSError, SyntaxError)) else str(error)
        raise BadImage(f"damaged: {text}".splitlines()[0]) from None


def _decoded(image: Image.Image, ending: str, size: Optional[int]) -> Decoded:
    notes = _notes(image, ending)
    if size is not None and image.format == "JPEG":
        # Lets the JPEG decoder halve large photographs on the way, down to twice what is wanted.
        image.draft(None, (2 * size, 2 * size))
    colour = _rgb(ImageOps.exif_transpose(image) if _orientation(image) in _TURNED else image)
    if size is not None:
        colour = fit(colour, size)
    return Decoded(np.asarray(colour), notes)


def fit(image: Image.Image, size: int) -> Image.Image:
    """A square of side `size`: the largest in the middle of the image, resampled with antialiasing."""
    width, height = image.size
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    return image.resize((size, size), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side))


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode in (*_SIXTEEN_BITS, "I"):
        return Image.fromarray(_eight_bits(np.asarray(image))).convert("RGB")
    if image.mode == "F":
        raise BadImage("numbers with a fraction: what range they have is not known")
    return image if image.mode == "RGB" else image.convert("RGB")


def _eight_bits(levels: np.ndarray) -> np.ndarray:
    """16 bits to 8, rounded. Pillow's own conversion cuts everything above 255 off to white."""
    wide: np.ndarray = levels.astype(np.int64)
    if wide.min() < 0 or wide.max() > 0xFFFF:
        raise BadImage("32-bit numbers: what range they have is not known")
    return ((wide + 128) // 257).astype(np.uint8)


def _orientation(image: Image.Image) -> int:
    """How the camera was held; upright when its note about that cannot be read."""
    try:
        return int(image.getexif().get(0x0112, 1))
    except Exception:  # what is damaged is a remark, not the picture
        return 1


def _notes(image: Any, ending: str) -> tuple[str, ...]:
    meant = _FORMATS.get(ending.lower())
    kind = "JPEG" if image.format == "MPO" else image.format  # a JPEG of a phone, with a second view behind it
    marks = {
        "other format than its name says": meant is not None and kind != meant,
        "CMYK": image.mode == "CMYK",
        "grey": image.mode in ("1", "L", "LA", "La"),
        "16-bit": image.mode in (*_SIXTEEN_BITS, "I"),
        "transparent": image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info,
        "several frames, the first taken": getattr(image, "n_frames", 1) > 1 and image.format != "MPO",
        "turned by EXIF": _orientation(image) in _TURNED,
    }
    return tuple(mark for mark, holds in marks.items() if holds)
