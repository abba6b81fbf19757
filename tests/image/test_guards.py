"""pip and uv do not replace the image's torch by accident; on purpose they do, and elsewhere they are free.

The index is a folder of empty wheels, so that nothing is downloaded: what counts is what pip and uv would take.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tests.support.containers import Containers, Done, Tracked
from tests.support.folders import Folders

OFFLINE = "--no-index --find-links /wheels"
WHEELS = {
    "torch-2.5.1": "",
    "torch-2.8.0": "",
    "wants_new_torch-1.0": "torch>=2.8",
    "wants_any_torch-1.0": "torch",
    "nvidia_cudnn_cu12-9.1.0.70": "",
    "numpy-1.0": "",
}
REASON = "this.image.keeps.it.see.opt.pytorch-cuda.constraints.txt"
NOTE = "UV_CONSTRAINT=/dev/null"


def make_wheel(folder: Path, name: str, requires: str) -> None:
    """An empty wheel with a version and a requirement."""
    package, version = name.rsplit("-", 1)
    info = f"{name}.dist-info"
    requirement = f"Requires-Dist: {requires}\n" if requires else ""
    with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n{requirement}")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


@pytest.fixture(scope="module")
def wheels(folders: Folders) -> Path:
    folder = folders.new()
    for name, requires in WHEELS.items():
        make_wheel(folder, name, requires)
    return folder


@pytest.fixture(scope="module")
def box(shared_containers: Containers, image: str, wheels: Path) -> Tracked:
    """One container for the questions that change nothing."""
    options = ["--network", "none", "--volume", f"{wheels}:/wheels:ro"]
    container = shared_containers.start(image, "sleep", "600", options=options)
    container.wait_for_process("sleep")
    return container


def sh(box: Tracked, script: str) -> Done:
    return box.exec("bash", "-c", script, user="user")


def version(box: Tracked) -> str:
    script = "import importlib.metadata as m; print(m.version('torch'))"
    return box.exec("/opt/conda/envs/pytorch/bin/python", "-c", script, user="user").ok().out.strip()


@pytest.mark.parametrize("what", ["torch==2.5.1", "wants_new_torch", "nvidia-cudnn-cu12==9.1.0.70"])
@pytest.mark.parametrize("pip", ["pip", "pip3", "python -m pip"])
def test_pip_refuses_and_says_why(box: Tracked, pip: str, what: str) -> None:
    """Field report B081."""
    done = sh(box, f"{pip} install {OFFLINE} '{what}'")
    assert done.code == 1 and REASON in done.err + done.out, done
    assert version(box).startswith("2.7.1")


@pytest.mark.parametrize("what", ["torch==2.5.1", "wants_new_torch", "nvidia-cudnn-cu12==9.1.0.70"])
def test_uv_refuses_and_says_why(box: Tracked, what: str) -> None:
    done = sh(box, f"uv pip install {OFFLINE} '{what}'")
    assert done.code == 1 and NOTE in done.err and "torch" in done.err, done
    assert version(box).startswith("2.7.1")


@pytest.mark.parametrize(
    "command", ["pip install -U torch", "uv pip install -U torch", "uv -q pip install -p 3.13 -U torch"]
)
def test_an_upgrade_keeps_torch(box: Tracked, command: str) -> None:
    sh(box, f"{command} {OFFLINE}").ok()
    assert version(box).startswith("2.7.1")


def test_after_all_that_torch_still_imports(box: Tracked) -> None:
    script = "import torch; print(torch.__version__)"
    assert (
        box.exec("python", "-c", script, user="user", budget="a program that loads torch").ok().out == "2.7.1+cu126\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize("installer", ["pip", "uv pip"])
def test_other_packages_are_nobodys_business(box: Tracked, installer: str) -> None:
    sh(box, f"{installer} install {OFFLINE} wants_any_torch").ok()
    assert "numpy-1.0" in sh(box, f"{installer} install {OFFLINE} --dry-run numpy==1.0 2>&1 | tr = -").out.replace(
        "--", "-"
    )
    sh(box, f"{installer} uninstall {'-y' if installer == 'pip' else ''} wants_any_torch").ok()


OWN = {
    "venv": "python -m venv v && v/bin/pip install {offline} torch==2.5.1 && v/bin/python",
    "venv, activated": "python -m venv v && . v/bin/activate && pip install {offline} torch==2.5.1 && python",
    "uv, by path": "uv venv -q v && uv pip install {offline} --python v torch==2.5.1 && v/bin/python",
    "uv, by its python": "uv venv -q v && uv pip install {offline} -p v/bin/python torch==2.5.1 && v/bin/python",
    "uv, activated": "uv venv -q v && . v/bin/activate && uv pip install {offline} torch==2.5.1 && python",
    "uv, a project's": "uv venv -q && uv pip install {offline} torch==2.5.1 && .venv/bin/python",
    "uv, below a project": "uv venv -q; mkdir a; cd a; uv pip install {offline} torch==2.5.1 && ../.venv/bin/python",
}


@pytest.mark.slow
@pytest.mark.parametrize("how", OWN)
def test_an_environment_of_the_users_own_may_hold_any_torch(box: Tracked, how: str) -> None:
    show = "-c 'import importlib.metadata as m; print(m.version(\"torch\"))'"
    script = f"set -e; cd $(mktemp -d); {OWN[how].format(offline=OFFLINE)} {show}"
    assert sh(box, script).ok().out.splitlines()[-1] == "2.5.1"
    assert version(box).startswith("2.7.1")


@pytest.mark.slow
@pytest.mark.parametrize("command", ["PIP_CONSTRAINT=/dev/null pip", "UV_CONSTRAINT=/dev/null uv pip"])
def test_on_purpose_it_is_done(box: Tracked, command: str) -> None:
    done = sh(box, f"{command} install --dry-run {OFFLINE} torch==2.5.1").ok()
    assert "torch" in done.out + done.err and "2.5.1" in done.out + done.err


@pytest.mark.slow
def test_what_the_user_constrains_stays_constrained(box: Tracked) -> None:
    script = f"echo 'wants_any_torch==2.0' > c; UV_CONSTRAINT=c uv pip install {OFFLINE} wants_any_torch"
    assert sh(box, f"cd $(mktemp -d); {script}").code == 1


def test_uv_itself_is_what_answers(box: Tracked) -> None:
    assert sh(box, "uv --version").ok().out.startswith("uv 0.")
    assert sh(box, "command -v uv").ok().out == "/opt/pytorch-cuda/bin/uv\n"


def test_conda_refuses_too(box: Tracked) -> None:
    if sh(box, "command -v conda").code:
        pytest.skip("not run: this image has no conda (embedded base)")
    done = sh(box, "conda install --offline --dry-run -y -n pytorch pytorch=2.5")
    assert done.code != 0 and "torch_is_a_pip_wheel_here" in done.out + done.err, done
