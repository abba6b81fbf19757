"""What the container may use: shared memory, CPUs, memory, files, processes, disks."""

from __future__ import annotations

import errno
import os
import resource
from typing import Optional

from doctor import limits
from doctor.findings import FAIL, WARN, Finding, fail, ok, skip, warn
from doctor.patient import Patient

MIB, GIB = 1024**2, 1024**3
ENOUGH_SHM = GIB
ENOUGH_FILES = 4096
ENOUGH_MEMORY = 2 * GIB
ENOUGH_PROCESSES = 512
_FULL = 100 * MIB
_NEARLY_FULL = GIB
_MORE_FILES = "docker run --ulimit nofile=65536:65536 ..."


def check_shm(patient: Patient) -> Finding:
    """/dev/shm, through which DataLoader workers and NCCL hand their data over."""
    why = "DataLoader workers hand batches over through it (bus error when it is full), and NCCL its buffers"
    more = "docker run --shm-size=8g ... (or --ipc=host); compose: shm_size: 8gb at the service"
    try:
        seen = patient.statvfs(patient.path("/dev/shm"))
    except OSError:
        return fail("shm", "there is no /dev/shm", why, more)
    total, free = seen.f_blocks * seen.f_frsize, seen.f_bavail * seen.f_frsize
    sizes = f"/dev/shm has {_size(total)}, {_size(free)} free"
    if total < ENOUGH_SHM:
        return warn("shm", sizes, f"{why}; pinfeed gets along with it", more)
    if free < total // 10:
        return warn(
            "shm",
            sizes,
            f"{why}; a killed run leaves its files there",
            "rm /dev/shm/torch_* when no run needs them",
        )
    return ok("shm", sizes)


def check_memlock(patient: Patient) -> Finding:
    """Locked memory: CUDA's pinning does not count against it, RDMA between machines does."""
    soft, _ = patient.limit(resource.RLIMIT_MEMLOCK)
    seen = "unlimited" if soft == resource.RLIM_INFINITY else _size(soft)
    if soft == resource.RLIM_INFINITY or not patient.exists("/dev/infiniband"):
        return ok("memlock", f"locked memory: {seen}", "CUDA's pinned memory does not count against it")
    return warn(
        "memlock",
        f"locked memory: {seen}, and there is InfiniBand",
        "NCCL over InfiniBand must lock its buffers, and fails or falls back to TCP",
        "docker run --ulimit memlock=-1 ...",
    )


def check_open_files(patient: Patient) -> Finding:
    """Open files: each tensor that a worker hands over holds one."""
    soft, hard = patient.limit(resource.RLIMIT_NOFILE)
    soft, hard = (2**62 if one == resource.RLIM_INFINITY else one for one in (soft, hard))
    seen = f"{soft if soft < 2**62 else 'unlimited'} (may be raised to {hard if hard < 2**62 else 'any number'})"
    why = "DataLoader workers need one for each tensor in flight; too few: `received 0 items of ancdata`"
    if hard < ENOUGH_FILES:
        return warn("open-files", seen, why, _MORE_FILES)
    if soft < ENOUGH_FILES:
        return warn("open-files", seen, why, f"ulimit -n {min(hard, 65536)} in this shell (services have it raised)")
    return ok("open-files", seen)


def check_cpu(patient: Patient) -> Finding:
    """CPUs against the threads that the libraries will start."""
    limit = limits.cpu_limit(patient.root)
    seen = f"{limit.cpus:g} CPUs" + (f" of {limit.affinity} ({limit.source})" if limit.quota else "")
    asked = _threads(patient) or limit.affinity
    if asked <= limit.workers:
        return ok("cpu", seen)
    name = "OMP_NUM_THREADS" if _threads(patient) else "the number of CPUs seen"
    return warn(
        "cpu",
        f"{seen}, but torch will start {asked} threads by {name}",
        "threads beyond the quota are throttled: slower than with fewer of them",
        f"export OMP_NUM_THREADS={limit.workers} (services and `docker run IMAGE ...` have it set)",
    )


