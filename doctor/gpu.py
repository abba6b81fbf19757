"""GPU checks: is there one, may it be used, and does it fit what torch was built for?

A GPU that is missing is one finding with its cause; the checks that need one then say that they were skipped.
"""

from __future__ import annotations

from doctor import cuda_errors, torch_build
from doctor.driver import Driver, driver, gpu_nodes
from doctor.findings import Finding, fail, ok, skip, warn
from doctor.patient import Patient

_NONE = ("void", "none")
_NO_GPU = "no usable GPU (see gpu)"
GIVE = "docker run --gpus all ..."
TOOLKIT = "nvidia-container-toolkit"
_MISSING = "without one everything runs on the CPU"


def check_gpu(patient: Patient) -> Finding:
    """The one finding about a GPU that cannot be used: the first link of the chain that is broken."""
    if patient.variable("NVIDIA_VISIBLE_DEVICES") in _NONE:
        wish = f"NVIDIA_VISIBLE_DEVICES={patient.variable('NVIDIA_VISIBLE_DEVICES')}"
        return skip("gpu", f"{wish}: the container was told to run without a GPU")
    if not gpu_nodes(patient):
        return _no_nodes(patient)
    seen = driver(patient)
    for look in (_hidden, _stuck, _forbidden, _no_library, _no_start, _no_devices):
        found = look(patient, seen)
        if found:
            return found
    names = ", ".join(f"{one.name} ({one.arch}, {one.bytes / 2**30:.0f} GiB)" for one in seen.devices)
    return ok("gpu", f"{names}; driver {seen.version or 'of unknown version'}")


def _no_nodes(patient: Patient) -> Finding:
    if patient.on_wsl:
        return fail(
            "gpu",
            "no /dev/dxg, and the kernel is WSL2's",
            _MISSING,
            f"{GIVE} (Docker Desktop: WSL2 engine; a current NVIDIA driver for Windows, none inside WSL)",
        )
    if patient.exists("/proc/driver/nvidia/version"):
        return fail(
            "gpu",
            "no /dev/nvidia*, but the host has an NVIDIA driver: the container was started without its GPUs",
            _MISSING,
            f"{GIVE} (needs {TOOLKIT} on the host); compose: docker compose up; Podman: --device nvidia.com/gpu=all",
        )
    return fail(
        "gpu",
        "no /dev/nvidia*, and no NVIDIA driver is loaded on the host",
        _MISSING,
        f"with an NVIDIA GPU: install its driver and {TOOLKIT} on the host, then {GIVE}; without one, for work on "
        "the CPU: -e NVIDIA_VISIBLE_DEVICES=void says that this is meant",
    )


def _hidden(patient: Patient, seen: Driver) -> Finding | None:
    wish = patient.environ.get("CUDA_VISIBLE_DEVICES")
    if wish is None or seen.devices or wish.strip() not in ("", "-1"):
        return None
    return fail(
        "gpu",
        f"CUDA_VISIBLE_DEVICES={wish} hides every GPU from CUDA",
        _MISSING,
        "unset CUDA_VISIBLE_DEVICES, or -e CUDA_VISIBLE_DEVICES=0",
    )


def _stuck(patient: Patient, seen: Driver) -> Finding | None:
    if seen.hung_at:
        return fail(
            "gpu",
            f"the driver gave no answer in {patient.driver_seconds:g} s ({seen.hung_at})",
            "a GPU that fell off the bus, or a driver that hangs, makes every CUDA program hang",
            "look at `dmesg | grep -i -e nvrm -e xid` on the host; mostly only a reboot of the host helps",
        )
    if seen.crashed:
        return fail(
            "gpu",
            f"asking the driver ended in a crash ({seen.crashed})",
            "the driver's libraries in this container do not fit the kernel module, or are damaged",
            "reboot the host, then start a new container with --gpus all",
        )
    return None


def _forbidden(patient: Patient, seen: Driver) -> Finding | None:
    if seen.works or not seen.node_errors:
        return None
    node, error = next(iter(seen.node_errors.items()))
    return fail(
        "gpu",
        f"{node} cannot be opened: {error}",
        "the right to the device was lost: `systemctl daemon-reload` on the host does that to running containers "
        "(NVML then says: Unknown Error); or the node's mode forbids it to this user",
        cuda_errors.RELOAD_FOR_GOOD,
    )


