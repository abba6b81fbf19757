"""The few checks that a container's start makes: those that cost nothing and foretell trouble."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

from doctor import gpu, resources
from doctor.driver import gpu_nodes
from doctor.findings import FAIL, WARN, Finding
from doctor.patient import Patient

# A home that cannot be written, a noexec /tmp and a foreign workspace are told by the entrypoint where it meets them.
CHECKS = (
    resources.check_shm,
    resources.check_open_files,
    resources.check_processes,
    resources.check_memory,
    resources.check_disk,
)


def problems_of(environ: Mapping[str, str], patient: Optional[Patient] = None) -> list[str]:
    """One line a problem; nothing when all is well."""
    seen = patient or Patient(environ=environ, home=environ.get("HOME", ""))
    found = [check(seen) for check in CHECKS]
    if _forgot_the_gpus(seen):
        found.append(gpu.check_gpu(seen))
    return [_line(finding) for finding in found if finding.status in (WARN, FAIL)]


def _forgot_the_gpus(patient: Patient) -> bool:
    """The host has an NVIDIA driver, the container no GPU. Without a driver the CPU is what was wanted."""
    return not gpu_nodes(patient) and patient.exists("/proc/driver/nvidia/version")


def _line(finding: Finding) -> str:
    return f"{finding.one_line} (docker exec NAME doctor says more)"
