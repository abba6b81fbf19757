"""Random resized crop, flip and normalise, on uint8 batches, where the batch is: plain torch operations that compile.

The crop is that of torchvision (`resized_crop(..., antialias=True)`), each image with a box of its own, as two
matrix products a batch. Against torchvision's own pixels: PSNR >= 50 dB on each image, and no pixel off by more
than 2 grey levels of 255 (tests/pinfeed/test_transforms.py). On a GPU it computes in float16, in which the 256
grey levels are exact.

Every random number follows from the sample's key (`Batch.keys`), so neither device, nor worker, nor rank, nor a
resume changes an image.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Optional

import torch
from torch import nn
from torch.nn import functional

IMAGENET_MEAN = (123.675, 116.28, 103.53)
IMAGENET_STD = (58.395, 57.12, 57.375)

_TRIES = 10  # torchvision's number of boxes to try before it takes the middle


class Normalise(nn.Module):
    """uint8 to float, around zero: (x - mean) / std, a channel each."""

    def __init__(self, mean: Sequence[float] = IMAGENET_MEAN, std: Sequence[float] = IMAGENET_STD) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1), persistent=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return (images.float() - self.mean) / self.std


class TrainTransform(nn.Module):
    """For training. `size`: a random resized crop of that side, None to keep the pixels. `flip`: half mirrored."""

    def __init__(
        self,
        size: Optional[int] = None,
        *,
        flip: bool = True,
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
        mean: Sequence[float] = IMAGENET_MEAN,
        std: Sequence[float] = IMAGENET_STD,
    ) -> None:
        super().__init__()
        self.size, self.flip, self.scale, self.ratio = size, flip, scale, ratio
        self.normalise = Normalise(mean, std)

    def forward(self, images: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        mirrored = flips(keys) if self.flip else torch.zeros_like(keys, dtype=torch.bool)
        if self.size is not None:
            boxes = random_boxes(keys, images.shape[2], images.shape[3], self.scale, self.ratio)
            # Mirrored by the very product that resamples: it costs nothing.
            return self.normalise(resized_crop(images, boxes, self.size, mirrored))
        images = self.normalise(images)
        return torch.where(mirrored[:, None, None, None], images.flip(3), images) if self.flip else images


class EvalTransform(nn.Module):
    """For evaluation: the short side to `size * 256 / 224`, the middle `size` of it; None keeps the pixels."""

    def __init__(
        self,
        size: Optional[int] = None,
        *,
        mean: Sequence[float] = IMAGENET_MEAN,
        std: Sequence[float] = IMAGENET_STD,
        share: float = 224 / 256,
    ) -> None:
        super().__init__()
        self.size, self.share = size, share
        self.normalise = Normalise(mean, std)

    def forward(self, images: torch.Tensor, keys: Optional[torch.Tensor] = None) -> torch.Tensor:
        if self.size is None or tuple(images.shape[2:]) == (self.size, self.size):
            return self.normalise(images)
        height, width = images.shape[2:]
        side = min(height, width) * self.share
        middle = torch.tensor([(height - side) / 2, (width - side) / 2, side, side], device=images.device)
        return self.normalise(resized_crop(images, middle.expand(len(images), 4), self.size, cut=False))


def flips(keys: torch.Tensor) -> torch.Tensor:
    """For each sample: is it shown mirrored?"""
    return uniform(keys, 0) < 0.5


def random_boxes(
    keys: torch.Tensor, height: int, width: int, scale: tuple[float, float], ratio: tuple[float, float]
) -> torch.Tensor:
    """torchvision's RandomResizedCrop.get_params for each sample: (top, left, height, width), N x 4."""
    draws = torch.stack([uniform(keys, 1 + number) for number in range(2 * _TRIES + 2)])
    areas = height * width * (scale[0] + (scale[1] - scale[0]) * draws[:_TRIES])
    low, high = math.log(ratio[0]), math.log(ratio[1])
    ratios = torch.exp(low + (high - low) * draws[_TRIES : 2 * _TRIES])
    wide, tall = torch.sqrt(areas * ratios).round(), torch.sqrt(areas / ratios).round()
    fits = (wide > 0) & (wide <= width) & (tall > 0) & (tall <= height)
    # Behind the tries, the middle: what is taken when no try fits.
    middle_tall, middle_wide = _middle(height, width, ratio)
    last = torch.ones_like(wide[:1])
    tall = torch.cat([tall, last * middle_tall])
    wide = torch.cat([wide, last * middle_wide])
    first = torch.cat([fits, torch.ones_like(fits[:1])]).to(torch.int8).argmax(0, keepdim=True)
    tall, wide = tall.gather(0, first)[0], wide.gather(0, first)[0]
    none = first[0] == _TRIES
    top = torch.where(none, ((height - tall) / 2).floor(), (draws[-2] * (height - tall + 1)).floor())
    left = torch.where(none, ((width - wide) / 2).floor(), (draws[-1] * (width - wide + 1)).floor())
    return torch.stack([top, left, tall, wide], 1).float()


