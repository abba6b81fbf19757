"""The conda step, which no machine here can run: its commands, its files, and the program that fixes its dates."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from pathlib import Path

import yaml  # type: ignore[import-untyped]

from scripts import names
from tests.static import dockerfile
from tests.static.test_guards import load

FILES = names.ROOT / "scripts" / "build" / "conda"
STAGE = dockerfile.stages()["python-conda"]
RUN = STAGE.run_with("miniforge.sh")
EPOCH = 1735689600  # 2025-01-01

fix_dates = load("scripts/build/conda/fix_dates.py")


def steps() -> list[str]:
    """The commands of the step, one by one."""
    return [command.strip() for command in RUN.split(";") if command.strip()]


def place(beginning: str) -> int:
    """Where a command stands in the step."""
    (number,) = [number for number, step in enumerate(steps()) if step.startswith(beginning)]
    return number


# ---- the step -------------------------------------------------------------------------------------------------------
def test_the_environment_is_made_from_the_installers_own_packages() -> None:
    """`--clone base` would hold conda and mamba too, and `conda` would take that environment for its base."""
    create = steps()[place("/opt/conda/bin/conda create")]
    assert create.split()[1:] == ["create", "--offline", "-y", "-p", "/opt/conda/envs/pytorch", "python=3.13", "pip"]
    assert "--clone" not in RUN and len(re.findall(r"\bconda (create|install|update)\b", RUN)) == 1


def test_the_settings_are_there_before_conda_is_called() -> None:
    assert steps()[0] == "export PYTHONHASHSEED=0 HOME=/root", "the order in conda-meta/history; conda needs a HOME"
    install = place("bash /tmp/miniforge.sh")
    assert steps()[install] == "bash /tmp/miniforge.sh -b -p /opt/conda"
    condarc = place("install -m 0644 /tmp/conda/condarc")
    assert steps()[condarc].endswith(" /opt/conda/.condarc")
    assert 0 < install < condarc < place("/opt/conda/bin/conda create")


def test_the_guards_go_into_the_environment() -> None:
    create = place("/opt/conda/bin/conda create")
    guards = {
        "environment-condarc": "/opt/conda/envs/pytorch/.condarc",
        "pinned": "/opt/conda/envs/pytorch/conda-meta/pinned",
    }
    for name, target in guards.items():
        number = place(f"install -m 0664 /tmp/conda/{name} ")
        assert steps()[number].split()[-1] == target and number > create


def test_dates_are_fixed_and_caches_removed_after_the_last_call_of_conda() -> None:
    create, fixed = place("/opt/conda/bin/conda create"), place("/opt/conda/bin/python -I /tmp/conda/fix_dates.py")
    assert steps()[fixed].endswith(' /opt/conda "${SOURCE_DATE_EPOCH}"')
    removed = place("rm -rf")
    gone = {"/opt/conda/pkgs", "/root/.conda", "/root/.cache", "/tmp/miniforge.sh", "/tmp/conda"}
    assert set(steps()[removed].split()[2:]) == gone and create < fixed < removed
    assert not [step for step in steps()[fixed:] if "bin/conda " in step]


def test_roots_interpreter_is_condas_own_not_the_environments() -> None:
    assert "ln -s /opt/conda/bin/python /opt/pytorch-cuda/python" in steps()


def test_the_step_proves_the_version_of_python() -> None:
    proof = "/opt/conda/envs/pytorch/bin/python -c 'import sys; assert sys.version_info[:2] == (3, 13), sys.version'"
    assert RUN.endswith(proof)


def test_the_files_that_the_step_takes_exist() -> None:
    (copy,) = STAGE.all("COPY")
    assert copy.rest == "scripts/build/conda/ /tmp/conda/"
    taken = set(re.findall(r"/tmp/conda/([\w.-]+)", RUN))
    assert taken == {path.name for path in FILES.iterdir() if path.name != "__pycache__"}


# ---- its files ------------------------------------------------------------------------------------------------------
def test_conda_knows_conda_forge_alone() -> None:
    commercial = "https://repo.anaconda.com/pkgs/"
    assert yaml.safe_load((FILES / "condarc").read_text(encoding="utf-8")) == {
        "channels": ["conda-forge"],
        "default_channels": [],
        "denylist_channels": [f"{commercial}main", f"{commercial}r"],
        "channel_priority": "strict",
        "auto_update_conda": False,
        "notify_outdated_conda": False,
        "number_channel_notices": 0,
        "envs_dirs": ["~/.conda/envs", "/opt/conda/envs"],
        "pkgs_dirs": ["~/.conda/pkgs", "/opt/conda/pkgs"],
    }


def test_a_conda_package_may_not_overwrite_pips_files() -> None:
    seen = yaml.safe_load((FILES / "environment-condarc").read_text(encoding="utf-8"))
    assert seen == {"path_conflict": "prevent"}


def test_the_pins_are_exactly_these_lines() -> None:
    """Byte for byte: a comment breaks mamba, and a build string that mixes - and _ is refused."""
    assert (FILES / "pinned").read_bytes() == (
        b"python 3.13.*\npytorch 2.7.1 torch_is_a_pip_wheel_here\nlibtorch <0a0\npytorch-cpu <0a0\npytorch-gpu <0a0\n"
    )


# ---- its dates ------------------------------------------------------------------------------------------------------
HISTORY = """==> 2026-11-30 09:08:07 <==
# cmd: /opt/conda/bin/conda create --offline -y -p /opt/conda/envs/pytorch python=3.13 pip
# conda version: 26.3.2
+conda-forge/linux-64::python-3.13.9-h1_100_cp313
# update specs: ['pip', 'python=3.13']
==> 2026-11-30 09:09:10 <==
# neutered specs: ['a==> b <==']
"""


def test_only_the_dates_of_a_history_change() -> None:
    fixed = fix_dates.fix_history(HISTORY, EPOCH)
    assert fixed == HISTORY.replace("2026-11-30 09:08:07", "2025-01-01 00:00:00").replace(
        "2026-11-30 09:09:10", "2025-01-01 00:00:00"
    )
    assert fix_dates.fix_history(fixed, EPOCH) == fixed


def test_histories_of_two_builds_become_one() -> None:
    other = HISTORY.replace("2026-11-30 09", "2027-01-02 23")
    assert fix_dates.fix_history(other, EPOCH) == fix_dates.fix_history(HISTORY, EPOCH)


def test_base_and_environment_get_the_date(tmp_path: Path) -> None:
    for prefix in (tmp_path, tmp_path / "envs/pytorch"):
        (prefix / "conda-meta").mkdir(parents=True)
        (prefix / "conda-meta/history").write_text(HISTORY)
    created = tmp_path / "envs/pytorch/conda-meta/created_at"
    created.write_text("2026-11-30T09:08:07.123456+00:00\n")
    fix_dates.main(tmp_path, EPOCH)
    for prefix in (tmp_path, tmp_path / "envs/pytorch"):
        assert (prefix / "conda-meta/history").read_text() == fix_dates.fix_history(HISTORY, EPOCH)
    assert datetime.fromisoformat(created.read_text().strip()) == datetime(2025, 1, 1, tzinfo=timezone.utc)
    assert not (tmp_path / "conda-meta/created_at").exists(), "none is made where conda made none"
