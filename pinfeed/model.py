"""The network: three convolutions, small enough for a laptop's processor."""

from __future__ import annotations

import torch
from torch import nn

NAME = "small-cnn"
WIDTHS = (16, 32, 64)

# Of Fashion-MNIST's 60,000 training images, in grey levels.
_MEAN, _STD = 72.94, 90.02


def small_cnn(classes: int) -> nn.Module:
    """28 x 28 grey images to `classes` scores; 29,178 parameters for ten classes."""
    layers: list[nn.Module] = []
    channels, side = 1, 28
    for width in WIDTHS:
        # Pooling comes before normalising, which then has a quarter of the pixels to go through.
        layers += [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.MaxPool2d(2)]
        layers += [nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
        channels, side = width, side // 2
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * side * side, classes))


def normalised(images: torch.Tensor) -> torch.Tensor:
    """uint8 grey levels to floats around zero, on the device that they are on."""
    return images.float().sub_(_MEAN).div_(_STD)


def parameter_count(model: nn.Module) -> int:
    """How many numbers are learned."""
    return sum(parameter.numel() for parameter in model.parameters())
