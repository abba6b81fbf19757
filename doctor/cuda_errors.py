"""What an answer of cuInit means in a container, and what mends it.

The numbers are those of CUresult in cuda.h; field-reports.md tells which of them people meet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

RESTART = "restart the container: docker restart NAME"
UPDATE = "update the NVIDIA driver on the host (525.60.13 or later for CUDA 12), then reboot it"
RELOAD_FOR_GOOD = (
    RESTART + "; for good: give the GPU by CDI (--device nvidia.com/gpu=all), "
    'or set "exec-opts": ["native.cgroupdriver=cgroupfs"] in /etc/docker/daemon.json'
)


class Meaning(NamedTuple):
    """The constant's name, the usual cause, the remedy."""

    name: str
    why: str
    remedy: str


CUINIT: Mapping[int, Meaning] = {
    1: Meaning(
        "INVALID_VALUE",
        "libcuda and the kernel module do not fit together",
        "reboot the host, so that the driver's two halves are of one version",
    ),
    2: Meaning(
        "OUT_OF_MEMORY",
        "the GPU or the container has no memory left for a CUDA context",
        "nvidia-smi on the host shows who uses the GPU; a container limit is set by docker run --memory",
    ),
    3: Meaning(
        "NOT_INITIALIZED",
        "the driver was not set up in this container",
        "load the kernel modules on the host: sudo nvidia-modprobe -u -c=0",
    ),
    34: Meaning(
        "STUB_LIBRARY",
        "the libcuda that was loaded is the toolkit's stub for linking, not the driver's",
        "take the folder .../stubs out of LD_LIBRARY_PATH",
    ),
    46: Meaning(
        "DEVICES_UNAVAILABLE",
        "the GPU is in exclusive mode and another process holds it",
        "end that process (nvidia-smi on the host), or: sudo nvidia-smi -c DEFAULT",
    ),
    100: Meaning(
        "NO_DEVICE",
        "the driver sees no GPU that this container may use",
        "docker run --gpus all ...; look at CUDA_VISIBLE_DEVICES and NVIDIA_VISIBLE_DEVICES",
    ),
    101: Meaning(
        "INVALID_DEVICE",
        "CUDA_VISIBLE_DEVICES names a GPU that is not here",
        "unset CUDA_VISIBLE_DEVICES, or number the GPUs as this container sees them, from 0",
    ),
    304: Meaning(
        "OPERATING_SYSTEM",
        "a call of the driver to the operating system failed; mostly /dev/nvidia-uvm is missing or forbidden",
        "sudo nvidia-modprobe -u -c=0 on the host, then start a new container with --gpus all",
    ),
    800: Meaning(
        "NOT_PERMITTED",
        "the operation is forbidden here, by the engine's security profile or by the GPU's mode",
        "start the container without --security-opt and device rules of your own",
    ),
    801: Meaning("NOT_SUPPORTED", "this GPU or its mode cannot run CUDA", "use a GPU that CUDA 12 supports"),
    802: Meaning(
        "SYSTEM_NOT_READY",
        "on NVSwitch machines (HGX, DGX) the fabric manager must run, and be of the driver's version",
        "sudo systemctl restart nvidia-fabricmanager on the host",
    ),
    803: Meaning(
        "SYSTEM_DRIVER_MISMATCH",
        "the kernel module and the driver's libraries are of two versions: the driver was updated, not reloaded",
        "reboot the host, then start a new container",
    ),
    804: Meaning(
        "COMPAT_NOT_SUPPORTED_ON_DEVICE",
        "a forward-compatibility libcuda (.../compat) was loaded, which works on data-centre GPUs only; or the "
        "driver was updated without a reboot",
        "reboot or update the host's driver; take .../compat out of LD_LIBRARY_PATH and /etc/ld.so.conf.d",
    ),
    805: Meaning(
        "MPS_CONNECTION_FAILED",
        "the MPS daemon that the GPU is in use through cannot be reached",
        "share its pipe folder (CUDA_MPS_PIPE_DIRECTORY) and use --ipc=host, or stop MPS on the host",
    ),
    999: Meaning(
        "UNKNOWN",
        "the driver gave no reason; mostly the right to the devices was lost when the engine or systemd reloaded, "
        "/dev/nvidia-uvm is missing, or the host slept",
        RELOAD_FOR_GOOD + "; after sleep: sudo rmmod nvidia_uvm && sudo modprobe nvidia_uvm on the host",
    ),
}


def meaning(code: int) -> Meaning:
    """What cuInit's answer means; a code without a row of its own is said to be one."""
    return CUINIT.get(
        code,
        Meaning(
            f"error {code}",
            "the driver refused to start for a reason without a usual cause",
            f"{RESTART}; if it stays, reboot the host and look at `dmesg | grep -i nvrm` there",
        ),
    )
