"""The checks themselves: that those which need no GPU fail when what they check is broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pinfeed import Ring
from selftest import ranks
from selftest.topics import compile as compiling
from selftest.topics import distributed, feed, imports, operators

Break = Callable[[pytest.MonkeyPatch], Any]


def wrong(target: Any, name: str, spoil: Callable[[Any], Any]) -> Break:
    """A function whose results are spoilt."""

    def apply(monkeypatch: pytest.MonkeyPatch) -> None:
        right = getattr(target, name)
        monkeypatch.setattr(target, name, lambda *given, **more: spoil(right(*given, **more)))

    return apply


def set_to(target: Any, name: str, value: Any) -> Break:
    return lambda monkeypatch: monkeypatch.setattr(target, name, value)


def _copies(batches: Any) -> list[Any]:
    return [batch.clone() for batch in batches]


def more(value: Any) -> Any:
    return value + 1


@pytest.mark.parametrize(
    ("check", "break_it"),
    [
        (imports.torch_is_for_cuda, set_to(torch.version, "cuda", None)),
        (imports.numpy_and_torch_share, wrong(torch, "from_numpy", lambda tensor: tensor.clone())),
        (operators.gradient_is_right, set_to(torch, "allclose", lambda *_: False)),
        (operators.convolution_is_right, wrong(torch.nn.functional, "conv2d", more)),
        (operators.system_is_solved, wrong(torch.linalg, "solve", more)),
        (operators.network_learns, set_to(torch.optim.Adam, "step", lambda _: None)),
        (operators.saved_is_loaded, wrong(torch, "load", lambda state: {**state, "step": 4})),
        (feed.ring_is_right_on_the_cpu, wrong(Ring, "batches", lambda batches: _copies(batches)[:-1])),
        (feed.ring_is_right_on_the_cpu, wrong(Ring, "batches", lambda batches: _copies(batches)[::-1])),
        (feed.ring_is_right_on_the_cpu, wrong(Ring, "batches", list)),  # kept beyond their time
        (compiling.compiles_on_the_cpu, set_to(torch, "compile", lambda function: lambda x, y: function(x, y) + 1)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_check_fails_when_what_it_checks_is_broken(
    monkeypatch: pytest.MonkeyPatch, check: Callable[[], Any], break_it: Break
) -> None:
    break_it(monkeypatch)
    with pytest.raises((AssertionError, RuntimeError)):
        check()


def test_a_second_cudnn_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    maps = tmp_path / "maps"
    maps.write_text("7f r-xp 0 00:1 1   /a/libcudnn.so.9\n7f r-xp 0 00:1 1   /b/libcudnn.so.9\n")
    import builtins

    real = builtins.open

    def fake(path: Any, *given: Any, **named: Any) -> Any:
        return real(maps if path == "/proc/self/maps" else path, *given, **named)

    monkeypatch.setattr(builtins, "open", fake)
    with pytest.raises(AssertionError, match="/b/libcudnn"):
        imports.one_cudnn_is_mapped()


def test_ranks_that_fail_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    rank = tmp_path / "rank.py"
    rank.write_text("import sys; sys.exit('rank 0 differs')\n")
    monkeypatch.setattr(ranks, "_RANK", rank)
    with pytest.raises(AssertionError, match="rank 0 differs"):
        distributed.gloo_trains()


def test_ranks_that_hang_are_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    rank = tmp_path / "rank.py"
    rank.write_text("import time; time.sleep(600)\n")
    monkeypatch.setattr(ranks, "_RANK", rank)
    monkeypatch.setattr(ranks, "_SECONDS", 8)
    with pytest.raises(AssertionError, match="no end after 8 s"):
        distributed.gloo_trains()
