"""From memory to the device, a batch at a time. This is the baseline; nothing else knows how it works.

The whole set lies in memory as uint8, so a batch is one gather: no DataLoader workers, no /dev/shm.
With a GPU the gather goes straight into pinned memory, from where the copy runs while Python goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch

from pinfeed.data import Part

# A slot is filled again when the copy that reads it is over; with three the wait is almost never felt.
SLOTS = 3


class Batch(NamedTuple):
    """uint8 images and int64 labels on the device. Valid until the next batch is asked for."""

    images: torch.Tensor
    labels: torch.Tensor


class Feed:
    """Batches of one part of the data, on `device`, in any order asked for."""

    def __init__(self, part: Part, batch_size: int, device: torch.device, *, pin: bool) -> None:
        self._part = part
        self.batch_size = batch_size
        self._device = device
        self._slots = [_PinnedSlot(part, batch_size) for _ in range(SLOTS)] if pin else []

    def batches(self, order: torch.Tensor, first: int = 0) -> Iterator[Batch]:
        """The samples that `order` lists, from batch `first` on; the last batch may be smaller."""
        for number, rows in enumerate(order.split(self.batch_size)[first:]):
            if self._slots:
                yield self._slots[number % SLOTS].send(self._part, rows, self._device)
            else:
                images = self._part.images.index_select(0, rows)
                labels = self._part.labels.index_select(0, rows)
                yield Batch(images.to(self._device), labels.to(self._device))


class _PinnedSlot:
    """Pinned memory for one batch, and the event that says when its last copy was over."""

    def __init__(self, part: Part, batch_size: int) -> None:
        size = min(batch_size, len(part))
        self._images = torch.empty((size, *part.images.shape[1:]), dtype=torch.uint8, pin_memory=True)
        self._labels = torch.empty(size, dtype=torch.int64, pin_memory=True)
        self._copied = torch.cuda.Event(blocking=True)

    def send(self, part: Part, rows: torch.Tensor, device: torch.device) -> Batch:
        # Without this wait the gather would overwrite what an earlier, unfinished copy still reads.
        self._copied.synchronize()
        images, labels = self._images[: len(rows)], self._labels[: len(rows)]
        torch.index_select(part.images, 0, rows, out=images)
        torch.index_select(part.labels, 0, rows, out=labels)
        batch = Batch(images.to(device, non_blocking=True), labels.to(device, non_blocking=True))
        self._copied.record()
        return batch
