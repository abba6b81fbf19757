"""One piece of host memory for all slots of a feed, pinned where that is of use.

One, because torch rounds each pinned block up to a power of two (38.5 MB becomes 64) and never gives it back.
Here the bytes are ours: registered with CUDA at the start, unregistered and unmapped by `close`.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Optional

import torch

_pinned = 0


class CannotPin(Exception):  # noqa: N818 - the caller goes on without
    """The system refuses to pin this memory; the text says what it answered, and which limit that is."""


class Slab:
    """`size` bytes. Nobody may use `bytes` after `close`: the memory is gone then."""

    def __init__(self, size: int, *, pin: bool) -> None:
        self.size = size
        self._map: Optional[mmap.mmap] = mmap.mmap(-1, size)
        self.bytes = torch.frombuffer(self._map, dtype=torch.uint8)
        self.pinned = False
        if pin:
            self._register()

    def _register(self) -> None:
        global _pinned
        answer = int(torch.cuda.cudart().cudaHostRegister(self.bytes.data_ptr(), self.size, 0))
        if answer:
            self._unmap()
            _forget_cuda_error()
            raise CannotPin(refusal(self.size, f"CUDA error {answer}"))
        self.pinned = True
        _pinned += self.size

    def close(self) -> None:
        """Give the memory back. The caller has made sure that no copy reads it any more."""
        global _pinned
        if self.pinned:
            torch.cuda.cudart().cudaHostUnregister(self.bytes.data_ptr())
            self.pinned = False
            _pinned -= self.size
        self._unmap()

    def _unmap(self) -> None:
        if self._map is not None:
            self.bytes = torch.empty(0, dtype=torch.uint8)
            self._map.close()
            self._map = None


def pinned_bytes() -> int:
    """How much memory pinfeed has pinned at this moment, beside what torch's own allocator has."""
    return _pinned


def refusal(size: int, answer: str) -> str:
    """What a refused pinning means. CUDA says "out of memory", and people look for it on the GPU."""
    try:
        wsl = "microsoft" in Path("/proc/version").read_text(encoding="utf-8").lower()
    except OSError:
        wsl = False
    where = "; WSL2 lets only a part of the memory be pinned" if wsl else ""
    return f"{size / 1e6:,.0f} MB of HOST memory could not be pinned ({answer}; this is no GPU memory{where})"


def _forget_cuda_error() -> None:
    """CUDA reports a refusal once more, at the next kernel of whoever comes next: here, so that it hits nobody."""
    try:
        torch.zeros(1, device="cuda")
    except RuntimeError:
        return