def _no_library(patient: Patient, seen: Driver) -> Finding | None:
    if not seen.load_error:
        return None
    capabilities = patient.variable("NVIDIA_DRIVER_CAPABILITIES")
    if capabilities and not {"compute", "all"} & set(capabilities.split(",")):
        return fail(
            "gpu",
            f"no libcuda.so.1; NVIDIA_DRIVER_CAPABILITIES={capabilities} leaves compute out",
            "the toolkit brings the driver's libraries for the named capabilities only",
            "-e NVIDIA_DRIVER_CAPABILITIES=compute,utility,video (or leave it out: the image sets it)",
        )
    return fail(
        "gpu",
        f"{gpu_nodes(patient)[0]} is here, but libcuda.so.1 cannot be loaded: {seen.load_error}",
        "the driver's libraries are the host's; only the NVIDIA container toolkit brings them in, --device does not",
        f"install {TOOLKIT} on the host and start with --gpus all (not --device /dev/nvidia0)",
    )


def _no_start(patient: Patient, seen: Driver) -> Finding | None:
    if seen.init in (0, None):
        return None
    assert seen.init is not None
    means = cuda_errors.meaning(seen.init)
    seen_text = (
        f"cuInit failed: {seen.init} CUDA_ERROR_{means.name}"
        if means.name.isupper()
        else (f"cuInit failed: {means.name}")
    )
    if seen.init == 100 and _sliced_without_slice(patient):
        return fail(
            "gpu",
            f"{seen_text}; the GPU is in MIG mode",
            "only its slices can be used, and none was given",
            "docker run --gpus '\"device=0:0\"' ..., or the slice's MIG-... name; nvidia-smi -L lists them",
        )
    library = f" (from {seen.libcuda})" if "/compat/" in seen.libcuda or "/stubs/" in seen.libcuda else ""
    return fail("gpu", seen_text + library, means.why, means.remedy)


def _no_devices(patient: Patient, seen: Driver) -> Finding | None:
    if seen.devices:
        return None
    wish = patient.variable("CUDA_VISIBLE_DEVICES")
    told = f" with CUDA_VISIBLE_DEVICES={wish}" if wish else ""
    return fail("gpu", f"CUDA starts, but shows no device{told}", _MISSING, cuda_errors.meaning(100).remedy)


def check_driver(patient: Patient) -> Finding:
    """The driver's CUDA against the one that torch was built with."""
    seen, built = driver_if_any(patient), torch_build.cuda_version(patient)
    if seen is None or seen.cuda_version is None:
        return skip("driver", _NO_GPU)
    if built is None:
        return skip("driver", f"CUDA {_dotted(seen.cuda_version)}; torch's own CUDA version is not known here")
    versions = f"driver {seen.version} is of CUDA {_dotted(seen.cuda_version)}; torch was built with {_dotted(built)}"
    if "/compat/" in seen.libcuda:
        return ok("driver", f"{versions}; forward compatibility through {seen.libcuda}")
    if seen.cuda_version[0] < built[0]:
        needed = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}.get(built[0], "a newer one")
        return fail(
            "driver",
            versions,
            f"torch needs a driver of CUDA {built[0]}: {needed} or later",
            f"update the NVIDIA driver on the host to {needed} or later",
        )
    if seen.cuda_version < built:
        return ok(
            "driver",
            f"{versions}: minor-version compatibility",
            "all runs, but code that is compiled from PTX on the spot needs a driver as new as torch's CUDA",
        )
    return ok("driver", versions)


def check_architecture(patient: Patient) -> Finding:
    """Whether torch's binaries hold code for this GPU."""
    name, seen, built = "gpu-architecture", driver_if_any(patient), torch_build.cuda_version(patient)
    if seen is None or not seen.works:
        return skip(name, _NO_GPU)
    code = torch_build.gpu_code(built)
    if built is None or code is None:
        return skip(name, f"{seen.devices[0].arch}; which GPUs this torch was built for is not known here")
    unfit = [device for device in seen.devices if not code.runs_on(device.capability)]
    if not unfit:
        return ok(name, f"{', '.join(sorted({one.arch for one in seen.devices}))}: torch has code for it")
    device = unfit[0]
    return fail(
        name,
        f"{device.name} is {device.arch}; this torch (CUDA {_dotted(built)}) has code for {code}",
        "the first computation fails: no kernel image is available for execution on the device",
        _other_variant(device.capability, built),
    )


