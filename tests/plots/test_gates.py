"""Gates as a picture and as text."""

import pytest

from hf_metalstm.plots.gates import format_gates, plot_gates

FACTS = ["Ada took the milk.", "Otto ran to the attic.", "Ada " + "very " * 20 + "slowly ran."]
GATES = [[0.0, 0.97, 0.3], [0.6, 0.004, 0.1]]


def test_the_picture_shows_each_gate_at_its_fact_and_pass(tmp_path):
    pytest.importorskip("matplotlib")
    figure = plot_gates(GATES, FACTS, "Where is Ada?", "attic", tmp_path / "new" / "gates.png")
    axes, bar = figure.axes
    (image,) = axes.images
    assert image.get_array().tolist() == [[0.0, 0.6], [0.97, 0.004], [0.3, 0.1]]
    assert image.get_clim() == (0, 1), "colours of different pictures compare"
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels[:2] == FACTS[:2] and labels[2].endswith("…") and len(labels[2]) <= 60
    assert [label.get_text() for label in axes.get_xticklabels()] == ["pass 1", "pass 2"]
    written = {text.get_position(): text.get_text() for text in axes.texts}
    assert written == {(0, 1): "0.97", (0, 2): "0.30", (1, 0): "0.60", (1, 2): "0.10"}
    assert "Where is Ada?" in figure.get_suptitle() and "attic" in figure.get_suptitle()
    assert (tmp_path / "new" / "gates.png").stat().st_size > 1000


def test_the_text_has_a_line_for_each_fact_in_columns():
    head, *lines = format_gates(GATES, FACTS).splitlines()
    assert head.split() == ["pass", "1", "pass", "2"] and len(lines) == 3
    numbers = [[float(word) for word in line.split() if word.replace(".", "").isdigit()] for line in lines]
    assert numbers == [[0.0, 0.6], [0.97, 0.0], [0.3, 0.1]]
    assert "██ 0.97" in lines[1] and "▓▓ 0.60" in lines[0]
    assert len({line.index(".", 62) for line in lines}) == 1, "the numbers stand below each other"


def test_shades_cover_closed_and_open_gates():
    (_, closed), (_, opened) = (format_gates([[gate]], ["a"]).splitlines() for gate in (0.0, 1.0))
    assert closed.split() == ["a", "0.00"] and opened.split() == ["a", "██", "1.00"]


@pytest.mark.parametrize("show", [format_gates, lambda gates, facts: plot_gates(gates, facts, "Who?")])
def test_gates_that_do_not_fit_the_facts_are_refused(show):
    with pytest.raises(ValueError, match="no pass over the facts was made"):
        show([], FACTS)
    with pytest.raises(ValueError, match="pass 2 has 1 gates, but there are 3 facts"):
        show([GATES[0], [0.1]], FACTS)
