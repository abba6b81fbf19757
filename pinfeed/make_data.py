"""`pinfeed make-data`: photo-like JPEGs that anyone can make again, to measure a feed with.

Whole numbers only, from a seed to the pixels: no sine and no float that another processor rounds otherwise.
The JPEG bytes also depend on the encoder; so the manifest names it, and has a digest of the pixels beside
those of the files.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional

import numpy as np
from PIL import Image, ImageDraw, features
from PIL import __version__ as pillow_version

from pinfeed import files, guards, workers
from pinfeed.errors import BAD_DATA, CANNOT_CREATE, PinfeedError, Stopped
from pinfeed.stop import Stop, StopRequested
from pinfeed.talk import Talk
from pinfeed.workers import Job

MANIFEST = "manifest.json"

_CHUNK = 16
_QUALITIES = range(30, 101)
_TOLERANCE = 0.25  # of one file; the mean is far closer
_OCTAVES = (2, 5, 11, 23, 47, 97, 190)  # cells across the longer side
_SCALES = {"": 1, "k": 1000, "m": 1000_000}


@dataclasses.dataclass(frozen=True)
class MakeConfig:
    """Everything `pinfeed make-data` can be told. Making one with a value out of range raises PinfeedError."""

    out: str
    seed: int = 0
    size: str = "500x375"
    bytes: str = "40k"
    count: int = 1000
    classes: int = 10
    workers: Optional[int] = None

    def __post_init__(self) -> None:
        for name, low, high in (("seed", 0, 2**63 - 1), ("count", 1, 10**8), ("classes", 1, 10**5)):
            if not low <= getattr(self, name) <= high:
                raise _wrong(f"--{name} must be a whole number from {low} to {high}", name, getattr(self, name), "10")
        if self.workers is not None and not 1 <= self.workers <= 1024:
            raise _wrong("--workers must be `auto` or a whole number from 1 to 1024", "workers", self.workers, "auto")
        if self.classes > self.count:
            raise PinfeedError(
                "there must be an image for each class",
                f"--classes {self.classes} --count {self.count}",
                f"pinfeed make-data --count {self.classes} ...",
            )
        _ = self.width_height, self.target

    @property
    def width_height(self) -> tuple[int, int]:
        """--size as numbers."""
        found = re.fullmatch(r"(\d{1,5})x(\d{1,5})", self.size)
        width, height = (int(found[1]), int(found[2])) if found else (0, 0)
        if not (16 <= width <= 16384 and 16 <= height <= 16384):
            raise _wrong("--size must be WIDTHxHEIGHT, each from 16 to 16384", "size", self.size, "500x375")
        return width, height

    @property
    def target(self) -> int:
        """--bytes as a number."""
        found = re.fullmatch(r"(\d{1,9})([kKmM]?)", self.bytes)
        if not found or int(found[1]) == 0:
            raise _wrong("--bytes must be a size such as 40k, 110k or 2m", "bytes", self.bytes, "40k")
        return int(found[1]) * _SCALES[found[2].lower()]

    def name(self, number: int) -> str:
        """Where image `number` lies below --out. Its class is its number modulo the classes."""
        width = max(3, len(str(self.classes - 1)))
        return f"class-{number % self.classes:0{width}}/img-{number:0{max(6, len(str(self.count - 1)))}}.jpg"


@dataclasses.dataclass(frozen=True)
class MakeImages:
    """The work of a process: make the images of a job, and write them."""

    config: MakeConfig

    def __call__(self, job: Job) -> list[tuple[str, str, int, str]]:
        made = []
        for number in job.items:
            pixels, content, digest = make(self.config, number)
            path = Path(self.config.out, self.config.name(number))
            path.write_bytes(content)
            made.append((self.config.name(number), digest, len(content), hashlib.sha256(pixels).hexdigest()))
        return made


def make_data(config: MakeConfig, talk: Talk, stop: Stop) -> dict[str, Any]:
    """Do what `pinfeed make-data` promises; the manifest."""
    out = Path(config.out)
    _prepare(config, out)
    began = time.perf_counter()
    talk.begin_work("make", 0, config.count, "images")
    try:
        made = _make_all(config, talk, stop.check)
    except StopRequested as request:
        raise Stopped(
            request.signum, f"stopped before all images were made; remove {out} or make them again into another"
        ) from None
    except OSError as error:
        raise files.cannot_create(Path(error.filename or out), error) from None
    finally:
        talk.end_work()
    manifest = _manifest(config, made)
    files.write_atomic(out / MANIFEST, (json.dumps(manifest, indent=1) + "\n").encode())
    seconds = time.perf_counter() - began
    talk.say(
        f"{out}: {config.count:,} images of {config.size} in {config.classes:,} classes,"
        f" {manifest['mean_bytes']:,} bytes each ({manifest['smallest']:,} to {manifest['largest']:,}),"
        f" in {seconds:.1f} s; sha256 of all {manifest['sha256'][:16]}..."
    )
    return manifest


def make(config: MakeConfig, number: int) -> tuple[bytes, bytes, str]:
    """Image `number`: its pixels, the bytes of its file, and their sha256. It depends on nothing else."""
    image = picture(config.seed, number, number % config.classes, *config.width_height)
    content = encoded(image, config.target)
    return image.tobytes(), content, hashlib.sha256(content).hexdigest()


def picture(seed: int, number: int, label: int, width: int, height: int) -> Image.Image:
    """Shapes before a ground that has detail of every size, as a photograph has. Its class has a colour."""
    random = np.random.Generator(np.random.PCG64([seed, number]))
    light = _clouds(random, width, height)
    tint = np.random.Generator(np.random.PCG64([seed, label, 1 << 40])).integers(-40, 41, 3)
    # Light has the fine detail, colours are broad: so it is in photographs, and JPEG is made for that.
    broad = [_clouds(random, -(-width // 4), -(-height // 4), _OCTAVES[:4]) for _ in range(3)]
    colour = Image.merge("RGB", broad).resize((width, height), Image.Resampling.BILINEAR)
    _draw_shapes(ImageDraw.Draw(colour), random, width, height)
    pixels: np.ndarray = np.asarray(light).astype(np.int32)[..., None] * 3 // 4 + np.asarray(colour) // 2
    pixels += tint.astype(np.int32) - 32
    pixels += random.integers(-8, 9, (height, width, 1), dtype=np.int32)  # of the sensor
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def encoded(image: Image.Image, target: int) -> bytes:
    """The JPEG whose size is nearest to `target` bytes, of all qualities."""
    low, high = 0, len(_QUALITIES) - 1
    tried: dict[int, bytes] = {}

    def at(place: int) -> bytes:
        if place not in tried:
            buffer = io.BytesIO()
            image.save(buffer, "JPEG", quality=_QUALITIES[place])
            tried[place] = buffer.getvalue()
        return tried[place]

    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if len(at(middle)) < target else (low, middle)
    best = min((at(low), at(high)), key=lambda content: abs(len(content) - target))
    if abs(len(best) - target) > _TOLERANCE * target:
        raise _out_of_reach(image, target, len(at(0)), len(at(len(_QUALITIES) - 1)))
    return best


def _clouds(random: np.random.Generator, width: int, height: int, octaves: tuple[int, ...] = _OCTAVES) -> Image.Image:
    """Grey levels with detail of all sizes, the larger the stronger."""
    total: np.ndarray = np.zeros((height, width), np.int32)
    weight = 0
    longer = max(width, height)
    for place, cells in enumerate(octaves):
        if cells >= longer:
            break
        shape = (max(2, height * cells // longer + 1), max(2, width * cells // longer + 1))
        grid = Image.fromarray(random.integers(0, 256, shape, dtype=np.uint8))
        share = 256 * 2**place // 3**place  # each octave two thirds of the one before
        total += np.asarray(grid.resize((width, height), Image.Resampling.BICUBIC)).astype(np.int32) * share
        weight += share
    # Several octaves together are nearly grey: twice the contrast.
    return Image.fromarray(((total * 2) // weight - 128).clip(0, 255).astype(np.uint8))


def _draw_shapes(draw: Any, random: np.random.Generator, width: int, height: int) -> None:
    for _ in range(int(random.integers(4, 10))):
        x, y = int(random.integers(0, width)), int(random.integers(0, height))
        across, down = (int(random.integers(8, max(9, side // 2))) for side in (width, height))
        colour = tuple(int(level) for level in random.integers(0, 256, 3))
        box = (x - across // 2, y - down // 2, x + across // 2, y + down // 2)
        if random.integers(0, 2):
            draw.ellipse(box, fill=colour)
        else:
            draw.polygon([(box[0], y), (x, box[1]), (box[2], y), (x, box[3])], fill=colour)


def _prepare(config: MakeConfig, out: Path) -> None:
    """Try one image, compare the need with the disk, and make the folders."""
    make(config, 0)
    if out.is_dir() and any(out.iterdir()):
        raise PinfeedError(
            "--out is not empty",
            f"{out}: {', '.join(sorted(os.listdir(out))[:5])}",
            "choose another --out, or remove it",
        )
    place = out
    while not place.exists():
        place = place.parent
    room = os.statvfs(place)
    need, free = config.count * (config.target + 4096), room.f_bavail * room.f_frsize
    if need > free:
        raise PinfeedError(
            "the disk has no room for the images",
            f"{need / 1e9:,.2f} GB are needed ({config.count:,} of {config.bytes}), {free / 1e9:,.2f} GB are free",
            "a smaller --count or --bytes, or an --out on another disk",
            CANNOT_CREATE,
        )
    try:
        for label in range(config.classes):
            Path(out, config.name(label)).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise files.cannot_create(out, error) from None


def _make_all(config: MakeConfig, talk: Talk, check: Callable[[], None]) -> list[tuple[str, str, int, str]]:
    jobs = (
        Job(start, list(range(start, min(start + _CHUNK, config.count)))) for start in range(0, config.count, _CHUNK)
    )
    count = min(config.workers or guards.usable_cpus(), -(-config.count // _CHUNK))
    made: list[tuple[str, str, int, str]] = []
    for done in workers.run(MakeImages(config), jobs, count, check):
        if done.died is not None:
            raise PinfeedError(
                f"a worker process died over image {done.job.start}",
                f"it {workers.end_of(done.died)}",
                "fewer --workers, or more memory",
                BAD_DATA,
            )
        made += done.result
        talk.work(len(made))
    return sorted(made)


def _manifest(config: MakeConfig, made: list[tuple[str, str, int, str]]) -> dict[str, Any]:
    sizes = [size for _, _, size, _ in made]
    all_files = hashlib.sha256("".join(f"{digest}  {name}\n" for name, digest, _, _ in made).encode())
    pixels = hashlib.sha256("".join(digest for _, _, _, digest in made).encode())
    asked = {name: getattr(config, name) for name in ("seed", "size", "bytes", "count", "classes")}
    return {
        "version": 1,
        **asked,
        "encoder": f"Pillow {pillow_version}, libjpeg {features.version('jpg')}",
        "mean_bytes": round(sum(sizes) / len(sizes)),
        "smallest": min(sizes),
        "largest": max(sizes),
        "pixels_sha256": pixels.hexdigest(),
        "sha256": all_files.hexdigest(),  # of the lines that `sha256sum` prints for all files, sorted by name
        "files": {name: digest for name, digest, _, _ in made},
    }


def _out_of_reach(image: Image.Image, target: int, least: int, most: int) -> PinfeedError:
    return PinfeedError(
        "--bytes is out of reach for images of this --size",
        f"--bytes {target}, where {image.width}x{image.height} gives {least:,} to {most:,}",
        f"pinfeed make-data --bytes {min(max(target, least), most)} ..., or another --size",
    )


def _wrong(what: str, flag: str, value: object, example: str) -> PinfeedError:
    return PinfeedError(what, f"--{flag} {value}", f"pinfeed make-data --{flag} {example} ...")
