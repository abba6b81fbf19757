"""Training with several processes on one host: gloo on the CPU, and what NCCL's checks start too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from selftest.checks import check, require

_SECONDS = 150
_RANK = Path(__file__).resolve().parent.parent / "rank.py"


@check("two processes train alike with DDP on gloo")
def gloo_trains() -> None:
    run_ranks("gloo", 2)


def run_ranks(backend: str, number: int) -> None:
    """Start ranks by torchrun. --local-addr: `--standalone` alone waits for ever where the host name is not known."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    command += [f"--nproc-per-node={number}", str(_RANK), backend]
    environ = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    if backend == "gloo":
        environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, env=environ, check=False)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"{number} ranks on {backend}: no end after {_SECONDS} s") from None
    lines = (done.stdout + done.stderr).strip().splitlines()
    require(done.returncode == 0, "\n".join(lines[-12:]))
    require(sum("alike" in line for line in lines) == number, "\n".join(lines[-12:]))
