"""`docker run IMAGE train ...`: what goes wrong is said in three parts, never in a traceback."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.containers import Containers, Done
from tests.support.folders import Folders
from tests.support.lab import Lab

DATA = "/opt/datasets/fashion-mnist"
TINY = ("train", "--limit", "300", "--epochs", "1")


def train(containers: Containers, image: str, *arguments: str, options: tuple[str, ...] = ()) -> Done:
    return containers.run(image, *arguments, options=options, budget="a short training")


def refused(done: Done, *words: str) -> None:
    """One message in three parts, with these words in it, and no success."""
    assert done.code not in (0, 137), done
    assert "Traceback" not in done.err, done
    lines = done.err.rstrip().splitlines()
    assert lines[-2].startswith("  seen: "), done
    assert lines[-1].startswith("  do:   "), done
    for word in words:
        assert word in done.err, f"{word!r} is not in\n{done}"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--epochs", "-1"), ("--epochs must be a whole number", "--epochs -1")),
        (("--epochs", "many"), ("--epochs", "many")),
        (("--data", "imagenet"), ("--data is neither", "--data imagenet", "known: fashion-mnist")),
        (("--data", "/nowhere"), ("--data is neither", "/nowhere")),
        (("--batch-size", "0"), ("--batch-size must be a whole number", "--batch-size 0")),
        (("--epoch", "1"), ("--epoch",)),
    ],
)
def test_a_mistake_in_the_arguments(
    containers: Containers, image: str, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    refused(train(containers, image, "train", *arguments), *words)


@pytest.fixture(scope="module")
def data(shared_containers: Containers, image: str, folders: Folders) -> Path:
    """The real files, on the host, to be damaged."""
    folder = folders.new(mode=0o777)
    copy = ("sh", "-c", f"cp {DATA}/* /data/ && chmod 0666 /data/*")
    shared_containers.run(image, *copy, options=["--volume", f"{folder}:/data"]).ok()
    return folder


@pytest.mark.parametrize(
    ("name", "damage", "words"),
    [
        ("train-images-idx3-ubyte", "cut", ("train-images-idx3-ubyte is damaged", "cut off")),
        ("t10k-labels-idx1-ubyte", "remove", ("t10k-labels-idx1-ubyte is missing",)),
        ("t10k-images-idx3-ubyte", "empty", ("t10k-images-idx3-ubyte is damaged", "0 bytes")),
        ("train-labels-idx1-ubyte", "change", ("train-labels-idx1-ubyte is not Fashion-MNIST's", "sha256")),
    ],
)
def test_a_data_file_that_is_not_whole(
    containers: Containers, image: str, folders: Folders, data: Path, name: str, damage: str, words: tuple[str, ...]
) -> None:
    folder = folders.new(mode=0o755)
    for path in data.iterdir():
        shutil.copy(path, folder)
    whole = (folder / name).read_bytes()
    if damage == "remove":
        (folder / name).unlink()
    else:
        kept = {"cut": whole[:-1000], "empty": b"", "change": whole[:-1] + bytes([whole[-1] ^ 1])}[damage]
        (folder / name).write_bytes(kept)
    done = train(containers, image, *TINY, "--data", "/data", options=("--volume", f"{folder}:/data:ro"))
    refused(done, *words)


def test_a_folder_with_the_real_files_is_taken(containers: Containers, image: str, data: Path) -> None:
    options = ("--volume", f"{data}:/data:ro")
    train(containers, image, *TINY, "--data", "/data", "--out", "/tmp/run", options=options).ok()


def test_a_full_disk(containers: Containers, image: str) -> None:
    options = ("--tmpfs", "/out:size=64k,mode=1777")
    refused(train(containers, image, *TINY, "--out", "/out/run", options=options), "/out/run", "No space left")


def test_a_folder_that_cannot_be_written_is_known_before_the_training(
    containers: Containers, image: str, folders: Folders
) -> None:
    folder = folders.new((0, 0))
    folders.file(folder / "theirs", "", owner=(0, 0))
    options = ("--volume", f"{folder}:/out")
    done = train(containers, image, *TINY, "--out", "/out/run", options=options)
    refused(done, "/out")
    assert "epoch 1/1" not in done.err + done.out


@pytest.fixture(scope="module")
def plain_run(shared_containers: Containers, image: str) -> Done:
    """A training as Docker starts it when nothing is said: 64 MB of shared memory, no GPU, no terminal."""
    return train(shared_containers, image, *TINY, "--out", "/tmp/run").ok()


def test_dockers_64_mb_of_shared_memory_suffice_without_a_word(plain_run: Done) -> None:
    assert "bus error" not in (plain_run.out + plain_run.err).lower()
    assert len([line for line in plain_run.err.splitlines() if "shm" in line]) <= 1, plain_run


def test_1_mb_of_shared_memory_suffices_too(containers: Containers, image: str) -> None:
    train(containers, image, *TINY, "--out", "/tmp/run", options=("--shm-size", "1m")).ok()


def test_a_run_without_a_gpu_says_so_once_and_warns_of_nothing(plain_run: Done) -> None:
    """PyTorch's own warning about pinned memory (field report B016) does not come up."""
    said = plain_run.out + plain_run.err
    assert said.count("no GPU visible") == 1
    assert "warning" not in said.lower()


def test_a_log_has_lines_and_no_cursor_movements(plain_run: Done) -> None:
    said = plain_run.out + plain_run.err
    assert "\r" not in said
    assert "\x1b" not in said
    assert "epoch 1/1" in said


def test_the_same_training_runs_in_jupyters_terminal_and_kernel(containers: Containers, image: str) -> None:
    lab = Lab.of(containers.start(image, options=["--publish", "127.0.0.1::8888"]))
    code = "import subprocess; print(subprocess.run(['pinfeed', 'train', '--limit', '300', '--epochs', '1'],"
    code += "capture_output=True, check=True, cwd='/workspace').returncode)"
    assert lab.run(code) == "0\n"
    run = lab.get("api/contents/code/runs")["content"][0]["name"]
    metrics = json.loads(lab.get(f"api/contents/code/runs/{run}/metrics.json")["content"])
    assert metrics["data"] == "fashion-mnist"
