"""Does timm's PrefetchLoader hand out what its loader gave, while the GPU is late? python3 -m tests.gpu.timm_race

The peers' rows of docs/benchmarks count only where their samples were right; this is the same question alone.
"""

from __future__ import annotations

import torch

BATCHES, SIZE = 1000, 64


def main() -> None:
    """Count wrong values among labels and images read after a kernel that takes a millisecond."""
    import timm
    from timm.data.loader import PrefetchLoader

    ready = [
        (torch.full((SIZE, 3, 48, 48), k, dtype=torch.uint8).pin_memory(), torch.full((SIZE,), k).pin_memory())
        for k in range(200)
    ]

    class Source:
        def __iter__(self) -> object:
            return (ready[k % 200] for k in range(BATCHES))

        def __len__(self) -> int:
            return BATCHES

    device = torch.device("cuda", 0)
    loader = PrefetchLoader(Source(), mean=(0.0,) * 3, std=(1 / 255,) * 3, device=device, img_dtype=torch.float32)
    wrong = torch.zeros(2, dtype=torch.int64, device=device)
    for number, (images, labels) in enumerate(loader):
        torch.cuda._sleep(2_000_000)
        wrong[0] += (images.round() != number % 200).any((1, 2, 3)).sum()
        wrong[1] += (labels != number % 200).sum()
    torch.cuda.synchronize()
    images_wrong, labels_wrong = wrong.tolist()
    print(
        f"timm {timm.__version__}: of {BATCHES * SIZE} samples {images_wrong} wrong images, {labels_wrong} wrong labels"
    )


if __name__ == "__main__":
    main()
