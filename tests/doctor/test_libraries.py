"""Second copies of CUDA's libraries."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor import libraries
from doctor.runner import Ran
from tests.doctor.patients import answers, fine, image, package, patient, trouble, write

CACHE = "\tlibcuda.so.1 (libc6,x86-64) => {}/libcuda.so.1\n\tlibc.so.6 (libc6,x86-64) => /lib/libc.so.6\n"


@pytest.mark.parametrize("name", ["libcudnn.so.9", "libcudnn_ops.so.9", "libnvJitLink.so.12"])
def test_what_breaks_torch_in_the_library_path(tmp_path: Path, name: str) -> None:
    """Field report B061."""
    write(tmp_path, {f"/opt/other/{name}": ""})
    found = libraries.check_library_path(patient(tmp_path, {"LD_LIBRARY_PATH": ":/opt/other:"}))
    trouble(found, "fail", f"/opt/other/{name} is found before torch's own", "unset LD_LIBRARY_PATH")


def test_what_does_not_break_torch_is_a_warning(tmp_path: Path) -> None:
    write(tmp_path, {"/usr/local/cuda/lib64/libcublas.so.12": ""})
    found = libraries.check_library_path(patient(tmp_path, {"LD_LIBRARY_PATH": "/usr/local/cuda/lib64"}))
    trouble(found, "warn", "libcublas.so.12 is in LD_LIBRARY_PATH", "unset LD_LIBRARY_PATH")


def test_a_preloaded_library(tmp_path: Path) -> None:
    found = libraries.check_library_path(patient(tmp_path, {"LD_PRELOAD": "/a/libc.so /x/libcudnn.so.9"}))
    trouble(found, "fail", "/x/libcudnn.so.9", "LD_LIBRARY_PATH")


def test_other_libraries_are_nobodys_business(tmp_path: Path) -> None:
    write(tmp_path, {"/opt/other/libcudnn.so.8": "", "/opt/other/libssl.so.3": ""})
    found = libraries.check_library_path(patient(tmp_path, {"LD_LIBRARY_PATH": "/opt/other/none:/nowhere"}))
    fine(found)


def test_compat_in_the_loaders_cache(tmp_path: Path) -> None:
    """Field report B057."""
    run = answers(Ran(0, CACHE.format("/usr/local/cuda-12.1/compat") + CACHE.format("/usr/lib")))
    trouble(libraries.check_compat(patient(tmp_path, run=run)), "warn", "/usr/local/cuda-12.1/compat", "ldconfig")


def test_compat_in_the_library_path(tmp_path: Path) -> None:
    write(tmp_path, {"/usr/local/cuda/compat/libcuda.so.1": ""})
    sick = patient(tmp_path, {"LD_LIBRARY_PATH": "/usr/local/cuda/compat"}, run=answers(Ran(0)))
    trouble(libraries.check_compat(sick), "warn", "/usr/local/cuda/compat/libcuda.so.1", "LD_LIBRARY_PATH")


def test_compat_behind_the_drivers_own_is_harmless(tmp_path: Path) -> None:
    run = answers(Ran(0, CACHE.format("/usr/lib/x86_64-linux-gnu") + CACHE.format("/usr/local/cuda/compat")))
    fine(libraries.check_compat(patient(tmp_path, run=run)))


def test_two_packages_of_one_library(tmp_path: Path) -> None:
    write(tmp_path, {**image(), **package("nvidia-cudnn-cu13", "9.12.0.46")})
    found = libraries.check_one_cudnn(patient(tmp_path))
    trouble(found, "fail", "nvidia-cudnn-cu12, nvidia-cudnn-cu13", "pip uninstall nvidia-cudnn-cu13")


def test_one_package_of_each_library(tmp_path: Path) -> None:
    write(tmp_path, image())
    fine(libraries.check_one_cudnn(patient(tmp_path)))
