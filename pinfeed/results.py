"""What a finished run leaves for programs and for people: metrics.json and training.png."""

from __future__ import annotations

import json
import platform
import time
from typing import TYPE_CHECKING, Any

import torch

from pinfeed import __version__, files, model, plot

if TYPE_CHECKING:
    from pinfeed.run import Run


def metrics(run: Run, test_loss: float, test_accuracy: float, seconds: float) -> dict[str, Any]:
    """The end result, with the conditions under which it came about."""
    config, hardware, splits, history = run.config, run.hardware, run.splits, run.progress.history
    images = sum(record["images"] for record in history)
    return {
        "test_accuracy": test_accuracy,
        "test_loss": test_loss,
        "validation_accuracy": history[-1]["validation_accuracy"],
        "epochs": config.epochs,
        "steps": config.epochs * run.steps,
        "batch_size": config.batch_size,
        "lr": config.lr,
        "seed": config.seed,
        "limit": config.limit,
        "data": config.data,
        "data_folder": splits.place,
        "data_sha256": splits.fingerprint,
        "samples": {name: len(getattr(splits, name)) for name in ("train", "validation", "test")},
        "model": run.model_name,
        "augment": run.augment,
        "image_size": run.side,
        "classes": len(splits.classes),
        "feed": run.feed_name,
        "gpu_wait": round(run.waited, 5),
        "unreadable_images": len(run.unreadable),
        "processes": run.team.size,
        "compile": config.compile,
        "channels_last": config.channels_last,
        "parameters": model.parameter_count(run.learner.model),
        "seconds": round(seconds, 3),
        "images_per_second": round(images / sum(record["seconds"] for record in history), 1),
        "device": hardware.device.type,
        "device_name": hardware.name,
        "amp": hardware.amp,
        "pin_memory": hardware.pin,
        "slab_pinned_bytes": run.pinned,
        "threads": hardware.threads,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "pinfeed": __version__,
        "command": run.command,
        "resumed": config.resume is not None,
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def write(folder: files.RunFolder, metrics: dict[str, Any], history: list[dict[str, Any]]) -> bool:
    """Write the plot, then metrics.json, whose presence says that a run is finished. False: no plot."""
    test = {"loss": metrics["test_loss"], "accuracy": metrics["test_accuracy"]}
    title = f"{metrics['data']}: {metrics['model']}, batch {metrics['batch_size']}, seed {metrics['seed']}"
    try:
        image = plot.draw(history, test, title)
    except ImportError:
        image = b""
    if image:
        files.write_atomic(folder.plot, image)
    files.write_atomic(folder.metrics, (json.dumps(metrics, indent=2) + "\n").encode())
    return bool(image)
