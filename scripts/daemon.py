"""Starting Docker's daemon: with systemd where it runs, else by hand."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from scripts import process, ui

LOG = Path("/var/log/pytorch-cuda-dockerd.log")
SYSTEMD = Path("/run/systemd/system")  # exists only where systemd is PID 1 (sd_booted(3))
SECONDS_TO_ANSWER = 60
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def program() -> str | None:
    """Find dockerd, also where an ordinary user's PATH does not lead."""
    return shutil.which("dockerd", path=f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}")


def start_command() -> str:
    """Give the command that a person types to start the daemon."""
    sudo = "" if os.geteuid() == 0 else "sudo "
    return f"{sudo}systemctl start docker" if SYSTEMD.is_dir() else f"{sudo}dockerd &"


def start(client: str) -> None:
    """Start the daemon and wait until it answers the client."""
    if SYSTEMD.is_dir():
        with ui.steps.step("start Docker", "its daemon does not run; systemctl start docker"):
            _with_systemd(client)
    else:
        with ui.steps.step("start Docker", f"its daemon does not run and there is no systemd; log in {LOG}"):
            _by_hand(client)


def _with_systemd(client: str) -> None:
    done = process.capture(["systemctl", "start", "docker"], timeout=SECONDS_TO_ANSWER)
    if not (done.ok and process.wait_until(lambda: answers(client), SECONDS_TO_ANSWER)):
        journal = process.capture(["journalctl", "--no-pager", "--lines=5", "--unit=docker"])
        raise ui.UserError(
            "Docker's daemon did not start",
            f"{done.last_words}\n{journal.last_words}",
            "journalctl --unit=docker tells more; mend it, and run the same command again",
        )


def _by_hand(client: str) -> None:
    with LOG.open("ab") as log:
        child = subprocess.Popen(
            [program() or "dockerd"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env={**os.environ, "PATH": f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}"},
            start_new_session=True,  # it outlives this program and its terminal
        )
    process.wait_until(lambda: child.poll() is not None or answers(client), SECONDS_TO_ANSWER)
    if child.poll() is None and answers(client):
        return
    if child.poll() is None:
        child.terminate()
    raise ui.UserError(
        f"Docker's daemon did not answer within {SECONDS_TO_ANSWER} s of its start",
        "\n".join(process.tail(LOG, 6)) or f"exit code {child.poll()} and nothing in {LOG}",
        f"read {LOG}, mend it, and run the same command again",
    )


def answers(client: str) -> bool:
    """Tell whether a server stands behind the client."""
    return process.capture([client, "version", "--format", "{{.Server.Version}}"], timeout=10).ok
