"""pinfeed: the training sample of the image, and the feed that keeps its GPU busy.

`pinfeed train` on the command line; from Python:

    ring = pinfeed.Ring(pinfeed.Packed("data/train"), 256, "cuda")    packed data, without workers
    for batch in pinfeed.prefetch(loader, "cuda"): ...                anybody's DataLoader
    from pinfeed import transforms                                    crop, flip, normalise on the device
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pinfeed.meter import Statistics as Statistics
    from pinfeed.packed import InMemory as InMemory
    from pinfeed.packed import Packed as Packed
    from pinfeed.prefetcher import Prefetch as Prefetch
    from pinfeed.prefetcher import prefetch as prefetch
    from pinfeed.ring import Batch as Batch
    from pinfeed.ring import Ring as Ring
    from pinfeed.seeds import sample_keys as sample_keys

__version__ = "0.2.0"

_HOMES = {
    "Statistics": "meter", "InMemory": "packed", "Packed": "packed", "Prefetch": "prefetcher", "prefetch": "prefetcher",
    "Batch": "ring", "Ring": "ring", "sample_keys": "seeds",
}  # fmt: skip

__all__ = ["Batch", "InMemory", "Packed", "Prefetch", "Ring", "Statistics", "prefetch", "sample_keys"]


def __getattr__(name: str) -> Any:
    """Load torch only for who uses the library: `pinfeed --help` must not wait for it."""
    if name in _HOMES:
        return getattr(import_module(f"pinfeed.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'pinfeed' has no attribute {name!r}")
