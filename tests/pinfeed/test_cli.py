"""The command line: help, version, mistakes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import pinfeed
from pinfeed.cli import main
from tests.pinfeed.support import ROOT, three_parts


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        ([], "COMMAND"),
        (["dance"], "dance"),
        (["train", "--epochs"], "--epochs"),
        (["train", "--epochs", "-1"], "--epochs -1"),
        (["train", "--epochs", "many"], "many"),
        (["train", "--epochs", "2.5"], "2.5"),
        (["train", "--batch-size", "0"], "--batch-size 0"),
        (["train", "--lr", "nan"], "--lr nan"),
        (["train", "--seed", "-3"], "--seed -3"),
        (["train", "--device", "tpu"], "tpu"),
        (["train", "--amp", "int8"], "int8"),
        (["train", "--workers", "some"], "--workers some"),
        (["train", "--data", "imagenet"], "--data imagenet"),
        (["train", "--data", ""], "--data"),
        (["train", "--epoch", "3"], "--epoch 3"),
        (["train", "extra"], "extra"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_mistake_is_one_message_in_three_parts_and_exit_64(
    argv: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 64
    said = capsys.readouterr()
    assert said.out == ""
    assert three_parts(said.err)
    assert named in said.err


@pytest.mark.parametrize("asked", [["--device", "cuda"], ["--amp", "bf16"], ["--amp", "fp16"]], ids=" ".join)
def test_a_gpu_that_is_not_there_is_said(
    asked: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["train", *asked, "--out", str(tmp_path / "out")]) == 64
    message = capsys.readouterr().err
    assert three_parts(message)
    assert "--gpus all" in message


def test_pin_memory_of_the_environment_is_checked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIN_MEMORY", "no")
    assert main(["train"]) == 64
    assert "PIN_MEMORY=no" in capsys.readouterr().err


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"pinfeed {pinfeed.__version__}\n"


@pytest.mark.parametrize("argv", [["--help"], ["train", "--help"]], ids=" ".join)
def test_help_shows_examples(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 0
    assert "pinfeed train --resume" in capsys.readouterr().out


def test_every_flag_has_a_help_text(capsys: pytest.CaptureFixture[str]) -> None:
    main(["train", "--help"])
    text = capsys.readouterr().out
    for flag in (
        "--data", "--epochs", "--batch-size", "--lr", "--seed", "--limit", "--no-checksum", "--device",
        "--amp", "--no-pin-memory", "--workers", "--out", "--resume", "--dry-run",
    ):  # fmt: skip
        assert f"  {flag}" in text


def test_help_and_mistakes_do_not_wait_for_torch() -> None:
    code = "import sys; from pinfeed.cli import main; main(['--version']); main(['train', '--epochs', '0'])"
    check = f"{code}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], cwd=ROOT, capture_output=True).returncode == 0


def test_threads_do_not_spin_beside_a_busy_neighbour() -> None:
    code = "import os; from pinfeed.cli import main; main(['train', '--data', 'none'])"
    code += "; print(os.environ['OMP_WAIT_POLICY'])"
    environ = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    shown = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environ, capture_output=True, text=True)
    assert shown.stdout == "passive\n"
