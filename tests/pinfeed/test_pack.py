"""Packing: the right rows, the damaged files named, and nothing lost by a kill or a full disk."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pinfeed import files, images, pack, packfiles, workers
from pinfeed.cli import main
from pinfeed.errors import PinfeedError
from pinfeed.journal import Journal
from pinfeed.packed import Packed
from pinfeed.workers import Done, Job
from tests.pinfeed.pictures import encoded, gradient, jpeg, photo_folder
from tests.pinfeed.support import ROOT, start, three_parts, write_set


def run(data: Path, out: Path, *more: str) -> int:
    return main(["pack", "--data", str(data), "--out", str(out), "--size", "16", "--workers", "2", *more])


def rows(out: Path) -> np.ndarray:
    found: np.ndarray = np.load(out / "images.npy")
    return found


def meta(out: Path) -> dict[str, object]:
    return dict(json.loads((out / "meta.json").read_bytes()))


def bytes_of(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.iterdir()}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """150 images in two classes: more than two jobs. Not to be changed."""
    return photo_folder(tmp_path_factory.mktemp("photos") / "set", {"cat": 90, "dog": 60})


@pytest.fixture(scope="module")
def whole(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """They, packed without any trouble."""
    out = tmp_path_factory.mktemp("packed") / "whole"
    assert run(photos, out) == 0
    return out


def test_every_image_is_in_its_row_with_its_label(photos: Path, whole: Path) -> None:
    listing = images.list_folder(photos)
    found = rows(whole)
    assert found.shape == (150, 16, 16, 3) and found.dtype == np.uint8
    for row in range(150):
        meant = images.decode(images.read(listing.path(row)), size=16).pixels
        assert np.array_equal(found[row], meant), listing.paths[row]
    assert np.load(whole / "labels.npy").tolist() == [0] * 90 + [1] * 60
    assert (whole / "files.txt").read_text().splitlines() == listing.paths


def test_the_set_says_what_it_is_and_numpy_would_have_written_the_same(whole: Path, tmp_path: Path) -> None:
    about = meta(whole)
    assert about["version"] == 1
    assert about["classes"] == ["cat", "dog"]
    assert about["shape"] == [150, 16, 16, 3]
    assert about["damaged"] == 0
    assert sorted(path.name for path in whole.iterdir()) == ["files.txt", "images.npy", "labels.npy", "meta.json"]
    packfiles.verify(whole)
    for name in ("images.npy", "labels.npy"):
        np.save(tmp_path / name, np.load(whole / name))
        assert (tmp_path / name).read_bytes() == (whole / name).read_bytes()


def test_what_is_packed_can_be_fed(photos: Path, whole: Path) -> None:
    data = Packed(whole, "read")
    target: np.ndarray = np.empty((3, 16, 16, 3), np.uint8)
    data.gather(np.array([149, 0, 70]), target)
    data.close()
    assert np.array_equal(target, rows(whole)[[149, 0, 70]])
    assert (len(data), data.shape, data.classes) == (150, (16, 16, 3), ("cat", "dog"))


def test_workers_and_order_of_work_do_not_decide_the_bytes(photos: Path, whole: Path, tmp_path: Path) -> None:
    assert run(photos, tmp_path / "one", "--workers", "1") == 0
    assert bytes_of(tmp_path / "one") == bytes_of(whole)


def test_a_changed_byte_is_found(whole: Path, tmp_path: Path) -> None:
    for name, content in bytes_of(whole).items():
        (tmp_path / name).write_bytes(content)
    packfiles.verify(tmp_path)
    with open(tmp_path / "images.npy", "r+b") as file:
        file.seek(5_000)
        file.write(b"\xff")
    with pytest.raises(PinfeedError, match=r"images\.npy is damaged"):
        packfiles.verify(tmp_path)


# --- damaged files -------------------------------------------------------------------------------


def spoil(root: Path) -> dict[str, str]:
    """Put bad and odd files among good ones; which are named, and how."""
    (root / "cat" / "0000.png").write_bytes(b"")
    (root / "cat" / "0003.png").write_bytes(jpeg(gradient())[:800])
    (root / "cat" / "0004.png").write_bytes(b"<html>not found</html>")
    (root / "cat" / "0005.png").unlink()
    (root / "cat" / "0005.png").symlink_to("nowhere")
    (root / "dog" / "0001.png").unlink()
    (root / "dog" / "0001.png").mkdir()
    (root / "dog" / "0009.png").write_bytes(b"")
    return {
        "cat/0000.png": "zero bytes", "cat/0003.png": "truncated", "cat/0004.png": "no image",
        "cat/0005.png": "No such file", "dog/0009.png": "zero bytes",
    }  # fmt: skip


def test_damaged_files_are_named_counted_and_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, out = photo_folder(tmp_path / "set", {"cat": 10, "dog": 10}), tmp_path / "out"
    bad = spoil(data)
    assert run(data, out, "--json", str(tmp_path / "summary.json")) == 0
    said = capsys.readouterr().out
    listed = (out / "damaged.txt").read_text().splitlines()
    assert len(listed) == len(bad)
    for name, why in bad.items():
        assert any(line.startswith(f"{name}: ") and why in line for line in listed), name
        assert f"{name}: " in said
    assert "5 damaged files" in said
    assert meta(out)["damaged"] == 5
    assert json.loads((tmp_path / "summary.json").read_text())["sets"]["."]["damaged"] == 5
    packfiles.verify(out)


def test_each_row_belongs_to_the_file_and_label_beside_it_whatever_is_damaged(tmp_path: Path) -> None:
    data, out = photo_folder(tmp_path / "set", {"cat": 10, "dog": 10}), tmp_path / "out"
    spoil(data)
    assert run(data, out) == 0
    names, labels, found = (out / "files.txt").read_text().splitlines(), np.load(out / "labels.npy"), rows(out)
    assert len(names) == len(labels) == len(found) == 14
    assert len(set(names)) == 14
    for name, label, row in zip(names, labels, found, strict=True):
        assert np.array_equal(row, images.decode(images.read(str(data / name)), size=16).pixels), name
        assert label == ("cat", "dog").index(name[:3])


def test_odd_but_good_files_are_packed_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "set" / "a"
    folder.mkdir(parents=True)
    levels: np.ndarray = np.full((20, 20), 40_000, np.uint16)
    exif = Image.Exif()
    exif[0x0112] = 6
    (folder / "0.jpg").write_bytes(encoded(Image.new("CMYK", (20, 20), (0, 255, 255, 0)), "JPEG", quality=100))
    (folder / "1.png").write_bytes(encoded(Image.fromarray(levels), "PNG"))
    (folder / "2.jpg").write_bytes(encoded(Image.new("RGB", (20, 20), (9, 8, 7)), "PNG"))
    (folder / "3.jpg").write_bytes(jpeg(gradient(40, 40), exif=exif))
    (folder / "4.webp").write_bytes(
        encoded(Image.new("RGB", (20, 20)), "WEBP", save_all=True, append_images=[Image.new("RGB", (20, 20), "red")])
    )
    assert run(tmp_path / "set", tmp_path / "out") == 0
    assert meta(tmp_path / "out")["noticed"] == {
        "16-bit": 1, "CMYK": 1, "other format than its name says": 1, "several frames, the first taken": 1,
        "turned by EXIF": 1,
    }  # fmt: skip
    said = capsys.readouterr().out
    assert "1 turned by EXIF" in said
    assert "only one class, a" in said
    found = rows(tmp_path / "out")
    assert (np.abs(found[0].astype(int) - (255, 0, 0)) <= 4).all()
    assert (found[1] == round(40_000 / 257)).all()
    assert (found[2] == (9, 8, 7)).all()


def test_a_set_without_one_good_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "set" / "a"
    folder.mkdir(parents=True)
    for number in range(3):
        (folder / f"{number}.jpg").write_bytes(b"nothing")
    assert run(tmp_path / "set", tmp_path / "out") == 65
    message = capsys.readouterr().err
    assert three_parts(message)
    assert "a/0.jpg: no image" in message
    assert not (tmp_path / "out" / "meta.json").exists()


def test_a_file_that_kills_its_decoder_is_named_and_the_rest_is_packed(tmp_path: Path) -> None:
    done = [Done(Job(3, ["a/3.jpg"]), None, died=-signal.SIGSEGV)]
    listing = images.list_folder(photo_folder(tmp_path / "set", {"a": 5}))
    assert pack._record(done[0], listing)["bad"] == {3: "its decoder was killed by SIGSEGV"}
    killed = Done(Job(3, ["a/3.jpg"]), None, died=-signal.SIGKILL)
    with pytest.raises(PinfeedError, match=r"killed over .*a/0003\.png") as caught:
        pack._record(killed, listing)
    assert "memory" in caught.value.seen


# --- stopped, killed, resumed --------------------------------------------------------------------


def half_packed(data: Path, out: Path) -> None:
    """What a kill leaves behind: the first job done, a line cut short, all the room taken."""
    listing = images.list_folder(data)
    part = pack.Part("", out, listing, 16)
    target, journal = pack._begin(part)
    task = pack.WriteRows(str(data), str(out / "images.npy"), 16)
    pack._opened.cache_clear()
    journal.add(task(Job(0, listing.paths[:64])))
    pack._opened.cache_clear()
    journal.flush(target)
    journal.close()
    os.close(target)
    with open(out / ".pack" / "done.jsonl", "a") as file:
        file.write('{"start": 64, "cou')


def test_a_killed_run_goes_on_where_it_was_and_ends_with_the_same_bytes(
    photos: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    half_packed(photos, out)
    given: list[int] = []
    real = workers.run

    def noted(task: Any, jobs: Iterable[Job], *more: Any) -> Iterator[Done]:
        listed = list(jobs)
        given.extend(job.start for job in listed)
        return real(task, listed, *more)

    monkeypatch.setattr(workers, "run", noted)
    assert run(photos, out, "--resume") == 0
    assert given == [64, 128]
    assert bytes_of(out) == bytes_of(whole)


def test_kill_9_of_the_program_loses_nothing(photos: Path, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    argv = ["pack", "--data", str(photos), "--out", str(out), "--size", "16", "--workers", "2"]
    for delay in (0.35, 0.6, 0.9):
        program = start(*argv, "--resume")
        time.sleep(delay)
        program.kill()
        program.communicate(timeout=60)
    assert run(photos, out, "--resume") == 0
    assert bytes_of(out) == bytes_of(whole)


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_saves_what_is_done_and_says_how_to_go_on(signum: int, code: int, tmp_path: Path) -> None:
    data = tmp_path / "set"
    photo_folder(data, {"a": 70})
    big = encoded(Image.fromarray(np.random.default_rng(0).integers(0, 256, (900, 900, 3), dtype=np.uint8)), "PNG")
    for number in range(70, 700):
        (data / "a" / f"{number:04}.png").write_bytes(big) if number == 70 else os.link(
            data / "a" / "0070.png", data / "a" / f"{number:04}.png"
        )
    out = tmp_path / "out"
    argv = ["pack", "--data", str(data), "--out", str(out), "--size", "16", "--workers", "1"]
    # To the whole group, as a terminal's Ctrl-C and the container's stop are.
    with start(*argv, start_new_session=True) as program:
        deadline = time.monotonic() + 30
        while not (out / "images.npy").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(1.5)
        began = time.monotonic()
        os.killpg(program.pid, signum)
        _, errors = program.communicate(timeout=60)
    assert program.returncode == code
    assert time.monotonic() - began < 4
    assert errors.startswith("pinfeed: stopped at ")
    assert "--resume" in errors and len(errors.splitlines()) == 1
    journal = (out / ".pack" / "done.jsonl").read_text().splitlines()
    assert journal and json.loads(journal[0])["count"] == 64


def test_a_line_that_a_kill_cut_short_spoils_none_that_come_after(tmp_path: Path) -> None:
    """Killed twice, and what was done in between counts."""
    with open(tmp_path / "images.npy", "wb") as images_file:
        first = Journal(tmp_path / ".pack", {"size": 1})
        first.add({"start": 0})
        first.flush(images_file.fileno())
        first.close()
        with open(tmp_path / ".pack" / "done.jsonl", "a") as file:
            file.write('{"start": 1, "cou')
        second = Journal(tmp_path / ".pack", {"size": 1})
        second.add({"start": 2})
        second.flush(images_file.fileno())
        second.close()
    third = Journal(tmp_path / ".pack", {"size": 1})
    third.close()
    assert third.done == [{"start": 0}, {"start": 2}]


def test_an_end_that_was_interrupted_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the rows of damaged files were filled and the file shortened, before meta.json was there."""
    data = photo_folder(tmp_path / "set", {"cat": 10, "dog": 10})
    spoil(data)
    whole, out = tmp_path / "whole", tmp_path / "out"
    assert run(data, whole) == 0
    for stage in ("files.txt", "labels.npy", "meta.json"):
        write = files.write_atomic

        def fail_at(path: Path, content: bytes, stage: str = stage, write: Callable[..., None] = write) -> None:
            if path.name == stage:
                raise PinfeedError("killed here", "-", "-")
            write(path, content)

        monkeypatch.setattr(files, "write_atomic", fail_at)
        assert run(data, out, "--resume") == 64
        monkeypatch.undo()
    assert run(data, out, "--resume") == 0
    assert bytes_of(out) == bytes_of(whole)


