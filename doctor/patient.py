"""What the checks look at. Every check gets it handed in, so that tests can show it a broken machine."""

from __future__ import annotations

import os
import posixpath
import re
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Callable, Optional

from doctor import files, runner
from doctor.runner import Ran

HOME_OF_THE_IMAGE = "/opt/pytorch-cuda"
ENVIRONMENT = "/opt/conda/envs/pytorch"

Run = Callable[..., Ran]


@dataclass(frozen=True)
class Mount:
    """A line of mountinfo."""

    point: str
    kind: str
    options: frozenset[str]
    source: str = ""


@dataclass
class Patient:
    """A container, or a machine. `root` is where /proc, /dev, /opt ... are looked for."""

    environ: Mapping[str, str]
    root: str = "/"
    home: str = ""
    uid: int = field(default_factory=os.geteuid)
    gids: frozenset[int] = field(default_factory=lambda: frozenset({os.getegid(), *os.getgroups()}))
    run: Run = runner.run
    statvfs: Callable[[str], os.statvfs_result] = os.statvfs
    limit: Callable[[int], tuple[int, int]] = field(default_factory=lambda: _limit)
    # Root's interpreter, not the environment's: the probes run on it.
    python: str = sys.executable
    driver_seconds: float = 15.0
    prefix: str = ""
    _known: dict[str, Any] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def once(self, name: str, ask: Callable[[], Any]) -> Any:
        """What `ask` says, which is asked when first wanted and then remembered; checks run side by side."""
        with self._lock:
            if name not in self._known:
                self._known[name] = ask()
            return self._known[name]

    def path(self, path: str) -> str:
        """Where an absolute path of the patient lies."""
        return path if self.root == "/" else posixpath.join(self.root, path.lstrip("/"))

    def read(self, path: str) -> str:
        """A file's text, empty when there is none."""
        return files.read_text(self.path(path)) or ""

    def names(self, folder: str) -> list[str]:
        """What lies in a folder."""
        return files.names_in(self.path(folder))

    def exists(self, path: str) -> bool:
        """Whether something is there."""
        return os.path.lexists(self.path(path))

    def variable(self, name: str) -> str:
        """One of the container's variables, empty when it is not set."""
        return self.environ.get(name, "")

    @property
    def in_image(self) -> bool:
        """Whether this is a container of ours, and not a checkout on some machine."""
        return self.exists(f"{HOME_OF_THE_IMAGE}/lib")

    @cached_property
    def image(self) -> dict[str, Any]:
        """What the image says it is (image.json); empty elsewhere."""
        import json

        try:
            return dict(json.loads(self.read(f"{HOME_OF_THE_IMAGE}/image.json")))
        except ValueError:
            return {}

    @cached_property
    def environment(self) -> str:
        """The Python environment that is meant: the image's, or the one that runs this program."""
        return self.prefix or (ENVIRONMENT if self.in_image else sys.prefix)

    @property
    def environment_python(self) -> str:
        """Its interpreter: for the user's processes only, since the user may change it."""
        return f"{self.environment}/bin/python" if self.in_image else sys.executable

    @cached_property
    def site_packages(self) -> list[str]:
        """The folders in which its packages lie."""
        lib = f"{self.environment}/lib"
        found = [f"{lib}/{name}/site-packages" for name in self.names(lib) if re.fullmatch(r"python3\.\d+", name)]
        if not self.in_image and not self.prefix:
            found += [entry for entry in sys.path if entry.endswith("-packages")]
        return [folder for folder in dict.fromkeys(found) if self.exists(folder)]

    @cached_property
    def mounts(self) -> list[Mount]:
        """All mounts, in the order in which they were made."""
        lines = (line.partition(" - ") for line in self.read_kernel("/proc/self/mountinfo").splitlines())
        return [
            Mount(_unescape(left[4]), right[0], frozenset(left[5].split(",")), right[1])
            for left, right in ((before.split(), after.split()) for before, _, after in lines)
            if len(left) > 5 and len(right) > 1
        ]

    def mount_of(self, path: str) -> Optional[Mount]:
        """The mount that a path lies on."""
        above = [mount for mount in self.mounts if _is_above(mount.point, path)]
        # Of two mounts at one point the later covers the earlier.
        return max(enumerate(above), key=lambda pair: (len(pair[1].point), pair[0]))[1] if above else None

    def read_kernel(self, path: str) -> str:
        """A file of the kernel: its size says 0, so it is read to its end."""
        try:
            with open(self.path(path), encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError:
            return ""

    @property
    def on_wsl(self) -> bool:
        """Whether the kernel is that of WSL2."""
        return "microsoft" in self.read_kernel("/proc/version").lower()


def _limit(which: int) -> tuple[int, int]:
    import resource

    return resource.getrlimit(which)


def _is_above(point: str, path: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")


def _unescape(name: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), name)
