"""What has been packed so far, on the disk: so that a run that was killed goes on where it was."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from pathlib import Path
from typing import Any

from pinfeed.errors import BAD_DATA, USAGE, PinfeedError

PLAN, DONE = "plan.json", "done.jsonl"


class Journal:
    """A folder with the plan, and a line for each piece of it that is done and on the disk."""

    def __init__(self, folder: Path, plan: dict[str, Any]) -> None:
        """Take up the journal of this very plan, or begin it. Another plan's is refused, and one in use."""
        self.folder = folder
        self.done: list[dict[str, Any]] = []
        self._waiting: list[dict[str, Any]] = []
        folder.mkdir(parents=True, exist_ok=True)
        self._file = os.open(folder / DONE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self._lock()
            self._begin(plan)
        except BaseException:
            os.close(self._file)
            raise

    def add(self, record: dict[str, Any]) -> None:
        """Another piece is done; it counts once `flush` has been called."""
        self.done.append(record)
        self._waiting.append(record)

    def flush(self, images: int) -> None:
        """Write down what was added. The images go first: a line must never promise what a power cut took."""
        if self._waiting:
            os.fdatasync(images)
            lines = "".join(json.dumps(record) + "\n" for record in self._waiting).encode()
            self._waiting.clear()
            os.lseek(self._file, 0, os.SEEK_END)
            while lines:
                lines = lines[os.write(self._file, lines) :]
            os.fdatasync(self._file)

    def close(self) -> None:
        """Let another run take it up."""
        os.close(self._file)

    def remove(self) -> None:
        """All is done: the journal has served."""
        shutil.rmtree(self.folder)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PinfeedError(
                "another pinfeed pack is at work in this folder",
                f"{self.folder} is locked",
                "wait for it, or choose another --out",
                USAGE,
            ) from None
        except OSError:
            pass  # some network file systems know no locks

    def _begin(self, plan: dict[str, Any]) -> None:
        path = self.folder / PLAN
        try:
            before = json.loads(path.read_bytes())
        except (FileNotFoundError, ValueError):  # none, or the run was killed over its first line
            os.truncate(self._file, 0)
            path.write_text(json.dumps(plan))
            return
        differing = [name for name in plan if before.get(name) != plan[name]]
        if differing:
            changes = ", ".join(f"{name} {before.get(name)} -> {plan[name]}" for name in differing)
            raise PinfeedError(
                "the packing that was begun here was of something else",
                f"{changes} ({path})",
                "give the same --data and --size; if files came or went since, remove --out and pack anew",
                BAD_DATA,
            )
        self._read()

    def _read(self) -> None:
        whole = 0
        with open(self.folder / DONE, "rb") as file:
            for line in file:
                try:
                    self.done.append(json.loads(line))
                except ValueError:
                    break
                whole += len(line)
        os.truncate(self._file, whole)  # a last line that was cut short must not spoil the next one
