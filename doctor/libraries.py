"""Copies of CUDA's libraries that the loader would find before, or beside, those that torch brings."""

from __future__ import annotations

import re

from doctor.findings import Finding, fail, ok, warn
from doctor.packages import installed
from doctor.patient import Patient

# torch's libraries find each other by DT_RPATH, before LD_LIBRARY_PATH is looked at. These two do not: they are
# opened by name while the program runs, and the first copy wins (field reports B061; pytorch/pytorch#80637).
_BREAK = re.compile(r"lib(cudnn(_\w+)?\.so\.9|nvJitLink\.so\.1[2-9])")
_CUDA = re.compile(r"lib(cudart|cublas|cublasLt|cudnn(_\w+)?|nvJitLink|nccl|cusparse|cufft|curand|cusolver|nvrtc)\.so")
_LDCONFIG = ("/sbin/ldconfig", "-p")
_TAKE_OUT = "unset LD_LIBRARY_PATH, or take that folder out of it (docker run -e LD_LIBRARY_PATH=...)"


def check_library_path(patient: Patient) -> Finding:
    """CUDA libraries in LD_LIBRARY_PATH and LD_PRELOAD."""
    found = [f"{folder}/{name}" for folder in _folders(patient) for name in patient.names(folder) if _CUDA.match(name)]
    found += [path for path in re.split(r"[:\s]+", patient.variable("LD_PRELOAD")) if _CUDA.match(_base(path))]
    if not found:
        return ok("library-path", "no CUDA library in LD_LIBRARY_PATH or LD_PRELOAD")
    worst = [path for path in found if _BREAK.match(_base(path))]
    if worst:
        return fail(
            "library-path",
            f"{worst[0]} is found before torch's own",
            "two versions of one CUDA library in one process: `cuDNN version incompatibility`, undefined symbols",
            _TAKE_OUT,
        )
    return warn(
        "library-path",
        f"{found[0]} is in LD_LIBRARY_PATH",
        "torch does not use it, but other programs may load two versions of one CUDA library",
        _TAKE_OUT,
    )


def check_compat(patient: Patient) -> Finding:
    """A forward-compatibility libcuda in the loader's way: error 804 on all but data-centre GPUs."""
    from_path = [f"{one}/libcuda.so.1" for one in _folders(patient) if patient.exists(f"{one}/libcuda.so.1")]
    listed = re.findall(r"=> (\S*/libcuda\.so\.1)$", patient.run(_LDCONFIG, 5, {}).out, re.MULTILINE)
    compat = [path for path in (*from_path, *listed) if "/compat/" in path]
    if not compat or compat[0] != (*from_path, *listed)[0]:
        return ok("cuda-compat", "no forward-compatibility libcuda in the loader's way")
    return warn(
        "cuda-compat",
        f"{compat[0]} comes before the driver's libcuda",
        "forward compatibility works on data-centre GPUs only; others fail with CUDA error 804",
        "take .../compat out of LD_LIBRARY_PATH and /etc/ld.so.conf.d, then run ldconfig; update the host's driver",
    )


def check_one_cudnn(patient: Patient) -> Finding:
    """Packages that bring a second cuDNN or CUDA runtime into the environment, as pip for another CUDA does."""
    packages = installed(patient)
    twice = {}
    for kind in ("cudnn", "cublas", "nccl", "nvjitlink"):
        there = sorted(name for name in packages if re.fullmatch(rf"nvidia-{kind}(-cu\d+)?", name))
        if len(there) > 1:
            twice[kind] = there
    if not twice:
        return ok("cuda-packages", "no CUDA library is installed in two versions")
    kind, there = next(iter(twice.items()))
    return fail(
        "cuda-packages",
        f"{kind} is installed {len(there)} times: {', '.join(there)}",
        "they put files into the same folders, so that torch gets one of them by chance",
        f"pip uninstall {there[-1]}, then pip install --force-reinstall --no-deps the other one; "
        "or start a new container",
    )


def _folders(patient: Patient) -> list[str]:
    return [folder for folder in patient.variable("LD_LIBRARY_PATH").split(":") if folder.startswith("/")]


def _base(path: str) -> str:
    return path.rpartition("/")[2]
