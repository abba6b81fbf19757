"""Each name of torch that pinfeed uses exists in the torch at hand; in the image that is 2.7.1.

Most code runs in the other tests. The GPU's does not where there is no GPU, and a name that only a newer
torch has would be found there by a user.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed
import torch.utils.data

import pinfeed


def _torch_names() -> Iterator[str]:
    for path in sorted(Path(pinfeed.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            parts: list[str] = []
            while isinstance(node, ast.Attribute):
                parts.append(node.attr)
                node = node.value
            if parts and isinstance(node, ast.Name) and node.id == "torch":
                yield ".".join(reversed(parts))


def test_every_name_exists() -> None:
    names = set(_torch_names())
    assert {"cuda.Event", "amp.GradScaler", "cuda.OutOfMemoryError"} <= names
    for name in names:
        thing = torch
        for part in name.split("."):
            assert hasattr(thing, part), f"torch.{name}"
            thing = getattr(thing, part)


def test_calls_that_only_a_gpu_runs_take_the_arguments_given() -> None:
    assert "blocking" in inspect.signature(torch.cuda.Event.__new__).parameters
    assert "fused" in inspect.signature(torch.optim.SGD).parameters
    assert list(inspect.signature(torch.cuda.set_rng_state).parameters)[:2] == ["new_state", "device"]
    assert next(iter(inspect.signature(torch.amp.GradScaler).parameters)) == "device"
    assert "enabled" in inspect.signature(torch.amp.GradScaler).parameters
    assert {"enable_timing", "blocking"} <= set(inspect.signature(torch.cuda.Event.__new__).parameters)
    assert "device" in inspect.signature(torch.cuda.Stream.__new__).parameters
    for method in ("record", "synchronize", "query", "elapsed_time"):
        assert hasattr(torch.cuda.Event, method)
    assert "event" in inspect.signature(torch.cuda.Stream.wait_event).parameters
    assert callable(torch.Tensor.record_stream)
    assert {"gradient_as_bucket_view", "static_graph", "device_ids"} <= set(
        inspect.signature(torch.nn.parallel.DistributedDataParallel).parameters
    )
    assert {"op", "group"} <= set(inspect.signature(torch.distributed.all_reduce).parameters)
    assert {"backend", "mode", "fullgraph"} <= set(inspect.signature(torch.compile).parameters)
    assert {"timeout", "prefetch_factor", "batch_sampler"} <= set(
        inspect.signature(torch.utils.data.DataLoader).parameters
    )


def test_cuda_runtime_has_what_pins_memory() -> None:
    if torch.version.cuda is None:
        pytest.skip("this torch is built without CUDA")
    assert {"cudaHostRegister", "cudaHostUnregister"} <= set(dir(torch._C._cudart))
