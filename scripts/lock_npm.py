"""A part of `make lock`: resolve requirements/*/package.json, with a hash a package and no registry's address."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from scripts import names, node, ui

# What `npm ci` needs; the rest is links for readers.
KEPT = {
    *("version", "integrity", "bin", "engines", "os", "cpu", "libc", "optional", "peer", "hasShrinkwrap"),
    *("dependencies", "optionalDependencies", "peerDependencies", "peerDependenciesMeta"),
}


def lock_npm(before: str) -> None:
    """Write every package-lock.json again; packages that were published after `before` do not exist."""
    for source in sorted((names.ROOT / "requirements").glob("*/package.json")):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(source, folder)
            resolve = ("install", "--package-lock-only", "--omit-lockfile-registry-resolved", f"--before={before}")
            node.npm(Path(folder), *resolve)
            resolved = json.loads(Path(folder, "package-lock.json").read_text(encoding="utf-8"))
        packages = {path: _tidy(path, package) for path, package in resolved["packages"].items()}
        text = json.dumps({**resolved, "packages": packages}, indent=2) + "\n"
        source.with_name("package-lock.json").write_text(text, encoding="utf-8")
        ui.say(f"{source.parent.name}/package-lock.json: {len(packages) - 1} packages")


def _tidy(path: str, package: dict[str, Any]) -> dict[str, Any]:
    """The entry without a path is the package.json itself."""
    return {key: value for key, value in package.items() if key in KEPT} if path else package
