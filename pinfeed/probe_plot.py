"""The plot of `pinfeed probe`: bandwidth over size, and what a step takes with its copies."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PAGEABLE, _PINNED, _LINK, _COMPUTE = "#f58518", "#4c78a8", "#b3202c", "#9d9da1"


def draw(found: dict[str, Any]) -> bytes:
    """The plot as a PNG. Raises ImportError where matplotlib is not installed."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    if found["overlap"]:
        left, right = figure.subplots(1, 2, width_ratios=(3, 2))
        _overlap(right, found["overlap"])
    else:
        left = figure.subplots()
    _bandwidth(left, found)
    figure.suptitle(f"{found['device']}, torch {found['torch']}: median of {found['n']}", fontsize=11)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _bandwidth(axes: Axes, found: dict[str, Any]) -> None:
    names = {"h2d": "host to GPU", "d2h": "GPU to host", "h2h": "within the host (no GPU)"}
    for direction, line in (("h2d", "-"), ("d2h", "--"), ("h2h", "-")):
        for pinned, colour in ((False, _PAGEABLE), (True, _PINNED)):
            rows = [row for row in found["copies"] if (row["direction"], row["pinned"]) == (direction, pinned)]
            if rows:
                sizes, medians = [row["bytes"] / 1e6 for row in rows], [row["median"] for row in rows]
                low = [row["median"] - row["slowest"] for row in rows]
                high = [row["fastest"] - row["median"] for row in rows]
                label = f"{names[direction]}, {'pinned' if pinned else 'pageable'}"
                axes.errorbar(sizes, medians, (low, high), color=colour, fmt=f"o{line}", markersize=4, label=label)
    if found["link"]:
        label = f"PCIe {found['link']['generation']} x{found['link']['width']}"
        axes.axhline(found["link"]["gigabytes"], color=_LINK, linewidth=1, label=label)
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("MB in one copy")
    axes.set_ylabel("GB/s")
    axes.set_title("copies")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)


def _overlap(axes: Axes, overlap: dict[str, Any]) -> None:
    names = ("step alone", "+ pageable copy", "+ pinned copy,\nown stream")
    values = (overlap["compute"], overlap["pageable"], overlap["pinned"])
    bars = axes.bar(names, values, color=(_COMPUTE, _PAGEABLE, _PINNED), width=0.6)
    axes.bar_label(bars, fmt="%.2f")
    axes.set_ylabel("ms a step")
    axes.set_title(f"with {overlap['bytes'] / 1e6:.1f} MB a step")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="x", labelsize=8)
