"""A check that never ends, with a child."""

from __future__ import annotations

import subprocess

from selftest.checks import check


@check("hangs")
def hangs() -> None:
    subprocess.run(["/bin/sleep", "600"], check=False)
