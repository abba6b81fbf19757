"""Users install packages into the environment, whoever they are; and what is installed stays whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.containers import Containers
from tests.support.folders import Folders
from tests.support.wheel import NAME, make_wheel

WHO = {
    "user": (),
    "puid": ("--env", "PUID=4321"),
    "user-N-0": ("--user", "12345:0"),
}
OFFLINE = "--no-index --find-links /wheels"


@pytest.fixture(scope="module")
def wheels(folders: Folders) -> Path:
    """A folder with one wheel. The index is not asked: behind a company's proxy a container does not reach it."""
    folder = folders.new()
    make_wheel(folder)
    return folder


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("installer", ["pip", "uv pip"])
def test_a_package_installs_imports_and_goes_again(
    containers: Containers, image: str, wheels: Path, who: str, installer: str
) -> None:
    site = "$(python -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))')"
    script = f"""
        set -eu
        {installer} install {OFFLINE} {NAME} >/tmp/log 2>&1 || {{ cat /tmp/log; exit 1; }}
        grep -i warn /tmp/log && exit 2
        cd /; {NAME}; python -c 'import {NAME}; {NAME}.main(); print({NAME}.__file__)'
        stat -c '%u:%g' {site}/{NAME}.py
        {installer} uninstall {"-y" if installer == "pip" else ""} {NAME} >/dev/null 2>&1
        python -c 'import {NAME}' 2>/dev/null || echo gone
    """
    options = [*WHO[who], "--network", "none", "--volume", f"{wheels}:/wheels:ro"]
    done = containers.run(image, "bash", "-c", script, options=options).ok()
    first, second, path, owner, last = done.out.splitlines()
    assert first == second == "tiny and installed"
    assert path.startswith("/opt/conda/envs/pytorch/lib/")
    uid = {"user": "1000", "puid": "4321", "user-N-0": "12345"}[who]
    assert owner == f"{uid}:0"
    assert last == "gone"


def test_two_users_of_one_container_do_not_lock_each_other_out(
    containers: Containers, image: str, wheels: Path
) -> None:
    """What one installs another can replace: group 0, setgid folders, umask 002."""
    container = containers.start(image, "sleep", "600", options=["--volume", f"{wheels}:/wheels:ro"])
    container.wait_for_process("sleep")
    install = f"umask 002; pip install {OFFLINE} --force-reinstall {NAME} >/dev/null && python -c 'import {NAME}'"
    for user in ("user", "12345:0", "user"):
        container.exec("bash", "-c", install, user=user).ok()


def test_pip_finds_no_conflict(containers: Containers, image: str) -> None:
    assert containers.run(image, "pip", "check").ok().out == "No broken requirements found.\n"


def test_an_edit_in_site_packages_takes_effect(containers: Containers, image: str) -> None:
    """The bytecode is compiled ahead; it must not outlive its source."""
    script = """
        set -eu
        file=$(python -c 'import tqdm; print(tqdm.__file__)')
        echo 'EDITED = "yes"' >> $file
        python -c 'import tqdm; print(tqdm.EDITED)'
    """
    assert containers.run(image, "bash", "-c", script).ok().out == "yes\n"
