"""The list that the health check reads: which services run here, and how each is asked whether it is up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from entrypoint.rundir import write_file

_NAME = "services.json"


def record_probes(rundir: Path, probes: Sequence[Mapping[str, object]]) -> None:
    """Write the list down."""
    import json

    write_file(rundir / _NAME, json.dumps({"version": 1, "services": list(probes)}).encode(), 0o644)


def record_starting(rundir: Path) -> None:
    """While hooks run and host keys are made nothing answers yet, and nothing must pass for healthy."""
    record_probes(rundir, [{"name": "the container", "probe": "starting"}])


def forget_probes(rundir: Path) -> None:
    """An image made by `docker commit` brings the list of a container that did run services."""
    (rundir / _NAME).unlink(missing_ok=True)
