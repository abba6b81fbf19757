"""training.png: loss and accuracy, epoch by epoch, with the test result marked."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TRAIN, _VALIDATION, _TEST = "#4c78a8", "#f58518", "#b3202c"


def draw(history: list[dict[str, Any]], test: dict[str, float], title: str) -> bytes:
    """The plot as a PNG. Raises ImportError where matplotlib is not installed."""
    # Straight to the Agg canvas: pyplot would look for a display and keep global state.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    _panel(left, history, "loss", test["loss"], f"test {test['loss']:.3f}")
    _panel(right, history, "accuracy", test["accuracy"], f"test {test['accuracy']:.2%}")
    right.yaxis.set_major_formatter(lambda value, _: f"{value:.1%}")
    figure.suptitle(title, fontsize=11)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _panel(axes: Axes, history: list[dict[str, Any]], what: str, test: float, test_label: str) -> None:
    from matplotlib.ticker import MaxNLocator

    epochs = [record["epoch"] for record in history]
    for part, colour in (("train", _TRAIN), ("validation", _VALIDATION)):
        values = [record[f"{part}_{what}"] for record in history]
        axes.plot(epochs, values, color=colour, marker="o", markersize=4, label=part)
    axes.plot(epochs[-1], test, color=_TEST, marker="*", markersize=13, linestyle="none", label=test_label)
    axes.set_title(what)
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
