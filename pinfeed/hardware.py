"""What this machine offers a run: the device, mixed precision, pinned memory, processor threads."""

from __future__ import annotations

import dataclasses
import os
import platform
from pathlib import Path
from typing import Optional

import torch

from pinfeed.config import TrainConfig
from pinfeed.errors import UNAVAILABLE, PinfeedError
from pinfeed.team import Team

AMP_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}

_AMPERE = 8  # the first compute capability that has bf16 in hardware


@dataclasses.dataclass(frozen=True)
class Hardware:
    """The choice made for one run."""

    device: torch.device
    name: str
    amp: str
    pin: bool
    threads: int
    note: str

    @property
    def amp_type(self) -> Optional[torch.dtype]:
        """The type that autocast computes in, or None when it is off."""
        return AMP_TYPES.get(self.amp)


def choose(config: TrainConfig, team: Optional[Team] = None) -> Hardware:
    """Fit the configuration to the machine, or say why it does not fit. Sets torch's threads, and its GPU."""
    team = team or Team()
    threads = _use_threads(config.workers, team.local_size)
    if config.device != "cpu" and torch.cuda.is_available():
        return _gpu(config, threads, team)
    if config.device == "cuda":
        raise _no_gpu("--device cuda")
    if config.amp not in ("auto", "off"):
        raise _no_gpu(f"--amp {config.amp}")
    why = "running on the CPU, as asked" if config.device == "cpu" else "no GPU visible"
    note = f"{why}: pinning and AMP off; {threads} CPU thread{'s' if threads > 1 else ''}"
    return Hardware(torch.device("cpu"), _processor_name(), "off", False, threads, note)


def _gpu(config: TrainConfig, threads: int, team: Team) -> Hardware:
    if team.local_rank >= torch.cuda.device_count():
        raise PinfeedError(
            "there are more processes on this machine than GPUs",
            f"process {team.local_rank + 1} of {team.local_size}, {torch.cuda.device_count()} GPUs",
            f"torchrun --nproc-per-node {torch.cuda.device_count()} ...; or --device cpu",
        )
    device = torch.device("cuda", team.local_rank)
    try:
        # Before anything else: a thread or a library that does not know better takes GPU 0.
        torch.cuda.set_device(device)
        # A driver, a memory or an architecture that does not fit shows itself at the first kernel.
        torch.zeros(1, device=device).add_(1).item()
        name = torch.cuda.get_device_name(device)
        major, minor = torch.cuda.get_device_capability(device)
    except RuntimeError as error:
        raise PinfeedError(
            "the GPU is visible, but does not compute",
            str(error).splitlines()[0],
            "run `doctor`, which names the cause; or train on the processor: --device cpu",
            UNAVAILABLE,
        ) from None
    torch.backends.cudnn.benchmark = True  # shapes are the same in each step: let cuDNN look for what is fastest
    amp = config.amp
    if amp == "auto":
        amp = "bf16" if major >= _AMPERE else "fp16"
    elif amp == "bf16" and major < _AMPERE:
        raise PinfeedError(
            "this GPU has no bf16",
            f"{name}, compute capability {major}.{minor}",
            "use --amp fp16, or --amp auto",
        )
    note = f"{name}: AMP {amp}, pinned memory {'on' if config.pin_memory else 'off'}"
    return Hardware(device, name, amp, config.pin_memory, threads, note)


def _no_gpu(asked: str) -> PinfeedError:
    if torch.version.cuda is None:
        seen = f"torch {torch.__version__} is built without CUDA"
    elif not Path("/dev/nvidiactl").exists():
        seen = "no /dev/nvidiactl: this container or machine has been given no GPU"
    else:
        seen = "a GPU device is there, but torch.cuda.is_available() is False"
    return PinfeedError(
        f"{asked} needs a GPU, and none can be used",
        seen,
        "docker run --gpus all ... (`doctor` names the cause); or leave the flag out, to train on the CPU",
    )


def _use_threads(asked: Optional[int], processes: int) -> int:
    """Tell torch how many threads to use. OMP_NUM_THREADS, which torch reads by itself, is left alone."""
    if asked is None and not os.environ.get("OMP_NUM_THREADS"):
        asked = _cpus() // processes
    if asked is not None:
        torch.set_num_threads(max(1, asked))
    return torch.get_num_threads()


def _cpus() -> int:
    """The processors that this process may really use: its affinity and its cgroup's quota."""
    try:
        from doctor import limits
    except ImportError:  # pinfeed was installed by itself
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return limits.cpu_limit().workers


def _processor_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
