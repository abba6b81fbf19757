"""The GPU's findings, from a driver that fails in every known way (a fake libcuda, asked by the real probe)."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from doctor import cuda_errors, gpu
from doctor.examine import examine
from doctor.runner import Ran
from tests.doctor.conftest import MakeGpu
from tests.doctor.patients import answers, fine, image, patient, says, skipped, trouble, write

NVRM = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  560.35.03  Fri Aug 16 21:39:15 UTC 2024\nGCC version:\n"


def test_a_gpu_that_works_is_named_with_its_driver(gpu_patient: MakeGpu) -> None:
    fine(gpu.check_gpu(gpu_patient()), "NVIDIA H200 (sm_90, 140 GiB); driver 560.35.03")


def test_no_device_and_no_driver_on_the_host(tmp_path: Path) -> None:
    trouble(gpu.check_gpu(patient(tmp_path)), "fail", "no NVIDIA driver is loaded on the host", "install its driver")


def test_no_device_though_the_host_has_a_driver(tmp_path: Path) -> None:
    write(tmp_path, {"/proc/driver/nvidia/version": NVRM})
    trouble(gpu.check_gpu(patient(tmp_path)), "fail", "started without its GPUs", "docker run --gpus all")


def test_no_device_on_wsl(tmp_path: Path) -> None:
    write(tmp_path, {"/proc/version": "Linux version 5.15.167.4-microsoft-standard-WSL2"})
    trouble(gpu.check_gpu(patient(tmp_path)), "fail", "no /dev/dxg", "driver for Windows")


def test_the_missing_gpu_is_one_finding(tmp_path: Path) -> None:
    write(tmp_path, image())
    about_gpu = {"gpu", "driver", "gpu-architecture", "nvml", "video-engines", "mig"}
    found = {one.name: one.status for one in examine(patient(tmp_path)) if one.name in about_gpu}
    assert found == {name: "fail" if name == "gpu" else "skip" for name in about_gpu}


@pytest.mark.parametrize("wish", ["void", "none"])
def test_who_wants_no_gpu_is_not_told_to_get_one(tmp_path: Path, wish: str) -> None:
    found = gpu.check_gpu(patient(tmp_path, {"NVIDIA_VISIBLE_DEVICES": wish}))
    skipped(found, f"NVIDIA_VISIBLE_DEVICES={wish}")


@pytest.mark.parametrize("code", sorted(cuda_errors.CUINIT))
def test_each_error_of_cuinit_has_its_own_name_and_remedy(gpu_patient: MakeGpu, code: int) -> None:
    meaning = cuda_errors.CUINIT[code]
    found = gpu.check_gpu(gpu_patient(CUDA_FAKE_INIT=code))
    trouble(found, "fail", f"cuInit failed: {code} CUDA_ERROR_{meaning.name}", meaning.remedy)


def test_an_unknown_error_of_cuinit_is_told_with_its_number(gpu_patient: MakeGpu) -> None:
    trouble(gpu.check_gpu(gpu_patient(CUDA_FAKE_INIT=717)), "fail", "error 717", "reboot")


def test_error_804_names_the_compat_library(gpu_patient: MakeGpu, tmp_path: Path, libraries: Path) -> None:
    """Field report B057: nvidia-smi works, and CUDA does not."""
    compat = tmp_path / "usr/local/cuda/compat"
    compat.mkdir(parents=True)
    (compat / "libcuda.so.1").hardlink_to(libraries / "libcuda.so.1")
    found = gpu.check_gpu(gpu_patient(CUDA_FAKE_INIT=804, LD_LIBRARY_PATH=str(compat)))
    trouble(found, "fail", "/usr/local/cuda/compat/libcuda.so.1", "take .../compat out of LD_LIBRARY_PATH")


def test_a_driver_that_hangs_is_given_up(gpu_patient: MakeGpu) -> None:
    sick = gpu_patient(CUDA_FAKE_HANG="cuInit")
    sick.driver_seconds = 1
    begun = time.monotonic()
    trouble(gpu.check_gpu(sick), "fail", "no answer in 1 s (cuInit)", "reboot")
    assert time.monotonic() - begun < 4


def test_a_driver_that_crashes_does_not_take_doctor_along(gpu_patient: MakeGpu) -> None:
    trouble(gpu.check_gpu(gpu_patient(CUDA_FAKE_CRASH="cuInit")), "fail", "cuInit: killed by signal 11", "reboot")


def test_a_lost_right_to_the_device_is_told_before_what_follows_from_it(tmp_path: Path) -> None:
    """After `systemctl daemon-reload` the nodes are there, and cannot be opened."""
    write(tmp_path, {**image(), "/dev/nvidia0": ""})
    lost = answers(says(node_errors={"/dev/nvidiactl": "Operation not permitted"}, init=999, step=""))
    found = gpu.check_gpu(patient(tmp_path, run=lost))
    trouble(found, "fail", "/dev/nvidiactl cannot be opened: Operation not permitted", "docker restart")


def test_the_probe_notices_a_node_that_cannot_be_opened(gpu_patient: MakeGpu, tmp_path: Path) -> None:
    sick = gpu_patient(nodes=("nvidia0",), CUDA_FAKE_INIT=999)
    (tmp_path / "dev/nvidiactl").mkdir()
    trouble(gpu.check_gpu(sick), "fail", "/dev/nvidiactl cannot be opened: Is a directory", "restart")


def test_devices_without_the_drivers_library(tmp_path: Path) -> None:
    """--device /dev/nvidia0 in the place of --gpus."""
    write(tmp_path, {**image(), "/dev/nvidia0": ""})
    missing = answers(says(load_error="libcuda.so.1: cannot open shared object file", step=""))
    found = gpu.check_gpu(patient(tmp_path, run=missing))
    trouble(found, "fail", "libcuda.so.1 cannot be loaded", "not --device /dev/nvidia0")


def test_capabilities_without_compute_are_named(tmp_path: Path) -> None:
    write(tmp_path, {**image(), "/dev/nvidia0": ""})
    missing = answers(says(load_error="libcuda.so.1: cannot open shared object file", step=""))
    found = gpu.check_gpu(patient(tmp_path, {"NVIDIA_DRIVER_CAPABILITIES": "utility"}, run=missing))
    trouble(found, "fail", "NVIDIA_DRIVER_CAPABILITIES=utility leaves compute out", "compute,utility,video")


@pytest.mark.parametrize("wish", ["", "-1"])
def test_a_variable_that_hides_every_gpu_is_named(gpu_patient: MakeGpu, wish: str) -> None:
    found = gpu.check_gpu(gpu_patient(CUDA_FAKE_INIT=100, CUDA_VISIBLE_DEVICES=wish))
    trouble(found, "fail", f"CUDA_VISIBLE_DEVICES={wish} hides every GPU", "unset CUDA_VISIBLE_DEVICES")


def test_cuda_without_devices(gpu_patient: MakeGpu) -> None:
    trouble(gpu.check_gpu(gpu_patient(CUDA_FAKE_COUNT=0)), "fail", "CUDA starts, but shows no device", "--gpus all")


def test_a_gpu_in_mig_mode_without_a_slice(gpu_patient: MakeGpu, tmp_path: Path) -> None:
    sick = gpu_patient(CUDA_FAKE_INIT=100)
    write(tmp_path, {"/proc/driver/nvidia/capabilities/gpu0/mig/config": ""})
    trouble(gpu.check_gpu(sick), "fail", "the GPU is in MIG mode", "nvidia-smi -L")


def test_slices_are_told(gpu_patient: MakeGpu) -> None:
    fine(gpu.check_mig(gpu_patient()), "whole GPUs")


def test_a_slice_is_named(gpu_patient: MakeGpu) -> None:
    fine(gpu.check_mig(gpu_patient(CUDA_FAKE_NAME="NVIDIA H200 MIG 1g.18gb")), "slices: NVIDIA H200 MIG 1g.18gb")


@pytest.mark.parametrize(
    ("version", "seen"),
    [
        (12060, "driver 560.35.03 is of CUDA 12.6; torch was built with 12.6"),
        (13000, "CUDA 13.0"),
        (12020, "minor-version compatibility"),
    ],
)
def test_drivers_that_will_do(gpu_patient: MakeGpu, version: int, seen: str) -> None:
    fine(gpu.check_driver(gpu_patient(CUDA_FAKE_VERSION=version)), seen)


@pytest.mark.parametrize("version", [11080, 11040])
def test_a_driver_that_is_too_old(gpu_patient: MakeGpu, version: int) -> None:
    """Field report B055, for who starts with NVIDIA_DISABLE_REQUIRE=1."""
    trouble(gpu.check_driver(gpu_patient(CUDA_FAKE_VERSION=version)), "fail", "is of CUDA 11.", "525.60.13 or later")


def test_forward_compatibility_is_told(gpu_patient: MakeGpu, tmp_path: Path, libraries: Path) -> None:
    compat = tmp_path / "cuda/compat"
    compat.mkdir(parents=True)
    (compat / "libcuda.so.1").hardlink_to(libraries / "libcuda.so.1")
    fine(gpu.check_driver(gpu_patient(LD_LIBRARY_PATH=str(compat))), "forward compatibility through")


@pytest.mark.parametrize(
    ("major", "minor", "fits"),
    [(5, 0, True), (7, 0, True), (8, 9, True), (9, 0, True), (3, 7, False), (10, 0, False), (12, 0, False)],
)
def test_the_gpu_against_the_code_in_the_wheels(gpu_patient: MakeGpu, major: int, minor: int, fits: bool) -> None:
    """Field report B059: is_available() is True, and the first kernel fails."""
    found = gpu.check_architecture(gpu_patient(CUDA_FAKE_MAJOR=major, CUDA_FAKE_MINOR=minor))
    if fits:
        fine(found, f"sm_{major}{minor}")
    else:
        trouble(found, "fail", f"is sm_{major}{minor}; this torch (CUDA 12.6)", "cu128" if major > 9 else "too old")


@pytest.mark.parametrize(("capability", "fits"), [((7, 0), False), ((6, 1), False), ((12, 0), True), ((12, 1), True)])
def test_the_gpu_against_the_blackwell_wheels(
    gpu_patient: MakeGpu, tmp_path: Path, capability: tuple[int, int], fits: bool
) -> None:
    sick = gpu_patient(CUDA_FAKE_MAJOR=capability[0], CUDA_FAKE_MINOR=capability[1])
    write(tmp_path, image(cuda="12.8"))
    found = gpu.check_architecture(sick)
    if fits:
        fine(found)
    else:
        trouble(found, "fail", "(CUDA 12.8)", "not the cu128 variant")


def test_nvml_that_lost_its_rights(gpu_patient: MakeGpu) -> None:
    trouble(gpu.check_nvml(gpu_patient(CUDA_FAKE_NVML=999)), "warn", "nvmlInit: 999", "docker restart")


def test_nvml_of_another_version(gpu_patient: MakeGpu) -> None:
    trouble(gpu.check_nvml(gpu_patient(CUDA_FAKE_NVML=18)), "warn", "LIB_RM_VERSION_MISMATCH", "reboot")


def test_nvml_that_is_not_there(gpu_patient: MakeGpu) -> None:
    found = gpu.check_nvml(gpu_patient(leave_out="libnvidia-ml.so.1"))
    trouble(found, "warn", "libnvidia-ml.so.1 cannot be loaded", "utility")


def test_nvml_that_hangs_leaves_cuda_usable(gpu_patient: MakeGpu) -> None:
    sick = gpu_patient(CUDA_FAKE_HANG="nvmlInit")
    sick.driver_seconds = 1
    trouble(gpu.check_nvml(sick), "warn", "no answer (nvmlInit)", "restart")
    fine(gpu.check_driver(sick))


def test_the_video_engines_need_their_library(gpu_patient: MakeGpu) -> None:
    sick = gpu_patient(leave_out="libnvcuvid.so.1", NVIDIA_DRIVER_CAPABILITIES="compute,utility")
    trouble(gpu.check_video(sick), "warn", "NVIDIA_DRIVER_CAPABILITIES=compute,utility", "compute,utility,video")
    assert gpu.check_gpu(sick).status == "ok"


def test_the_video_engines_are_there(gpu_patient: MakeGpu) -> None:
    fine(gpu.check_video(gpu_patient()), "libnvcuvid")


def test_wsl_pins_little(tmp_path: Path) -> None:
    """Field report B009."""
    write(tmp_path, {"/proc/version": "Linux version 5.15.167.4-microsoft-standard-WSL2"})
    trouble(gpu.check_wsl(patient(tmp_path)), "warn", "WSL2", ".wslconfig")


def test_a_driver_that_prints_nonsense_is_no_driver(tmp_path: Path) -> None:
    write(tmp_path, {**image(), "/dev/nvidia0": ""})
    trouble(gpu.check_gpu(patient(tmp_path, run=answers(Ran(0, "}{\nnot json\n")))), "fail", "no device", "--gpus all")
