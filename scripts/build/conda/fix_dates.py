"""Build step: replace the dates that conda writes down by SOURCE_DATE_EPOCH; conda still reads the files.

Usage: fix_dates.py /opt/conda SOURCE_DATE_EPOCH
"""

from __future__ import annotations

import re
import sys
from datetime import datetime, timezone
from pathlib import Path


def fix_history(text: str, epoch: int) -> str:
    """History lines `==> 2026-01-31 12:00:00 <==` get the epoch's date."""
    date = datetime.fromtimestamp(epoch, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
    return re.sub(r"^==> .* <==$", f"==> {date} <==", text, flags=re.MULTILINE)


def main(conda: Path, epoch: int) -> None:
    for prefix in (conda, conda / "envs/pytorch"):
        history = prefix / "conda-meta/history"
        history.write_text(fix_history(history.read_text(), epoch))
        created = prefix / "conda-meta/created_at"
        if created.exists():
            created.write_text(datetime.fromtimestamp(epoch, timezone.utc).isoformat() + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
