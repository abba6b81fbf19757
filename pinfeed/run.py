"""A whole training run, from its checks to its results. `train` reads as the table of contents."""

from __future__ import annotations

import dataclasses
import math
import os
import shlex
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Optional

import torch

from pinfeed import checkpoint, data, feeds, files, model, prefetcher, results, seeds, slab, sources, transforms
from pinfeed import team as teams
from pinfeed import train as learning
from pinfeed.board import Board
from pinfeed.checkpoint import Progress, Saved
from pinfeed.config import TrainConfig, default_out, with_recipe_of
from pinfeed.errors import BAD_DATA, DIVERGED, UNAVAILABLE, PinfeedError, Stopped
from pinfeed.hardware import Hardware, choose
from pinfeed.sources import FolderSamples, Samples, Splits
from pinfeed.stop import Stop, StopRequested
from pinfeed.talk import Talk, to_nobody
from pinfeed.team import Team

_EVALUATION_BYTES = 6_000_000  # of a batch, so that both feeds together pin less than 128 MiB
_EVALUATION_BATCH = (16, 1000)
_LOSS_CHECK_EVERY = 50  # steps; each check makes the processor wait for the GPU
_DRY_RUN_STEPS = 20
# The trial before the start is made before momentum and history exist, and leaves room for the plot.
_CHECKPOINT_GROWTH = 3
_SCALES = {"crop": (0.08, 1.0), "zoom": (0.64, 1.0)}  # the shares of an image's area that a random box may have


@dataclasses.dataclass
class Run:
    """One run, and everything that its stages share."""

    config: TrainConfig
    command: str
    team: Team
    splits: Splits
    hardware: Hardware
    folder: files.RunFolder
    progress: Progress
    talk: Talk
    stop: Stop
    tally: torch.Tensor
    board: Board
    started: float  # when this run would have begun, had it never been interrupted
    learner: learning.Learner = dataclasses.field(init=False)
    unreadable: set[str] = dataclasses.field(default_factory=set)  # what was wrong with which file
    said: set[str] = dataclasses.field(default_factory=set)  # of the feeds, which all have the same to say
    feeds: list[learning.Feed] = dataclasses.field(default_factory=list)
    waited: float = 0.0  # share of the time in which the device waited for data, in the last epoch
    pinned: int = 0

    @property
    def steps(self) -> int:
        """Steps in an epoch. A last batch that is not full is left out."""
        return len(self.splits.train) // self.config.batch_size

    @property
    def share(self) -> int:
        """Images of a step that are this process's."""
        return self.config.batch_size // self.team.size

    @property
    def side(self) -> int:
        """The side of the images that the network sees."""
        return self.config.image_size or self.splits.shape[0]

    @property
    def model_name(self) -> str:
        """The network that is trained."""
        return model.chosen(self.config.model, self.side)

    @property
    def augment(self) -> str:
        """What is done to training images."""
        files_or_photos = isinstance(self.splits.train, FolderSamples) or self.side >= sources.SMALL
        automatic = "crop" if files_or_photos else "flip"
        return automatic if self.config.augment == "auto" else self.config.augment

    @property
    def feed_name(self) -> str:
        """How data reach the device."""
        if self.config.feed != "auto":
            return self.config.feed
        return "prefetch" if isinstance(self.splits.train, FolderSamples) else "ring"


def train(
    config: TrainConfig,
    given: frozenset[str],
    command: str,
    environ: Mapping[str, str],
    talk: Talk,
    stop: Stop,
) -> None:
    """Do what `pinfeed train` promises. `given` names the settings that are the user's own choice."""
    team = teams.team_of(environ)
    if not team.leads:
        talk = to_nobody()
    run = _prepare(config, given, command, environ, talk, stop, team)
    try:
        with _understood_failures(run):
            if run.config.dry_run:
                _try_a_few_steps(run)
                return
            size = len(_packed(run))
            if team.leads:
                run.folder.prove_writable(_CHECKPOINT_GROWTH * size)
                run.folder.write_history(run.progress.history)
            _run_epochs(run)
            _test_and_report(run)
    finally:
        _let_go(run)


# --- before the first step -----------------------------------------------------------------------


