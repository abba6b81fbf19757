"""Files that are whole or not there, and the folder of a run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Optional

from pinfeed.errors import CANNOT_CREATE, WRITE_FAILED, PinfeedError


class RunFolder:
    """What a run leaves behind, and where."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoint = path / "checkpoint.pt"
        self.metrics = path / "metrics.json"
        self.history = path / "metrics.jsonl"
        self.plot = path / "training.png"

    def refuse_if_used(self, resume: Optional[Path]) -> None:
        """Stop before an earlier run is overwritten; going on with that very run is no such case."""
        used = [path for path in (self.checkpoint, self.metrics, self.history, self.plot) if path.exists()]
        if not used or (resume and self.checkpoint.exists() and self.checkpoint.samefile(resume)):
            return
        go_on = f", or go on with it: --resume {self.checkpoint}" if self.checkpoint.exists() and not resume else ""
        raise PinfeedError(
            "the output folder holds an earlier run, which would be overwritten",
            f"{', '.join(path.name for path in used)} in {self.path}",
            f"choose another --out{go_on}",
        )

    def prove_writable(self, size: int) -> None:
        """Make the folder, and write `size` bytes into it and away again: better now than after an epoch."""
        trial = self.path / ".pinfeed-trial"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            try:
                _write_through(trial, bytes(size))
            finally:
                trial.unlink(missing_ok=True)
        except OSError as error:
            raise PinfeedError(
                "the output folder cannot be written",
                f"{self.path}: {error.strerror} ({_who_and_room(self.path)})",
                "give the folder to that user, free some space, or choose another --out",
                CANNOT_CREATE,
            ) from None

    def check_could_be_written(self) -> None:
        """The same without making anything, as far as permissions tell."""
        nearest = self.path
        while not nearest.exists() and nearest != nearest.parent:
            nearest = nearest.parent
        if not (nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)):
            raise PinfeedError(
                "the output folder cannot be made or written",
                f"{nearest} {'is not writable' if nearest.is_dir() else 'is no folder'} ({_who_and_room(nearest)})",
                "give the folder to that user, or choose another --out",
                CANNOT_CREATE,
            )

    def write_history(self, records: list[dict[str, Any]]) -> None:
        """metrics.jsonl as a whole, a line an epoch."""
        write_atomic(self.history, "".join(json.dumps(record) + "\n" for record in records).encode())

    def append_history(self, record: dict[str, Any]) -> None:
        """One more line of metrics.jsonl, for whoever follows it with `tail -f`."""
        try:
            with open(self.history, "a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
        except OSError as error:
            raise _write_failed(self.history, error) from None


def check_writable(path: Path) -> None:
    """Stop before long work whose result could not be written to `path`."""
    folder = path.parent
    if path.is_dir() or not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        kind = (
            "is a folder"
            if path.is_dir()
            else f"the folder {folder} " + ("is not writable" if folder.is_dir() else "is not there")
        )
        raise PinfeedError(
            f"{path} cannot be written", f"{kind} ({_who_and_room(folder)})", "give another path", CANNOT_CREATE
        )


def cannot_create(path: Path, error: OSError) -> PinfeedError:
    """The error for an output that could not be begun."""
    return PinfeedError(
        f"{path} cannot be made",
        f"{error.strerror} ({_who_and_room(path.parent)})",
        "free some space, give the folder to that user, or choose another --out",
        CANNOT_CREATE,
    )


def write_atomic(path: Path, content: bytes) -> None:
    """Write all of `path` or nothing: whatever happens, the file before or the file after is there."""
    part = path.with_name(path.name + ".part")
    try:
        try:
            _write_through(part, content)
            os.replace(part, path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise _write_failed(path, error) from None
    _sync_folder(path.parent)


def _write_through(path: Path, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())  # a full disk or quota may show itself only here


def _sync_folder(folder: Path) -> None:
    """Make the rename last through a power cut, where the file system can promise that."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        pass  # some network file systems refuse it for folders; the file itself is safe
    finally:
        os.close(descriptor)


def _write_failed(path: Path, error: OSError) -> PinfeedError:
    checkpoint = path.with_name("checkpoint.pt")
    go_on = f", then go on: pinfeed train --resume {checkpoint}" if checkpoint.exists() else ""
    return PinfeedError(
        f"{path} could not be written",
        f"{error.strerror} ({_who_and_room(path.parent)})",
        f"free some space or choose another --out{go_on}",
        WRITE_FAILED,
    )


def _who_and_room(folder: Path) -> str:
    """The two things that writing hangs on: the user, and the space left."""
    while not folder.exists():
        folder = folder.parent
    room = os.statvfs(folder)
    return f"as uid {os.getuid()}, {room.f_bavail * room.f_frsize / 1e6:,.1f} MB free"
