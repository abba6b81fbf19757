"""What keeps torch in its place: the constraints that are written, uv's wrapper, conda's files."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from scripts import names

LOCK = (names.ROOT / "requirements" / "python-cu126.lock").read_text(encoding="utf-8")
CONDA = names.ROOT / "scripts" / "build" / "conda"
IMAGE = "/opt/conda/envs/pytorch"


def load(path: str) -> ModuleType:
    """A program of ours that is no module of a package."""
    file = str(names.ROOT / path)
    loader = importlib.machinery.SourceFileLoader(Path(path).stem, file)
    spec = importlib.util.spec_from_file_location(Path(path).stem, file, loader=loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


guards = load("scripts/build/write_guards.py")
uv = load("scripts/image/bin/uv")


def test_torch_and_all_its_companions_are_kept() -> None:
    lines = [line for line in guards.constraints(LOCK).splitlines() if not line.startswith("#")]
    kept = dict(line.split(",")[0].split("==") for line in lines)
    locked = dict(re.findall(r"(?m)^([^#\s=]+)==(\S+)", LOCK))
    assert {"torch", "torchvision", "torchaudio", "triton"} <= set(kept)
    assert {name for name in locked if name.startswith("nvidia-") and name.endswith("-cu12")} <= set(kept)
    assert kept == {name: locked[name] for name in kept}
    assert not {"numpy", "nvidia-ml-py", "jupyterlab"} & set(kept)


def test_the_reason_excludes_no_version_that_exists() -> None:
    from packaging.specifiers import SpecifierSet

    for line in guards.constraints(LOCK).splitlines():
        if not line.startswith("#"):
            name, version = line.split(",")[0].split("==")
            specifier = SpecifierSet(line[len(name) :])
            assert version in specifier and f"{version}+cu126" in specifier and "0.0.1" not in specifier


def test_pip_reads_them_in_this_environment_alone(tmp_path: Path) -> None:
    lock, environment, target = tmp_path / "lock", tmp_path / "env", tmp_path / "constraints.txt"
    lock.write_text(LOCK)
    environment.mkdir()
    guards.main(lock, 1735689600, environment, target)
    assert f"constraint = {guards.CONSTRAINTS}\n" in (environment / "pip.conf").read_text()
    for path, mode in ((target, 0o644), (environment / "pip.conf", 0o664)):
        assert (path.stat().st_mtime, path.stat().st_mode & 0o777) == (1735689600, mode)


def test_a_lock_without_torch_stops_the_build() -> None:
    with pytest.raises(SystemExit, match="no torch"):
        guards.constraints("numpy==2.0 --hash=x\n")


def test_nothing_in_the_image_sets_a_constraint_for_all_environments() -> None:
    dockerfile = (names.ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert not re.search(r"(PIP|UV)_CONSTRAINT", dockerfile)


@pytest.mark.parametrize(
    ("words", "installs"),
    [
        ("pip install x", True),
        ("-q --color never pip install x", True),
        ("pip sync r.txt", True),
        ("pip list", False),
        ("pip uninstall install", False),
        ("add pip", False),
        ("", False),
    ],
)
def test_only_what_installs_is_guarded(words: str, installs: bool) -> None:
    assert uv.installs(words.split()) is installs


@pytest.mark.parametrize(
    ("words", "environ", "target"),
    [
        ("pip install x", {}, IMAGE),
        ("pip install x", {"CONDA_PREFIX": IMAGE}, IMAGE),
        ("pip install x", {"CONDA_PREFIX": "/home/user/.conda/envs/mine"}, "/home/user/.conda/envs/mine"),
        ("pip install x", {"CONDA_PREFIX": IMAGE, "VIRTUAL_ENV": "/v"}, "/v"),
        ("pip install -p /v/bin/python x", {"CONDA_PREFIX": IMAGE}, "/v"),
        ("pip install --python=/v/bin/python x", {"VIRTUAL_ENV": IMAGE}, "/v"),
        ("pip install -p3.13 x", {"CONDA_PREFIX": IMAGE}, IMAGE),
        ("pip install --python python3.13 x", {}, IMAGE),
        ("pip install x", {"CONDA_PREFIX": IMAGE, "UV_PYTHON": "/v/bin/python3"}, "/v"),
        (f"pip install --python {IMAGE}/bin/python x", {"VIRTUAL_ENV": "/v"}, IMAGE),
    ],
)
def test_the_target_is_the_one_that_uv_takes(words: str, environ: dict[str, str], target: str) -> None:
    assert uv.target(words.split(), environ) == target


@pytest.mark.parametrize("word", ["--target", "-t", "--prefix"])
def test_an_installation_elsewhere_is_free(word: str) -> None:
    for words in ([word, "/x"], [f"{word}=/x"]):
        assert uv.option(["pip", "install", *words], uv.ELSEWHERE) == "/x"
    assert uv.option(["pip", "install", "torch", "--tar"], uv.ELSEWHERE) is None


def test_a_project_is_found_from_below(tmp_path: Path) -> None:
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "pyvenv.cfg").touch()
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert uv.nearest_venv(str(tmp_path / "a" / "b")) == str(tmp_path / ".venv")


def test_conda_keeps_what_pip_installed() -> None:
    """The same guards, by their files: conda runs where an image with it can be built (tests/image/test_guards.py)."""
    pinned = (CONDA / "pinned").read_text(encoding="utf-8").splitlines()
    assert {"python 3.13.*", "libtorch <0a0", "pytorch-cpu <0a0", "pytorch-gpu <0a0"} <= set(pinned)
    assert "pytorch 2.7.1 torch_is_a_pip_wheel_here" in pinned
    assert not [line for line in pinned if "#" in line or not line.strip()], "a comment breaks mamba"
    assert "-" not in pinned[1].split()[2], "a build string must not mix - and _"
    assert "path_conflict: prevent" in (CONDA / "environment-condarc").read_text(encoding="utf-8").splitlines()
    torch = re.findall(r"(?m)^torch==(\S+)", LOCK)[0]
    assert f"pytorch {torch} torch_is_a_pip_wheel_here" in pinned, "the pin must follow the lock"