def _prepare(
    config: TrainConfig,
    given: frozenset[str],
    command: str,
    environ: Mapping[str, str],
    talk: Talk,
    stop: Stop,
    team: Team,
) -> Run:
    source = checkpoint.find(config.resume) if config.resume else None
    saved = checkpoint.load(source) if source else None
    if saved:
        config = _as_saved(config, given, saved)
    teams.share_of(config.batch_size, team)
    hardware = choose(config, team)
    folder = files.RunFolder(Path(config.out) if config.out else _usual_folder(config, source))
    if team.leads:
        folder.refuse_if_used(source)
    # A resumed run is held to the very files it began with, which is the stricter check.
    checksum = config.checksum and saved is None
    splits = sources.load(config, environ, checksum=checksum)
    _check_fit(config, splits, saved)
    team.join(hardware.device)
    progress = saved.progress if saved else Progress()
    tally = torch.tensor(progress.tally, dtype=torch.float64, device=hardware.device)
    if not team.leads:
        tally.zero_()  # what a checkpoint has is the sum of all
    started = time.perf_counter() - progress.seconds
    board = Board(folder.path if team.leads and not config.dry_run else None)
    run = Run(config, command, team, splits, hardware, folder, progress, talk, stop, tally, board, started)
    run.learner = _learner(run)
    if saved:
        checkpoint.restore(saved, run.learner)
    _say_what_comes(run, source)
    return run


def _learner(run: Run) -> learning.Learner:
    """The network that was asked for, ready to learn. Each process begins with the same weights."""
    config, hardware, splits = run.config, run.hardware, run.splits
    torch.manual_seed(config.seed)
    network = model.make(run.model_name, len(splits.classes), splits.shape[2], run.side)
    mean, std = splits.levels
    scale = _SCALES.get(run.augment)
    size = run.side if scale else None
    flip = run.augment != "none"
    if run.side != splits.shape[0] and not scale:
        raise PinfeedError(
            "--image-size needs crops",
            f"--image-size {run.side}, images of {splits.shape[0]}, --augment {run.augment}",
            "add --augment crop, or leave --image-size out",
        )
    prepare = (
        transforms.TrainTransform(size, flip=flip, scale=scale or (1.0, 1.0), mean=mean, std=std),
        transforms.EvalTransform(run.side, mean=mean, std=std),
    )

    def wrap(module: torch.nn.Module) -> torch.nn.Module:
        shared = run.team.wrapped(module, hardware.device)
        return torch.compile(shared) if config.compile else shared

    return learning.make_learner(
        network, prepare, hardware.device, hardware.amp_type, config.lr, channels_last=config.channels_last, wrap=wrap
    )


def _as_saved(config: TrainConfig, given: frozenset[str], saved: Saved) -> TrainConfig:
    """The settings of a resumed run: the checkpoint's, and the user's where there is a choice."""
    config = with_recipe_of(config, given, saved.recipe)
    kept = {name: getattr(saved, name) for name in ("amp", "data") if name not in given}
    return dataclasses.replace(config, **kept)


def _usual_folder(config: TrainConfig, source: Optional[Path]) -> Path:
    """Where a run goes that was given no --out: on with the old folder, or into a new one."""
    return source.parent if source else Path(default_out(config.data, time.strftime("%Y%m%d-%H%M%S")))


def _check_fit(config: TrainConfig, splits: Splits, saved: Optional[Saved]) -> None:
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
            f"the data in {splits.place} are others",
            "give the same data by --data; or start a new run without --resume in another --out",
            BAD_DATA,
        )


def _say_what_comes(run: Run, source: Optional[Path]) -> None:
    config, splits = run.config, run.splits
    run.talk.say(
        f"data: {splits.place}: {len(splits.train):,} images to train,"
        f" {len(splits.validation):,} to validate, {len(splits.test):,} to test"
    )
    run.talk.say(run.hardware.note + (f"; {run.team.size} processes" if run.team.size > 1 else ""))
    run.talk.say(
        f"{run.model_name}, {model.parameter_count(run.learner.model):,} parameters; {_epochs(config.epochs)}"
        f" of {run.steps} steps of {config.batch_size}; seed {config.seed}; into {run.folder.path}"
    )
    if source:
        run.talk.say(f"resumed from {source}: {_place(run)}")


# --- the training --------------------------------------------------------------------------------


def _run_epochs(run: Run) -> None:
    feed = _feed(run, run.splits.train, run.share)
    validation = _feed(run, run.splits.validation, _evaluation_batch(run))
    while run.progress.epoch < run.config.epochs:
        _train_one_epoch(run, feed)
        _finish_epoch(run, _record(run, *_evaluate(run, validation, len(run.splits.validation))))


