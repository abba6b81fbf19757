"""The other feeds: a DataLoader, by itself or behind `prefetch`. They give the very batches of the ring.

For image folders, whose decoding needs processes; and for whoever wants to compare.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from pinfeed import images, seeds
from pinfeed.meter import Meter, Statistics
from pinfeed.packed import Rows
from pinfeed.prefetcher import Prefetch, explained
from pinfeed.ring import Batch
from pinfeed.sources import FolderSamples, Samples
from pinfeed.transfer import Machine, machine_for

NO_LABEL = -100  # of an image that could not be read: cross_entropy leaves it out

Sample = tuple[np.ndarray, int, str]


class RowsDataset(Dataset[Sample]):
    """Packed samples, one by one, as a DataLoader asks for them."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._labels = rows.labels

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, row: int) -> Sample:
        image = np.empty((1, *self._rows.shape), np.uint8)
        self._rows.gather(np.array([row]), image)
        return image[0], int(self._labels[row]), ""


class FolderDataset(Dataset[Sample]):
    """Files, decoded one by one. A bad one is no error but an empty image without a label, and is named."""

    def __init__(self, samples: FolderSamples) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, row: int) -> Sample:
        number = int(self._samples.chosen[row])
        path, side = self._samples.listing.path(number), self._samples.side
        try:
            pixels = images.decode(images.read(path), os.path.splitext(path)[1], side).pixels
        except images.BadImage as bad:
            return np.zeros((side, side, 3), np.uint8), NO_LABEL, f"{images.shown(path)}: {bad}"
        return pixels, int(self._samples.listing.labels[number]), ""


def collate(samples: list[Sample]) -> tuple[torch.Tensor, torch.Tensor, list[str]]:
    """(images N x height x width x channels, labels, what was wrong with which file)."""
    pixels = torch.from_numpy(np.stack([pixels for pixels, _, _ in samples]))
    labels = torch.tensor([label for _, label, _ in samples], dtype=torch.int64)
    return pixels, labels, [bad for _, _, bad in samples if bad]


class LoaderFeed:
    """A DataLoader with the ring's interface. `ahead`: copy on a stream of its own (prefetch), or in the loop."""

    def __init__(
        self,
        samples: Samples,
        batch_size: int,
        device: torch.device,
        *,
        seed: int,
        workers: int,
        prefetch: int,
        pin: bool,
        ahead: bool,
        on_bad: Callable[[str], None],
    ) -> None:
        self.batch_size = batch_size
        self.statistics = Statistics()
        self._data = FolderDataset(samples) if isinstance(samples, FolderSamples) else RowsDataset(samples)
        self._machine: Machine = machine_for(device)
        self._seed, self._workers, self._pin, self._ahead, self._on_bad = seed, workers, pin, ahead, on_bad
        self._prefetch = prefetch if workers else None

    def batches(self, order: torch.Tensor, first: int = 0, epoch: int = 0) -> Iterator[Batch]:
        """The samples that `order` lists, from batch `first` on; the last batch may be smaller."""
        chunks = [rows.tolist() for rows in order.split(self.batch_size)[first:]] if len(order) else []
        keys = [torch.from_numpy(seeds.sample_keys(np.array(rows), self._seed, epoch)) for rows in chunks]
        loader: DataLoader[Any] = DataLoader(
            self._data,
            batch_sampler=chunks,
            num_workers=self._workers,
            prefetch_factor=self._prefetch,
            collate_fn=collate,
            pin_memory=self._pin,
        )
        for (pixels, labels, bad), key in zip(self._source(loader), keys):
            for message in bad:
                self._on_bad(message)
            yield Batch(pixels.permute(0, 3, 1, 2), labels, key.to(self._machine.device))

    def _source(self, loader: DataLoader[Any]) -> Iterable[Any]:
        if self._ahead:
            feed = Prefetch(loader, self._machine.device, pin=self._pin)
            feed.statistics = self.statistics
            return feed
        return self._plain(loader)

    def _plain(self, loader: DataLoader[Any]) -> Iterator[Any]:
        """What a training loop does by itself."""
        device, meter = self._machine.device, Meter(self._machine, self.statistics)
        source = iter(loader)
        while True:
            meter.before_wait(self._machine.current())
            try:
                pixels, labels, bad = next(source)
            except StopIteration:
                return
            except (RuntimeError, OSError, EOFError) as error:
                raise explained(error, source) or error from None
            pixels, labels = pixels.to(device, non_blocking=self._pin), labels.to(device, non_blocking=self._pin)
            meter.after_wait(self._machine.current())
            self.statistics.batches += 1
            self.statistics.images += len(labels)
            self.statistics.bytes += pixels.nbytes + labels.nbytes
            yield pixels, labels, bad

    def close(self) -> None:
        """Nothing is kept between epochs."""
