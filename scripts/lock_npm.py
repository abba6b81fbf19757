"""A part of `make lock`: resolve requirements/*/package.json, with a hash a package and no registry's address."""

from __future__ import annotations

import json
from pathlib import Path

from scripts import names, node, ui

# What `npm ci` needs; the rest is links for readers.
KEPT = {
    *("version", "integrity", "bin", "engines", "os", "cpu", "libc", "optional", "peer", "hasShrinkwrap"),
    *("dependencies", "optionalDependencies", "peerDependencies", "peerDependenciesMeta"),
}


def lock_npm(before: str) -> None:
    """Write every package-lock.json again; packages that were published after `before` do not exist."""
    for folder in sorted(path.parent for path in (names.ROOT / "requirements").glob("*/package.json")):
        lock = folder / "package-lock.json"
        lock.unlink(missing_ok=True)
        node.npm(folder, "install", "--package-lock-only", "--omit-lockfile-registry-resolved", f"--before={before}")
        ui.say(f"{lock.relative_to(names.ROOT)}: {_tidy(lock)} packages")


def _tidy(lock: Path) -> int:
    seen = json.loads(lock.read_text(encoding="utf-8"))
    packages = seen["packages"]
    for path in packages:
        if path:  # the first, without a path, is the package.json itself
            packages[path] = {key: value for key, value in packages[path].items() if key in KEPT}
    lock.write_text(json.dumps(seen, indent=2) + "\n", encoding="utf-8")
    return len(packages) - 1