def _train_one_epoch(run: Run, feed: learning.Feed, last: Optional[int] = None) -> None:
    config, progress = run.config, run.progress
    steps = min(run.steps, last or run.steps)
    whole = learning.epoch_order(len(run.splits.train), steps * config.batch_size, config.seed, progress.epoch)
    order = seeds.shard(whole, run.team.rank, run.team.size)
    before = dataclasses.replace(feed.statistics)
    began = time.perf_counter() - progress.epoch_seconds
    _look_at_signals(run)

    def waited() -> float:
        seconds = feed.statistics.seconds - before.seconds
        return (feed.statistics.wait_seconds - before.wait_seconds) / seconds if seconds > 0 else 0.0

    def on_step(done: int) -> None:
        progress.step = done
        progress.epoch_seconds = time.perf_counter() - began
        if done % _LOSS_CHECK_EVERY == 0:
            _mean_loss(run)
        run.talk.step(done, lambda: _mean_loss(run), waited)
        if config.save_every and done % config.save_every == 0 and done < steps:
            _save(run)
        _look_at_signals(run, done)

    def lr_at(step: int) -> float:
        return learning.learning_rate(progress.epoch * run.steps + step, config.epochs * run.steps, config.lr)

    run.talk.begin_epoch(f"epoch {progress.epoch + 1}/{config.epochs}", progress.step, steps, config.batch_size)
    try:
        batches = feed.batches(order, progress.step, progress.epoch)
        learning.train_epoch(run.learner, batches, progress.step, lr_at, run.tally, on_step)
        _mean_loss(run)  # waits for the GPU, so that the clock below tells the truth
        progress.epoch_seconds = time.perf_counter() - began
        run.waited = waited()
    finally:
        run.talk.end_epoch()


def _look_at_signals(run: Run, step: int = 0) -> None:
    """Raise StopRequested if this process, or another one of the team, was told to stop: all at the same step."""
    if run.team.size == 1:
        run.stop.check()
    elif signum := run.team.highest(run.stop.signum, step):
        raise StopRequested(signum)


def _mean_loss(run: Run) -> float:
    """The loss over this epoch's steps up to now, of this process. Raises when it is no longer a number."""
    loss_sum, _, count = run.tally.tolist()
    loss = loss_sum / max(1.0, count)
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


def _evaluate(run: Run, feed: learning.Feed, count: int) -> tuple[float, float]:
    run.team.same_buffers(run.learner.model)
    order = seeds.shard(torch.arange(count), run.team.rank, run.team.size)
    check = run.stop.check if run.team.size == 1 else lambda: None
    loss_sum, correct, seen = run.team.total(learning.evaluate(run.learner, feed, order, check)).tolist()
    _look_at_signals(run)
    loss = loss_sum / max(1.0, seen)
    _check_finite(run, loss)
    return loss, correct / max(1.0, seen)


def _record(run: Run, validation_loss: float, validation_accuracy: float) -> dict[str, Any]:
    """The line of metrics.jsonl for the epoch that is just over."""
    loss_sum, correct, seen = run.team.total(run.tally).tolist()
    images = run.steps * run.config.batch_size
    return {
        "epoch": run.progress.epoch + 1,
        "train_loss": loss_sum / max(1.0, seen),
        "train_accuracy": correct / max(1.0, seen),
        "validation_loss": validation_loss,
        "validation_accuracy": validation_accuracy,
        "images": images,
        "seconds": round(run.progress.epoch_seconds, 3),
        "images_per_second": round(images / run.progress.epoch_seconds, 1),
        "gpu_wait": round(run.waited, 5),
    }


def _finish_epoch(run: Run, record: dict[str, Any]) -> None:
    progress = run.progress
    progress.history.append(record)
    progress.epoch, progress.step, progress.epoch_seconds = progress.epoch + 1, 0, 0.0
    run.tally.zero_()
    _save(run)
    if run.team.leads:
        run.folder.append_history(record)
        run.board.add(record)
    run.talk.say(
        f"epoch {record['epoch']}/{run.config.epochs}"
        f"  train: loss {record['train_loss']:.4f}, {record['train_accuracy']:.2%}"
        f"  validation: loss {record['validation_loss']:.4f}, {record['validation_accuracy']:.2%}"
        f"  {record['seconds']:.1f} s, {record['images_per_second']:,.0f} img/s, {record['gpu_wait']:.1%} of it waiting"
    )


def _save(run: Run) -> None:
    """Write the checkpoint of this moment. All processes come here; one writes."""
    content = _packed(run)
    if run.team.leads:
        files.write_atomic(run.folder.checkpoint, content)


# --- the end, the good one and the others --------------------------------------------------------


