"""A whole training run, from its checks to its results. `train` reads as the table of contents."""

from __future__ import annotations

import dataclasses
import math
import os
import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Optional

import torch

from pinfeed import checkpoint, data, files, model, results
from pinfeed import train as learning
from pinfeed.checkpoint import Progress, Saved
from pinfeed.config import TrainConfig, default_out, with_recipe_of
from pinfeed.errors import BAD_DATA, DIVERGED, UNAVAILABLE, PinfeedError, Stopped
from pinfeed.feed import Feed
from pinfeed.hardware import Hardware, choose
from pinfeed.stop import Stop, StopRequested
from pinfeed.talk import Talk

_EVALUATION_BATCH = 1000
_LOSS_CHECK_EVERY = 50  # steps; each check makes the processor wait for the GPU
_DRY_RUN_STEPS = 20
# The trial before the start is made before momentum and history exist, and leaves room for the plot.
_CHECKPOINT_GROWTH = 3


@dataclasses.dataclass
class Run:
    """One run, and everything that its stages share."""

    config: TrainConfig
    command: str
    splits: data.Splits
    hardware: Hardware
    learner: learning.Learner
    folder: files.RunFolder
    progress: Progress
    talk: Talk
    stop: Stop
    tally: torch.Tensor
    started: float  # when this run would have begun, had it never been interrupted

    @property
    def steps(self) -> int:
        """Steps in an epoch. A last batch that is not full is left out."""
        return len(self.splits.train) // self.config.batch_size


def train(
    config: TrainConfig,
    given: frozenset[str],
    command: str,
    environ: Mapping[str, str],
    talk: Talk,
    stop: Stop,
) -> None:
    """Do what `pinfeed train` promises. `given` names the settings that are the user's own choice."""
    run = _prepare(config, given, command, environ, talk, stop)
    with _understood_failures(run):
        if run.config.dry_run:
            _try_a_few_steps(run)
            return
        run.folder.prove_writable(_CHECKPOINT_GROWTH * len(_packed(run)))
        run.folder.write_history(run.progress.history)
        _run_epochs(run)
        _test_and_report(run)


# --- before the first step -----------------------------------------------------------------------


def _prepare(
    config: TrainConfig,
    given: frozenset[str],
    command: str,
    environ: Mapping[str, str],
    talk: Talk,
    stop: Stop,
) -> Run:
    source = checkpoint.find(config.resume) if config.resume else None
    saved = checkpoint.load(source) if source else None
    if saved:
        config = _as_saved(config, given, saved)
    hardware = choose(config)
    folder = files.RunFolder(Path(config.out) if config.out else _usual_folder(config, source))
    folder.refuse_if_used(source)
    # A resumed run is held to the very files it began with, which is the stricter check.
    checksum = config.checksum and saved is None
    splits = data.load(config.data, environ, seed=config.seed, limit=config.limit, checksum=checksum)
    _check_fit(config, splits, saved)
    torch.manual_seed(config.seed)
    network = model.small_cnn(len(data.CLASSES))
    learner = learning.make_learner(network, hardware.device, hardware.amp_type, config.lr)
    if saved:
        checkpoint.restore(saved, learner)
    progress = saved.progress if saved else Progress()
    tally = torch.tensor(progress.tally, dtype=torch.float64, device=hardware.device)
    started = time.perf_counter() - progress.seconds
    run = Run(config, command, splits, hardware, learner, folder, progress, talk, stop, tally, started)
    _say_what_comes(run, source)
    return run


def _as_saved(config: TrainConfig, given: frozenset[str], saved: Saved) -> TrainConfig:
    """The settings of a resumed run: the checkpoint's, and the user's where there is a choice."""
    config = with_recipe_of(config, given, saved.recipe)
    kept = {name: getattr(saved, name) for name in ("amp", "data") if name not in given}
    return dataclasses.replace(config, **kept)


def _usual_folder(config: TrainConfig, source: Optional[Path]) -> Path:
    """Where a run goes that was given no --out: on with the old folder, or into a new one."""
    return source.parent if source else Path(default_out(config.data, time.strftime("%Y%m%d-%H%M%S")))


def _check_fit(config: TrainConfig, splits: data.Splits, saved: Optional[Saved]) -> None:
    count = len(splits.train)
    if config.batch_size > count:
        raise PinfeedError(
            "--batch-size is larger than the training set",
            f"--batch-size {config.batch_size}, {count:,} training images",
            f"pinfeed train --batch-size {min(128, count)} ...",
        )
    if saved and saved.fingerprint != splits.fingerprint:
        raise PinfeedError(
            "the data are not those that this run began with",
            f"the files in {splits.folder} have other contents",
            "give the same data by --data; or start a new run without --resume in another --out",
            BAD_DATA,
        )


