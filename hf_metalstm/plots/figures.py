"""Making and saving figures without pyplot, so that neither a display nor a global state is touched."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

# Readable one after the other in grey print too: dark to light, and told apart by colour-blind readers.
COLORS = ("#1b3b6f", "#d1495b", "#2e8b57", "#edae49", "#6c5b7b", "#66a5ad")
_DOTS_PER_INCH = 150


def new_figure(width: float, height: float) -> Figure:
    """An empty figure drawn by the Agg renderer.

    Args:
        width, height: in inches.

    Raises:
        ImportError: matplotlib is not installed; the message says how to get it.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError('pictures need matplotlib: pip install "hf-metalstm[plots]"') from error
    figure = Figure(figsize=(width, height), dpi=_DOTS_PER_INCH, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def square_root_scale(highest: float) -> Normalize:
    """A colour scale from 0 to `highest` whose steps follow the square root of the values."""
    from matplotlib.colors import PowerNorm

    return PowerNorm(0.5, vmin=0, vmax=highest or 1.0)


def save_figure(figure: Figure, path: str | os.PathLike[str] | None) -> None:
    """Writes a figure, in the format of the file's ending; its folder is made. None: nothing is written."""
    if path is None:
        return
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
