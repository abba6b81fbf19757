"""Build step: keep pip and uv from replacing torch, its companions and its CUDA wheels by accident.

Writes the constraints, and the environment's own pip.conf that names them: pip reads it for this environment alone,
so a virtual environment of the user's may hold any torch. uv knows no such file; scripts/image/bin/uv is its guard.

Usage: write_guards.py LOCK SOURCE_DATE_EPOCH
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

ENVIRONMENT = Path("/opt/conda/envs/pytorch")
CONSTRAINTS = Path("/opt/pytorch-cuda/constraints.txt")
GUARDED = re.compile(r"(torch|torchvision|torchaudio|triton|nvidia-.+-cu\d+)==(\S+)")
# pip quotes a constraint by its name and version alone. This is a version that never existed, so it excludes
# nothing, and it puts the reason into pip's message, as conda's build string does (scripts/build/conda/pinned).
REASON = "!=0+this.image.keeps.it.see.opt.pytorch-cuda.constraints.txt"

HEAD = """\
# What this image keeps as it is: torch, and the wheels that fit it. pip (through the pip.conf of the environment) and
# uv (through /opt/pytorch-cuda/bin/uv) refuse to replace them. To do it on purpose, at your own risk:
#   PIP_CONSTRAINT=/dev/null pip install ...        UV_CONSTRAINT=/dev/null uv pip install ...
#   conda install --no-pin --clobber ...
# or in an environment of your own, which nothing here touches: python -m venv ~/other; uv venv ~/other
"""
PIP_CONF = f"""\
# For this environment alone. On purpose: PIP_CONSTRAINT=/dev/null pip install ... ({CONSTRAINTS} says more)
[install]
constraint = {CONSTRAINTS}
"""


def constraints(lock: str) -> str:
    """The lock's lines for what is guarded."""
    found = [match for match in map(GUARDED.match, lock.splitlines()) if match]
    if not any(match[1] == "torch" for match in found):
        raise SystemExit("write_guards: the lock has no torch")
    return HEAD + "".join(f"{match[1]}=={match[2]},{REASON}\n" for match in found)


def write(path: Path, text: str, mode: int, epoch: int) -> None:
    """Write a file with a fixed mode and time."""
    path.write_text(text)
    path.chmod(mode)
    os.utime(path, (epoch, epoch))


def main(lock: Path, epoch: int, environment: Path = ENVIRONMENT, target: Path = CONSTRAINTS) -> None:
    write(target, constraints(lock.read_text()), 0o644, epoch)
    write(environment / "pip.conf", PIP_CONF, 0o664, epoch)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
