"""Asks the NVIDIA driver, in a process of its own: it may hang or crash. Run by path; prints one JSON line a step.

Usage: driver_probe.py DEV [FOLDER ...]     FOLDERs are searched for the libraries before the loader's own places.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
_NODES = ("nvidiactl", "nvidia-uvm", "nvidia0")


def say(**facts: Any) -> None:
    """One line, at once: when a later step hangs, the earlier ones have been said."""
    print(json.dumps(facts), flush=True)


def open_nodes(dev: str) -> None:
    """Whether the device nodes may be opened: an engine's reload can take that right away."""
    errors = {}
    for name in _NODES:
        path = os.path.join(dev, name)
        if os.path.lexists(path):
            say(step=f"opening {path}")
            try:
                os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
            except OSError as error:
                errors[path] = error.strerror or str(error)
    say(node_errors=errors)


def load(name: str, folders: list[str]) -> Any:
    """A library as the loader would find it for the user: LD_LIBRARY_PATH first."""
    for folder in folders:
        path = os.path.join(folder, name)
        if os.path.exists(path):
            return ctypes.CDLL(path)
    return ctypes.CDLL(name)


def mapped(name: str) -> str:
    """The file that was loaded, links resolved."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        paths = [line.split(None, 5)[-1].strip() for line in maps if f"/{name}" in line]
    return os.path.realpath(paths[0]) if paths else ""


def ask_cuda(folders: list[str]) -> None:
    """libcuda: its version, cuInit's answer, and the devices."""
    say(step="loading libcuda.so.1")
    try:
        cuda = load("libcuda.so.1", folders)
    except OSError as error:
        say(load_error=str(error))
        return
    say(libcuda=mapped("libcuda.so"), step="cuDriverGetVersion")
    version = ctypes.c_int()
    if cuda.cuDriverGetVersion(ctypes.byref(version)) == 0:
        say(cuda_version=version.value)
    say(step="cuInit")
    code = cuda.cuInit(0)
    say(init=code)
    if code == 0:
        say(step="asking for the devices")
        say(devices=[describe(cuda, index) for index in range(count(cuda))])


def count(cuda: Any) -> int:
    """How many devices there are."""
    number = ctypes.c_int()
    cuda.cuDeviceGetCount(ctypes.byref(number))
    return number.value


def describe(cuda: Any, index: int) -> dict[str, Any]:
    """Name, memory and compute capability of one device."""
    device, number, size = ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
    name = ctypes.create_string_buffer(256)
    cuda.cuDeviceGet(ctypes.byref(device), index)
    cuda.cuDeviceGetName(name, 256, device)
    cuda.cuDeviceTotalMem_v2(ctypes.byref(size), device)
    capability = []
    for attribute in (_MAJOR, _MINOR):
        cuda.cuDeviceGetAttribute(ctypes.byref(number), attribute, device)
        capability.append(number.value)
    return {"name": name.value.decode("utf-8", "replace"), "bytes": size.value, "capability": capability}


def ask_nvml(folders: list[str]) -> None:
    """NVML, which nvidia-smi and the dashboards use."""
    say(step="loading libnvidia-ml.so.1")
    try:
        nvml = load("libnvidia-ml.so.1", folders)
    except OSError as error:
        say(nvml_load_error=str(error))
        return
    say(step="nvmlInit")
    code = nvml.nvmlInit_v2()
    text = ctypes.create_string_buffer(80)
    if code == 0 and nvml.nvmlSystemGetDriverVersion(text, 80) == 0:
        say(driver=text.value.decode("utf-8", "replace"))
    say(nvml=code)


def find_video(folders: list[str]) -> None:
    """libnvcuvid: the engines for video and JPEG."""
    say(step="loading libnvcuvid.so.1")
    try:
        load("libnvcuvid.so.1", folders)
    except OSError as error:
        say(video=False, video_error=str(error))
    else:
        say(video=True)


def main(dev: str, folders: list[str]) -> None:
    open_nodes(dev)
    ask_cuda(folders)
    ask_nvml(folders)
    find_video(folders)
    say(step="")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
