"""A run from its start to its results."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from pinfeed import train as learning
from tests.pinfeed.support import same, three_parts, train, weights

FILES = ["checkpoint.pt", "metrics.json", "metrics.jsonl", "training.png"]


def test_a_run_leaves_metrics_plot_and_checkpoint(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "run"
    assert train(small, out, "--seed", "5") == 0
    assert sorted(path.name for path in out.iterdir() if path.name != "tensorboard") == FILES
    metrics = json.loads((out / "metrics.json").read_text())
    assert 0.5 < metrics["test_accuracy"] <= 1
    assert metrics["samples"] == {"train": 440, "validation": 40, "test": 96}
    expected = {
        "epochs": 2,
        "steps": 26,
        "seed": 5,
        "batch_size": 32,
        "torch": torch.__version__,
        "resumed": False,
    }
    assert {name: metrics[name] for name in expected} == expected
    assert metrics["command"].startswith("pinfeed train --data ")
    assert metrics["images_per_second"] > 0
    history = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in history] == [1, 2]
    assert history[-1]["validation_accuracy"] == metrics["validation_accuracy"]
    assert (out / "training.png").read_bytes().startswith(b"\x89PNG")
    said = capsys.readouterr()
    assert f"test accuracy {metrics['test_accuracy']:.2%}" in said.out
    assert said.err == ""


def test_a_run_on_a_processor_says_once_that_pinning_and_amp_are_off(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert train(small, tmp_path / "out") == 0
    assert capsys.readouterr().out.count("no GPU visible: pinning and AMP off") == 1
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert (metrics["device"], metrics["amp"], metrics["pin_memory"]) == ("cpu", "off", False)


def test_the_same_seed_gives_the_same_result_and_another_seed_another(small: Path, tmp_path: Path) -> None:
    for name, seed in (("one", "1"), ("again", "1"), ("other", "2")):
        assert train(small, tmp_path / name, "--seed", seed, "--device", "cpu") == 0
    assert same(weights(tmp_path / "one"), weights(tmp_path / "again"))
    assert not same(weights(tmp_path / "one"), weights(tmp_path / "other"))
    losses = [json.loads((tmp_path / name / "metrics.json").read_text())["test_loss"] for name in ("one", "again")]
    assert losses[0] == losses[1]


def test_the_test_images_are_looked_at_once_and_after_the_training(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    evaluate = learning.evaluate

    def noted(learner: object, feed: object, order: torch.Tensor, check: object) -> torch.Tensor:
        seen.append(len(order))
        return evaluate(learner, feed, order, check)

    monkeypatch.setattr(learning, "evaluate", noted)
    assert train(small, tmp_path / "out") == 0
    assert seen == [40, 40, 96]  # validation, validation, test


def test_real_images_are_learned(real: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert train(real, out, "--limit", "3000", "--epochs", "3") == 0
    assert json.loads((out / "metrics.json").read_text())["test_accuracy"] > 0.7


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_no_such_weights(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(small, tmp_path / "out", "--lr", "1e30") == 70
    message = capsys.readouterr().err
    assert three_parts(message)
    assert "--lr 1e+30" in message
    assert not (tmp_path / "out" / "checkpoint.pt").exists()
    assert not (tmp_path / "out" / "metrics.json").exists()


def test_a_batch_larger_than_the_set_is_refused(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(small, tmp_path / "out", "--batch-size", "441") == 64
    assert "--batch-size 441, 440 training images" in capsys.readouterr().err
    assert train(small, tmp_path / "out", "--batch-size", "440", "--epochs", "1") == 0


def test_memory_that_runs_out_is_explained(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: object) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB")

    monkeypatch.setattr(learning, "train_step", full)
    assert train(small, tmp_path / "out") == 69
    message = capsys.readouterr().err
    assert three_parts(message)
    assert "--batch-size 16" in message


def test_an_earlier_run_is_never_overwritten(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert train(small, out) == 0
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    capsys.readouterr()
    assert train(small, out, "--seed", "9") == 64
    message = capsys.readouterr().err
    assert three_parts(message)
    assert f"--resume {out}/checkpoint.pt" in message
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_other_files_in_the_folder_are_no_hindrance_and_stay(small: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert train(small, tmp_path) == 0
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_dry_run_checks_and_writes_nothing(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(small, tmp_path / "out", "--dry-run") == 0
    assert "nothing was written" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("dry", [(), ("--dry-run",)], ids=["run", "dry run"])
def test_a_folder_that_cannot_be_made_is_noticed_before_the_training(
    dry: tuple[str, ...], small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    assert train(small, tmp_path / "file" / "out", *dry) == 73
    said = capsys.readouterr()
    assert three_parts(said.err)
    assert "step" not in said.out.replace("steps", "")


def test_without_matplotlib_the_run_finishes_without_a_plot(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.sys.modules, "matplotlib.figure", None)  # type: ignore[attr-defined]
    assert train(small, tmp_path / "out") == 0
    assert "matplotlib is not installed" in capsys.readouterr().out
    assert not (tmp_path / "out" / "training.png").exists()
    assert (tmp_path / "out" / "metrics.json").exists()
