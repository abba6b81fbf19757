"""The probe: honest without a GPU, right where it can be checked, and everything pinned is given back."""

from __future__ import annotations

import gc
import json
import os
from pathlib import Path

import pytest
import torch

from pinfeed import bandwidth, guards, slab
from pinfeed.cli import main
from pinfeed.link import Link, read_link
from tests.pinfeed.support import three_parts

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
MIB = 1 << 20


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a laptop."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


# --- without a GPU (B017) ------------------------------------------------------------------------


def test_without_a_gpu_it_says_how_to_get_one_and_exits_3(no_gpu: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe"]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert three_parts(said.err)
    assert "needs a CUDA device; start with --gpus all" in said.err


def test_allow_cpu_measures_ordinary_memory_and_marks_what_was_not_run(
    no_gpu: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bandwidth, "SIZES", (MIB, 4 * MIB, 16 * MIB))
    argv = ["probe", "--allow-cpu", "--json", str(tmp_path / "p.json"), "--plot", str(tmp_path / "p.png")]
    assert main(argv) == 0
    said = capsys.readouterr().out
    assert "pinned memory, overlap, link: not run" in said
    found = json.loads((tmp_path / "p.json").read_text())
    assert found["gpu"] is False and found["version"] == 1
    assert [row["bytes"] for row in found["copies"]] == [MIB, 4 * MIB]
    for row in found["copies"]:
        assert row["direction"] == "h2h" and row["pinned"] is False and row["n"] == 20
        assert 0 < row["slowest"] <= row["median"] <= row["fastest"]
    assert all(found[part] is None for part in ("link", "overlap", "pinnable", "hazards"))
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_the_corrected_formula_is_printed(
    no_gpu: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bandwidth, "SIZES", (1 << 16, MIB))
    assert main(["probe", "--allow-cpu"]) == 0
    said = capsys.readouterr().out
    assert "pinned memory <= (2 x 4 + 2) x 64.0 MiB = 640.0 MiB, /dev/shm <= 2 x 4 x 36.8 MiB = 294.0 MiB" in said


def test_sizes_that_would_fill_the_memory_are_left_out_and_said(
    no_gpu: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bandwidth, "SIZES", (1 << 16, 40 * MIB, 80 * MIB))
    monkeypatch.setattr(guards, "measure", lambda: guards.Room(cpus=2, memory=100 * MIB))
    assert main(["probe", "--allow-cpu"]) == 0
    assert "not run: too large for the memory that is left" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "code", "named"),
    [
        (["--pin-limit", "much"], 64, "--pin-limit much"),
        (["--json", "/no/such/place"], 73, "/no/such"),
        (["--plot", "/no/such/place"], 73, "/no/such"),
    ],
    ids=["limit", "json", "plot"],
)
def test_a_mistake_is_one_message_before_anything_is_measured(
    argv: list[str], code: int, named: str, no_gpu: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["probe", "--allow-cpu", *argv]) == code
    said = capsys.readouterr()
    assert three_parts(said.err) and named in said.err
    assert said.out == ""


# --- the link ------------------------------------------------------------------------------------

H200 = "GPU-11111111-aaaa, 5, 5, 16, 16\n"


def test_the_link_is_read_from_nvidia_smi() -> None:
    link = read_link("11111111-aaaa", smi=lambda: H200)
    assert link == Link(5, 16, 5, 16, "nvidia-smi")
    assert link.gigabytes == 63.0
    two = H200 + "GPU-22222222-bbbb, 1, 4, 8, 16\n"
    asleep = read_link("22222222-bbbb", smi=lambda: two)
    assert asleep and (asleep.gigabytes, asleep.max_gigabytes) == (2.0, 31.5)
    assert "could be PCIe 4 x16" in str(asleep)
    assert read_link("", root="/nowhere", smi=lambda: two) is None


@pytest.mark.parametrize(
    "answer", ["", "GPU-1, [N/A], [N/A], [N/A], [N/A]\n", "Failed to initialize NVML\n", "GPU-1, 9, 9, 16, 16\n"]
)
def test_a_link_that_nobody_tells_is_none_and_no_guess(answer: str, tmp_path: Path) -> None:
    assert read_link("GPU-1", root=str(tmp_path), smi=lambda: answer) is None


def test_the_kernel_is_asked_where_nvidia_smi_does_not_tell(tmp_path: Path) -> None:
    for name, vendor, kind in (("0000:01:00.0", "0x10de", "0x030200"), ("0000:02:00.0", "0x8086", "0x030000")):
        folder = tmp_path / "sys/bus/pci/devices" / name
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "class").write_text(f"{kind}\n")
        (folder / "current_link_speed").write_text("8.0 GT/s PCIe\n")
        (folder / "max_link_speed").write_text("16.0 GT/s PCIe\n")
        (folder / "current_link_width").write_text("16\n")
        (folder / "max_link_width").write_text("16\n")
    assert read_link(root=str(tmp_path), smi=lambda: "") == Link(3, 16, 4, 16, "the kernel")


# --- pinning, by fault injection -----------------------------------------------------------------


