"""What torch is, read from its files: importing it would take seconds, and run what the user may have changed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

from doctor.patient import Patient


@dataclass(frozen=True)
class GpuCode:
    """The GPU code in a build: binaries for these capabilities, and PTX that newer GPUs compile, if any."""

    binaries: tuple[int, ...]
    ptx: Optional[int] = None

    def runs_on(self, capability: tuple[int, int]) -> bool:
        """A binary runs on its own generation from its revision on; PTX on everything newer."""
        number = capability[0] * 10 + capability[1]
        same = [one for one in self.binaries if one // 10 == capability[0] and one <= number]
        return bool(same) or (self.ptx is not None and number >= self.ptx)

    def __str__(self) -> str:
        ptx = f" and newer through compute_{self.ptx}" if self.ptx else ""
        return ", ".join(f"sm_{one}" for one in self.binaries) + ptx


# PyTorch's own x86-64 wheels, by the CUDA they were built with (`torch.cuda.get_arch_list()`).
_WHEELS = {
    (11, 8): GpuCode((50, 60, 70, 75, 80, 86, 90)),
    (12, 6): GpuCode((50, 60, 70, 75, 80, 86, 90)),
    (12, 8): GpuCode((75, 80, 86, 90, 100, 120), ptx=120),
    (13, 0): GpuCode((75, 80, 86, 90, 100, 120)),
}


def gpu_code(built: Optional[tuple[int, int]]) -> Optional[GpuCode]:
    """The GPU code in the wheels of this CUDA version; None when the table has no row for it."""
    return _WHEELS.get(built) if built else None


def version_file(patient: Patient) -> str:
    """The text of torch/version.py, empty when there is no torch."""
    texts = (patient.read(f"{folder}/torch/version.py") for folder in patient.site_packages)
    return next((text for text in texts if text), "")


def cuda_version(patient: Patient) -> Optional[tuple[int, int]]:
    """The CUDA that torch was built with; the image's word for it where torch is missing."""
    found = re.search(r"^cuda\b[^=]*=\s*['\"](\d+)\.(\d+)", version_file(patient), re.MULTILINE)
    if not found:
        found = re.match(r"(\d+)\.(\d+)", str(patient.image.get("wheel_cuda", "")))
    return (int(found[1]), int(found[2])) if found else None
