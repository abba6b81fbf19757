"""The fake driver, compiled once."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from doctor import runner
from doctor.patient import Patient
from tests.doctor.patients import image, write

SOURCE = Path(__file__).with_name("fake_driver.c")
NODES = ("nvidia0", "nvidiactl", "nvidia-uvm")
LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1", "libnvcuvid.so.1")


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the driver's libraries, all of them the fake."""
    folder = tmp_path_factory.mktemp("driver")
    fake = folder / "fake.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", fake, SOURCE], check=True)
    for name in LIBRARIES:
        os.link(fake, folder / name)
    return folder


MakeGpu = Callable[..., Patient]


@pytest.fixture
def gpu_patient(tmp_path: Path, libraries: Path) -> MakeGpu:
    """Makes a container of ours with a GPU, whose driver answers as told; the real probe asks it."""

    def make(leave_out: str = "", nodes: tuple[str, ...] = NODES, **environ: Any) -> Patient:
        folder = tmp_path / "libraries"
        folder.mkdir(exist_ok=True)
        for name in LIBRARIES:
            if name != leave_out:
                (folder / name).hardlink_to(libraries / name)
        write(tmp_path, {**image(), **{f"/dev/{node}": "" for node in nodes}})
        variables = {name: str(value) for name, value in environ.items()}
        variables.setdefault("LD_LIBRARY_PATH", str(folder))
        return Patient(environ=variables, root=str(tmp_path), run=runner.run, home="/home/user", driver_seconds=5)

    return make
