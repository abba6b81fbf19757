"""What the NVIDIA driver says of itself, asked once, in another process and with a time limit."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from typing import Any, Optional

from doctor.patient import Patient

_PROBE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "driver_probe.py")
# A discrete GPU, a slice of one, and the one device that WSL2 gives to a container instead.
_GPU_NODE = re.compile(r"nvidia\d+|dxg")


@dataclass(frozen=True)
class Device:
    """One GPU as CUDA shows it."""

    name: str
    bytes: int
    capability: tuple[int, int]

    @property
    def arch(self) -> str:
        """sm_90 and the like."""
        return "sm_{}{}".format(*self.capability)


@dataclass(frozen=True)
class Driver:
    """The driver's answers, as far as they came. `hung_at` names the step that gave none."""

    hung_at: str = ""
    crashed: str = ""
    node_errors: dict[str, str] = field(default_factory=dict)
    load_error: str = ""
    libcuda: str = ""
    cuda_version: Optional[tuple[int, int]] = None
    init: Optional[int] = None
    devices: tuple[Device, ...] = ()
    nvml_load_error: str = ""
    nvml: Optional[int] = None
    version: str = ""
    video: Optional[bool] = None

    @property
    def works(self) -> bool:
        """Whether a program can use a GPU."""
        return self.init == 0 and bool(self.devices)


def gpu_nodes(patient: Patient) -> list[str]:
    """The device nodes of GPUs, without those of the driver as a whole."""
    return [f"/dev/{name}" for name in patient.names("/dev") if _GPU_NODE.fullmatch(name)]


def driver(patient: Patient) -> Driver:
    """The patient's driver; asked when first wanted, and then remembered."""
    known: Driver = patient.once("driver", lambda: _ask(patient))
    return known


def _ask(patient: Patient) -> Driver:
    folders = [folder for folder in patient.variable("LD_LIBRARY_PATH").split(":") if folder.startswith("/")]
    # Only what the driver itself reads: the user's LD_PRELOAD and PYTHON* would be somebody else's fault.
    environ = {k: v for k, v in patient.environ.items() if k.startswith(("CUDA_", "NVIDIA_"))}
    command = [patient.python, "-I", "-S", _PROBE, patient.path("/dev"), *folders]
    ran = patient.run(command, patient.driver_seconds, environ)
    said = _facts(ran.out)
    step = str(said.get("step", "starting"))
    crashed = "" if ran.ok or ran.timed_out else f"{step or 'the end'}: {_end_of(ran.code, ran.last_line)}"
    return _read(said, step if ran.timed_out else "", crashed, _kernel_version(patient))


def _facts(out: str) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for line in out.splitlines():
        try:
            said.update(json.loads(line))
        except ValueError:
            continue  # a library that prints, or a line that a crash cut off
    return said


def _read(said: dict[str, Any], hung_at: str, crashed: str, kernel_version: str) -> Driver:
    cuda = said.get("cuda_version")
    libcuda = str(said.get("libcuda", ""))
    in_name = re.search(r"libcuda\.so\.(\d+\.[\d.]+)$", libcuda)
    return Driver(
        hung_at=hung_at,
        crashed=crashed,
        node_errors=dict(said.get("node_errors", {})),
        load_error=str(said.get("load_error", "")),
        libcuda=libcuda,
        cuda_version=(cuda // 1000, cuda % 1000 // 10) if cuda else None,
        init=said.get("init"),
        devices=tuple(
            Device(one["name"], one["bytes"], (one["capability"][0], one["capability"][1]))
            for one in said.get("devices", ())
        ),
        nvml_load_error=str(said.get("nvml_load_error", "")),
        nvml=said.get("nvml"),
        version=str(said.get("driver", "")) or (in_name[1] if in_name else "") or kernel_version,
        video=said.get("video"),
    )


def _kernel_version(patient: Patient) -> str:
    """The version of the kernel module, which a container sees too."""
    return kernel_module_version(patient.read_kernel("/proc/driver/nvidia/version"))


def kernel_module_version(text: str) -> str:
    """The driver's version in /proc/driver/nvidia/version."""
    found = re.search(r"^NVRM version:.*?\s(\d{3,}\.[\d.]+)\s", text, re.MULTILINE)
    return found[1] if found else ""


def _end_of(code: int, last_line: str) -> str:
    return f"killed by signal {-code}" if code < 0 else last_line