def _middle(height: int, width: int, ratio: tuple[float, float]) -> tuple[int, int]:
    if width / height < ratio[0]:
        return round(width / ratio[0]), width
    if width / height > ratio[1]:
        return height, round(height * ratio[1])
    return height, width


def resized_crop(
    images: torch.Tensor,
    boxes: torch.Tensor,
    size: int,
    mirrored: Optional[torch.Tensor] = None,
    *,
    cut: bool = True,
) -> torch.Tensor:
    """Each image's box (top, left, height, width) at `size` x `size`, with antialiasing; floats, 0 to 255.

    `cut`: pixels outside of the box count as if they were cut away before, as in torchvision's resized_crop;
    without it they count at the border, as where an image is resized first and cropped then.
    """
    dtype = torch.float16 if images.is_cuda else torch.float32
    top, left, tall, wide = boxes.unbind(1)
    down = _weights(top, tall, images.shape[2], size, cut).to(dtype)
    across = _weights(left, wide, images.shape[3], size, cut)
    if mirrored is not None:
        across = torch.where(mirrored[:, None, None], across.flip(1), across)
    across = across.to(dtype)
    with torch.autocast(images.device.type, enabled=False):
        count, channels, height, width = images.shape
        # (size x height) (height x width * channels), then the same along the other side: rows hold all channels.
        rows = torch.bmm(down, images.permute(0, 2, 3, 1).reshape(count, height, width * channels).to(dtype))
        columns = rows.view(count, size, width, channels).permute(0, 2, 1, 3).reshape(count, width, size * channels)
        cropped = torch.bmm(across, columns).view(count, size, size, channels)
    return cropped.permute(0, 3, 2, 1)


def _weights(begin: torch.Tensor, extent: torch.Tensor, length: int, size: int, cut: bool) -> torch.Tensor:
    """N matrices (size x length): how much each source pixel counts for each output pixel. The triangle filter."""
    step = (extent / size)[:, None, None]
    reach = step.clamp(min=1.0)
    centres = step * (torch.arange(size, device=begin.device, dtype=torch.float32)[None, :, None] + 0.5)
    pixels = torch.arange(length, device=begin.device, dtype=torch.float32)[None, None, :] - begin[:, None, None]
    weights = (1 - ((pixels + 0.5 - centres) / reach).abs()).clamp(min=0)
    if cut:
        weights = weights * ((pixels >= 0) & (pixels < extent[:, None, None]))
    return functional.normalize(weights, p=1.0, dim=2)


def uniform(keys: torch.Tensor, number: int) -> torch.Tensor:
    """The `number`-th random number of each key: float64 in [0, 1), the same on every device."""
    mask = 0xFFFFFFFF
    word = (keys ^ (keys >> 32)) + 0x9E3779B9 * (number + 1) & mask
    for _ in range(2):  # a 32-bit finaliser, in 64-bit integers: torch has no unsigned arithmetic
        word = ((word ^ (word >> 16)) * 0x7FEB352D) & mask
        word = ((word ^ (word >> 15)) * 0x846CA68B) & mask
        word = word ^ (word >> 16)
        word = (word + (keys & mask)) & mask
    return word.double() / 4294967296.0
