"""Whether a picture shows something: counted by the browser that made it, so that no image library is needed."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

# How many colours it has, and how much of it has the commonest one.
COUNT = """
async (data) => {
    const picture = new Image();
    picture.src = "data:image/png;base64," + data;
    await picture.decode();
    const canvas = new OffscreenCanvas(picture.width, picture.height).getContext("2d");
    canvas.drawImage(picture, 0, 0);
    const pixels = new Uint32Array(canvas.getImageData(0, 0, picture.width, picture.height).data.buffer);
    const seen = new Map();
    for (const pixel of pixels) seen.set(pixel, (seen.get(pixel) || 0) + 1);
    return [seen.size, Math.max(...seen.values()) / pixels.length];
}
"""
FEWEST_COLOURS = 50
LARGEST_SHARE = 0.95


def take(page: Any, folder: Path, name: str) -> Path:
    """Take a picture of the page; a blank one fails."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.png"
    page.screenshot(path=str(path))
    colours, share = page.evaluate(COUNT, base64.b64encode(path.read_bytes()).decode())
    assert colours >= FEWEST_COLOURS and share <= LARGEST_SHARE, f"{path} is blank: {colours} colours, {share:.0%} one"
    return path
