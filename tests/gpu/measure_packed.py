"""How near packed data come to the speed that the GPU has with its data already there.

    python3 -m tests.gpu.measure_packed --out DIR [--windows 5] [--small-shm]

ResNet-50, 224 x 224, batch 256, bf16, channels_last, compiled, normalised from uint8 in the step. Windows of
ceiling and feed take turns; each feed's window is divided by the mean of the ceilings before and after it. The
samples are stamped: each window's order, labels and corners of all pixels are compared with what they should be.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from pinfeed import bandwidth, guards, slab, transforms
from pinfeed.packed import Packed
from pinfeed.ring import Ring

BATCH, SIDE, COUNT, CLASSES = 256, 224, 16_384, 1000
WARM, STEPS, WORKERS = 45, 272, 16
DEVICE = torch.device("cuda", 0)


def make_set(folder: Path) -> Path:
    """A packed set of noise; the first and the last bytes of image k spell k."""
    folder.mkdir(parents=True, exist_ok=True)
    images = np.lib.format.open_memmap(folder / "images.npy", "w+", np.uint8, (COUNT, SIDE, SIDE, 3))
    generator = torch.Generator(DEVICE).manual_seed(0)
    for begin in range(0, COUNT, 1024):
        part = torch.randint(0, 256, (1024, SIDE, SIDE, 3), generator=generator, device=DEVICE, dtype=torch.uint8)
        images[begin : begin + 1024] = part.cpu().numpy()
    numbers = np.arange(COUNT)
    stamp = np.stack([numbers & 255, numbers >> 8 & 255], 1).astype(np.uint8)
    images[:, 0, 0, :2] = stamp
    images[:, -1, -1, 1:] = stamp
    images.flush()
    np.save(folder / "labels.npy", numbers % CLASSES)
    meta = {"version": 1, "classes": [str(k) for k in range(CLASSES)], "shape": [SIDE, SIDE, 3]}
    (folder / "meta.json").write_text(json.dumps(meta))
    return folder


class Step:
    """One training step, and the note of which samples it has seen."""

    def __init__(self) -> None:
        import torchvision

        torch.backends.cudnn.benchmark = True
        torch.manual_seed(0)
        self.model = torchvision.models.resnet50().to(DEVICE).to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01, momentum=0.9, fused=True)
        self.normalise = transforms.Normalise().to(DEVICE)
        self.loss_of = {kind: torch.compile(self._loss, dynamic=False) for kind in ("uint8", "float")}
        self.seen = torch.zeros(WARM + STEPS, BATCH, 3, dtype=torch.int64, device=DEVICE)

    def _loss(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        images = self.normalise(images) if images.dtype is torch.uint8 else images
        with torch.autocast("cuda", torch.bfloat16):
            return functional.cross_entropy(self.model(images), labels)

    def __call__(self, number: int, images: torch.Tensor, labels: torch.Tensor) -> None:
        kind = "uint8" if images.dtype is torch.uint8 else "float"
        loss = self.loss_of[kind](images, labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        note = self.seen[number]
        if kind == "uint8":  # after the step: a batch that is overwritten too early would show here
            note[:, 0] = images[:, 0, 0, 0].long() + images[:, 1, 0, 0].long() * 256
            note[:, 1] = images[:, 1, -1, -1].long() + images[:, 2, -1, -1].long() * 256
        note[:, 2] = labels

    def wrong(self, expected: np.ndarray, stamped: bool) -> int:
        """How many samples were not those expected, in that order."""
        seen = self.seen.cpu().numpy()
        differ = seen[:, :, 2] != expected % CLASSES
        if stamped:
            differ |= (seen[:, :, 0] != expected) | (seen[:, :, 1] != expected)
        return int(differ.sum())


def orders(seed: int) -> np.ndarray:
    """The samples of a window: one permutation after the other, in batches."""
    needed = (WARM + STEPS) * BATCH
    parts = [np.random.default_rng([seed, epoch]).permutation(COUNT) for epoch in range(-(-needed // COUNT))]
    return np.concatenate(parts)[:needed].reshape(-1, BATCH)


# --- the feeds -----------------------------------------------------------------------------------


class Images(torch.utils.data.Dataset[Any]):
    """The set for a DataLoader, by rows or planes."""

    def __init__(self, folder: Path, planes: bool) -> None:
        self.images = np.load(folder / "images.npy", mmap_mode="c")
        self.labels = np.load(folder / "labels.npy")
        self.planes = planes

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, row: int) -> tuple[Any, int]:
        image = self.images[row]
        return (image.transpose(2, 0, 1) if self.planes else torch.from_numpy(image)), int(self.labels[row])


class Batches:
    """A batch sampler whose order can be set from window to window: the workers stay."""

    def __init__(self) -> None:
        self.chunks: list[list[int]] = []

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.chunks)

    def __len__(self) -> int:
        return len(self.chunks)


class Feeds:
    """All feeds of the comparison, each a function from an order to batches (images, labels)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.packed = Packed(folder)
        self.ring: Ring | None = None
        self.resident = [
            (torch.randint(0, 256, (BATCH, SIDE, SIDE, 3), device=DEVICE, dtype=torch.uint8), self._labels())
            for _ in range(4)
        ]
        self._loaders: dict[str, tuple[Any, Batches]] = {}

    def _labels(self) -> torch.Tensor:
        return torch.randint(0, CLASSES, (BATCH,), device=DEVICE)

    def ceiling(self, order: np.ndarray) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for number in range(len(order)):
            images, labels = self.resident[number % 4]
            yield images.permute(0, 3, 1, 2), labels

    def by_ring(self, order: np.ndarray) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        self.ring = self.ring or Ring(self.packed, BATCH, DEVICE)
        for batch in self.ring.batches(torch.from_numpy(order.reshape(-1))):
            yield batch.images, batch.labels

    def by_loader(self, order: np.ndarray) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        if "loader" not in self._loaders:
            batches = Batches()
            options: dict[str, Any] = {"num_workers": WORKERS, "pin_memory": True, "persistent_workers": True}
            data = Images(self.folder, planes=False)
            self._loaders["loader"] = torch.utils.data.DataLoader(data, batch_sampler=batches, **options), batches
        loader, batches = self._loaders["loader"]
        batches.chunks = order.tolist()
        for images, labels in loader:
            yield images.to(DEVICE, non_blocking=True).permute(0, 3, 1, 2), labels.to(DEVICE, non_blocking=True)

    def by_timm(self, order: np.ndarray) -> Iterable[tuple[torch.Tensor, torch.Tensor]]:
        from timm.data.loader import PrefetchLoader, fast_collate

        if "timm" not in self._loaders:
            batches = Batches()
            options: dict[str, Any] = {"num_workers": WORKERS, "pin_memory": True, "persistent_workers": True}
            data = Images(self.folder, planes=True)
            plain = torch.utils.data.DataLoader(data, batch_sampler=batches, collate_fn=fast_collate, **options)
            timm = PrefetchLoader(plain, device=DEVICE, img_dtype=torch.bfloat16)
            self._loaders["timm"] = timm, batches
        loader, batches = self._loaders["timm"]
        batches.chunks = order.tolist()
        yield from loader