def test_resume_of_what_is_finished_changes_nothing(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(photos, tmp_path / "out") == 0
    before = bytes_of(tmp_path / "out")
    assert run(photos, tmp_path / "out", "--resume") == 0
    assert "was packed before" in capsys.readouterr().out
    assert bytes_of(tmp_path / "out") == before


def test_a_folder_that_has_changed_since_is_refused(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = photo_folder(tmp_path / "set", {"cat": 90, "dog": 60}), tmp_path / "out"
    half_packed(data, out)
    (data / "dog" / "more.png").write_bytes((data / "dog" / "0001.png").read_bytes())
    assert run(data, out, "--resume") == 65
    message = capsys.readouterr().err
    assert three_parts(message)
    assert "files 150 -> 151" in message
    (data / "dog" / "more.png").unlink()
    assert main(["pack", "--data", str(data), "--out", str(out), "--size", "20", "--resume"]) == 65
    assert "size 16 -> 20" in capsys.readouterr().err


def test_images_that_were_touched_since_are_refused(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    half_packed(photos, tmp_path / "out")
    os.truncate(tmp_path / "out" / "images.npy", 60)
    assert run(photos, tmp_path / "out", "--resume") == 65
    assert three_parts(capsys.readouterr().err)


def test_two_at_once_in_one_folder_are_refused(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    listing = images.list_folder(photos)
    target, journal = pack._begin(pack.Part("", out, listing, 16))
    try:
        assert run(photos, out, "--resume") == 64
        assert "another pinfeed pack is at work" in capsys.readouterr().err
        assert (out / "images.npy").stat().st_size == 128 + 150 * 16 * 16 * 3
    finally:
        journal.close()
        os.close(target)


# --- refusals ------------------------------------------------------------------------------------


def test_a_packed_set_is_not_overwritten(photos: Path, whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = bytes_of(whole)
    assert run(photos, whole) == 64
    assert three_parts(capsys.readouterr().err)
    assert bytes_of(whole) == before


def test_a_set_that_is_half_packed_is_told_how_to_go_on(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    half_packed(photos, tmp_path / "out")
    assert run(photos, tmp_path / "out") == 64
    assert "go on with it: --resume" in capsys.readouterr().err
    with pytest.raises(PinfeedError, match="not been packed to its end"):
        packfiles.refuse_unfinished(tmp_path / "out")


def test_no_room_is_said_before_with_numbers(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = os.statvfs_result((4096, 4096, 1000, 200, 200, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: small)
    assert main(["pack", "--data", str(photos), "--out", str(tmp_path / "out")]) == 73
    message = capsys.readouterr().err
    assert three_parts(message)
    assert "0.03 GB are needed (150 images x 256 x 256 x 3 bytes), 0.00 GB are free" in message
    assert not (tmp_path / "out").exists()


def test_a_disk_that_cannot_give_the_room_is_no_dead_run_and_leaves_nothing(photos: Path, tmp_path: Path) -> None:
    """The room is taken at the start: no surprise in the middle, and no SIGBUS."""

    def little_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))

    out = tmp_path / "out"
    argv = ["pack", "--data", str(photos), "--out", str(out), "--size", "16"]
    with start(*argv, preexec_fn=little_room) as program:
        _, errors = program.communicate(timeout=60)
    assert program.returncode == 73
    assert three_parts(errors)
    assert list(out.iterdir()) == []


def test_a_write_that_fails_in_a_worker_is_told_and_can_be_resumed(
    photos: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"

    def full(*args: object) -> Iterator[Done]:
        raise OSError(28, "No space left on device")
        yield  # makes it one that fails when it is asked, as the real one does

    monkeypatch.setattr(workers, "run", full)
    assert run(photos, out) == 74
    message = capsys.readouterr().err
    assert three_parts(message)
    assert "No space left on device" in message
    assert "--resume" in message
    monkeypatch.undo()
    assert run(photos, out, "--resume") == 0
    assert bytes_of(out) == bytes_of(whole)


@pytest.mark.parametrize(
    ("argv", "code", "named"),
    [
        (["--data", "imagenet", "--out", "x"], 64, "--data imagenet"),
        (["--data", "{set}", "--out", "{set}/packed"], 64, "lies within --data"),
        (["--data", "{set}", "--out", "x", "--size", "0"], 64, "--size 0"),
        (["--data", "{set}", "--out", "x", "--workers", "0"], 64, "--workers 0"),
        (["--data", "{set}", "--out", "x", "--workers", "two"], 64, "--workers two"),
        (["--data", "fashion-mnist", "--out", "x", "--size", "32"], 64, "28 x 28"),
        (["--data", "{set}", "--out", "/proc/x"], 73, "/proc/x"),
        (["--data", "{set}", "--out", "x", "--json", "/no/such/file"], 73, "/no/such"),
        (["--data", "{set}"], 64, "--out"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_mistake_is_one_message_in_three_parts(
    argv: list[str], code: int, named: str, photos: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(["pack", *(word.format(set=photos) for word in argv)]) == code
    message = capsys.readouterr().err
    assert three_parts(message)
    assert named in message
    assert list(tmp_path.iterdir()) == []


# --- parts, and Fashion-MNIST --------------------------------------------------------------------


def test_train_and_val_become_two_sets_with_the_same_labels(tmp_path: Path) -> None:
    data = photo_folder(tmp_path / "set", {"train/a": 2, "train/b": 3, "train/c": 1, "val/c": 2})
    assert run(data, tmp_path / "out") == 0
    assert np.load(tmp_path / "out" / "train" / "labels.npy").tolist() == [0, 0, 1, 1, 1, 2]
    assert np.load(tmp_path / "out" / "val" / "labels.npy").tolist() == [2, 2]
    assert meta(tmp_path / "out" / "val")["classes"] == ["a", "b", "c"]


def test_an_empty_class_keeps_its_label_and_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = photo_folder(tmp_path / "set", {"a": 1, "b": 0, "c": 1})
    assert run(data, tmp_path / "out") == 0
    assert "no image in 1 class: b" in capsys.readouterr().out
    assert np.load(tmp_path / "out" / "labels.npy").tolist() == [0, 2]


def test_fashion_mnist_is_packed_as_its_files_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_set(tmp_path / "small")
    monkeypatch.setenv("PINFEED_DATA", str(source))
    out = tmp_path / "out"
    argv = ["pack", "--data", "fashion-mnist", "--out", str(out)]
    assert main([*argv, "--no-checksum"]) == 0
    raw = (source / "t10k-images-idx3-ubyte").read_bytes()[16:]
    assert rows(out / "test").shape == (96, 28, 28, 1)
    assert rows(out / "test").tobytes() == raw
    assert np.load(out / "train" / "labels.npy").tolist() == list((source / "train-labels-idx1-ubyte").read_bytes()[8:])
    assert meta(out / "train")["classes"][9] == "Ankle boot"  # type: ignore[index]
    packfiles.verify(out / "train")
    assert main([*argv, "--no-checksum"]) == 64
    assert main([*argv, "--no-checksum", "--resume"]) == 0
    capsys.readouterr()
    assert main([*argv[:-1], str(tmp_path / "checked")]) == 65
    assert "not Fashion-MNIST's" in capsys.readouterr().err


def test_the_real_fashion_mnist_is_packed_whole(real: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PINFEED_DATA", str(real))
    assert main(["pack", "--data", "fashion-mnist", "--out", str(tmp_path / "out")]) == 0
    assert meta(tmp_path / "out" / "train")["shape"] == [60_000, 28, 28, 1]
    assert np.bincount(np.load(tmp_path / "out" / "test" / "labels.npy")).tolist() == [1_000] * 10


def test_packing_does_not_wait_for_torch(photos: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from pinfeed.cli import main\n"
        "if __name__ == '__main__':\n"
        f"    assert main(['pack', '--data', {str(photos)!r}, '--out', {str(tmp_path / 'out')!r}]) == 0\n"
        "    sys.exit('torch' in sys.modules)\n"
    )
    (tmp_path / "program.py").write_text(code)
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.run([sys.executable, str(tmp_path / "program.py")], env=environ).returncode == 0
