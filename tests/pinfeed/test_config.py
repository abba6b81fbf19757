"""Settings: ranges, choices, and which of them a resumed run may change."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from pinfeed.config import TrainConfig, default_out, pin_memory_from, with_recipe_of
from pinfeed.errors import PinfeedError


@pytest.mark.parametrize(
    "setting",
    [
        {"epochs": 0}, {"epochs": -1}, {"batch_size": 0}, {"batch_size": -8}, {"seed": -1}, {"seed": 2**63},
        {"lr": 0.0}, {"lr": -0.1}, {"lr": float("nan")}, {"lr": float("inf")}, {"workers": -1},
        {"workers": 5000}, {"limit": 0}, {"device": "tpu"}, {"amp": "int8"},
    ],
    ids=str,
)  # fmt: skip
def test_nonsense_is_refused_and_named(setting: dict[str, Any]) -> None:
    with pytest.raises(PinfeedError) as caught:
        TrainConfig(**setting)
    name = next(iter(setting)).replace("_", "-")
    assert caught.value.code == 64
    assert f"--{name}" in caught.value.what
    assert f"--{name}" in caught.value.seen


def test_a_configuration_cannot_be_changed_afterwards() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        TrainConfig().epochs = 3  # type: ignore[misc]


@pytest.mark.parametrize(("value", "pinned"), [("", True), ("1", True), ("0", False)])
def test_pin_memory_comes_from_the_environment(value: str, pinned: bool) -> None:
    assert pin_memory_from({"PIN_MEMORY": value}) is pinned


def test_pin_memory_takes_only_0_and_1() -> None:
    with pytest.raises(PinfeedError, match="PIN_MEMORY must be 0 or 1"):
        pin_memory_from({"PIN_MEMORY": "false"})


def test_a_resumed_run_takes_its_recipe_from_the_checkpoint() -> None:
    recipe = TrainConfig(epochs=9, batch_size=64).recipe()
    resumed = with_recipe_of(TrainConfig(amp="off"), frozenset({"amp"}), recipe)
    assert (resumed.epochs, resumed.batch_size, resumed.amp) == (9, 64, "off")


def test_a_resumed_run_may_not_change_its_recipe() -> None:
    recipe = TrainConfig(epochs=9).recipe()
    with pytest.raises(PinfeedError, match="go on with the settings") as caught:
        with_recipe_of(TrainConfig(epochs=3), frozenset({"epochs"}), recipe)
    assert caught.value.seen == "asked for --epochs 3; the checkpoint has --epochs 9"


@pytest.mark.parametrize("data", ["fashion-mnist", "/data/fashion-mnist/"])
def test_a_run_without_a_folder_gets_one_named_after_its_data(data: str) -> None:
    assert default_out(data, "20260102-030405", "/elsewhere") == "runs/fashion-mnist-20260102-030405"


def test_a_container_that_starts_in_workspace_keeps_runs_in_the_mounted_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("pinfeed.config.MOUNTED", str(tmp_path / "code"))
    assert default_out("d", "now", str(tmp_path)) == "runs/d-now"
    (tmp_path / "code").mkdir()
    assert default_out("d", "now", str(tmp_path)) == f"{tmp_path}/code/runs/d-now"
    assert default_out("d", "now", str(tmp_path / "code")) == "runs/d-now"
