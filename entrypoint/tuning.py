"""What a start sets so that programs fit the container, and the one line that each real problem gets."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping

from doctor import limits

# Thread pools are made as big as the machine; a quota (`--cpus 2`) they do not see. MKL, OpenBLAS and numexpr follow
# OMP_NUM_THREADS where their own variable is not set. torch.compile starts as many processes as it sees CPUs.
_POOLS = ("OMP_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS")
# As many as anybody needs; some old programs close every possible number at their start, so not without end.
ENOUGH_FILES = 65536


def thread_pools(container: Mapping[bytes, bytes], root: str = "/") -> dict[str, str]:
    """The variables that make thread pools fit a CPU quota; what the user set stays, and without a quota nothing is."""
    limit = limits.cpu_limit(root)
    if limit.source == "affinity":
        return {}
    return {name: str(limit.workers) for name in _POOLS if not container.get(name.encode())}


def raise_open_files() -> None:
    """Raise the soft limit of open files, for this process and all that it starts (field report B005)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH_FILES if hard == resource.RLIM_INFINITY else min(hard, ENOUGH_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def problems(environ: Mapping[bytes, bytes]) -> list[str]:
    """One line for each problem that will be met, and none when all is well. To be called as the user."""
    from doctor.start import problems_of  # services alone pay for its import

    return problems_of({os.fsdecode(name): os.fsdecode(value) for name, value in environ.items()})
