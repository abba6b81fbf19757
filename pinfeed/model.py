"""The networks: three convolutions, small enough for a laptop's processor, and torchvision's ResNets."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from pinfeed.errors import UNAVAILABLE, PinfeedError
from pinfeed.sources import SMALL

WIDTHS = (16, 32, 64)


class Network(nn.Module):
    """uint8 images to scores: what prepares the images, then the model."""

    def __init__(self, transform: nn.Module, model: nn.Module) -> None:
        super().__init__()
        self.transform, self.model = transform, model

    def forward(self, images: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.model(self.transform(images, keys))
        return scores


def chosen(name: str, side: int) -> str:
    """The model that `--model` means for images of this side."""
    return ("small-cnn" if side < SMALL else "resnet18") if name == "auto" else name


def make(name: str, classes: int, channels: int, side: int) -> nn.Module:
    """The network `name` for images of that many channels and that side."""
    return small_cnn(classes, channels, side) if name == "small-cnn" else _resnet(name, classes, channels, side)


def small_cnn(classes: int, channels: int = 1, side: int = 28) -> nn.Module:
    """Images to `classes` scores; 29,178 parameters for ten classes of 28 x 28 grey images."""
    layers: list[nn.Module] = []
    for width in WIDTHS:
        # Pooling comes before normalising, which then has a quarter of the pixels to go through.
        layers += [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.MaxPool2d(2)]
        layers += [nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
        channels, side = width, side // 2
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * side * side, classes))


def _resnet(name: str, classes: int, channels: int, side: int) -> nn.Module:
    try:
        from torchvision import models
    except ImportError:
        raise PinfeedError(
            f"--model {name} needs torchvision", "it is not installed", "pip install torchvision, or --model small-cnn",
            UNAVAILABLE,
        ) from None  # fmt: skip
    network: Any = models.get_model(name, weights=None, num_classes=classes)
    if side < SMALL:
        # The usual beginning would shrink a small image to a quarter before anything has been seen in it.
        network.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
        network.maxpool = nn.Identity()
    elif channels != 3:
        network.conv1 = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
    return network


def parameter_count(model: nn.Module) -> int:
    """How many numbers are learned."""
    return sum(parameter.numel() for parameter in model.parameters())
