"""TensorBoard, where it is installed: the numbers of metrics.jsonl as curves, in `tensorboard/` of the run's folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Optional

FOLDER = "tensorboard"


class Board:
    """Curves for TensorBoard. Without a folder, or without TensorBoard, it writes nothing."""

    def __init__(self, folder: Optional[Path] = None) -> None:
        self._writer: Any = None
        self._folder = folder

    def add(self, record: dict[str, Any]) -> None:
        """One more point for each number of a line of metrics.jsonl."""
        if self._folder is None:
            return
        if self._writer is None and not self._open(self._folder):
            return
        for name, value in record.items():
            if name != "epoch":
                self._writer.add_scalar(name.replace("_", "/", 1), value, record["epoch"])
        self._writer.flush()

    def close(self) -> None:
        """Let go of the file."""
        if self._writer is not None:
            self._writer.close()

    def _open(self, folder: Path) -> bool:
        # TensorBoard's own libraries print about processors and missing parts.
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            self._folder = None
            return False
        self._writer = SummaryWriter(str(folder / FOLDER))
        return True
