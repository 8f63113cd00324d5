"""Where a memory network looked: the gates of each pass over the facts of a story, as a picture and as text."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .figures import new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LONGEST_SENTENCE = 60  # characters
# From closed to open.
_SHADES = " ░▒▓█"


def plot_gates(
    gates: Sequence[Sequence[float]],
    facts: Sequence[str],
    question: str,
    answer: str | None = None,
    path: str | os.PathLike[str] | None = None,
) -> Figure:
    """Draws the gates as a heat map, a column for each pass, the sentences on the axis; readable up to about 60 facts.

    Args:
        gates: a list for each pass, a number from 0 to 1 for each fact, as the pipeline gives them.
        facts: the sentences.
        question: above the picture.
        answer: beside the question.
        path: where to write the picture; the ending chooses the format.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: there is no pass, or a pass has another number of gates than there are facts.

    Example:
        >>> answer = ask(facts=facts, question=question)  # doctest: +SKIP
        >>> plot_gates(answer["gates"], facts, question, answer["answer"], "gates.png")  # doctest: +SKIP
    """
    _check(gates, facts)
    labels = [textwrap.shorten(fact, _LONGEST_SENTENCE, placeholder="…") for fact in facts]
    width = 2.2 + 0.085 * max(map(len, labels)) + 0.75 * len(gates)
    figure = new_figure(width, 1.3 + 0.27 * len(facts))
    axes = figure.add_subplot()
    by_fact = [[row[index] for row in gates] for index in range(len(facts))]
    image = axes.imshow(by_fact, aspect="auto", cmap="Blues", vmin=0, vmax=1, interpolation="none")
    axes.set_yticks(range(len(facts)), labels, fontsize=9)
    axes.set_xticks(range(len(gates)), [f"pass {number}" for number in range(1, len(gates) + 1)], fontsize=9)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.set_yticks([number + 0.5 for number in range(len(facts) - 1)], minor=True)
    axes.set_xticks([number + 0.5 for number in range(len(gates) - 1)], minor=True)
    axes.grid(which="minor", color="white", linewidth=1)
    axes.tick_params(which="minor", length=0)
    for row, values in enumerate(by_fact):
        for column, value in enumerate(values):
            if value >= 0.005:
                color = "white" if value > 0.55 else "0.25"
                axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=8, color=color)
    title = question if answer is None else f"{question}  {answer}"
    figure.suptitle(textwrap.fill(title, max(30, int(width * 9))), fontsize=11)
    bar = figure.colorbar(image, ax=axes, fraction=0.08, aspect=max(8, 2 * len(facts)))
    bar.set_label("gate", fontsize=8)
    bar.ax.tick_params(labelsize=8)
    save_figure(figure, path)
    return figure


def format_gates(gates: Sequence[Sequence[float]], facts: Sequence[str]) -> str:
    """The gates as text for terminals: a line for each fact, with a shade and a number for each pass.

    Args:
        gates, facts: see `plot_gates`.

    Raises:
        ValueError: see `plot_gates`.

    Example:
        >>> from hf_metalstm.plots.gates import format_gates
        >>> print(format_gates([[0.02, 0.97], [0.6, 0.1]], ["Ada took the milk.", "Ada ran to the attic."]))
                                pass 1   pass 2
        Ada took the milk.        0.02  ▓▓ 0.60
        Ada ran to the attic.  ██ 0.97     0.10
    """
    _check(gates, facts)
    labels = [textwrap.shorten(fact, _LONGEST_SENTENCE, placeholder="…") for fact in facts]
    width = max(map(len, labels))
    head = " " * width + "".join(f"  {f'pass {number}':>7}" for number in range(1, len(gates) + 1))
    lines = [head]
    for index, label in enumerate(labels):
        cells = "".join(f"  {2 * _shade(row[index])} {row[index]:.2f}" for row in gates)
        lines.append(f"{label:<{width}}{cells}")
    return "\n".join(line.rstrip() for line in lines)


def _shade(value: float) -> str:
    return _SHADES[min(int(value * len(_SHADES)), len(_SHADES) - 1)]


def _check(gates: Sequence[Sequence[float]], facts: Sequence[str]) -> None:
    if not gates:
        raise ValueError("there are no gates to show: no pass over the facts was made")
    for number, row in enumerate(gates, start=1):
        if len(row) != len(facts):
            raise ValueError(f"pass {number} has {len(row)} gates, but there are {len(facts)} facts")
