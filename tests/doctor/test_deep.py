"""What `--deep` finds, from children that fail in the ways that are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor import deep
from doctor.examine import Check
from doctor.patient import Patient
from doctor.runner import Ran
from tests.doctor.patients import answers, fine, patient, says, skipped, trouble, write

LATE = Ran(-9, timed_out=True)
GOOD = {
    "torch": "2.7.1+cu126",
    "cuda": "12.6",
    "cudnn": 90501,
    "available": True,
    "cudnn_files": ["/x/libcudnn.so.9"],
    "seconds": 1.8,
}
PINNED = {"pinned_mib": 4096, "error": "", "pinned_gib_s": 52.0, "pageable_gib_s": 9.0}


def with_gpu(root: Path, ran: Ran) -> Patient:
    write(root, {"/dev/nvidia0": ""})
    return patient(root, run=answers(ran))


def test_packages_that_do_not_fit(tmp_path: Path) -> None:
    sick = patient(tmp_path, run=answers(Ran(1, "xformers 0.0.31 requires torch==2.7.0, but you have 2.7.1.\nb\n")))
    trouble(deep.check_pip(sick), "fail", "xformers 0.0.31 requires torch==2.7.0", "pip install")


def test_a_broken_pip(tmp_path: Path) -> None:
    sick = patient(tmp_path, run=answers(Ran(1, err="/x/python: No module named pip")))
    trouble(deep.check_pip(sick), "fail", "there is no pip", "ensurepip")


def test_a_pip_that_hangs(tmp_path: Path) -> None:
    trouble(deep.check_pip(patient(tmp_path, run=answers(LATE))), "fail", "no end after 60 s", "again")


def test_packages_that_fit(tmp_path: Path) -> None:
    fine(deep.check_pip(patient(tmp_path, run=answers(Ran(0, "No broken requirements found.\n")))))


def test_torch_that_does_not_import(tmp_path: Path) -> None:
    sick = patient(tmp_path, run=answers(Ran(1, err="ImportError: libcudnn.so.9: undefined symbol: cudnnGetLibConfig")))
    trouble(deep.check_import(sick), "fail", "undefined symbol", "new container")


def test_torch_that_sees_no_gpu(tmp_path: Path) -> None:
    sick = with_gpu(tmp_path, says(**{**GOOD, "available": False}))
    trouble(deep.check_import(sick), "fail", "torch sees no GPU", "see gpu")


def test_torch_with_two_cudnn(tmp_path: Path) -> None:
    sick = with_gpu(tmp_path, says(**{**GOOD, "cudnn_files": ["/a/libcudnn.so.9", "/b/libcudnn.so.9"]}))
    trouble(deep.check_import(sick), "fail", "/a/libcudnn.so.9, /b/libcudnn.so.9", "unset LD_LIBRARY_PATH")


def test_torch_that_works(tmp_path: Path) -> None:
    fine(deep.check_import(with_gpu(tmp_path, says(**GOOD))), "torch 2.7.1+cu126")


def test_memory_that_cannot_be_pinned(tmp_path: Path) -> None:
    sick = with_gpu(tmp_path, Ran(1, err="RuntimeError: CUDA error: out of memory"))
    trouble(deep.check_pinned(sick), "fail", "out of memory", "see gpu")


def test_memory_that_can_be_pinned_in_part(tmp_path: Path) -> None:
    """Field report B009: the message speaks of CUDA, and means the host."""
    sick = with_gpu(tmp_path, says(**{**PINNED, "pinned_mib": 512, "error": "CUDA error: out of memory"}))
    trouble(deep.check_pinned(sick), "warn", "512 MiB pinned", "WSL2: see wsl")


def test_a_slow_slot(tmp_path: Path) -> None:
    sick = with_gpu(tmp_path, says(**{**PINNED, "pinned_gib_s": 2.9}))
    trouble(deep.check_pinned(sick), "warn", "2.9 GiB/s", "GPU Link Info")


def test_a_fast_slot(tmp_path: Path) -> None:
    fine(deep.check_pinned(with_gpu(tmp_path, says(**PINNED))), "52.0 GiB/s")


def test_nothing_is_pinned_without_a_gpu(tmp_path: Path) -> None:
    skipped(deep.check_pinned(patient(tmp_path)), "no GPU")


def test_processes_that_do_not_find_each_other(tmp_path: Path) -> None:
    sick = patient(tmp_path, run=answers(Ran(1, err="RuntimeError: Unable to find address for: ^lo")))
    trouble(deep.check_all_reduce(sick), "fail", "Unable to find address", "GLOO_SOCKET_IFNAME")


@pytest.mark.parametrize("check", [deep.check_import, deep.check_pinned, deep.check_all_reduce])
def test_each_has_its_time_limit(tmp_path: Path, check: Check) -> None:
    found = check(with_gpu(tmp_path, LATE))
    assert found.status == "fail" and "no end after" in found.seen, found


def test_processes_that_agree(tmp_path: Path) -> None:
    fine(deep.check_all_reduce(patient(tmp_path, run=answers(says(sum=2)))))
