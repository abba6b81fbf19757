"""Batches of any shape: tensors in tuples, dicts, named tuples, dataclasses, and in classes of the user's own."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from pinfeed.errors import BAD_DATA, PinfeedError

Move = Callable[[Any], Any]


def mapped(batch: Any, move: Move) -> Any:
    """`batch` with `move` applied to each tensor, and to each object with methods of its own. Classes stay.

    What holds no tensor as far as can be seen (text, numbers, unknown objects) is passed on as it is.
    """
    if isinstance(batch, torch.Tensor) or _moves_itself(batch):
        return move(batch)
    if isinstance(batch, (str, bytes)):
        return batch
    if isinstance(batch, Mapping):
        return _mapping(batch, {key: mapped(value, move) for key, value in batch.items()})
    if isinstance(batch, tuple):
        parts = [mapped(value, move) for value in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    if isinstance(batch, Sequence):
        return _sequence(batch, [mapped(value, move) for value in batch])
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        return _dataclass(batch, move)
    return batch


def leaves(batch: Any) -> list[Any]:
    """The tensors of a batch, and the objects that move themselves."""
    found: list[Any] = []

    def note(leaf: Any) -> Any:
        found.append(leaf)
        return leaf

    mapped(batch, note)
    return found


def pinned(leaf: Any) -> Any:
    """A leaf in pinned memory. One that is there already is not copied."""
    if isinstance(leaf, torch.Tensor):
        if leaf.is_sparse or leaf.layout is not torch.strided:
            return leaf
        return leaf if leaf.is_pinned() else leaf.pin_memory()
    return leaf.pin_memory() if hasattr(leaf, "pin_memory") else leaf


def tensors_of(leaf: Any) -> list[torch.Tensor]:
    """The tensors in a leaf; of an object of the user's own, those among its attributes."""
    if isinstance(leaf, torch.Tensor):
        return [leaf]
    return [value for value in getattr(leaf, "__dict__", {}).values() if isinstance(value, torch.Tensor)]


def refuse_cuda(batch: Any) -> None:
    """A data set that returns CUDA tensors would serialise everything, and crashes in a worker process."""
    for leaf in leaves(batch):
        if any(tensor.is_cuda for tensor in tensors_of(leaf)):
            raise PinfeedError(
                "the data set returns tensors that are already on the GPU",
                f"a {type(leaf).__name__} on {tensors_of(leaf)[0].device}",
                "return CPU tensors (torch.load(..., map_location='cpu')): moving them is the feed's work",
                BAD_DATA,
            )


def unmovable(batch: Any) -> str:
    """The name of a class in the batch that holds tensors but cannot be moved; empty when there is none."""
    if _moves_itself(batch) or isinstance(batch, (torch.Tensor, str, bytes)):
        return ""
    if isinstance(batch, Mapping):
        return next(filter(None, map(unmovable, batch.values())), "")
    if isinstance(batch, Sequence):
        return next(filter(None, map(unmovable, batch)), "")
    if dataclasses.is_dataclass(batch):
        return next(filter(None, (unmovable(value) for value in vars(batch).values())), "")
    return type(batch).__qualname__ if tensors_of(batch) else ""


def _moves_itself(batch: Any) -> bool:
    return not isinstance(batch, type) and callable(getattr(batch, "to", None))


def _mapping(batch: Mapping[Any, Any], parts: dict[Any, Any]) -> Any:
    if type(batch) is dict:
        return parts
    try:
        clone: Any = copy.copy(batch)  # keeps a class, a default factory, attributes
        for key, value in parts.items():
            clone[key] = value
        return clone
    except TypeError:  # one that cannot be changed
        return parts


def _sequence(batch: Sequence[Any], parts: list[Any]) -> Any:
    if type(batch) is list:
        return parts
    try:
        clone: Any = copy.copy(batch)
        for place, value in enumerate(parts):
            clone[place] = value
        return clone
    except TypeError:  # range and other sequences that only compute
        return parts if any(isinstance(part, torch.Tensor) for part in parts) else batch


def _dataclass(batch: Any, move: Move) -> Any:
    clone = copy.copy(batch)
    for field in dataclasses.fields(batch):
        # Past a frozen dataclass's guard, and without its __init__, which may check or compute things.
        object.__setattr__(clone, field.name, mapped(getattr(batch, field.name), move))
    return clone
