"""Pins memory in growing pieces and measures copies to the GPU; says what came of it as one JSON line."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import torch

MIB, GIB = 1 << 20, 1 << 30
STEP = 256 * MIB
REPEATS = 8


def goal() -> int:
    """A quarter of what is free, 4 GiB at the most: enough to meet WSL2's limit, too little to hurt."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(STEP, min(4 * GIB, free // 4))


def pin(wanted: int) -> tuple[list[Any], str]:
    """The pinned pieces, and the error that ended it, if any."""
    pieces: list[Any] = []
    while len(pieces) * STEP < wanted:
        try:
            pieces.append(torch.empty(STEP, dtype=torch.uint8, pin_memory=True))
        except RuntimeError as error:
            return pieces, str(error).splitlines()[0]
    return pieces, ""


def speed(source: Any) -> float:
    """GiB a second from `source` to the GPU."""
    target = torch.empty_like(source, device="cuda")
    target.copy_(source)
    torch.cuda.synchronize()
    begun = time.monotonic()
    for _ in range(REPEATS):
        target.copy_(source, non_blocking=True)
    torch.cuda.synchronize()
    return REPEATS * source.numel() / GIB / (time.monotonic() - begun)


def main() -> None:
    torch.cuda.init()
    pieces, error = pin(goal())
    pageable = torch.ones(STEP, dtype=torch.uint8)
    print(
        json.dumps(
            {
                "pinned_mib": len(pieces) * STEP // MIB,
                "error": error,
                "pinned_gib_s": speed(pieces[0].fill_(1)) if pieces else 0.0,
                "pageable_gib_s": speed(pageable),
            }
        )
    )


if __name__ == "__main__":
    main()
