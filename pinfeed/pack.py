"""`pinfeed pack`: a folder of images, or Fashion-MNIST, to plain NumPy files. `pack` is the table of contents.

Rows are written in place by several processes, by pwrite and not through a map: a disk that fills up is
then an error that can be told, where a map would kill the process (SIGBUS).
"""

from __future__ import annotations

import dataclasses
import errno
import functools
import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Optional

import numpy as np

from pinfeed import files, guards, images, packfiles, workers
from pinfeed.errors import BAD_DATA, CANNOT_CREATE, UNAVAILABLE, WRITE_FAILED, PinfeedError, Stopped
from pinfeed.images import ImageFolder, shown
from pinfeed.journal import Journal
from pinfeed.stop import Stop, StopRequested
from pinfeed.talk import Talk
from pinfeed.workers import Done, Job

FASHION_MNIST = "fashion-mnist"
SIZE = 256
DAMAGED = "damaged.txt"

_CHUNK = 64  # images in a job, and in a line of the journal
_FLUSH_EVERY = 5.0  # seconds; what a kill can cost
_NAMED = 10  # damaged files that are named on the screen; all are in damaged.txt
_SPARE = 1 << 20  # bytes of the disk for the small files
_MAX_SIZE = 8192


@dataclasses.dataclass(frozen=True)
class PackConfig:
    """Everything `pinfeed pack` can be told. Making one with a value out of range raises PinfeedError."""

    data: str
    out: str
    size: Optional[int] = None
    workers: Optional[int] = None
    resume: bool = False
    json: Optional[str] = None
    checksum: bool = True

    def __post_init__(self) -> None:
        if self.size is not None and not 1 <= self.size <= _MAX_SIZE:
            raise PinfeedError(
                f"--size must be a whole number from 1 to {_MAX_SIZE}",
                f"--size {self.size}",
                "pinfeed pack --size 256 ...",
            )
        if self.workers is not None and not 1 <= self.workers <= 1024:
            raise PinfeedError(
                "--workers must be `auto` or a whole number from 1 to 1024",
                f"--workers {self.workers}",
                "pinfeed pack --workers auto ...",
            )
        if self.size is not None and self.data == FASHION_MNIST:
            raise PinfeedError("Fashion-MNIST is packed as it is, 28 x 28", f"--size {self.size}", "leave --size out")


@dataclasses.dataclass
class Part:
    """One set of those that are packed: where it goes, and what became of it."""

    name: str  # "", or train, val, test
    out: Path
    listing: ImageFolder
    size: int
    damaged: dict[int, str] = dataclasses.field(default_factory=dict)
    notes: Counter[str] = dataclasses.field(default_factory=Counter)

    @property
    def row_bytes(self) -> int:
        return self.size * self.size * 3

    @property
    def whole_bytes(self) -> int:
        """What images.npy takes while it is written."""
        return packfiles.HEADER + len(self.listing) * self.row_bytes

    @property
    def finished(self) -> bool:
        return (self.out / packfiles.META).exists()


@dataclasses.dataclass(frozen=True)
class WriteRows:
    """The work of a process: decode the files of a job, and write their rows where they belong."""

    root: str
    target: str
    size: int

    def __call__(self, job: Job) -> dict[str, Any]:
        row_bytes = self.size * self.size * 3
        notes: Counter[str] = Counter()
        bad: dict[int, str] = {}
        for row, path in enumerate(job.items, job.start):
            try:
                content = images.read(os.path.join(self.root, path))
                decoded = images.decode(content, os.path.splitext(path)[1], self.size)
            except images.BadImage as problem:
                bad[row] = str(problem)
                continue
            notes.update(decoded.notes)
            write_all(_opened(self.target), decoded.pixels.tobytes(), packfiles.HEADER + row * row_bytes)
        return {"start": job.start, "count": len(job.items), "bad": bad, "notes": dict(notes)}


