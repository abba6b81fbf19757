"""What the PCIe link between host and GPU could do: generation and width, as gigabytes a second."""

from __future__ import annotations

import csv
import dataclasses
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Optional

# GB/s of a lane in one direction, after the line code (8b/10b, then 128b/130b, then flits).
LANE = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
_TRANSFERS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}  # GT/s of a generation
_QUERY = ("uuid", "pcie.link.gen.gpucurrent", "pcie.link.gen.max", "pcie.link.width.current", "pcie.link.width.max")
_NVIDIA = "0x10de"


@dataclasses.dataclass(frozen=True)
class Link:
    """Generation and lanes of a link, now and at most. An idle GPU lets its link sleep in a lower generation."""

    generation: int
    width: int
    max_generation: int
    max_width: int
    source: str

    @property
    def gigabytes(self) -> float:
        """GB/s in one direction, before the packets' own overhead: copies reach 85 to 90 % of it."""
        return round(LANE[self.generation] * self.width, 1)

    @property
    def max_gigabytes(self) -> float:
        """The same, of what GPU and slot could do at most."""
        return round(LANE[self.max_generation] * self.max_width, 1)

    def __str__(self) -> str:
        text = f"PCIe {self.generation} x{self.width}: {self.gigabytes} GB/s (by {self.source})"
        if self.max_gigabytes > self.gigabytes:
            text += f"; it could be PCIe {self.max_generation} x{self.max_width}: {self.max_gigabytes} GB/s"
        return text


def read_link(uuid: str = "", root: str = "/", smi: Optional[Callable[[], str]] = None) -> Optional[Link]:
    """The link of the GPU with this uuid (of the only one, without). None: nothing here tells."""
    return _of_smi((smi or _ask_smi)(), uuid) or _of_sys(Path(root))


def driver_version() -> Optional[str]:
    """The version of the GPU's driver."""
    return next(iter(_ask_smi(("driver_version",)).split()), None)


def _ask_smi(fields: tuple[str, ...] = _QUERY) -> str:
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _of_smi(answer: str, uuid: str) -> Optional[Link]:
    rows = [[cell.strip() for cell in row] for row in csv.reader(answer.splitlines()) if len(row) == len(_QUERY)]
    mine = [row for row in rows if uuid and uuid in row[0]] or (rows if len(rows) == 1 else [])
    if not mine or not all(cell.isdigit() for cell in mine[0][1:]):  # a virtual machine answers [N/A]
        return None
    generation, max_generation, width, max_width = map(int, mine[0][1:])
    return _link(generation, width, max_generation, max_width, "nvidia-smi")


def _of_sys(root: Path) -> Optional[Link]:
    """From the kernel, where there is one NVIDIA GPU: which of several is meant cannot be told here."""
    folders = [path.parent for path in root.glob("sys/bus/pci/devices/*/vendor") if _is_gpu(path.parent)]
    if len(folders) != 1:
        return None
    speeds = [re.match(r"[\d.]+", _text(folders[0] / f"{when}_link_speed")) for when in ("current", "max")]
    widths = [_text(folders[0] / f"{when}_link_width") for when in ("current", "max")]
    generations = [_TRANSFERS.get(float(speed[0]), 0) if speed else 0 for speed in speeds]
    if not all(width.isdigit() for width in widths):
        return None
    return _link(generations[0], int(widths[0]), generations[1], int(widths[1]), "the kernel")


def _is_gpu(folder: Path) -> bool:
    return _text(folder / "vendor") == _NVIDIA and _text(folder / "class").startswith("0x03")


def _link(generation: int, width: int, max_generation: int, max_width: int, source: str) -> Optional[Link]:
    known = generation in LANE and max_generation in LANE and 0 < width <= 32 and 0 < max_width <= 32
    return Link(generation, width, max_generation, max_width, source) if known else None


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
