"""Going on with a run: exactly, and never from scratch by mistake."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from pinfeed.cli import main
from pinfeed.stop import Stop, StopRequested
from tests.pinfeed.support import arguments, same, start, three_parts, train, weights, write_set

TERM = 15


@pytest.fixture
def stop_after(monkeypatch: pytest.MonkeyPatch) -> object:
    """`stop_after(n)`: the n-th look at the signals finds SIGTERM; `stop_after(None)`: none does any more."""

    def arrange(looks: int | None) -> None:
        left = [looks]

        def check(self: Stop) -> None:
            if left[0] is not None:
                left[0] -= 1
                if left[0] <= 0:
                    raise StopRequested(TERM)

        monkeypatch.setattr(Stop, "check", check)

    return arrange


# A look before each epoch, one after each of its 13 steps, one after each validation batch.
@pytest.mark.parametrize("looks", [2, 8, 14, 15, 16, 22, 30], ids=lambda looks: f"look {looks}")
def test_a_resumed_run_ends_with_the_weights_of_one_that_was_not_stopped(
    looks: int, small: Path, tmp_path: Path, stop_after: object
) -> None:
    stop_after(None)  # type: ignore[operator]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert train(small, whole, "--device", "cpu") == 0
    stop_after(looks)  # type: ignore[operator]
    assert train(small, parts, "--device", "cpu") == 143
    assert not (parts / "metrics.json").exists()
    stop_after(None)  # type: ignore[operator]
    torch.manual_seed(12345)  # a new process would not have the old one's state either
    assert main(["train", "--resume", str(parts), "--device", "cpu", "--workers", "1"]) == 0
    assert same(weights(whole), weights(parts))
    one, other = (_steady(path) for path in (whole, parts))
    assert one == other


def _steady(out: Path) -> list[object]:
    """What the two runs' metrics must agree in: all but times and names."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    end = json.loads((out / "metrics.json").read_text())
    kept = [{name: line[name] for name in line if "second" not in name and name != "gpu_wait"} for line in lines]
    return [*kept, end["test_accuracy"], end["test_loss"], end["steps"]]


def test_a_killed_run_goes_on_from_its_last_epoch(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with start(*arguments(small, out, "--epochs", "400", "--device", "cpu")) as program:
        while not (out / "checkpoint.pt").exists() and program.poll() is None:
            pass
        program.kill()
    assert not (out / "metrics.json").exists()
    saved = torch.load(out / "checkpoint.pt", weights_only=True)
    assert saved["progress"]["epoch"] >= 1
    assert saved["progress"]["step"] == 0


def test_a_run_stopped_twice_loses_and_repeats_no_epoch(small: Path, tmp_path: Path, stop_after: object) -> None:
    out = tmp_path / "out"
    stop_after(20)  # type: ignore[operator]
    assert train(small, out, "--epochs", "4") == 143
    stop_after(20)  # type: ignore[operator]
    assert train(small, out, "--epochs", "4", "--resume", str(out)) == 143
    stop_after(None)  # type: ignore[operator]
    assert train(small, out, "--epochs", "4", "--resume", str(out / "checkpoint.pt")) == 0
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2, 3, 4]
    assert json.loads((out / "metrics.json").read_text())["resumed"] is True


def test_resuming_a_finished_run_only_tests_it_again(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert train(small, out) == 0
    before = _steady(out)
    (out / "metrics.json").unlink()
    capsys.readouterr()
    assert train(small, out, "--resume", str(out)) == 0
    assert "2 epochs of 2 done" in capsys.readouterr().out
    assert _steady(out) == before


def test_a_checkpoint_that_is_not_there_is_an_error_not_a_new_run(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(small, tmp_path / "out", "--resume", str(tmp_path / "nowhere")) == 66
    assert three_parts(capsys.readouterr().err)
    assert not (tmp_path / "out").exists()


def test_a_damaged_checkpoint_is_named_and_left_alone(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(small, tmp_path / "good") == 0
    content = (tmp_path / "good" / "checkpoint.pt").read_bytes()
    for number, damaged in enumerate((content[: len(content) // 2], b"", b"no checkpoint at all", content[:300])):
        path = tmp_path / f"damaged{number}.pt"
        path.write_bytes(damaged)
        capsys.readouterr()
        assert train(small, tmp_path / "out", "--resume", str(path)) == 65, damaged[:20]
        message = capsys.readouterr().err
        assert three_parts(message), message
        assert path.name in message
        assert path.read_bytes() == damaged


def test_a_file_of_torch_that_is_no_checkpoint_is_refused(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    contents: tuple[object, ...] = ([1, 2], {"model": {}}, {"pinfeed_checkpoint": 99})
    for content in contents:
        torch.save(content, tmp_path / "other.pt")
        assert train(small, tmp_path / "out", "--resume", str(tmp_path / "other.pt")) == 65
        assert three_parts(capsys.readouterr().err)


def test_a_resumed_run_may_not_change_what_decides_its_result(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert train(small, out) == 0
    assert train(small, out, "--resume", str(out), "--seed", "8") == 64
    assert "asked for --seed 8; the checkpoint has --seed 0" in capsys.readouterr().err


def test_a_resumed_run_may_not_change_its_data(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert train(small, out) == 0
    assert train(write_set(tmp_path / "other", test=97), out, "--resume", str(out)) == 65
    assert "not those that this run began with" in capsys.readouterr().err


def test_a_resumed_run_keeps_the_precision_that_was_asked_for_unless_told_otherwise(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    assert train(small, out) == 0
    content = torch.load(out / "checkpoint.pt", weights_only=True)
    assert content["amp"] == "auto"
    torch.save({**content, "amp": "fp16"}, out / "checkpoint.pt")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert train(small, out, "--resume", str(out)) == 64
    assert "--amp fp16 needs a GPU" in capsys.readouterr().err
    assert train(small, out, "--resume", str(out), "--amp", "off") == 0


def test_an_incomplete_checkpoint_is_refused(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"pinfeed_checkpoint": 2, "recipe": {}}, tmp_path / "part.pt")
    assert train(small, tmp_path / "out", "--resume", str(tmp_path / "part.pt")) == 65
    assert three_parts(capsys.readouterr().err)


def test_a_run_resumed_into_another_folder_takes_its_history_along(small: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert train(small, first) == 0
    shutil.copy(first / "checkpoint.pt", tmp_path / "copy.pt")
    assert train(small, second, "--resume", str(tmp_path / "copy.pt")) == 0
    assert (second / "metrics.jsonl").read_text() == (first / "metrics.jsonl").read_text()


def test_a_newer_checkpoint_is_not_overwritten_by_going_on_from_an_older_one(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert train(small, out) == 0
    shutil.copy(out / "checkpoint.pt", tmp_path / "older.pt")
    assert train(small, out, "--resume", str(tmp_path / "older.pt")) == 64
    assert "holds an earlier run" in capsys.readouterr().err
