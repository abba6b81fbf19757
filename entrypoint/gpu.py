"""Whether the container was given a GPU, asked of /dev alone: no driver library is loaded."""

from __future__ import annotations

import os
import re

from entrypoint.errors import StartError

# A discrete GPU, and the one device that WSL2 gives to a container instead.
_GPU = re.compile(r"nvidia\d+|dxg")


def has_gpu(dev: str = "/dev") -> bool:
    """Whether a GPU's device is there."""
    try:
        return any(_GPU.fullmatch(name) for name in os.listdir(dev))
    except OSError:
        return False


def require_gpu(wanted: bool, dev: str = "/dev") -> None:
    """Stop when REQUIRE_GPU=1 and there is none: better now than after an hour on the CPU."""
    if wanted and not has_gpu(dev):
        raise StartError(
            "REQUIRE_GPU=1, but the container has no GPU",
            f"neither {dev}/nvidia0 nor {dev}/dxg",
            "docker run --gpus all ... (needs the NVIDIA driver and nvidia-container-toolkit on the host); "
            "to run on the CPU leave REQUIRE_GPU out",
        )
