"""Starts the ranks of a small DDP training (rank.py) by torchrun, and reads what came of them."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

from selftest.checks import require

_SECONDS = 150
_RANK = Path(__file__).resolve().with_name("rank.py")


def run_ranks(backend: str, number: int) -> None:
    """Train with that many ranks."""
    # --standalone alone waits for ever where the machine's own name is not known.
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
    alike = sum("alike" in line for line in lines)
    require(done.returncode == 0 and alike == number, "\n".join(_of_the_ranks(lines)))


def _of_the_ranks(lines: list[str]) -> list[str]:
    """The ranks' last words, without the long report that torchrun adds to them."""
    own = list(takewhile(lambda line: "elastic" not in line, lines))
    return (own or lines)[-12:]
