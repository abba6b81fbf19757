"""What takes longer and needs the environment's own Python (`--deep`): run as the user, each with a time limit."""

from __future__ import annotations

import json
import os
from typing import Any, Optional

from doctor.driver import gpu_nodes
from doctor.findings import Finding, fail, ok, skip, warn
from doctor.patient import Patient
from doctor.runner import Ran

_PROBES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "probes")
PIP_SECONDS, TORCH_SECONDS, PINNED_SECONDS, REDUCE_SECONDS = 60.0, 60.0, 120.0, 60.0
_SLOW_GIB_S = 5.0


def check_pip(patient: Patient) -> Finding:
    """`pip check`: do the installed packages fit together?"""
    ran = patient.run([patient.environment_python, "-m", "pip", "check"], PIP_SECONDS, patient.environ)
    if ran.ok:
        return ok("pip-check", ran.out.strip().splitlines()[-1] if ran.out.strip() else "no conflict")
    if ran.timed_out:
        return _late("pip-check", PIP_SECONDS)
    if "No module named pip" in ran.err:
        return fail(
            "pip-check",
            "there is no pip",
            "nothing can be installed",
            "python -m ensurepip, or a new container",
        )
    lines = (ran.out.strip() or ran.err.strip() or ran.last_line).splitlines()
    more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
    return fail(
        "pip-check",
        lines[0] + more,
        "these packages do not fit together",
        "pip install the version that the message names, or start a new container",
    )


def check_import(patient: Patient) -> Finding:
    """Import torch for real, and ask it what it sees."""
    ran = _probe(patient, "torch_probe.py", TORCH_SECONDS)
    seen = _answer(ran)
    if ran.timed_out:
        return _late("torch-import", TORCH_SECONDS)
    if seen is None:
        return fail(
            "torch-import",
            ran.last_line,
            "no program can use torch",
            "the last line names what is missing; a new container has it all",
        )
    text = f"torch {seen['torch']}, CUDA {seen['cuda']}, cuDNN {seen['cudnn']}"
    if not seen["available"] and gpu_nodes(patient):
        return fail(
            "torch-import",
            f"{text}; torch sees no GPU, though there is one",
            "torch runs on the CPU",
            "see gpu, driver and library-path above",
        )
    if len(seen["cudnn_files"]) > 1:
        return fail(
            "torch-import",
            f"{text}; two are loaded: {', '.join(seen['cudnn_files'])}",
            "`cuDNN version incompatibility`",
            "unset LD_LIBRARY_PATH",
        )
    return ok("torch-import", f"{text}, {seen['seconds']:.1f} s")


def check_pinned(patient: Patient) -> Finding:
    """How much memory can be pinned, and what that is worth."""
    if not gpu_nodes(patient):
        return skip("pinned-memory", "no GPU")
    ran = _probe(patient, "pinned_probe.py", PINNED_SECONDS)
    seen = _answer(ran)
    if ran.timed_out:
        return _late("pinned-memory", PINNED_SECONDS)
    if seen is None:
        return fail(
            "pinned-memory",
            ran.last_line,
            "memory cannot be pinned: copies to the GPU are slow and block",
            "see gpu above",
        )
    text = (
        f"{seen['pinned_mib']} MiB pinned; to the GPU {seen['pinned_gib_s']:.1f} GiB/s pinned, "
        f"{seen['pageable_gib_s']:.1f} pageable"
    )
    if seen["error"]:
        return warn(
            "pinned-memory",
            f"{text}; more failed: {seen['error']}",
            "the message speaks of CUDA memory and means the host's, which the driver lets be pinned in part only",
            "smaller batches or fewer prefetched ones; WSL2: see wsl",
        )
    if seen["pinned_gib_s"] < _SLOW_GIB_S:
        return warn(
            "pinned-memory",
            text,
            "a PCIe 3 x16 slot gives 12 GiB/s",
            "look at the slot: nvidia-smi -q | grep -A 8 'GPU Link Info'",
        )
    return ok("pinned-memory", text)


def check_all_reduce(patient: Patient) -> Finding:
    """Two processes that add numbers over the loopback: what DDP needs first."""
    ran = _probe(patient, "reduce_probe.py", REDUCE_SECONDS)
    if ran.timed_out:
        return _late("all-reduce", REDUCE_SECONDS)
    if _answer(ran) is None:
        return fail(
            "all-reduce",
            ran.last_line,
            "training with several processes fails",
            "see host-name and interfaces; unset GLOO_SOCKET_IFNAME and MASTER_ADDR",
        )
    return ok("all-reduce", "two processes agree over the loopback (gloo)")


def _probe(patient: Patient, name: str, seconds: float) -> Ran:
    return patient.run([patient.environment_python, os.path.join(_PROBES, name)], seconds, patient.environ)


def _answer(ran: Ran) -> Optional[dict[str, Any]]:
    """The probe's last line, when it came to its end."""
    lines = ran.out.strip().splitlines()
    try:
        answer = json.loads(lines[-1]) if lines else None
    except ValueError:
        return None
    return answer if ran.ok and isinstance(answer, dict) else None


def _late(name: str, seconds: float) -> Finding:
    return fail(
        name,
        f"no end after {seconds:g} s",
        "something hangs",
        "see gpu and host-name; try again on an idle machine",
    )