def pack(config: PackConfig, environ: Mapping[str, str], talk: Talk, stop: Stop) -> dict[str, Any]:
    """Do what `pinfeed pack` promises; the summary that --json writes."""
    began = time.perf_counter()
    if config.json:
        files.check_writable(Path(config.json))
    if config.data == FASHION_MNIST:
        sets = _pack_fashion_mnist(config, environ, talk)
    else:
        sets = _pack_folder(config, talk, stop)
    summary = {"version": 1, "out": os.path.abspath(config.out), "sets": sets}
    summary["seconds"] = round(time.perf_counter() - began, 3)
    if config.json:
        files.write_atomic(Path(config.json), (json.dumps(summary, indent=2) + "\n").encode())
    return summary


# --- a folder of images --------------------------------------------------------------------------


def _pack_folder(config: PackConfig, talk: Talk, stop: Stop) -> dict[str, Any]:
    parts = _parts(config, talk)
    for part in parts:
        _refuse_if_used(part.out, config.resume)
    _check_room([part for part in parts if not part.finished], Path(config.out))
    count = config.workers or guards.usable_cpus()
    sets = {}
    for part in parts:
        if part.finished:
            talk.say(f"{part.out}: was packed before")
        else:
            _pack_part(part, count, talk, stop, config)
        sets[part.name or "."] = _summary(part.out)
    return sets


def _parts(config: PackConfig, talk: Talk) -> list[Part]:
    root = Path(config.data)
    if not root.is_dir():
        raise PinfeedError(
            "--data is neither a data set that pinfeed knows nor a folder",
            f"--data {config.data}",
            f"known: {FASHION_MNIST}; or the path of a folder with a subfolder of images for each class",
        )
    out = Path(config.out)
    if root.resolve() in (out.resolve(), *out.resolve().parents):
        raise PinfeedError(
            "--out lies within --data, where it would look like a class of images",
            f"--out {config.out} --data {config.data}",
            "choose an --out beside the images",
        )
    parts: list[Part] = []
    for name, folder in images.parts_of(root).items():
        listing = images.list_folder(folder, parts[0].listing.classes if parts else None)
        parts.append(Part(name, out / name, listing, config.size or SIZE))
        _say_what_is_there(parts[-1], talk)
    return parts


def _say_what_is_there(part: Part, talk: Talk) -> None:
    listing = part.listing
    talk.say(
        f"{shown(str(listing.root))}: {len(listing):,} images of {_classes(len(listing.classes))}"
        + (f"; {listing.ignored:,} files with other endings are left out" if listing.ignored else "")
    )
    empty = [name for name, count in zip(listing.classes, _per_class(listing)) if not count]
    if empty:
        named = ", ".join(map(shown, empty[:5])) + (", ..." if len(empty) > 5 else "")
        talk.say(f"warning: no image in {_classes(len(empty))}: {named}")
    if len(listing.classes) == 1:
        talk.say(f"warning: only one class, {shown(listing.classes[0])}: there is nothing to tell apart")


def _pack_part(part: Part, count: int, talk: Talk, stop: Stop, config: PackConfig) -> None:
    began = time.perf_counter()
    target, journal = _begin(part)
    try:
        before = sum(record["count"] for record in journal.done)
        _write_rows(part, target, journal, count, talk, stop)
        _take_in(part, journal.done)
        _finish(part, target, stop)
        seconds = time.perf_counter() - began
        talk.say(_result(part, len(part.listing) - before, seconds))
        journal.remove()
    except StopRequested as request:
        done = sum(record["count"] for record in journal.done)
        raise Stopped(
            request.signum,
            f"stopped at {done:,} of {len(part.listing):,} images; go on with: pinfeed pack --resume"
            f" --data {config.data} --out {config.out}" + (f" --size {config.size}" if config.size else ""),
        ) from None
    except OSError as error:
        raise _write_failed(part.out, error) from None
    finally:
        journal.close()
        os.close(target)