def _say_what_comes(run: Run, source: Optional[Path]) -> None:
    config, splits = run.config, run.splits
    run.talk.say(
        f"data: {splits.folder}: {len(splits.train):,} images to train,"
        f" {len(splits.validation):,} to validate, {len(splits.test):,} to test"
    )
    run.talk.say(run.hardware.note)
    run.talk.say(
        f"{model.NAME}, {model.parameter_count(run.learner.model):,} parameters; {_epochs(config.epochs)}"
        f" of {run.steps} steps of {config.batch_size}; seed {config.seed}; into {run.folder.path}"
    )
    if source:
        run.talk.say(f"resumed from {source}: {_place(run)}")


# --- the training --------------------------------------------------------------------------------


def _run_epochs(run: Run) -> None:
    feed = _feed(run, run.splits.train, run.config.batch_size)
    validation = _feed(run, run.splits.validation, _EVALUATION_BATCH)
    while run.progress.epoch < run.config.epochs:
        _train_one_epoch(run, feed)
        record = _record(run, *_evaluate(run, validation, len(run.splits.validation)))
        _finish_epoch(run, record)


def _train_one_epoch(run: Run, feed: Feed, last: Optional[int] = None) -> None:
    config, progress = run.config, run.progress
    steps = min(run.steps, last or run.steps)
    plan = learning.plan_epoch(len(run.splits.train), steps, config.batch_size, config.seed, progress.epoch)
    began = time.perf_counter() - progress.epoch_seconds
    run.stop.check()

    def on_step(done: int) -> None:
        progress.step = done
        progress.epoch_seconds = time.perf_counter() - began
        if done % _LOSS_CHECK_EVERY == 0:
            _mean_loss(run)
        run.talk.step(done, lambda: _mean_loss(run))
        run.stop.check()

    def lr_at(step: int) -> float:
        return learning.learning_rate(progress.epoch * run.steps + step, config.epochs * run.steps, config.lr)

    run.talk.begin_epoch(f"epoch {progress.epoch + 1}/{config.epochs}", progress.step, steps, config.batch_size)
    try:
        learning.train_epoch(run.learner, feed, plan, progress.step, lr_at, run.tally, on_step)
        _mean_loss(run)  # waits for the GPU, so that the clock below tells the truth
        progress.epoch_seconds = time.perf_counter() - began
    finally:
        run.talk.end_epoch()


def _mean_loss(run: Run) -> float:
    """The loss over this epoch's steps up to now. Raises when it is no longer a number."""
    loss = float(run.tally[0]) / max(1, run.progress.step * run.config.batch_size)
    _check_finite(run, loss)
    return loss


def _check_finite(run: Run, loss: float) -> None:
    if not math.isfinite(loss):
        kept = f"; the last good checkpoint is {run.folder.checkpoint}" if run.folder.checkpoint.exists() else ""
        raise PinfeedError(
            "the training has diverged: the loss is no longer a number",
            f"loss {loss} in {_place(run)}, with --lr {run.config.lr:g} and AMP {run.hardware.amp}{kept}",
            f"start again with a smaller --lr (say {min(run.config.lr / 10, TrainConfig.lr):.3g}) in another --out",
            DIVERGED,
        )


def _evaluate(run: Run, feed: Feed, count: int) -> tuple[float, float]:
    loss, accuracy = learning.evaluate(run.learner, feed, count, run.stop.check)
    _check_finite(run, loss)
    return loss, accuracy


def _record(run: Run, validation_loss: float, validation_accuracy: float) -> dict[str, Any]:
    """The line of metrics.jsonl for the epoch that is just over."""
    images = run.steps * run.config.batch_size
    return {
        "epoch": run.progress.epoch + 1,
        "train_loss": _mean_loss(run),
        "train_accuracy": float(run.tally[1]) / images,
        "validation_loss": validation_loss,
        "validation_accuracy": validation_accuracy,
        "images": images,
        "seconds": round(run.progress.epoch_seconds, 3),
        "images_per_second": round(images / run.progress.epoch_seconds, 1),
    }


def _finish_epoch(run: Run, record: dict[str, Any]) -> None:
    progress = run.progress
    progress.history.append(record)
    progress.epoch, progress.step, progress.epoch_seconds = progress.epoch + 1, 0, 0.0
    run.tally.zero_()
    files.write_atomic(run.folder.checkpoint, _packed(run))
    run.folder.append_history(record)
    run.talk.say(
        f"epoch {record['epoch']}/{run.config.epochs}"
        f"  train: loss {record['train_loss']:.4f}, {record['train_accuracy']:.2%}"
        f"  validation: loss {record['validation_loss']:.4f}, {record['validation_accuracy']:.2%}"
        f"  {record['seconds']:.1f} s, {record['images_per_second']:,.0f} img/s"
    )


