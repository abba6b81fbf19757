"""doctor: names what is wrong in this container or on this machine, and the command that mends it.

Exit status: 0, or 1 when a check failed; warnings do not count. The output holds no secret.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Optional

from doctor import report
from doctor.examine import examine
from doctor.findings import Finding, failed
from doctor.patient import Patient
from doctor.repair import repair
from doctor.secrets import without_secrets


def main(arguments: Optional[Sequence[str]] = None, environ: Optional[Mapping[str, str]] = None) -> int:
    """Examine, print, and return the exit status."""
    options = _parser().parse_args(arguments)
    patient = _patient(dict(os.environ if environ is None else environ))
    if options.fix:
        for line in repair(patient):
            print(f"doctor: {line}", file=sys.stderr)
    findings = without_secrets(examine(patient, options.deep), patient.environ)
    _print(report.as_json(findings) if options.json else report.as_text(findings, _about(patient)))
    return int(failed(findings))


def _parser() -> argparse.ArgumentParser:
    summary, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser("doctor", description=summary, epilog=rest)
    parser.add_argument("--json", action="store_true", help='{"version": 1, "checks": [...]}, for programs and issues')
    parser.add_argument(
        "--deep", action="store_true", help="also pip check, import torch, pinned memory, an all-reduce"
    )
    parser.add_argument("--fix", action="store_true", help="mend what can be mended without harm, and say what")
    return parser


def _patient(environ: Mapping[str, str]) -> Patient:
    return Patient(environ=environ, home=environ.get("HOME", ""))


def _about(patient: Patient) -> str:
    image = patient.image
    if not image:
        return "" if patient.in_image else "not in the image: looking at this machine"
    parts = (
        f"pytorch-cuda:{image.get('version')}",
        f"variant {image.get('variant') or 'default'}",
        image.get("base"),
    )
    return ", ".join(str(part) for part in parts if part)


def _print(text: str) -> None:
    """Print for any locale, and for a reader that went away (`doctor | head -3`) or never was (`doctor >&-`)."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        print(text, flush=True)
    except BrokenPipeError:
        # Python flushes once more at its end, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


__all__ = ["Finding", "main"]
