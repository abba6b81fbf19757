"""On what the tests ran: versions and hardware, for the record."""

from __future__ import annotations

import json
import platform
import subprocess
import sys

_ASK = """
import json, torch
count = torch.cuda.device_count() if torch.cuda.is_available() else 0
gpus = [torch.cuda.get_device_properties(number) for number in range(count)]
print(json.dumps({
    "torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
    "gpus": [f"{gpu.name}, sm_{gpu.major}{gpu.minor}, {gpu.total_memory / 2**30:.0f} GiB" for gpu in gpus],
    "threads": torch.get_num_threads(),
}))
"""
_SECONDS = 120


def describe() -> dict[str, object]:
    """Asked of another process: torch may be what is broken."""
    facts: dict[str, object] = {"python": platform.python_version(), "kernel": platform.release()}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _ASK], capture_output=True, text=True, timeout=_SECONDS, check=False, cwd="/"
        )
        facts.update(json.loads(done.stdout.strip().splitlines()[-1]))
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError):
        facts["torch"] = "does not import"
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8") as file:
            facts["driver"] = file.readline().partition(":")[2].strip()
    except OSError:
        pass  # no GPU, or a driver that does not say
    return facts