# --- the end, the good one and the others --------------------------------------------------------


def _test_and_report(run: Run) -> None:
    """The test images are looked at here, once, when nothing can be chosen any more."""
    loss, accuracy = _evaluate(run, _feed(run, run.splits.test, _EVALUATION_BATCH), len(run.splits.test))
    metrics = results.metrics(run, loss, accuracy, _seconds(run))
    plotted = results.write(run.folder, metrics, run.progress.history)
    if not plotted:
        run.talk.say("no plot: matplotlib is not installed")
    run.talk.say(
        f"test accuracy {accuracy:.2%}, loss {loss:.4f}, after {_epochs(run.config.epochs)}"
        f" in {metrics['seconds']:.0f} s; results in {run.folder.path}"
    )


def _try_a_few_steps(run: Run) -> None:
    """--dry-run: all the checks, and enough steps to know what an epoch takes. Nothing is written."""
    run.folder.check_could_be_written()
    run.progress = Progress()
    run.tally.zero_()
    steps = min(run.steps, _DRY_RUN_STEPS)
    _train_one_epoch(run, _feed(run, run.splits.train, run.config.batch_size), steps)
    some = run.splits.validation.first(_EVALUATION_BATCH)
    _evaluate(run, _feed(run, some, _EVALUATION_BATCH), len(some))
    epoch = run.progress.epoch_seconds / steps * run.steps
    run.talk.say(f"dry run: {steps} steps went well; an epoch takes about {epoch:.0f} s; nothing was written")


@contextmanager
def _understood_failures(run: Run) -> Iterator[None]:
    """Save when asked to stop, and explain memory that ran out; all else passes."""
    try:
        yield
    except StopRequested as stop:
        raise Stopped(stop.signum, f"stopped by {stop}: {_saved_at_stop(run)}") from None
    except RuntimeError as error:
        if not (isinstance(error, torch.cuda.OutOfMemoryError) or "can't allocate memory" in str(error)):
            raise
        raise PinfeedError(
            "the memory of the device is not enough",
            f"{str(error).splitlines()[0]} (--batch-size {run.config.batch_size} on {run.hardware.name})",
            f"pinfeed train --batch-size {max(1, run.config.batch_size // 2)} ...",
            UNAVAILABLE,
        ) from None


def _saved_at_stop(run: Run) -> str:
    if run.config.dry_run or not (run.progress.step or run.progress.epoch):
        return "before the first step was done, so there was nothing to save"
    _mean_loss(run)  # weights that are no numbers must not replace a good checkpoint
    files.write_atomic(run.folder.checkpoint, _packed(run))
    go_on = shlex.join(["pinfeed", "train", "--resume", str(run.folder.checkpoint)])
    return f"saved at {_place(run)}; go on with: {go_on}"


# --- small things that several stages use --------------------------------------------------------


def _feed(run: Run, part: data.Part, batch_size: int) -> Feed:
    """A feed for `part`; without pinned memory where the system refuses it."""
    device, pin = run.hardware.device, run.hardware.pin
    try:
        return Feed(part, batch_size, device, pin=pin)
    except RuntimeError as error:
        if not pin:
            raise
        run.talk.say(f"warning: no pinned memory ({str(error).splitlines()[0]}): going on without it")
        run.hardware = dataclasses.replace(run.hardware, pin=False)
        return Feed(part, batch_size, device, pin=False)


def _packed(run: Run) -> bytes:
    """The checkpoint of this moment."""
    run.progress.seconds = _seconds(run)
    run.progress.tally = run.tally.tolist()
    # A name stays a name; a path must still hold when the run is resumed from another folder.
    source = run.config.data if run.config.data in data.NAMES else os.path.abspath(run.config.data)
    return checkpoint.pack(
        Saved(
            recipe=run.config.recipe(),
            amp=run.config.amp,
            data=source,
            fingerprint=run.splits.fingerprint,
            progress=run.progress,
            learner=run.learner.state(),
            random_state=checkpoint.random_state(run.learner.device),
        )
    )


def _seconds(run: Run) -> float:
    return time.perf_counter() - run.started


def _place(run: Run) -> str:
    progress = run.progress
    if progress.epoch == run.config.epochs:
        return f"{_epochs(progress.epoch)} of {progress.epoch} done, the test is left"
    return f"epoch {progress.epoch + 1}/{run.config.epochs}, step {progress.step}/{run.steps}"


def _epochs(count: int) -> str:
    return f"{count} epoch{'s' if count > 1 else ''}"