# --- a window ------------------------------------------------------------------------------------


def processor_seconds() -> float:
    """Of this process and its children."""
    ticks = 0
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            parts = place.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if place.parent.name == str(os.getpid()) or parts[1] == str(os.getpid()):
            ticks += int(parts[11]) + int(parts[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def window(name: str, step: Step, feeds: Feeds, seed: int) -> dict[str, Any]:
    """Speed and cost of one window of a feed."""
    order = orders(seed)
    source = getattr(feeds, name)(order)
    step.seen.fill_(-1)
    began = cpu = shm = 0.0
    before: Any = None
    statistic = feeds.ring.statistics if name == "by_ring" and feeds.ring else None
    for number, (images, labels) in enumerate(source):
        if number == WARM:
            torch.cuda.synchronize()
            statistic = feeds.ring.statistics if name == "by_ring" and feeds.ring else None
            before = statistic and (
                statistic.wait_seconds,
                statistic.seconds,
                statistic.copy_seconds,
                statistic.copy_bytes,
            )
            began, cpu = time.perf_counter(), processor_seconds()
        step(number, images, labels)
        if number == WARM + STEPS - 1:
            torch.cuda.synchronize()
            seconds = time.perf_counter() - began
            cpu = processor_seconds() - cpu
            shm = shm_used()
            after = statistic and (
                statistic.wait_seconds,
                statistic.seconds,
                statistic.copy_seconds,
                statistic.copy_bytes,
            )
    images_done = STEPS * BATCH
    found: dict[str, Any] = {
        "feed": name,
        "seconds": round(seconds, 3),
        "img_per_s": round(images_done / seconds, 1),
        "cpu_ms_per_image": round(1e3 * cpu / images_done, 4),
        "shm_mb": round(shm / 1e6, 1),
        "wrong_samples": None if name == "ceiling" else step.wrong(order, stamped=name != "by_timm"),
    }
    if statistic and before and after:
        waited, total, copying, copied = (b - a for a, b in zip(before, after))
        found["gpu_wait"] = round(waited / total, 6) if total else None
        found["copy_gb_per_s"] = round(copied / copying / 1e9, 2) if copying else None
    print(json.dumps(found), flush=True)
    return found


def shm_used() -> int:
    """Bytes in /dev/shm."""
    room = os.statvfs("/dev/shm")
    return (room.f_blocks - room.f_bfree) * room.f_frsize


def paired(windows: list[dict[str, Any]], name: str) -> dict[str, Any] | None:
    """The feed's windows by the mean of the ceilings beside each."""
    ratios = []
    for place, found in enumerate(windows):
        if found["feed"] == name:
            beside = [windows[at]["img_per_s"] for at in (place - 1, place + 1)]
            ratios.append(found["img_per_s"] / statistics.mean(beside))
    if not ratios:
        return None
    own = [found for found in windows if found["feed"] == name]
    row: dict[str, Any] = {
        "n": len(ratios),
        "median": round(statistics.median(ratios), 5),
        "lowest": round(min(ratios), 5),
        "highest": round(max(ratios), 5),
    }
    for key in ("img_per_s", "cpu_ms_per_image", "gpu_wait", "copy_gb_per_s"):
        values = [found[key] for found in own if found.get(key) is not None]
        if values:
            row[key] = statistics.median(values)
    row["wrong_samples"] = sum(found["wrong_samples"] or 0 for found in own)
    return row


def conditions() -> dict[str, Any]:
    """The machine, as far as a number hangs on it."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,power.draw,clocks.sm", "--format=csv,noheader"]
    return {
        "gpu": subprocess.run(query, capture_output=True, text=True).stdout.strip(),
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "cpus": guards.usable_cpus(),
        "shm_mb": os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize // 2**20,
    }


def pinned() -> dict[str, int]:
    """Pinned bytes: of torch's allocator, and of slabs registered by pinfeed."""
    host = {name: int(value) for name, value in torch.cuda.host_memory_stats().items()}
    kept = {f"torch.{name}": host[name] for name in host if "bytes" in name and name.endswith(("current", "peak"))}
    return {**kept, "slabs": slab.pinned_bytes()}


def whole_epoch_is_right(feeds: Feeds) -> bool:
    """Every byte of an epoch, summed on the GPU batch by batch, against the file."""
    assert feeds.ring is not None
    order = feeds.ring.order(0)
    images = np.load(feeds.folder / "images.npy", mmap_mode="c")
    sums = torch.stack([batch.images.sum(dtype=torch.int64) for batch in feeds.ring.batches(order)]).cpu()
    of_image = torch.cat([torch.from_numpy(np.ascontiguousarray(images[at : at + 1024])).to(DEVICE).sum((1, 2, 3))
                          for at in range(0, COUNT, 1024)]).cpu()  # fmt: skip
    return bool(torch.equal(sums, of_image[order].view(-1, BATCH).sum(1)))


def main() -> None:
    """Measure, print a table, write the JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--windows", type=int, default=5)
    parser.add_argument("--peers", type=int, default=5, help="rounds in which the peers run too")
    parser.add_argument(
        "--small-shm", action="store_true", help="measure the ring alone; /dev/shm was made small before"
    )
    parser.add_argument("--budget", type=float, default=1e9, help="seconds after which no new round begins")
    options = parser.parse_args()
    began = time.perf_counter()
    feeds, step = Feeds(make_set(Path("/tmp/packed-224"))), Step()
    result: dict[str, Any] = {
        "conditions": conditions(),
        "batch": BATCH,
        "steps": STEPS,
        "warm_up": WARM,
        "windows": [],
    }
    print(json.dumps(result["conditions"]), flush=True)
    window("ceiling", step, feeds, 0)  # compiles
    result["start_seconds"] = round(time.perf_counter() - began, 1)
    result["probe_pinned_gb_per_s"] = bandwidth.copies(bandwidth.BATCH, "h2d", pinned=True, device=DEVICE).median
    peers = [] if options.small_shm else ["by_loader", "by_timm"]
    if not options.small_shm:
        window("by_timm", step, feeds, 0)  # compiles its own step
    windows = result["windows"]
    windows.append(window("ceiling", step, feeds, 1))
    for turn in range(options.windows):
        if time.perf_counter() - began > options.budget:
            break
        names = ["by_ring", *(peers if turn < options.peers else [])]
        for name in names:
            windows.append(window(name, step, feeds, 10 * turn + len(windows)))
            if turn == 0 and name == "by_ring":
                result["pinned"] = pinned()
            windows.append(window("ceiling", step, feeds, 0))
    result["whole_epoch_is_right"] = whole_epoch_is_right(feeds)
    result["rows"] = {name: paired(windows, name) for name in ("by_ring", "by_loader", "by_timm")}
    ceilings = [found["img_per_s"] for found in windows if found["feed"] == "ceiling"]
    result["ceiling"] = {"median": statistics.median(ceilings), "lowest": min(ceilings), "highest": max(ceilings)}
    # What a feed costs is what its windows take more: launching the step takes the same in all.
    own = statistics.median(found["cpu_ms_per_image"] for found in windows if found["feed"] == "ceiling")
    result["ceiling"]["cpu_ms_per_image"] = own
    for row in filter(None, result["rows"].values()):
        row["cpu_ms_per_image_of_the_feed"] = round(row["cpu_ms_per_image"] - own, 4)
    result["seconds"] = round(time.perf_counter() - began, 1)
    options.out.mkdir(parents=True, exist_ok=True)
    name = "h200-packed-small-shm.json" if options.small_shm else "h200-packed.json"
    (options.out / name).write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({key: value for key, value in result.items() if key != "windows"}, indent=1))
    assert feeds.ring is not None
    feeds.ring.close()


if __name__ == "__main__":
    main()
