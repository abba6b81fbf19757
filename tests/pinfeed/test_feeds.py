"""The result of a training does not depend on how the data reached the device, nor by how many it was done."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pinfeed import feeds, guards, sources
from pinfeed.config import TrainConfig
from pinfeed.errors import PinfeedError
from tests.pinfeed.support import ROOT, arguments, same, start, three_parts, train, weights
from tests.pinfeed.test_packed import write


def metrics(out: Path) -> dict[str, object]:
    loaded: dict[str, object] = json.loads((out / "metrics.json").read_text())
    return loaded


def losses(out: Path) -> list[tuple[float, float]]:
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [(line["train_loss"], line["validation_loss"]) for line in lines]


@pytest.fixture(scope="module")
def by_ring(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that the ring has fed."""
    out = tmp_path_factory.mktemp("ring") / "out"
    assert train(small, out, "--device", "cpu", "--augment", "zoom") == 0
    assert metrics(out)["feed"] == "ring"
    return out


@pytest.mark.parametrize("feed", ["prefetch", "loader"])
def test_ring_prefetch_and_a_plain_loader_give_the_same_bits(
    feed: str, small: Path, by_ring: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    more = ("--device", "cpu", "--augment", "zoom", "--feed", feed)
    assert train(small, out, *more, "--workers", "1" if feed == "loader" else "0") == 0
    assert metrics(out)["feed"] == feed
    assert losses(out) == losses(by_ring)
    assert same(weights(out), weights(by_ring))


def test_a_run_that_is_killed_in_mid_epoch_goes_on_to_the_same_weights(
    small: Path, by_ring: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    argv = arguments(small, out, "--device", "cpu", "--augment", "zoom", "--save-every", "5")
    with start(*argv) as program:
        while not (out / "checkpoint.pt").exists() and program.poll() is None:
            time.sleep(0.001)
        program.send_signal(signal.SIGKILL)
    if program.returncode == 0:
        pytest.fail("it was over before it could be killed")
    saved = torch.load(out / "checkpoint.pt", weights_only=True)["progress"]
    assert (saved["epoch"], saved["step"]) != (2, 0)
    assert train(small, out, "--device", "cpu", "--resume", str(out), "--augment", "zoom") == 0
    assert same(weights(out), weights(by_ring))
    assert losses(out) == losses(by_ring)


# --- several processes -----------------------------------------------------------------------------

_EQUAL = """
import os, sys, torch
from torch import nn
from pinfeed import team, train, transforms
from pinfeed.packed import InMemory
from pinfeed.ring import Ring
from pinfeed import seeds
us = team.team_of(os.environ)
cpu = torch.device("cpu")
us.join(cpu)
torch.manual_seed(0); torch.set_num_threads(1)
images = torch.randint(0, 256, (640, 8, 8, 3), dtype=torch.uint8); labels = torch.randint(0, 4, (640,))
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4))
plain = transforms.TrainTransform(flip=False)
learner = train.make_learner(model, (plain, plain), cpu, None, 0.05, wrap=lambda m: us.wrapped(m, cpu))
feed = Ring(InMemory(images, labels), 32 // us.size, cpu)
order = seeds.shard(train.epoch_order(640, 640, 3, 0), us.rank, us.size)
train.train_epoch(learner, feed.batches(order), 0, lambda step: 0.05, train.new_tally(cpu), lambda done: None)
feed.close()
torch.save(model.state_dict(), sys.argv[1] + f"/{us.size}-{us.rank}.pt")
del learner, model
us.leave()
"""


def torchrun(processes: int, *argv: str) -> subprocess.CompletedProcess[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1", f"--nproc-per-node={processes}"]
    place = ["--local-addr=127.0.0.1", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0"]
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}", "OMP_NUM_THREADS": "1"}
    return subprocess.run([*launcher, *place, *argv], env=environ, capture_output=True, text=True, timeout=240)


def test_two_processes_learn_what_one_learns_in_twenty_steps(tmp_path: Path) -> None:
    script = tmp_path / "equal.py"
    script.write_text(_EQUAL)
    for processes in (1, 2):
        done = torchrun(processes, str(script), str(tmp_path))
        assert done.returncode == 0, done.stderr
    alone, first, second = (torch.load(tmp_path / f"{name}.pt") for name in ("1-0", "2-0", "2-1"))
    assert same(first, second)
    for name, value in alone.items():
        # fp32, no BatchNorm, no dropout, no augmentation: only the order of sums differs.
        assert torch.allclose(value, first[name], rtol=1e-4, atol=1e-6), name


def test_pinfeed_train_under_torchrun_writes_once_and_leaves_no_process(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = torchrun(2, "-m", "pinfeed", *arguments(small, out, "--device", "cpu"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("epoch 2/2") == 1
    result = metrics(out)
    assert (result["processes"], result["samples"]) == (2, {"train": 440, "validation": 40, "test": 96})
    assert float(result["test_accuracy"]) > 0.5  # type: ignore[arg-type]


def test_a_batch_that_cannot_be_shared_out_is_refused(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "3", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    assert train(small, tmp_path / "out") == 64
    message = capsys.readouterr().err
    assert three_parts(message)
    assert "--batch-size 33" in message


# --- data of other kinds ---------------------------------------------------------------------------


def run(out: Path, *argv: str) -> int:
    from pinfeed.cli import main

    return main(["train", "--out", str(out), "--epochs", "1", "--device", "cpu", "--workers", "1", *argv])


def test_made_up_images_are_learned_with_no_data_at_all(tmp_path: Path) -> None:
    more = ("--limit", "600", "--image-size", "16", "--batch-size", "30", "--epochs", "3")
    assert run(tmp_path / "out", "--data", "synthetic", *more) == 0
    assert float(metrics(tmp_path / "out")["test_accuracy"]) > 0.5  # type: ignore[arg-type]
    assert train(Path("synthetic"), tmp_path / "out", "--resume", str(tmp_path / "out")) == 64  # other recipe


def test_a_packed_folder_is_split_and_trained_on(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (40, 16, 16, 3), np.uint8)
    write(tmp_path / "set", images=images, meta={"shape": [16, 16, 3]})
    assert run(tmp_path / "out", "--data", str(tmp_path / "set"), "--batch-size", "8") == 0
    assert metrics(tmp_path / "out")["samples"] == {"train": 34, "validation": 3, "test": 3}


@pytest.mark.parametrize(
    ("parts", "samples"),
    [
        (("train", "val", "test"), {"train": 40, "validation": 40, "test": 40}),
        (("train", "val"), {"train": 37, "validation": 3, "test": 40}),
        (("train", "test"), {"train": 37, "validation": 3, "test": 40}),
        (("train",), {"train": 34, "validation": 3, "test": 3}),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, tuple) else "",
)
def test_parts_that_the_data_have_are_kept_apart(
    parts: tuple[str, ...], samples: dict[str, int], tmp_path: Path
) -> None:
    for part in parts:
        write(tmp_path / part)
    splits = sources.load(TrainConfig(data=str(tmp_path)), {}, checksum=True)
    assert {name: len(getattr(splits, name)) for name in samples} == samples
    few = sources.load(TrainConfig(data=str(tmp_path), limit=5), {}, checksum=True)
    assert (len(few.train), len(few.test)) == (5, 1)


def test_what_is_held_out_is_never_trained_on(tmp_path: Path) -> None:
    write(tmp_path)
    splits = sources.load(TrainConfig(data=str(tmp_path)), {}, checksum=True)
    shown = []
    for part in (splits.train, splits.validation, splits.test):
        assert isinstance(part, sources.Subset)
        target = np.empty((len(part), 6, 5, 3), np.uint8)
        part.gather(np.arange(len(part)), target)
        shown.append(target[:, 0, 0, 0].tolist())
        assert part.labels.tolist() == [image % 2 for image in shown[-1]]
    assert sorted(sum(shown[1:], shown[0])) == list(range(40))


def test_one_class_only_is_refused(tmp_path: Path) -> None:
    write(tmp_path, labels=np.zeros(40, np.int64), meta={"classes": ["a"]})
    with pytest.raises(PinfeedError, match="only one class") as caught:
        sources.load(TrainConfig(data=str(tmp_path)), {}, checksum=True)
    assert caught.value.code == 65


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An image folder: red and blue, of many sizes."""
    random = np.random.default_rng(0)
    for name, colour in (("red", (200, 30, 30)), ("blue", (30, 30, 200))):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(30):
            height, width = random.integers(20, 60, 2)
            pixels = np.clip(np.array(colour) + random.integers(-30, 30, (height, width, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / name / f"{number}.png")
    return tmp_path / "images"


def test_an_image_folder_is_trained_on_and_bad_files_are_named_and_left_out(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "red" / "empty.jpg").write_bytes(b"")
    (folder / "blue" / "cut.png").write_bytes((folder / "blue" / "0.png").read_bytes()[:60])
    more = ("--image-size", "32", "--batch-size", "10", "--epochs", "2", "--model", "small-cnn")
    assert run(tmp_path / "out", "--data", str(folder), *more) == 0
    result = metrics(tmp_path / "out")
    assert (result["feed"], result["unreadable_images"]) == ("prefetch", 2)
    said = capsys.readouterr().out
    assert said.count("empty.jpg: empty: zero bytes") == 1
    assert said.count("cut.png") == 1
    assert "2 images could not be read" in said


def test_an_empty_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "nothing").mkdir()
    assert run(tmp_path / "out", "--data", str(tmp_path / "nothing")) == 66
    assert three_parts(capsys.readouterr().err)


def test_an_image_size_that_would_need_crops_is_refused(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(small, tmp_path / "out", "--image-size", "20") == 64
    assert three_parts(capsys.readouterr().err)


# --- models and compilation ------------------------------------------------------------------------


def test_a_resnet_learns_small_images(small: Path, tmp_path: Path) -> None:
    pytest.importorskip("torchvision")
    assert train(small, tmp_path / "out", "--model", "resnet18", "--limit", "64", "--epochs", "1") == 0
    assert metrics(tmp_path / "out")["parameters"] == 11_172_810


def test_a_resnet_without_torchvision_is_explained(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)
    assert train(small, tmp_path / "out", "--model", "resnet18") == 69
    assert three_parts(capsys.readouterr().err)


def test_a_compiled_step_learns_the_same(
    small: Path, by_ring: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler, called = torch.compile, []

    def traced(module: torch.nn.Module) -> object:
        called.append(module)
        return compiler(module, backend="eager", fullgraph=True)  # the machine code is torch's affair

    monkeypatch.setattr(torch, "compile", traced)
    assert train(small, tmp_path / "out", "--device", "cpu", "--augment", "zoom", "--compile") == 0
    assert len(called) == 1
    assert losses(tmp_path / "out") == losses(by_ring)


def test_a_compiler_that_is_not_there_is_explained(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(module: torch.nn.Module) -> object:
        def call(*given: object) -> None:
            raise torch._dynamo.exc.TorchDynamoException("no C compiler")

        return call

    import torch._dynamo

    monkeypatch.setattr(torch, "compile", broken)
    monkeypatch.setattr(torch.nn.Module, "train", lambda self, mode=True: self)
    assert train(small, tmp_path / "out", "--compile") == 69
    message = capsys.readouterr().err
    assert three_parts(message)
    assert "leave --compile out" in message


def test_tensorboard_gets_the_curves(by_ring: Path) -> None:
    pytest.importorskip("tensorboard")
    assert len(list((by_ring / "tensorboard").glob("events.*"))) == 1


@pytest.mark.parametrize(
    ("shm", "asked", "workers", "prefetch"),
    [(64 << 20, None, 4, 2), (64 << 20, 2, 2, 2), (2_600_000, None, 3, 1), (1_600_000, 2, 1, 1), (300_000, None, 0, 2)],
)
def test_a_loader_takes_what_shm_has_room_for_and_says_so(
    shm: int, asked: int | None, workers: int, prefetch: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = sources.load(TrainConfig(data=str(folder), image_size=56), {}, checksum=True).train  # 64 x 64 pixels
    monkeypatch.setattr(guards, "measure", lambda: guards.Room(cpus=4, shm=shm))
    said: list[str] = []
    wish = feeds.Wish("prefetch", torch.device("cpu"), 0, False, asked, 1, said.append, said.append)
    plan = feeds._plan(samples, 30, wish)  # 369 kB a batch
    held = plan.workers * plan.prefetch + 3 if plan.workers else 0
    assert held * 369_000 <= shm
    assert (plan.workers, plan.prefetch) == (workers, prefetch)
    assert bool(said) == (shm < 64 << 20)


def test_one_batch_that_is_larger_than_shm_is_refused_with_numbers(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = sources.load(TrainConfig(data=str(folder), image_size=56), {}, checksum=True).train
    monkeypatch.setattr(guards, "measure", lambda: guards.Room(cpus=4, shm=300_000))
    wish = feeds.Wish("prefetch", torch.device("cpu"), 0, False, 2, 1, print, print)
    with pytest.raises(PinfeedError, match="fewer workers will not help") as caught:
        feeds._plan(samples, 30, wish)
    assert "--shm-size" in caught.value.do
