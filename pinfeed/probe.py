"""`pinfeed probe`: how fast data gets from this host to its GPU, and how fast it could.

A table for people, JSON for programs, a plot. Everything that it pins it gives back.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import re
from pathlib import Path
from typing import Any, Optional

import torch

from pinfeed import __version__, bandwidth, files, guards
from pinfeed.bandwidth import Copies, Overlap
from pinfeed.errors import NO_GPU, PinfeedError, Stopped
from pinfeed.link import driver_version, read_link
from pinfeed.slab import CannotPin
from pinfeed.stop import Stop, StopRequested
from pinfeed.talk import Talk

PIN_LIMIT = 4 << 30

_SHARE = 0.25  # of the memory that is left: a probe must not push others into swap
_SCALES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
# Batches for the formula: the article's own, and a ResNet's in float32.
_LOADERS = (("64 images of 224 x 224 in float32", 64, 4), ("256 of them", 256, 8))


@dataclasses.dataclass(frozen=True)
class ProbeConfig:
    """Everything `pinfeed probe` can be told. Making one with a value out of range raises PinfeedError."""

    json: Optional[str] = None
    plot: Optional[str] = None
    pin_limit: str = "4g"
    allow_cpu: bool = False

    def __post_init__(self) -> None:
        _ = self.pin_bytes

    @property
    def pin_bytes(self) -> int:
        """--pin-limit as a number."""
        found = re.fullmatch(r"(\d{1,6})([kKmMgG]?)", self.pin_limit)
        if not found:
            raise PinfeedError(
                "--pin-limit must be a size such as 512m or 4g",
                f"--pin-limit {self.pin_limit}",
                "pinfeed probe --pin-limit 4g",
            )
        return int(found[1]) * _SCALES[found[2].lower()]


def probe(config: ProbeConfig, talk: Talk, stop: Stop) -> dict[str, Any]:
    """Do what `pinfeed probe` promises; what --json writes."""
    on_gpu = torch.cuda.is_available()
    if not on_gpu and not config.allow_cpu:
        raise PinfeedError(
            "the probe needs a CUDA device; start with --gpus all",
            f"torch {torch.__version__} sees none",
            "docker run --gpus all ... (`doctor` names the cause); or --allow-cpu for copies within the host",
            NO_GPU,
        )
    for path in (config.json, config.plot):
        if path:
            files.check_writable(Path(path))
    try:
        found = _measure_gpu(config, talk, stop) if on_gpu else _measure_host(talk, stop)
    except StopRequested as request:
        raise Stopped(request.signum, "stopped before the probe was done; nothing was written") from None
    _say_formulas(talk)
    _write(config, found, talk)
    return found


# --- measuring -----------------------------------------------------------------------------------


def _measure_gpu(config: ProbeConfig, talk: Talk, stop: Stop) -> dict[str, Any]:
    device = torch.device("cuda", torch.cuda.current_device())
    found = _conditions(device)
    talk.say(f"{found['device']}, driver {found['driver']}, torch {found['torch']}, {found['cpus']} CPUs")
    rows = _copies(device, ("h2d", "d2h"), talk, stop)
    # Right after the copies, while the link is awake.
    link = read_link(str(getattr(torch.cuda.get_device_properties(device), "uuid", "")))
    found["copies"] = [dataclasses.asdict(row) for row in rows]
    found["link"] = {**dataclasses.asdict(link), "gigabytes": link.gigabytes} if link else None
    _say_link(found, rows, talk)
    stop.check()
    found["overlap"] = _overlap(device, talk)
    stop.check()
    found["pinnable"] = _pinnable(config.pin_bytes, talk)
    stop.check()
    found["hazards"] = _hazards(device, talk)
    return found


def _measure_host(talk: Talk, stop: Stop) -> dict[str, Any]:
    """Without a GPU: only what ordinary memory does, and marked so."""
    device = torch.device("cpu")
    found = _conditions(device)
    talk.say("no GPU: copies within the host's memory only; pinned memory, overlap, link: not run")
    rows = _copies(device, ("h2h",), talk, stop)
    found["copies"] = [dataclasses.asdict(row) for row in rows]
    return {**found, "link": None, "overlap": None, "pinnable": None, "hazards": None}


def _conditions(device: torch.device) -> dict[str, Any]:
    room = guards.measure()
    on_gpu = device.type == "cuda"
    return {
        "version": 1,
        "gpu": on_gpu,
        "device": torch.cuda.get_device_name(device) if on_gpu else platform.processor() or platform.machine(),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "driver": driver_version() if on_gpu else None,
        "kernel": platform.release(),
        "wsl2": guards.wsl2(),
        "cpus": room.cpus,
        "memory_left": room.memory,
        "shm_free": room.shm,
        "pinfeed": __version__,
        "n": bandwidth.REPEATS,
        "method": "each copy from rest to rest; median of n, after two that are not counted; GB = 10^9 bytes",
    }


def _copies(device: torch.device, directions: tuple[str, ...], talk: Talk, stop: Stop) -> list[Copies]:
    """The table, line by line. Sizes that would fill the memory are left out, and said."""
    on_gpu = device.type == "cuda"
    kinds = [(direction, pinned) for direction in directions for pinned in ((False, True) if on_gpu else (False,))]
    largest = _SHARE * (guards.measure().memory or 1 << 62)
    talk.say("")
    talk.say(f"{'GB/s':>12}" + "".join(f"{_named(*kind):>22}" for kind in kinds))
    rows: list[Copies] = []
    refused: set[str] = set()
    for size in bandwidth.SIZES if on_gpu else bandwidth.SIZES[:-1]:
        if size > largest:
            talk.say(f"{size / 1e6:9,.2f} MB   not run: too large for the memory that is left")
            continue
        cells = []
        for direction, pinned in kinds:
            stop.check()
            try:
                rows.append(bandwidth.copies(size, direction, pinned=pinned, device=device))
                cells.append(f"{rows[-1].median:.1f}")
            except CannotPin as error:
                refused.add(str(error))
                cells.append("not run")
        talk.say(f"{size / 1e6:9,.2f} MB" + "".join(f"{cell:>22}" for cell in cells))
    for text in sorted(refused):
        talk.say(f"warning: {text}")
    return rows


def _named(direction: str, pinned: bool) -> str:
    return {"h2d": "to GPU", "d2h": "from GPU", "h2h": "within host"}[direction] + (
        ", pinned" if pinned else ", pageable"
    )


def _overlap(device: torch.device, talk: Talk) -> Optional[dict[str, Any]]:
    try:
        found = bandwidth.overlap(device)
    except CannotPin as error:
        talk.say(f"overlap: not run: {error}")
        return None
    talk.say(_overlap_line(found))
    return {**dataclasses.asdict(found), "hidden": found.hidden}


def _overlap_line(found: Overlap) -> str:
    return (
        f"a step of {found.compute:.2f} ms and {found.bytes / 1e6:.1f} MB for the next one: pageable"
        f" {found.pageable:.2f} ms, pinned on a stream of its own {found.pinned:.2f} ms: it hides"
        f" {found.hidden:.0%} of the copy's {found.copy:.2f} ms"
    )


def _pinnable(limit: int, talk: Talk) -> dict[str, Any]:
    left = guards.measure().memory
    bound = min(limit, int(_SHARE * left)) if left else limit
    found = bandwidth.pinnable(bound)
    how = f"then: {found.refusal}" if found.refusal else f"the bound ({guards.size(found.bound)}); more was not tried"
    talk.say(f"pinned memory: {guards.size(found.bytes)} at once went well, {how}; all given back")
    return dataclasses.asdict(found)


def _hazards(device: torch.device, talk: Talk) -> Optional[dict[str, Any]]:
    try:
        found = bandwidth.hazards(device)
    except CannotPin:
        return None
    talk.say(
        f"non_blocking, of {found.n} tries each: a result read on the host before a synchronise was wrong"
        f" {found.read_too_early} times, after it {found.read_after_waiting}; a pinned buffer filled again"
        f" before its copy was over sent wrong data {found.overwritten_too_early} times, after it"
        f" {found.overwritten_after_waiting}"
    )
    return dataclasses.asdict(found)


# --- telling -------------------------------------------------------------------------------------


def _say_link(found: dict[str, Any], rows: list[Copies], talk: Talk) -> None:
    best = max((row.median for row in rows if row.pinned and row.direction == "h2d"), default=None)
    talk.say("")
    link = found["link"]
    if link is None:
        talk.say("link: neither nvidia-smi nor the kernel tells its generation and width")
    elif best is None:
        talk.say(f"link: PCIe {link['generation']} x{link['width']}, {link['gigabytes']} GB/s")
    else:
        share = best / link["gigabytes"]
        talk.say(
            f"link: PCIe {link['generation']} x{link['width']} (by {link['source']}), {link['gigabytes']} GB/s before"
            f" packets' overhead; pinned copies reach {best:.1f}, {share:.0%} of it"
        )
        found["link"]["reached"] = round(share, 3)


def _say_formulas(talk: Talk) -> None:
    talk.say("")
    for name, count, workers in _LOADERS:
        talk.say(f"{name}: {guards.explained(count * 3 * 224 * 224 * 4, workers)}")


def _write(config: ProbeConfig, found: dict[str, Any], talk: Talk) -> None:
    if config.json:
        files.write_atomic(Path(config.json), (json.dumps(found, indent=2) + "\n").encode())
    if config.plot:
        from pinfeed import probe_plot

        try:
            image = probe_plot.draw(found)
        except ImportError:
            talk.say("no plot: matplotlib is not installed")
            return
        files.write_atomic(Path(config.plot), image)
    written = [os.path.abspath(path) for path in (config.json, config.plot) if path]
    if written:
        talk.say(f"written: {', '.join(written)}")
