"""The environment: torch that was replaced, files that root left, an interpreter that does not start."""

from __future__ import annotations

import os
from pathlib import Path

from doctor import packages
from doctor.patient import ENVIRONMENT
from doctor.runner import Ran
from tests.doctor.patients import SITE, answers, fine, image, package, patient, skipped, trouble, write


def test_the_locked_torch(tmp_path: Path) -> None:
    write(tmp_path, image())
    fine(packages.check_torch(patient(tmp_path)), "torch 2.7.1, built with CUDA 12.6")
    fine(packages.check_locked(patient(tmp_path)), "all 2 packages")


def test_another_torch(tmp_path: Path) -> None:
    """Field report B081."""
    write(tmp_path, image(torch="2.5.1"))
    trouble(packages.check_locked(patient(tmp_path)), "fail", "torch 2.5.1 (locked: 2.7.1)", "torch==2.7.1")


def test_another_cudnn(tmp_path: Path) -> None:
    write(tmp_path, image(cudnn="9.1.0.70"))
    trouble(packages.check_locked(patient(tmp_path)), "fail", "nvidia-cudnn-cu12 9.1.0.70", "start a new container")


def test_the_same_torch_with_another_local_version_is_the_same(tmp_path: Path) -> None:
    write(tmp_path, {name: text for name, text in image().items() if "torch-2.7.1" not in name})
    write(tmp_path, package("torch", "2.7.1+cu126"))
    fine(packages.check_locked(patient(tmp_path)))


def test_torch_is_missing(tmp_path: Path) -> None:
    write(tmp_path, {name: text for name, text in image().items() if "torch" not in name.replace("pytorch", "")})
    trouble(packages.check_torch(patient(tmp_path)), "fail", "no torch in", "--force-reinstall torch==2.7.1")
    trouble(packages.check_locked(patient(tmp_path)), "fail", "torch is missing (locked: 2.7.1)", "new container")


def test_torch_without_cuda(tmp_path: Path) -> None:
    write(tmp_path, image(cuda=None))
    trouble(packages.check_torch(patient(tmp_path)), "fail", "without CUDA", "torch==2.7.1")


def test_torch_twice(tmp_path: Path) -> None:
    write(tmp_path, {**image(), **package("torch", "2.5.1")})
    trouble(packages.check_torch(patient(tmp_path)), "fail", "installed twice: 2.5.1, 2.7.1", "new container")


def test_another_torch_on_pythonpath(tmp_path: Path) -> None:
    write(tmp_path, {**image(), "/workspace/code/torch/__init__.py": ""})
    sick = patient(tmp_path, {"PYTHONPATH": "/nowhere:/workspace/code"})
    trouble(packages.check_torch(sick), "fail", "/workspace/code/torch before", "unset PYTHONPATH")
    fine(packages.check_torch(patient(tmp_path, {"PYTHONPATH": SITE})))


def test_another_torch_in_the_home(tmp_path: Path) -> None:
    """`pip install --user` with another pip; conda's environments look there, a venv does not."""
    write(tmp_path, {**image(), "/home/user/.local/lib/python3.13/site-packages/torch/__init__.py": ""})
    trouble(packages.check_torch(patient(tmp_path)), "fail", "/home/user/.local/lib/python3.13", "remove that folder")
    write(tmp_path, {f"{ENVIRONMENT}/pyvenv.cfg": ""})
    fine(packages.check_torch(patient(tmp_path)))


def test_the_thin_image_has_no_torch(tmp_path: Path) -> None:
    write(tmp_path, {"/opt/pytorch-cuda/lib/start.py": ""})
    skipped(packages.check_torch(patient(tmp_path)), "thin")


def test_versions_are_read_from_regular_files_alone(tmp_path: Path) -> None:
    """A link could lead root to any file, and a pipe would never end."""
    write(tmp_path, image())
    metadata = tmp_path / f"{SITE}/torch-2.7.1.dist-info/METADATA".lstrip("/")
    metadata.rename(tmp_path / "elsewhere")
    metadata.symlink_to(tmp_path / "elsewhere")
    trouble(packages.check_locked(patient(tmp_path)), "fail", "torch is missing", "")
    metadata.unlink()
    os.mkfifo(metadata)
    trouble(packages.check_locked(patient(tmp_path)), "fail", "torch is missing", "")


def test_files_of_roots(tmp_path: Path) -> None:
    """`docker exec NAME pip install` as root leaves what the user cannot replace."""
    write(tmp_path, {**image(), **package("six", "1.17.0")})
    _open_to_group(tmp_path, 0o775)
    (tmp_path / f"{SITE}/six-1.17.0.dist-info".lstrip("/")).chmod(0o755)
    sick = patient(tmp_path, uid=4321, gids=frozenset({4321, os.getgid()}))
    trouble(packages.check_owner(sick), "warn", "six-1.17.0.dist-info cannot be changed by uid 4321", "chmod -R g=u")


def test_a_user_outside_group_0(tmp_path: Path) -> None:
    write(tmp_path, image())
    _open_to_group(tmp_path, 0o775)
    sick = patient(tmp_path, uid=4321, gids=frozenset({4321}))
    trouble(packages.check_owner(sick), "warn", f"uid 4321 may not write to {ENVIRONMENT}", "--user N:0")


def test_an_environment_that_the_user_can_change(tmp_path: Path) -> None:
    write(tmp_path, image())
    _open_to_group(tmp_path, 0o775)
    fine(packages.check_owner(patient(tmp_path, uid=4321, gids=frozenset({os.getgid()}))))


def test_an_interpreter_that_does_not_start(tmp_path: Path) -> None:
    broken = answers(Ran(127, err="error while loading shared libraries: libz.so.1"))
    trouble(packages.check_python(patient(tmp_path, run=broken)), "fail", "libz.so.1", "LD_LIBRARY_PATH")


def test_an_interpreter_that_hangs(tmp_path: Path) -> None:
    found = packages.check_python(patient(tmp_path, run=answers(Ran(-9, timed_out=True))))
    trouble(found, "fail", "no answer in 5 s", "new container")


def _open_to_group(root: Path, mode: int) -> None:
    for folder in (f"{ENVIRONMENT}/bin", SITE):
        path = root / folder.lstrip("/")
        for one in (path, *path.iterdir()):
            one.chmod(mode)
