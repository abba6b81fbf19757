"""Writing: whole or not at all, and a full disk is told in three parts."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import pytest

from pinfeed import files
from pinfeed.errors import PinfeedError
from tests.pinfeed.support import arguments, same, start, three_parts, train, weights


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "checkpoint.pt"
    files.write_atomic(path, b"old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PinfeedError, match="could not be written") as caught:
        files.write_atomic(path, b"new")
    assert caught.value.code == 74
    assert "No space left on device" in caught.value.seen
    assert "MB free" in caught.value.seen
    assert [entry.name for entry in tmp_path.iterdir()] == ["checkpoint.pt"]
    assert path.read_bytes() == b"old"


def test_an_interrupted_write_leaves_the_old_file_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "metrics.json"
    files.write_atomic(path, b"old")

    def interrupted(source: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        files.write_atomic(path, b"new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["metrics.json"]
    assert path.read_bytes() == b"old"


def test_a_disk_without_room_for_a_checkpoint_is_noticed_before_the_training(small: Path, tmp_path: Path) -> None:
    def little_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    with start(*arguments(small, tmp_path / "out"), preexec_fn=little_room) as program:
        output, errors = program.communicate(timeout=120)
    assert program.returncode == 73
    assert three_parts(errors)
    assert "epoch 1/" not in output
    assert list((tmp_path / "out").iterdir()) == []


def test_a_disk_that_fills_up_later_ends_the_run_and_keeps_the_last_checkpoint(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, whole = tmp_path / "out", tmp_path / "whole"
    write, written = files.write_atomic, []

    def full_at_the_second_checkpoint(path: Path, content: bytes) -> None:
        written.append(path.name)
        if written.count("checkpoint.pt") == 2:
            monkeypatch.setattr(os, "fsync", _no_space)
        write(path, content)

    monkeypatch.setattr(files, "write_atomic", full_at_the_second_checkpoint)
    assert train(small, out, "--device", "cpu") == 74
    message = capsys.readouterr().err
    assert three_parts(message)
    assert f"pinfeed train --resume {out}/checkpoint.pt" in message
    monkeypatch.undo()
    assert train(small, out, "--device", "cpu", "--resume", str(out)) == 0
    assert train(small, whole, "--device", "cpu") == 0
    assert same(weights(out), weights(whole))


def _no_space(descriptor: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
