"""`make lock`: resolve requirements/*.in into hashed lock files, the same bytes each time.

uv resolves. For the image one thing is added: exactly one hash a package, of the file that an installer takes on
the target platform. A plain hashed lock would admit two different wheels of one version (seven of the CUDA 12.6
packages have two), and then two builds could differ.

Runs in the repository's .venv, which holds uv and packaging.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

from scripts.lock_npm import lock_npm

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

REQUIREMENTS = Path(__file__).resolve().parents[1] / "requirements"

# Files uploaded later do not exist for the resolver: that is what makes `make lock` give the same answer again.
# Moving this date is how everything is updated.
EXCLUDE_NEWER = "2026-11-30"

PYTHON = (3, 13)
GLIBC = (2, 31)  # Ubuntu 20.04's: the oldest base

HEADER = "# Made by `make lock` from {source}; do not edit.\n"


@dataclass(frozen=True)
class Wheel:
    """One file of a package that an installer could take."""

    filename: str
    sha256: str


def target_tags(python: tuple[int, int] = PYTHON, glibc: tuple[int, int] = GLIBC) -> list[Tag]:
    """The wheel tags of the image's platform, best first, in the order that installers use (PEP 600, PEP 425)."""
    platforms = []
    legacy = {(2, 17): "manylinux2014", (2, 12): "manylinux2010", (2, 5): "manylinux1"}
    for minor in range(glibc[1], 4, -1):
        platforms.append(f"manylinux_2_{minor}_x86_64")
        if (2, minor) in legacy:
            platforms.append(f"{legacy[(2, minor)]}_x86_64")
    platforms.append("linux_x86_64")
    interpreter = f"cp{python[0]}{python[1]}"
    return [
        *cpython_tags(python, [interpreter], platforms),
        *compatible_tags(python, interpreter, platforms),
    ]


def best_wheel(wheels: list[Wheel], tags: list[Tag]) -> Wheel:
    """The wheel that an installer prefers: the lowest rank among its tags, then the higher build number."""
    rank = {tag: number for number, tag in enumerate(tags)}

    def preference(wheel: Wheel) -> tuple[int, tuple[int, str], str]:
        _name, _version, build, wheel_tags = parse_wheel_filename(wheel.filename)
        best = min((rank[tag] for tag in wheel_tags if tag in rank), default=len(tags))
        return (-best, build or (0, ""), wheel.filename)

    chosen = max(wheels, key=preference)
    if -preference(chosen)[0] == len(tags):
        raise SystemExit(
            f"lock: no wheel for the image's platform\n  seen: {[w.filename for w in wheels]}\n"
            "  do:   choose another version in requirements/*.in"
        )
    return chosen


def one_hash_each(pylock: dict[str, Any], tags: list[Tag]) -> list[str]:
    """Lock lines `name==version --hash=sha256:...`, one a package, sorted by name."""
    lines = []
    for package in pylock["packages"]:
        wheels = [Wheel(entry["url"].rsplit("/", 1)[-1], entry["hashes"]["sha256"]) for entry in package["wheels"]]
        chosen = best_wheel(wheels, tags)
        lines.append(f"{package['name']}=={package['version']} --hash=sha256:{chosen.sha256}\n")
    return sorted(lines)


def uv_compile(*arguments: str) -> None:
    """Run the .venv's `uv pip compile`; addresses of the package index never reach a file of ours."""
    command = [
        str(Path(sys.executable).with_name("uv")),
        "pip",
        "compile",
        "--quiet",
        "--no-header",
        "--only-binary",
        ":all:",
        "--exclude-newer",
        EXCLUDE_NEWER,
        *arguments,
    ]
    if subprocess.run(command, check=False).returncode:
        raise SystemExit(
            f"lock: uv could not resolve\n  seen: its message above, from: {' '.join(command)}\n"
            "  do:   check the network and requirements/*.in, then `make lock` again"
        )


def lock_image(source: str, lock: str, *constraints: str) -> None:
    """Resolve `source` for the image's platform into `lock`, with one hash a package."""
    with tempfile.TemporaryDirectory() as folder:
        pylock = Path(folder) / "pylock.image.toml"
        uv_compile(
            str(REQUIREMENTS / source),
            "--format",
            "pylock.toml",
            "-o",
            str(pylock),
            "--python-version",
            f"{PYTHON[0]}.{PYTHON[1]}",
            "--python-platform",
            f"x86_64-manylinux_{GLIBC[0]}_{GLIBC[1]}",
            *constraints,
        )
        resolved = tomllib.loads(pylock.read_text())
    lines = one_hash_each(resolved, target_tags())
    (REQUIREMENTS / lock).write_text(HEADER.format(source=source) + "".join(lines))
    print(f"{lock}: {len(lines)} packages")


def lock_dev() -> None:
    """Resolve the host's tools for every Python from 3.9 on; all hashes, since the host's platform is not ours."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "dev.lock"
        uv_compile(
            str(REQUIREMENTS / "dev.in"),
            "--universal",
            "--python-version",
            "3.9",
            "--generate-hashes",
            "--no-annotate",
            "-o",
            str(output),
        )
        text = output.read_text()
    (REQUIREMENTS / "dev.lock").write_text(HEADER.format(source="dev.in") + text)
    print(f"dev.lock: {text.count('==')} pins")


def main() -> int:
    """Make every lock again."""
    lock_image("python.in", "python-cu126.lock")
    lock_image("test-image.in", "test-image.lock", "--constraints", str(REQUIREMENTS / "python-cu126.lock"))
    lock_dev()
    lock_npm(EXCLUDE_NEWER)
    return 0


if __name__ == "__main__":
    sys.exit(main())