def _begin(part: Part) -> tuple[int, Journal]:
    """images.npy with all its room, and the journal, begun or taken up again."""
    listing = part.listing
    plan = {
        "version": packfiles.VERSION, "files": len(listing), "size": part.size, "chunk": _CHUNK,
        "names": listing.fingerprint(),
    }  # fmt: skip
    path = part.out / packfiles.IMAGES
    try:
        part.out.mkdir(parents=True, exist_ok=True)
        journal = Journal(part.out / packfiles.JOURNAL, plan)
    except OSError as error:
        raise files.cannot_create(part.out, error) from None
    try:
        target = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            _take_room(part, target, bool(journal.done))
        except BaseException:
            os.close(target)
            raise
    except BaseException as error:
        journal.close()
        if not journal.done:
            path.unlink(missing_ok=True)
            journal.remove()
        if isinstance(error, OSError):
            raise files.cannot_create(path, error) from None
        raise
    return target, journal


def _take_room(part: Part, target: int, resumed: bool) -> None:
    size = os.fstat(target).st_size
    shrunk = size < part.whole_bytes and size >= packfiles.HEADER  # the end of an earlier run was interrupted
    if resumed and not (size == part.whole_bytes or shrunk):
        raise PinfeedError(
            f"{part.out / packfiles.IMAGES} is not as the interrupted run left it",
            f"{size:,} bytes, where {part.whole_bytes:,} are meant",
            f"remove {part.out} and pack anew",
            BAD_DATA,
        )
    if not resumed:
        os.ftruncate(target, 0)
        try:
            os.posix_fallocate(target, 0, part.whole_bytes)  # all of the room now, not in the middle of the night
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
            os.ftruncate(target, part.whole_bytes)


