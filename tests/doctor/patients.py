"""Machines that the tests make up, and how a finding is read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from doctor.findings import Finding
from doctor.patient import ENVIRONMENT, Patient
from doctor.runner import Ran

GIB = 1024**3
SITE = f"{ENVIRONMENT}/lib/python3.13/site-packages"
VERSION_PY = "__version__ = '{torch}+cu126'\ncuda: Optional[str] = {cuda}\nhip: Optional[str] = None\n"
MOUNTINFO = "30 22 0:25 / / rw,relatime - overlay overlay rw\n31 30 0:26 / /tmp rw,{options} - tmpfs tmpfs rw\n"
LOCK = "# a comment\ntorch==2.7.1,!=0+reason\nnvidia-cudnn-cu12==9.5.1.17,!=0+reason\n"


def write(root: Path, files: Mapping[str, str]) -> Path:
    """Make the files below root, whose names are absolute paths of the patient."""
    for name, text in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def package(name: str, version: str) -> dict[str, str]:
    """A package in the patient's environment, as far as doctor looks."""
    folder = f"{SITE}/{name.replace('-', '_')}-{version}.dist-info"
    return {f"{folder}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\ntext"}


def image(torch: str = "2.7.1", cuda: Optional[str] = "12.6", cudnn: str = "9.5.1.17") -> dict[str, str]:
    """The files of a container of ours."""
    described = {"version": "v2.7", "variant": "embedded", "base": "x", "wheel_cuda": "12.6", "torch": "2.7.1"}
    return {
        "/opt/pytorch-cuda/lib/start.py": "",
        "/opt/pytorch-cuda/image.json": json.dumps(described),
        "/opt/pytorch-cuda/constraints.txt": LOCK,
        f"{ENVIRONMENT}/bin/python": "",
        f"{SITE}/torch/version.py": VERSION_PY.format(torch=torch, cuda=repr(cuda)),
        **package("torch", torch),
        **package("nvidia-cudnn-cu12", cudnn),
    }


def patient(root: Path, environ: Optional[Mapping[str, str]] = None, **given: Any) -> Patient:
    """A patient below root; nothing is run on it unless `run` is given."""
    given.setdefault("run", answers(Ran(0)))
    given.setdefault("home", "/home/user")
    return Patient(environ=dict(environ or {}), root=str(root), **given)


class answers:  # noqa: N801 (used like a function)
    """A runner that runs nothing: it gives these answers one after the other, the last one for ever."""

    def __init__(self, *ran: Ran) -> None:
        self.ran = list(ran)
        self.commands: list[Sequence[str]] = []

    def __call__(self, command: Sequence[str], seconds: float, environ: Optional[Mapping[str, str]] = None) -> Ran:
        self.commands.append(command)
        return self.ran.pop(0) if len(self.ran) > 1 else self.ran[0]


def says(**facts: Any) -> Ran:
    """A child process that ended well and said this, as one JSON line."""
    return Ran(0, json.dumps(facts))


def disk(total: int, free: int, inodes: int = 10**6, flags: int = 0) -> Any:
    """statvfs of a disk of this size, whatever is asked."""
    blocks, free_blocks = total // 4096, free // 4096
    seen = os.statvfs_result((4096, 4096, blocks, free_blocks, free_blocks, 10**6, inodes, inodes, flags, 255))
    return lambda _: seen


def limits(soft: int, hard: int) -> Any:
    """getrlimit, whatever is asked."""
    return lambda _: (soft, hard)


def trouble(finding: Finding, status: str, seen: str, remedy: str) -> None:
    """The finding is this one, and tells all three parts."""
    assert (finding.status, seen in finding.seen, remedy in finding.remedy) == (status, True, True), finding
    assert finding.why, finding


def fine(finding: Finding, seen: str = "") -> None:
    """The finding is that all is well."""
    assert finding.status == "ok" and seen in finding.seen, finding


def skipped(finding: Finding, reason: str) -> None:
    """The finding is that nothing was looked at."""
    assert finding.status == "skip" and reason in finding.seen, finding