def check_memory(patient: Patient) -> Finding:
    """Memory: the limit, how near it is, and whether the kernel killed for it."""
    limit = limits.memory_limit(patient.root)
    if limit is None:
        return skip("memory", "the kernel does not say")
    used, kills = limits.memory_used(patient.root), limits.memory_kills(patient.root)
    seen = f"{_size(limit.bytes)} ({limit.source})" + (f", {_size(used)} used" if used is not None else "")
    more = "docker run --memory=16g ... (or leave --memory out)"
    if kills:
        return warn(
            "memory",
            f"{seen}; the kernel killed {kills} processes here for want of it",
            "`Killed`, `DataLoader worker is killed by signal`, a dead kernel: it was the memory limit",
            more,
        )
    if used is not None and limit.source != "machine" and used > 0.9 * limit.bytes:
        return warn("memory", seen, "at the limit the kernel kills processes", more)
    if limit.bytes < ENOUGH_MEMORY:
        return warn("memory", seen, "torch, JupyterLab and a data set need 2 GiB at the least", more)
    return ok("memory", seen)


def check_processes(patient: Patient) -> Finding:
    """Processes and threads: each worker starts a few dozen."""
    found = limits.process_limit(patient.root)
    if found is None:
        return ok("processes", "no limit of the container's own")
    limit, used = found
    seen = f"{used} of {limit} processes and threads"
    if limit < ENOUGH_PROCESSES or used > 0.9 * limit:
        return warn(
            "processes",
            seen,
            "`can't start new thread`, `Resource temporarily unavailable`",
            "docker run --pids-limit=-1 ...",
        )
    return ok("processes", seen)


def check_tmp(patient: Patient) -> Finding:
    """The folder for temporary files: writable, and not noexec, since torch.compile runs what it builds there."""
    path = patient.variable("TMPDIR") or "/tmp"
    error = trial_write(patient.path(path))
    if error:
        return fail(
            "tmp",
            f"{path}: {error}",
            "torch, pip and compilers need it",
            "docker run --tmpfs /tmp:exec ... (or unset TMPDIR)",
        )
    mount = patient.mount_of(path)
    if mount and "noexec" in mount.options:
        return warn(
            "tmp",
            f"{path} is mounted noexec",
            "torch.compile builds libraries there and cannot load them",
            "docker run --tmpfs /tmp:exec ..., or set TORCHINDUCTOR_CACHE_DIR and TRITON_CACHE_DIR elsewhere",
        )
    return ok("tmp", f"{path} is writable, and programs may run from it")


def check_disk(patient: Patient) -> Finding:
    """Room and inodes where things are written."""
    tightest: Optional[Finding] = None
    seen = []
    for path in dict.fromkeys(("/workspace", patient.home, "/tmp", "/")):
        if not path or not patient.exists(path):
            continue
        found, text = _disk(patient, path)
        if found and (tightest is None or (found.status, tightest.status) == (FAIL, WARN)):
            tightest = found
        seen.append(text)
    return tightest or ok("disk", "; ".join(dict.fromkeys(text for text in seen if text)))


def _disk(patient: Patient, path: str) -> tuple[Optional[Finding], str]:
    try:
        seen = patient.statvfs(patient.path(path))
    except OSError as error:
        return warn("disk", f"{path}: {error.strerror}", "nothing can be said of its room", "look at the mount"), ""
    if seen.f_flag & os.ST_RDONLY:
        return None, f"{path}: read-only"
    free, text = seen.f_bavail * seen.f_frsize, f"{path}: {_size(seen.f_bavail * seen.f_frsize)} free"
    mend = "docker system df on the host shows what takes room; docker system prune frees it"
    if seen.f_blocks and free < _FULL:
        return fail("disk", text, "writing fails: checkpoints, notebooks, pip", mend), text
    if seen.f_files and seen.f_favail < 1000:
        return fail("disk", f"{path}: {seen.f_favail} inodes free", "no new file can be made", mend), text
    # A small tmpfs is meant to be small.
    if free < _NEARLY_FULL and seen.f_blocks * seen.f_frsize > 4 * _NEARLY_FULL:
        return warn("disk", text, "a checkpoint or a package may not fit", mend), text
    return None, text


def trial_write(folder: str) -> str:
    """Why no file can be made in a folder; an empty text when one can."""
    path = os.path.join(folder, f".doctor-{os.getpid()}-{os.urandom(4).hex()}")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except OSError as error:
        return {errno.EROFS: "it is read-only", errno.ENOENT: "it does not exist"}.get(
            error.errno or 0, (error.strerror or str(error)).lower()
        )
    os.unlink(path)
    return ""


def _threads(patient: Patient) -> int:
    text = patient.variable("OMP_NUM_THREADS").split(",")[0]
    return int(text) if text.isdigit() else 0


def _size(count: int) -> str:
    for unit, name in ((GIB, "GiB"), (MIB, "MiB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}".replace(".0 ", " ")
    return f"{count // 1024} KiB"
