"""All checks, in the order in which people read them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Callable

from doctor import deep, gpu, libraries, packages, person, resources, services, surroundings
from doctor.findings import Finding, fail
from doctor.patient import Patient

Check = Callable[[Patient], Finding]

CHECKS: Sequence[Check] = (
    gpu.check_gpu,
    gpu.check_driver,
    gpu.check_architecture,
    gpu.check_nvml,
    gpu.check_video,
    gpu.check_mig,
    gpu.check_wsl,
    libraries.check_library_path,
    libraries.check_compat,
    libraries.check_one_cudnn,
    packages.check_torch,
    packages.check_locked,
    packages.check_python,
    packages.check_owner,
    surroundings.check_compiler,
    resources.check_shm,
    resources.check_memlock,
    resources.check_open_files,
    resources.check_cpu,
    resources.check_memory,
    resources.check_processes,
    resources.check_tmp,
    resources.check_disk,
    person.check_identity,
    person.check_home,
    person.check_workspace,
    services.check_ports,
    services.check_token,
    services.check_keys,
    services.check_host_keys,
    surroundings.check_clock,
    surroundings.check_host_name,
    surroundings.check_dns,
    surroundings.check_interfaces,
)
# One after the other: they would measure each other.
DEEP: Sequence[Check] = (deep.check_pip, deep.check_import, deep.check_pinned, deep.check_all_reduce)


def examine(patient: Patient, deeply: bool = False) -> list[Finding]:
    """Run the checks; those that wait for a child process wait together."""
    with ThreadPoolExecutor(8) as pool:
        findings = list(pool.map(lambda check: _run(check, patient), CHECKS))
    return findings + [_run(check, patient) for check in (DEEP if deeply else ())]


def _run(check: Check, patient: Patient) -> Finding:
    """A check that fails itself must not take the others with it."""
    try:
        return check(patient)
    except Exception as error:  # whatever it is, the other findings are worth more than a traceback
        name = check.__name__.replace("check_", "").replace("_", "-")
        return fail(
            name,
            f"the check itself failed: {type(error).__name__}: {error}",
            "this is a mistake in doctor",
            "please report it with this line",
        )