def _other_variant(capability: tuple[int, int], built: tuple[int, int]) -> str:
    if capability >= (10, 0):
        return "use the cu128 variant (pytorch-cuda:v2.7-cu128), whose driver must be 570 or later"
    if built >= (12, 8) and capability >= (5, 0):
        return "use an image whose torch was built with CUDA 12.6 (pytorch-cuda:v2.7), not the cu128 variant"
    return "this GPU is too old for this torch: use another GPU"


def check_nvml(patient: Patient) -> Finding:
    """NVML: nvidia-smi, nvitop and JupyterLab's dashboards need it."""
    seen = driver_if_any(patient)
    if seen is None or not seen.works:
        return skip("nvml", _NO_GPU)
    why = "nvidia-smi, nvitop and the dashboard in JupyterLab do not work; CUDA does"
    if seen.hung_at or seen.crashed:
        return warn("nvml", f"no answer ({seen.hung_at or seen.crashed})", why, cuda_errors.RESTART)
    if seen.nvml_load_error:
        return warn(
            "nvml",
            f"libnvidia-ml.so.1 cannot be loaded: {seen.nvml_load_error}",
            why,
            "-e NVIDIA_DRIVER_CAPABILITIES=compute,utility,video (or leave it out: the image sets it)",
        )
    if seen.nvml == 18:
        return warn(
            "nvml",
            "nvmlInit: 18 LIB_RM_VERSION_MISMATCH",
            f"{why}: the driver was updated under it",
            "reboot the host, then start a new container",
        )
    if seen.nvml:
        return warn("nvml", f"nvmlInit: {seen.nvml}", why, cuda_errors.RELOAD_FOR_GOOD)
    return ok("nvml", f"answers, driver {seen.version}")


def check_video(patient: Patient) -> Finding:
    """libnvcuvid, without which the JPEG and video engines are not used, and nothing says so."""
    seen = driver_if_any(patient)
    if seen is None or not seen.works:
        return skip("video-engines", _NO_GPU)
    if seen.video is None:
        return skip("video-engines", "the driver gave no answer (see nvml)")
    if seen.video:
        return ok("video-engines", "libnvcuvid.so.1 loads")
    capabilities = patient.variable("NVIDIA_DRIVER_CAPABILITIES")
    told = f"; NVIDIA_DRIVER_CAPABILITIES={capabilities}" if capabilities else ""
    return warn(
        "video-engines",
        f"libnvcuvid.so.1 cannot be loaded{told}",
        "decoding JPEGs on the GPU then uses CUDA cores in the place of the engines made for it, without a word",
        "-e NVIDIA_DRIVER_CAPABILITIES=compute,utility,video",
    )


def check_mig(patient: Patient) -> Finding:
    """Slices of a GPU: what one may expect of them."""
    seen = driver_if_any(patient)
    if seen is None or not seen.works:
        return skip("mig", _NO_GPU)
    slices = [one.name for one in seen.devices if "MIG" in one.name]
    if not slices:
        return ok("mig", "whole GPUs")
    return ok(
        "mig",
        f"slices: {', '.join(slices)}",
        "CUDA uses one slice a process, and NCCL none: one rank a container",
    )


def check_wsl(patient: Patient) -> Finding:
    """WSL2 pins little memory, and calls that a lack of GPU memory."""
    if not patient.on_wsl:
        return ok("wsl", "not WSL2")
    return warn(
        "wsl",
        "the kernel is WSL2's",
        "it lets about half of its memory be pinned, often less; beyond, CUDA says out of memory, and means the host's",
        "give WSL2 more memory in .wslconfig, or train without pinning: pinfeed train --no-pin-memory",
    )


def driver_if_any(patient: Patient) -> Driver | None:
    """The driver's answers, when there is a GPU to ask about."""
    if patient.variable("NVIDIA_VISIBLE_DEVICES") in _NONE or not gpu_nodes(patient):
        return None
    return driver(patient)


def _sliced_without_slice(patient: Patient) -> bool:
    base = "/proc/driver/nvidia/capabilities"
    gpus = [name for name in patient.names(base) if name.startswith("gpu") and patient.exists(f"{base}/{name}/mig")]
    return bool(gpus) and not any(name.startswith("gi") for gpu in gpus for name in patient.names(f"{base}/{gpu}/mig"))


def _dotted(version: tuple[int, int]) -> str:
    return "{}.{}".format(*version)
