"""The repository's .venv, made from requirements/dev.lock; made again when the lock or the Python changes.

`python3 -m scripts.venv ARGUMENTS` makes it and runs its Python with the arguments.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import sys
from pathlib import Path

from scripts import names, packages, process, ui

LOCK = names.ROOT / "requirements" / "dev.lock"
PYTHON = names.VENV / "bin" / "python"
MARK = names.VENV / "made-from"


def main() -> int:
    """Make .venv when needed; run its Python when there are arguments."""
    ensure_venv()
    if len(sys.argv) > 1:
        process.become([str(PYTHON), *sys.argv[1:]])
    ui.say(f"{names.VENV} is ready.")
    return 0


def ensure_venv() -> Path:
    """Give the Python of an environment that holds exactly what the lock says."""
    wanted = f"{platform.python_version()} {hashlib.sha256(LOCK.read_bytes()).hexdigest()}\n"
    if MARK.is_file() and MARK.read_text(encoding="utf-8") == wanted and PYTHON.exists():
        return PYTHON
    if not packages.has_venv():
        packages.install(packages.missing(), "This Python cannot make virtual environments, and the tests need one")
    with ui.steps.step("make .venv", "the tools of the tests, from requirements/dev.lock"):
        _make()
    MARK.write_text(wanted, encoding="utf-8")  # last: half an environment is never taken for a whole one
    return PYTHON


def _make() -> None:
    shutil.rmtree(names.VENV, ignore_errors=True)
    made = process.capture([sys.executable, "-m", "venv", str(names.VENV)], timeout=120)
    if not made.ok:
        raise ui.UserError(".venv could not be made", made.last_words, "mend this Python's venv module")
    log = names.LOGS / "venv.log"
    command = [str(PYTHON), "-m", "pip", "install", "--require-hashes", "--only-binary=:all:", "--no-input"]
    done = process.stream([*command, "--requirement", str(LOCK)], log, lambda line: None, _environ())
    if not done.ok:
        raise ui.UserError(
            "the tools of the tests could not be installed from the Python package index",
            "\n".join(done.out.splitlines()[-6:]),
            "check the network, the proxy settings and pip's configuration; behind a proxy with its own CA:\n"
            f"PIP_CERT=/path/to/bundle.crt. Then run the same command again. {log} has all it said",
        )


def _environ() -> dict[str, str]:
    """Let pip trust what the caller's SSL_CERT_FILE trusts; pip itself does not read that variable."""
    environ = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    if environ.get("SSL_CERT_FILE"):
        environ.setdefault("PIP_CERT", environ["SSL_CERT_FILE"])
    return environ


if __name__ == "__main__":
    ui.entry("venv", main)
