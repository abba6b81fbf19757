"""Transforms: torchvision's crop, from keys alone, on batches."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pinfeed import seeds, transforms


def keys(count: int, epoch: int = 0) -> torch.Tensor:
    return torch.from_numpy(seeds.sample_keys(np.arange(count), 3, epoch))


def photo(count: int, height: int, width: int) -> torch.Tensor:
    """Images with coarse and fine detail, edges and noise: uint8, N x 3 x height x width."""
    random = torch.Generator().manual_seed(0)
    coarse = torch.rand(count, 3, 9, 11, generator=random) * 200
    images = torch.nn.functional.interpolate(coarse, (height, width), mode="bicubic").clamp(0, 255)
    images[:, :, :, width // 3 : width // 2] = 255 - images[:, :, :, width // 3 : width // 2]
    images += torch.randn(images.shape, generator=random) * 12
    return images.clamp(0, 255).to(torch.uint8)


def psnr(one: torch.Tensor, other: torch.Tensor) -> float:
    return float(10 * torch.log10(255**2 / (one.double() - other.double()).square().mean().clamp(min=1e-12)))


@pytest.mark.parametrize("shape", [(96, 128), (256, 256), (40, 300)], ids=str)
@pytest.mark.parametrize("size", [64, 224])
def test_crops_are_as_good_as_torchvisions(shape: tuple[int, int], size: int) -> None:
    functional = pytest.importorskip("torchvision.transforms.v2.functional")
    images = photo(24, *shape)
    boxes = transforms.random_boxes(keys(24), *shape, (0.08, 1.0), (3 / 4, 4 / 3))
    ours = transforms.resized_crop(images, boxes, size).round().clamp(0, 255).to(torch.uint8)
    for image, box, our in zip(images, boxes.int().tolist(), ours):
        theirs = functional.resized_crop(image, *box, [size, size], antialias=True)
        assert psnr(our, theirs) >= 50
        assert (our.int() - theirs.int()).abs().max() <= 2


def test_without_torchvision_crops_are_those_of_torch() -> None:
    images = photo(8, 96, 128)
    boxes = transforms.random_boxes(keys(8), 96, 128, (0.08, 1.0), (3 / 4, 4 / 3))
    ours = transforms.resized_crop(images, boxes, 48)
    for image, box, our in zip(images, boxes.int().tolist(), ours):
        top, left, tall, wide = box
        part = image[None, :, top : top + tall, left : left + wide].float()
        theirs = torch.nn.functional.interpolate(part, (48, 48), mode="bilinear", antialias=True)[0]
        assert (our - theirs).abs().max() < 0.01


def test_the_middle_is_what_resize_and_centre_crop_give() -> None:
    images = photo(4, 256, 256)
    ours = transforms.EvalTransform(112, mean=(0.0,) * 3, std=(1.0,) * 3)(images)
    whole = torch.nn.functional.interpolate(images.float(), (128, 128), mode="bilinear", antialias=True)
    theirs = whole[..., 8:120, 8:120]
    assert (ours - theirs).abs().max() < 0.01
    same = transforms.EvalTransform(256)(images)
    assert torch.equal(same, transforms.Normalise()(images))


@pytest.mark.parametrize(("height", "width"), [(224, 224), (375, 500), (28, 28), (40, 400), (400, 40)])
def test_boxes_have_torchvisions_distribution(height: int, width: int) -> None:
    many = torch.from_numpy(seeds.sample_keys(np.arange(20_000), 0, 0))
    top, left, tall, wide = transforms.random_boxes(many, height, width, (0.08, 1.0), (3 / 4, 4 / 3)).unbind(1)
    assert bool((top >= 0).all() and (left >= 0).all() and (tall >= 1).all() and (wide >= 1).all())
    assert bool((top + tall <= height).all() and (left + wide <= width).all())
    assert bool((top == top.floor()).all() and (wide == wide.floor()).all())
    reference = _torchvision_boxes(height, width, 4000)
    for ours, theirs in zip((top, left, tall, wide), reference.unbind(1)):
        spread = float(theirs.std()) + 0.5
        assert abs(float(ours.mean()) - float(theirs.mean())) < 0.1 * spread
        assert float(ours.std()) == pytest.approx(float(theirs.std()), rel=0.12, abs=0.5)


def _torchvision_boxes(height: int, width: int, count: int) -> torch.Tensor:
    crop = pytest.importorskip("torchvision.transforms").RandomResizedCrop
    image = torch.empty(3, height, width)
    torch.manual_seed(0)
    return torch.tensor([crop.get_params(image, [0.08, 1.0], [3 / 4, 4 / 3]) for _ in range(count)]).float()


def test_randomness_follows_from_the_key_alone() -> None:
    images, transform = photo(16, 40, 40), transforms.TrainTransform(24)
    whole = transform(images, keys(16))
    turned = torch.randperm(16)
    assert torch.allclose(transform(images[turned], keys(16)[turned]), whole[turned], atol=1e-5)
    assert torch.allclose(transform(images[5:7], keys(16)[5:7]), whole[5:7], atol=1e-5)
    assert not torch.allclose(transform(images, keys(16, epoch=1)), whole)


def test_random_numbers_are_spread_evenly_and_do_not_hang_together() -> None:
    many = torch.from_numpy(seeds.sample_keys(np.arange(50_000), 0, 0))
    draws = torch.stack([transforms.uniform(many, number) for number in range(6)])
    assert bool(((draws >= 0) & (draws < 1)).all())
    counts = torch.histc(draws.float().flatten(), 50, 0, 1)
    assert float((counts / counts.mean() - 1).abs().max()) < 0.06
    correlations = torch.corrcoef(draws) - torch.eye(6, dtype=torch.float64)
    assert float(correlations.abs().max()) < 0.02
    assert abs(float(torch.corrcoef(torch.stack([draws[0, 1:], draws[0, :-1]]))[0, 1])) < 0.02


def test_a_flip_is_a_mirror_and_costs_the_crop_nothing() -> None:
    images = photo(32, 32, 32)
    boxes = torch.tensor([[0.0, 0.0, 32.0, 32.0]]).expand(32, 4)
    mirrored = transforms.flips(keys(32))
    assert 4 < int(mirrored.sum()) < 28
    both = transforms.resized_crop(images, boxes, 32, mirrored)
    for image, out, flip in zip(images, both, mirrored):
        assert torch.equal(out, image.flip(2).float() if flip else image.float())
    plain = transforms.TrainTransform(None)(images, keys(32))
    normal = transforms.Normalise()(images)
    for whole, out, flip in zip(normal, plain, mirrored):
        assert torch.equal(out, whole.flip(2) if flip else whole)


@pytest.mark.parametrize(
    "transform", [transforms.TrainTransform(24), transforms.TrainTransform(None), transforms.EvalTransform(24)]
)
def test_transforms_compile_to_one_graph(transform: torch.nn.Module) -> None:
    images = photo(4, 40, 40)
    seen: list[int] = []

    def count(graph: torch.fx.GraphModule, inputs: object) -> object:
        seen.append(1)
        return graph.forward

    compiled = torch.compile(transform, backend=count, fullgraph=True)
    assert torch.equal(compiled(images, keys(4)), transform(images, keys(4)))
    assert torch.equal(compiled(images, keys(4, 1)), transform(images, keys(4, 1)))
    assert seen == [1]
