"""Do all libraries under a folder load on this system's glibc? For the oldest one that the image may meet.

Usage: glibc_check.py FOLDER     (Python 3.9, standard library; the bake target `glibc-check` runs it on Debian 11)

Two independent looks at every ELF file: the symbol versions that it says it needs are read from the file itself, and
`ldd -r` has the system's own loader bind all its symbols. Exit 1 when anything cannot be bound, or when there was
nothing to look at; 0 otherwise. What the wheels are known to leave open is told apart and counted.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from struct import unpack_from
from typing import Optional

X86_64 = 62
DYNAMIC_TYPES = (2, 3)  # executable, shared object; not the relocatable .o files that some wheels ship
VERSION_NEEDS = 0x6FFFFFFE  # section type SHT_GNU_verneed
SECONDS_A_FILE = 120

# Libraries that no wheel brings, each with who does. What is missing beyond these is a finding.
BROUGHT_BY_OTHERS = {
    r"libcuda\.so\.1|libnvidia-ml\.so\.1": "the GPU driver, mounted into the container by the engine",
    r"lib(ibverbs|mlx5|rdmacm)\.so\.1": "InfiniBand's user space, where there is such hardware",
    r"lib(avutil|avcodec|avformat|avdevice|avfilter)\.so\.\d+|libsox\.so": "FFmpeg or SoX, optional in torchaudio",
}
# Symbols that the interpreter itself defines.
OF_PYTHON = re.compile(r"_?Py[A-Z_]\w*")
# What every interpreter has loaded from the system (libdl, libpthread and libm are files of their own before glibc
# 2.34), so that extension modules may leave it open: asked of the interpreter that runs this, on this very system.
OF_THE_PROCESS = ctypes.CDLL(None)

WRONG_VERSION = re.compile(r"version `(\w+)_([\w.]+)' not found|symbol \w+,? version (\w+)_([\w.]+) not defined")
MISSING_LIBRARY = re.compile(r"^\s*(\S+) => not found", re.MULTILINE)
UNDEFINED_SYMBOL = re.compile(r"^undefined symbol: (\w+)", re.MULTILINE)


@dataclass
class Report:
    """What was seen, in numbers, and what is wrong."""

    files: int = 0
    highest: dict[str, tuple[int, ...]] = field(default_factory=dict)
    apart: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    def need(self, name: str, version: tuple[int, ...]) -> None:
        """Remember the highest version of a family (GLIBC, GLIBCXX, ...)."""
        self.highest[name] = max(self.highest.get(name, ()), version)

    def text(self) -> str:
        """The report as lines."""
        lines = [f"files looked at: {self.files}"]
        lines += [f"highest {name} needed: {'.'.join(map(str, v))}" for name, v in sorted(self.highest.items())]
        lines += [f"told apart: {count} x {what}" for what, count in sorted(self.apart.items())]
        lines += [f"finding: {finding}" for finding in self.findings]
        lines += [f"findings: {len(self.findings)}"]
        return "\n".join(lines)


def elf_files(folder: Path) -> Iterator[Path]:
    """Every dynamic x86-64 ELF file below the folder, links left out."""
    for parent, _, names in sorted(os.walk(folder)):
        for name in sorted(names):
            path = Path(parent, name)
            if path.is_file() and not path.is_symlink() and _is_dynamic_elf(path):
                yield path


def _is_dynamic_elf(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(64)
    if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":
        return False
    kind, machine = unpack_from("<HH", head, 16)
    return machine == X86_64 and kind in DYNAMIC_TYPES


def needed_versions(path: Path) -> set[str]:
    """The symbol versions, such as GLIBC_2.28, that the file asks other libraries for."""
    with path.open("rb") as file:
        names: set[str] = set()
        sections = _sections(file)
        for kind, offset, size, link in sections:
            if kind == VERSION_NEEDS:
                _, text_offset, text_size, _ = sections[link]
                names |= _versions(_part(file, offset, size), _part(file, text_offset, text_size))
        return names


def _part(file, offset: int, size: int) -> bytes:  # type: ignore[no-untyped-def]
    file.seek(offset)
    return bytes(file.read(size))


def _sections(file) -> list[tuple[int, int, int, int]]:  # type: ignore[no-untyped-def]
    """(type, offset, size, link) of each section."""
    head = _part(file, 0, 64)
    (start,) = unpack_from("<Q", head, 40)
    size, count = unpack_from("<HH", head, 58)
    table = _part(file, start, size * count)
    rows = []
    for number in range(count):
        _, kind, _, _, offset, length, link = unpack_from("<IIQQQQI", table, number * size)
        rows.append((kind, offset, length, link))
    return rows


def _versions(needs: bytes, text: bytes) -> set[str]:
    """Walk the two linked lists of a .gnu.version_r section: libraries, and versions of each."""
    names = set()
    library = 0
    while True:
        _, count, _, first, following = unpack_from("<HHIII", needs, library)
        entry = library + first
        for _ in range(count):
            _, _, _, name, next_entry = unpack_from("<IHHII", needs, entry)
            names.add(text[name : text.index(b"\0", name)].decode("ascii", "replace"))
            entry += next_entry
        if not following:
            return names
        library += following


def bind(path: Path) -> str:
    """What the loader says when it binds every symbol of the file."""
    done = subprocess.run(["ldd", "-r", str(path)], capture_output=True, text=True, timeout=SECONDS_A_FILE, check=False)
    return done.stdout + done.stderr


def judge(path: Path, said: str, in_the_tree: set[str], report: Report) -> None:
    """Sort what the loader said about one file into findings and things told apart."""
    for match in WRONG_VERSION.finditer(said):
        report.findings.append(f"{path}: {match.group(0)}")
    missing = MISSING_LIBRARY.findall(said)
    for name in missing:
        if name in in_the_tree:
            report.apart["library of another wheel, which the program loads first"] += 1
        elif owner := _owner(name):
            report.apart[f"library of {owner}"] += 1
        else:
            report.findings.append(f"{path}: needs {name}, which nothing brings")
    for symbol in UNDEFINED_SYMBOL.findall(said):
        if OF_PYTHON.fullmatch(symbol):
            report.apart["symbol of Python's own C API"] += 1
        elif hasattr(OF_THE_PROCESS, symbol):
            report.apart["symbol of the C library that the interpreter has loaded"] += 1
        elif missing:
            report.apart["symbol of a library told apart above"] += 1
        else:
            report.findings.append(f"{path}: undefined symbol {symbol}")


def _owner(name: str) -> Optional[str]:
    return next((owner for form, owner in BROUGHT_BY_OTHERS.items() if re.fullmatch(form, name)), None)


def add_versions(names: Iterable[str], report: Report) -> None:
    """Note the highest version of each family; names without a number (GLIBC_PRIVATE) say nothing."""
    for name in names:
        if match := re.fullmatch(r"(\w+)_(\d+(?:\.\d+)*)", name):
            report.need(match.group(1), tuple(int(part) for part in match.group(2).split(".")))


def check(folder: Path) -> Report:
    """Look at every file below the folder."""
    report = Report()
    files = list(elf_files(folder))
    report.files = len(files)
    if not files:
        report.findings.append(f"there is no ELF file below {folder}, so nothing was checked")
    in_the_tree = {path.name for path in folder.rglob("*.so*")}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, said in zip(files, pool.map(bind, files)):
            add_versions(needed_versions(path), report)
            judge(path, said, in_the_tree, report)
    return report


def main(arguments: list[str]) -> int:
    """Print the report."""
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 64
    report = check(Path(arguments[0]))
    print(report.text())
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
