"""REQUIRE_GPU, decided by what is in /dev."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from entrypoint.errors import StartError
from entrypoint.gpu import has_gpu, require_gpu


@pytest.mark.parametrize(
    ("names", "there"),
    [
        (["nvidia0", "nvidiactl"], True),
        (["nvidia12"], True),
        (["dxg"], True),
        (["nvidiactl", "nvidia-uvm", "null"], False),
        ([], False),
    ],
)
def test_a_gpu_is_a_numbered_device_or_that_of_wsl(tmp_path: Path, names: Any, there: Any) -> None:
    for name in names:
        (tmp_path / name).touch()
    assert has_gpu(str(tmp_path)) is there


def test_a_required_gpu_that_is_missing_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="REQUIRE_GPU=1") as caught:
        require_gpu(True, str(tmp_path))
    assert "--gpus all" in caught.value.do


def test_without_the_requirement_no_gpu_is_needed(tmp_path: Path) -> None:
    require_gpu(False, str(tmp_path))


def test_a_required_gpu_that_is_there_is_enough(tmp_path: Path) -> None:
    (tmp_path / "nvidia0").touch()
    require_gpu(True, str(tmp_path))