def _write_rows(part: Part, target: int, journal: Journal, count: int, talk: Talk, stop: Stop) -> None:
    listing = part.listing
    ready: np.ndarray = np.zeros(len(listing), bool)
    for record in journal.done:
        ready[record["start"] : record["start"] + record["count"]] = True
    done, bad = int(ready.sum()), sum(len(record["bad"]) for record in journal.done)
    left = -(-(len(listing) - done) // _CHUNK)
    task = WriteRows(str(listing.root), str(part.out / packfiles.IMAGES), part.size)
    talk.begin_work(f"pack {part.name}".strip(), done, len(listing), "images")
    flushed = time.monotonic()
    try:
        if left:
            for answer in workers.run(task, _jobs(listing, ready), min(count, left), stop.check):
                record = _record(answer, listing)
                journal.add(record)
                done, bad = done + record["count"], bad + len(record["bad"])
                talk.work(done, f"{bad:,} damaged" if bad else "")
                if time.monotonic() - flushed > _FLUSH_EVERY:
                    journal.flush(target)
                    flushed = time.monotonic()
    finally:
        talk.end_work()
        journal.flush(target)


def _jobs(listing: ImageFolder, ready: np.ndarray) -> Iterable[Job]:
    """What is left. A job that was being done again file by file goes on so."""
    for start in range(0, len(listing), _CHUNK):
        stop = min(start + _CHUNK, len(listing))
        left = [row for row in range(start, stop) if not ready[row]]
        if len(left) == stop - start:
            yield Job(start, listing.paths[start:stop])
        else:
            yield from (Job(row, [listing.paths[row]]) for row in left)


def _record(answer: Done, listing: ImageFolder) -> dict[str, Any]:
    """A line of the journal. A file that no process survives is a damaged one, unless memory ran out."""
    if answer.died is None:
        return dict(answer.result)
    how, row = workers.end_of(answer.died), answer.job.start
    if answer.died == -9:
        raise PinfeedError(
            f"a worker process was killed over {shown(listing.path(row))}",
            f"it {how}, as the kernel does when memory runs out",
            "fewer --workers, or more memory (docker run --memory); then --resume",
            UNAVAILABLE,
        )
    return {"start": row, "count": 1, "bad": {row: f"its decoder {how}"}, "notes": {}}


def _take_in(part: Part, records: list[dict[str, Any]]) -> None:
    for record in records:
        part.damaged.update({int(row): why for row, why in record["bad"].items()})
        part.notes.update(record["notes"])
    if len(part.damaged) == len(part.listing):
        raise PinfeedError(
            f"not one of the {len(part.listing):,} files in {shown(str(part.listing.root))} is an image",
            "; ".join(_named(part)[:3]),
            "look at the files; if they are right, at the disk or the copy that they came by",
            BAD_DATA,
        )


# --- the end of a set ----------------------------------------------------------------------------


def _finish(part: Part, target: int, stop: Stop) -> None:
    """Rows of damaged files are filled, the small files written, and meta.json last of all."""
    listing = part.listing
    order = _fill_holes(part, target)
    count = len(order)
    os.pwrite(target, packfiles.header("|u1", (count, part.size, part.size, 3)), 0)
    os.ftruncate(target, packfiles.HEADER + count * part.row_bytes)
    os.fsync(target)
    names = "".join(shown(listing.paths[row]) + "\n" for row in order)
    files.write_atomic(part.out / packfiles.FILES, names.encode())
    if part.damaged:
        files.write_atomic(part.out / DAMAGED, ("\n".join(_named(part)) + "\n").encode())
    _write_meta(
        part.out,
        (count, part.size, part.size, 3),
        listing.labels[order],
        tuple(map(shown, listing.classes)),
        {
            "kind": "image folder", "path": shown(os.path.abspath(listing.root)), "files": len(listing),
            "names_sha256": listing.fingerprint(), "fit": "short side, then the middle square",
        },
        {"damaged": len(part.damaged), "noticed": dict(sorted(part.notes.items()))},
        stop,
    )  # fmt: skip


def _fill_holes(part: Part, target: int) -> np.ndarray:
    """Which file each row is in the end. The last rows move into the rows of damaged files.

    Only as many rows are moved as files are damaged, and doing it again after a kill does no harm.
    """
    total = len(part.listing)
    count = total - len(part.damaged)
    order = np.arange(count)
    holes = [row for row in sorted(part.damaged) if row < count]
    movers = [row for row in range(count, total) if row not in part.damaged]
    order[holes] = movers
    for hole, mover in zip(holes, movers):
        # Nothing is read, and so nothing moved, where a run before had shortened the file and was then killed.
        content = os.pread(target, part.row_bytes, packfiles.HEADER + mover * part.row_bytes)
        write_all(target, content, packfiles.HEADER + hole * part.row_bytes)
    return order


def _write_meta(
    out: Path,
    shape: tuple[int, ...],
    labels: np.ndarray,
    classes: tuple[str, ...],
    source: dict[str, Any],
    more: dict[str, Any],
    stop: Optional[Stop] = None,
) -> None:
    content = packfiles.header("<i8", (len(labels),)) + labels.astype("<i8").tobytes()
    files.write_atomic(out / packfiles.LABELS, content)
    present = [name for name in (packfiles.IMAGES, packfiles.LABELS, packfiles.FILES) if (out / name).exists()]
    check = stop.check if stop else (lambda: None)
    meta = {
        "version": packfiles.VERSION,
        "classes": list(classes),
        "shape": list(shape),
        "dtype": "uint8",
        "layout": "NHWC",
        "source": source,
        **more,
        "sha256": {name: packfiles.digest(out / name, check) for name in present},
    }
    files.write_atomic(out / packfiles.META, (json.dumps(meta, indent=2) + "\n").encode())


def _result(part: Part, count: int, seconds: float) -> str:
    kept = len(part.listing) - len(part.damaged)
    size = (packfiles.HEADER + kept * part.row_bytes) / 1e6
    lines = [
        f"{part.out}: {kept:,} images of {part.size} x {part.size}, {size:,.1f} MB,"
        f" in {seconds:.1f} s ({count / max(seconds, 1e-9):,.0f} img/s)"
    ]
    if part.notes:
        lines.append("  noticed: " + ", ".join(f"{number:,} {note}" for note, number in sorted(part.notes.items())))
    if part.damaged:
        lines.append(f"  left out: {len(part.damaged):,} damaged files, all in {part.out / DAMAGED}:")
        lines += [f"    {line}" for line in _named(part)[:_NAMED]]
        if len(part.damaged) > _NAMED:
            lines.append(f"    and {len(part.damaged) - _NAMED:,} more")
    return "\n".join(lines)


def _named(part: Part) -> list[str]:
    return [f"{shown(part.listing.paths[row])}: {why}" for row, why in sorted(part.damaged.items())]


def _summary(out: Path) -> dict[str, Any]:
    meta: dict[str, Any] = json.loads((out / packfiles.META).read_bytes())
    return {key: meta[key] for key in ("shape", "classes", "source", "damaged", "noticed", "sha256")}


# --- Fashion-MNIST -------------------------------------------------------------------------------


def _pack_fashion_mnist(config: PackConfig, environ: Mapping[str, str], talk: Talk) -> dict[str, Any]:
    from pinfeed import data  # it loads torch, which the rest can do without

    folder, parts = data.whole(config.data, environ, checksum=config.checksum)
    sets = {}
    for name, part in parts.items():
        out = Path(config.out) / name
        _refuse_if_used(out, config.resume)
        if not (out / packfiles.META).exists():
            rows = part.images.permute(0, 2, 3, 1).numpy()
            _write_at_once(out, rows, part.labels.numpy(), data.CLASSES, {"kind": config.data, "path": str(folder)})
            talk.say(f"{out}: {len(rows):,} images of {rows.shape[1]} x {rows.shape[2]}, {rows.nbytes / 1e6:,.1f} MB")
        sets[name] = _summary(out)
    return sets


def _write_at_once(
    out: Path, rows: np.ndarray, labels: np.ndarray, classes: tuple[str, ...], source: dict[str, Any]
) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise files.cannot_create(out, error) from None
    files.write_atomic(out / packfiles.IMAGES, packfiles.header("|u1", rows.shape) + rows.tobytes())
    _write_meta(out, rows.shape, labels, classes, source, {"damaged": 0, "noticed": {}})


# --- before anything is written, and when it cannot be -------------------------------------------


def _refuse_if_used(out: Path, resume: bool) -> None:
    if resume or not packfiles.is_there(out):
        return
    whole = (out / packfiles.META).exists()
    go_on = "" if whole else ", or go on with it: --resume"
    raise PinfeedError(
        f"{out} holds {'a packed set' if whole else 'a set that is half packed'}",
        ", ".join(sorted(entry.name for entry in out.iterdir())),
        f"choose another --out{go_on}",
    )


def _check_room(parts: list[Part], out: Path) -> None:
    need = sum(part.whole_bytes + 8 * len(part.listing) + _SPARE for part in parts)
    have = sum(_taken(part.out / packfiles.IMAGES) for part in parts)
    place = out
    while not place.exists():
        place = place.parent
    room = os.statvfs(place)
    free = room.f_bavail * room.f_frsize
    if room.f_blocks and need - have > free:  # no blocks: a file system that does not tell
        raise PinfeedError(
            "the disk has no room for the packed images",
            f"{need / 1e9:,.2f} GB are needed ({_sum(parts)}), {free / 1e9:,.2f} GB are free at {place}",
            "free some space, choose an --out on another disk, or a smaller --size",
            CANNOT_CREATE,
        )


def _sum(parts: list[Part]) -> str:
    count, size = sum(len(part.listing) for part in parts), parts[0].size
    return f"{count:,} images x {size} x {size} x 3 bytes"


def _taken(path: Path) -> int:
    try:
        return path.stat().st_blocks * 512
    except OSError:
        return 0


def _write_failed(out: Path, error: OSError) -> PinfeedError:
    room = os.statvfs(out)
    return PinfeedError(
        f"the images could not be written to {out}",
        f"{error.strerror} ({room.f_bavail * room.f_frsize / 1e6:,.1f} MB free)",
        "free some space, then go on with the same command and --resume",
        WRITE_FAILED,
    )


# --- small things --------------------------------------------------------------------------------


def write_all(target: int, content: bytes | memoryview, place: int) -> None:
    """pwrite until all is written."""
    view = memoryview(content)
    while view:
        count = os.pwrite(target, view, place)
        view, place = view[count:], place + count


@functools.lru_cache(maxsize=1)
def _opened(target: str) -> int:
    """The file that a worker process writes to, for as long as it lives."""
    return os.open(target, os.O_WRONLY | os.O_CLOEXEC)


def _per_class(listing: ImageFolder) -> list[int]:
    return np.bincount(listing.labels, minlength=len(listing.classes)).tolist()


def _classes(count: int) -> str:
    return f"{count:,} class{'es' if count > 1 else ''}"
