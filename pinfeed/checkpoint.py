"""The checkpoint: everything from which a run goes on as if it had never stopped."""

from __future__ import annotations

import dataclasses
import io
import pickle
from pathlib import Path
from typing import Any

import torch

from pinfeed.errors import BAD_DATA, NO_INPUT, PinfeedError
from pinfeed.train import Learner

FORMAT = 2  # 1 knew neither models nor augmentation, and tallied no samples


@dataclasses.dataclass
class Progress:
    """How far a run has come."""

    epoch: int = 0  # epochs that are finished
    step: int = 0  # steps done of the epoch that is not
    tally: list[float] = dataclasses.field(default_factory=lambda: [0.0, 0.0, 0.0])  # of those steps
    epoch_seconds: float = 0.0  # spent on those steps
    seconds: float = 0.0  # spent on the whole run, with evaluation and saving
    history: list[dict[str, Any]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Saved:
    """What a checkpoint file holds."""

    recipe: dict[str, Any]  # what a resumed run must keep
    amp: str  # as asked for; a resumed run may ask for another
    data: str
    fingerprint: str
    progress: Progress
    learner: dict[str, Any]
    random_state: dict[str, Any]


def pack(saved: Saved) -> bytes:
    """The bytes of a checkpoint file."""
    # vars, not asdict: that would copy every tensor.
    parts = {**vars(saved), "progress": vars(saved.progress)}
    content = {"pinfeed_checkpoint": FORMAT, "torch": str(torch.__version__), **parts}
    # Through memory, so that a full disk is a plain OSError of our own write and not one of torch's many.
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def random_state(device: torch.device) -> dict[str, Any]:
    """The state of torch's own generators."""
    on_gpu = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    return {"cpu": torch.get_rng_state(), "cuda": on_gpu}


def find(given: str) -> Path:
    """The checkpoint file that --resume means: the file itself, or the folder of a run. It must exist."""
    path = Path(given)
    path = path / "checkpoint.pt" if path.is_dir() else path
    if not path.is_file():
        raise PinfeedError(
            "the checkpoint to go on from is not there",
            f"--resume {given}: no file {path}",
            "give a checkpoint.pt or the folder of a run; to begin from scratch leave --resume out",
            NO_INPUT,
        )
    return path


def load(path: Path) -> Saved:
    """Read a checkpoint onto the processor. Only data is loaded from it, never code."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise PinfeedError(
            f"the checkpoint {path} cannot be read", f"{error.strerror}", "check its permissions", NO_INPUT
        ) from None
    except (RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError) as error:
        seen = f"{type(error).__name__}: {error}".splitlines()[0]
        raise _not_ours(path, seen) from None
    return _unpacked(path, content)


def _unpacked(path: Path, content: Any) -> Saved:
    if not isinstance(content, dict) or "pinfeed_checkpoint" not in content:
        raise _not_ours(path, "a file of torch's, but without pinfeed's mark")
    if content["pinfeed_checkpoint"] != FORMAT:
        raise _not_ours(path, f"format {content['pinfeed_checkpoint']}, where this pinfeed reads {FORMAT}")
    try:
        values = {field.name: content[field.name] for field in dataclasses.fields(Saved)}
        return Saved(**{**values, "progress": Progress(**content["progress"])})
    except (KeyError, TypeError) as error:
        raise _not_ours(path, f"incomplete: {error}") from None


def restore(saved: Saved, learner: Learner) -> None:
    """Give learner and generators the state that was saved."""
    learner.restore(saved.learner)
    torch.set_rng_state(saved.random_state["cpu"])
    if learner.device.type == "cuda" and saved.random_state["cuda"] is not None:
        torch.cuda.set_rng_state(saved.random_state["cuda"], learner.device)


def _not_ours(path: Path, seen: str) -> PinfeedError:
    return PinfeedError(
        f"{path} is no checkpoint that pinfeed can go on from",
        seen,
        "give another one; to begin from scratch leave --resume out",
        BAD_DATA,
    )
