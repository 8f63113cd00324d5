"""Learning curves: what is drawn is what was given."""

from pathlib import Path

import pytest

from hf_metalstm.plots.learning_curves import plot_learning_curves

pytest.importorskip("matplotlib")


def test_each_system_is_a_line_over_its_epochs(tmp_path: Path) -> None:
    curves = {"LSTM": [0.7, 0.5, 0.25], "Meta-LSTM": [0.6, 0.3]}
    figure = plot_learning_curves(curves, tmp_path / "pictures" / "curves.png")
    (axes,) = figure.axes
    lines = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.get_lines()}
    assert lines == {"LSTM": ([1, 2, 3], [0.7, 0.5, 0.25]), "Meta-LSTM": ([1, 2], [0.6, 0.3])}
    assert (tmp_path / "pictures" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == list(curves)


@pytest.mark.parametrize(("epochs", "most"), [(1, 1), (12, 12), (200, 13)])
def test_ticks_are_whole_epochs_and_not_too_many(epochs: int, most: int) -> None:
    (axes,) = plot_learning_curves({"LSTM": [1.0] * epochs}).axes
    ticks = list(axes.get_xticks())
    assert ticks[0] == 1 and len(ticks) <= most and all(tick == int(tick) <= epochs for tick in ticks)


def test_title_and_label_are_shown() -> None:
    (axes,) = plot_learning_curves({"LSTM": [1.0]}, title="Sixteen tasks", label="dev loss").axes
    assert (axes.get_title(), axes.get_ylabel()) == ("Sixteen tasks", "dev loss")


@pytest.mark.parametrize(
    ("curves", "message"),
    [
        ({}, "no value"),
        ({"LSTM": []}, "no value"),
        ({"LSTM": [0.5, float("nan")]}, r"curves\['LSTM'\] is nan at epoch 2"),
    ],
)
def test_what_cannot_be_drawn_is_refused(curves: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plot_learning_curves(curves)
