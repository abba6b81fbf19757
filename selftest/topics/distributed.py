"""Training with several processes on one host, on the CPU. NCCL's checks are with the GPU's."""

from __future__ import annotations

from selftest.checks import check
from selftest.ranks import run_ranks


@check("two processes train alike with DDP on gloo")
def gloo_trains() -> None:
    run_ranks("gloo", 2)
