"""Image files made in the tests: right ones of many kinds, and damaged ones."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


def gradient(width: int = 60, height: int = 40) -> np.ndarray:
    """Pixels that tell top from bottom, left from right, and red from green from blue."""
    pixels: np.ndarray = np.zeros((height, width, 3), np.uint8)
    pixels[..., 0] = np.linspace(20, 230, width)[None, :]
    pixels[..., 1] = np.linspace(20, 230, height)[:, None]
    pixels[..., 2] = 100
    return pixels


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    """The bytes of a file of this kind."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def jpeg(pixels: np.ndarray, **options: Any) -> bytes:
    """A JPEG of high quality."""
    return encoded(Image.fromarray(pixels), "JPEG", quality=95, subsampling=0, **options)


def photo_folder(root: Path, counts: dict[str, int], size: tuple[int, int] = (60, 40)) -> Path:
    """A class folder for each entry. Image k of a class is of a grey level that names it."""
    level = 10
    for name, count in counts.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            pixels: np.ndarray = np.full((size[1], size[0], 3), level % 250, np.uint8)
            (root / name / f"{number:04}.png").write_bytes(encoded(Image.fromarray(pixels), "PNG"))
            level += 5
    return root
