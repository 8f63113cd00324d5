"""Learning curves: the average loss of each epoch of several systems, as in Fig. 5 of Chen et al. 2018."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .figures import COLORS, new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARKERS = ("o", "s", "^", "D", "v", "P")


def plot_learning_curves(
    curves: Mapping[str, Sequence[float]],
    path: str | os.PathLike[str] | None = None,
    *,
    title: str = "Learning curves",
    label: str = "average training loss",
) -> Figure:
    """Draws one line a system.

    Args:
        curves: `{system: [value after epoch 1, after epoch 2, ...]}`; systems may have different numbers of epochs.
        path: where to write the picture; the ending chooses the format.
        title: above the picture.
        label: what the values are.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: there is nothing to draw, or a value is not finite.

    Example:
        >>> figure = plot_learning_curves({"LSTM": [0.7, 0.5, 0.4], "Meta-LSTM": [0.6, 0.3]})
        >>> [line.get_label() for line in figure.axes[0].get_lines()]
        ['LSTM', 'Meta-LSTM']
    """
    if not any(len(values) for values in curves.values()):
        raise ValueError("curves holds no value: give {system: [loss of epoch 1, ...]}")
    for system, values in curves.items():
        for epoch, value in enumerate(values, start=1):
            if not math.isfinite(value):
                raise ValueError(f"curves[{system!r}] is {value} at epoch {epoch}, but must be finite")
    figure = new_figure(6.4, 4.0)
    axes = figure.add_subplot()
    longest = max(map(len, curves.values()))
    for index, (system, values) in enumerate(curves.items()):
        axes.plot(
            range(1, len(values) + 1),
            list(values),
            label=system,
            color=COLORS[index % len(COLORS)],
            marker=_MARKERS[index % len(_MARKERS)] if longest <= 40 else None,
            markersize=5,
            linewidth=1.8,
        )
    every = max(1, math.ceil(longest / 12))
    axes.set_xticks([1, *range(1 + every, longest + 1, every)])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("epoch")
    axes.set_ylabel(label)
    axes.set_title(title)
    axes.grid(color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    save_figure(figure, path)
    return figure