class FakeSlab:
    """Memory that is pinned, until there is no more: what WSL2 does at half a gigabyte or so."""

    taken = 0
    most = 0

    def __init__(self, size: int) -> None:
        if FakeSlab.taken + size > 1024 * MIB:
            raise slab.CannotPin(slab.refusal(size, "CUDA error 2"))
        self.size = size
        FakeSlab.taken += size
        FakeSlab.most = max(FakeSlab.most, FakeSlab.taken)

    def close(self) -> None:
        FakeSlab.taken -= self.size


def test_what_can_be_pinned_is_found_and_given_back() -> None:
    found = bandwidth.pinnable(8 << 30, make=FakeSlab)  # type: ignore[arg-type]
    assert found.bytes == 1024 * MIB
    assert found.refusal and "HOST memory" in found.refusal
    assert (FakeSlab.taken, FakeSlab.most) == (0, 1024 * MIB)


def test_no_more_is_pinned_than_the_bound() -> None:
    FakeSlab.most = 0
    found = bandwidth.pinnable(700 * MIB, make=FakeSlab)  # type: ignore[arg-type]
    assert (found.bytes, found.refusal, FakeSlab.taken) == (512 * MIB, None, 0)
    assert FakeSlab.most <= 700 * MIB


def test_an_interruption_gives_back_what_was_pinned() -> None:
    def interrupted(size: int) -> FakeSlab:
        if FakeSlab.taken >= 512 * MIB:
            raise KeyboardInterrupt
        return FakeSlab(size)

    with pytest.raises(KeyboardInterrupt):
        bandwidth.pinnable(8 << 30, make=interrupted)  # type: ignore[arg-type]
    assert FakeSlab.taken == 0


def test_the_median_of_many_is_reported_with_its_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = [0.001 * k for k in range(1, 21)]
    monkeypatch.setattr(bandwidth, "timed", lambda *more: seconds)
    found = bandwidth.copies(10**6, "h2h", pinned=False, device=torch.device("cpu"))
    assert (found.fastest, found.slowest, found.n) == (1.0, 0.05, 20)
    assert found.median == pytest.approx((1 / 10 + 1 / 11) / 2, abs=0.01)


def test_the_first_two_runs_are_not_counted() -> None:
    calls: list[int] = []
    assert len(bandwidth.timed(lambda: calls.append(1), torch.device("cpu"), 5)) == 5
    assert len(calls) == 7


def test_a_plot_can_be_drawn_of_a_full_probe() -> None:
    from pinfeed import probe_plot

    rows = [
        {"bytes": size, "direction": way, "pinned": pin, "median": 5.0, "slowest": 4.0, "fastest": 6.0, "n": 20}
        for size in (10**6, 10**8) for way in ("h2d", "d2h") for pin in (False, True)
    ]  # fmt: skip
    found = {
        "device": "a GPU", "torch": "2.7.1", "n": 20, "copies": rows,
        "link": {"generation": 5, "width": 16, "gigabytes": 63.0},
        "overlap": {"bytes": 10**7, "compute": 2.0, "copy": 0.7, "pageable": 4.0, "pinned": 2.0, "hidden": 1.0},
    }  # fmt: skip
    assert probe_plot.draw(found).startswith(b"\x89PNG")


# --- on a GPU ------------------------------------------------------------------------------------


@pytest.mark.gpu
@needs_gpu
def test_pinned_copies_are_faster_and_below_what_the_link_could_do() -> None:
    device = torch.device("cuda", 0)
    pageable = bandwidth.copies(bandwidth.BATCH, "h2d", pinned=False, device=device)
    pinned = bandwidth.copies(bandwidth.BATCH, "h2d", pinned=True, device=device)
    assert pinned.median > 1.5 * pageable.median
    link = read_link(str(getattr(torch.cuda.get_device_properties(device), "uuid", "")))
    if link:
        assert pinned.median < link.max_gigabytes


@pytest.mark.gpu
@needs_gpu
def test_a_pinned_copy_hides_behind_computing_and_a_pageable_one_does_not() -> None:
    found = bandwidth.overlap(torch.device("cuda", 0))
    assert found.hidden > 0.7
    assert found.pageable > 1.2 * found.pinned


@pytest.mark.gpu
@needs_gpu
def test_both_mistakes_are_seen_and_both_right_ways_never_fail() -> None:
    """B018: a result that is read before the copy is over, a buffer that is filled again too early."""
    found = bandwidth.hazards(torch.device("cuda", 0))
    assert (found.read_after_waiting, found.overwritten_after_waiting) == (0, 0)
    assert found.read_too_early > found.n // 2
    assert found.overwritten_too_early > found.n // 2


@pytest.mark.gpu
@needs_gpu
def test_a_whole_probe_gives_back_all_that_it_pinned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = slab.pinned_bytes()
    files = len(os.listdir("/proc/self/fd"))
    argv = ["probe", "--pin-limit", "1g", "--json", str(tmp_path / "p.json"), "--plot", str(tmp_path / "p.png")]
    assert main(argv) == 0
    gc.collect()
    assert slab.pinned_bytes() == before == 0
    assert len(os.listdir("/proc/self/fd")) <= files + 3
    found = json.loads((tmp_path / "p.json").read_text())
    assert found["gpu"] is True and found["driver"]
    assert found["pinnable"]["bytes"] == 1 << 30 or found["pinnable"]["refusal"]
    assert {(row["direction"], row["pinned"]) for row in found["copies"]} == {
        ("h2d", False), ("h2d", True), ("d2h", False), ("d2h", True),
    }  # fmt: skip