def _test_and_report(run: Run) -> None:
    """The test images are looked at here, once, when nothing can be chosen any more."""
    loss, accuracy = _evaluate(run, _feed(run, run.splits.test, _evaluation_batch(run)), len(run.splits.test))
    if not run.team.leads:
        return
    metrics = results.metrics(run, loss, accuracy, _seconds(run))
    plotted = results.write(run.folder, metrics, run.progress.history)
    if not plotted:
        run.talk.say("no plot: matplotlib is not installed")
    run.talk.say(
        f"test accuracy {accuracy:.2%}, loss {loss:.4f}, after {_epochs(run.config.epochs)}"
        f" in {metrics['seconds']:.0f} s; results in {run.folder.path}"
    )
    if run.unreadable:
        run.talk.say(f"{len(run.unreadable)} images could not be read, and were left out")


def _try_a_few_steps(run: Run) -> None:
    """--dry-run: all the checks, and enough steps to know what an epoch takes. Nothing is written."""
    run.folder.check_could_be_written()
    run.progress = Progress()
    run.tally.zero_()
    steps = min(run.steps, _DRY_RUN_STEPS)
    _train_one_epoch(run, _feed(run, run.splits.train, run.share), steps)
    some = min(_evaluation_batch(run), len(run.splits.validation))
    _evaluate(run, _feed(run, run.splits.validation, some), some)
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
        # torch's handler for a worker process that died may raise anywhere.
        told = prefetcher.explained(error) or _not_compiled(error)
        if told:
            raise told from None
        if not (isinstance(error, torch.cuda.OutOfMemoryError) or "can't allocate memory" in str(error)):
            raise
        raise PinfeedError(
            "the memory of the device is not enough",
            f"{str(error).splitlines()[0]} (--batch-size {run.config.batch_size} on {run.hardware.name})",
            f"pinfeed train --batch-size {max(1, run.config.batch_size // 2)} ...",
            UNAVAILABLE,
        ) from None


def _not_compiled(error: RuntimeError) -> Optional[PinfeedError]:
    if not type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
        return None
    lines = [line for line in str(error).splitlines() if line.strip()]
    return PinfeedError(
        "torch.compile failed",
        (lines or [type(error).__name__])[0],
        "leave --compile out; it needs a C compiler, and a /tmp from which programs may be run",
        UNAVAILABLE,
    )


def _saved_at_stop(run: Run) -> str:
    if run.config.dry_run or not (run.progress.step or run.progress.epoch):
        return "before the first step was done, so there was nothing to save"
    _mean_loss(run)  # weights that are no numbers must not replace a good checkpoint
    _save(run)
    go_on = shlex.join(["pinfeed", "train", "--resume", str(run.folder.checkpoint)])
    return f"saved at {_place(run)}; go on with: {go_on}"


# --- small things that several stages use --------------------------------------------------------


def _feed(run: Run, samples: Samples, batch_size: int) -> learning.Feed:
    """A feed for `samples`; without pinned memory where the system refuses it."""
    config, hardware = run.config, run.hardware

    def bad(message: str) -> None:
        if message not in run.unreadable:
            run.unreadable.add(message)
            run.talk.say(f"not used: {message}")

    def once(text: str) -> None:
        if text not in run.said:
            run.said.add(text)
            run.talk.say(text)

    wish = feeds.Wish(
        kind=run.feed_name,
        device=hardware.device,
        seed=config.seed,
        pin=hardware.pin,
        workers=config.workers,
        processes=run.team.local_size,
        say=once,
        on_bad=bad,
    )
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        feed = feeds.make(samples, batch_size, wish)
    for warning in said:
        run.talk.say(f"warning: {warning.message}")
        run.hardware = dataclasses.replace(run.hardware, pin=False)
    run.feeds.append(feed)
    run.pinned = max(run.pinned, slab.pinned_bytes())
    return feed


def _evaluation_batch(run: Run) -> int:
    if isinstance(run.splits.train, FolderSamples):
        return run.share  # what fits /dev/shm while training fits here too
    low, high = _EVALUATION_BATCH
    return min(high, max(low, _EVALUATION_BYTES // math.prod(run.splits.shape)))


def _let_go(run: Run) -> None:
    """Leave nothing behind: no thread, no pinned memory, no file, no other process that waits for this one."""
    for feed in run.feeds:
        feed.close()
    run.board.close()
    del run.learner
    run.team.leave()


def _packed(run: Run) -> bytes:
    """The checkpoint of this moment."""
    run.progress.seconds = _seconds(run)
    run.progress.tally = run.team.total(run.tally).tolist()
    # A name stays a name; a path must still hold when the run is resumed from another folder.
    known = (*data.NAMES, sources.SYNTHETIC)
    source = run.config.data if run.config.data in known else os.path.abspath(run.config.data)
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
