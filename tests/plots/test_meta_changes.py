"""The per-word picture: its numbers against a plain float64 computation, and what it draws."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hf_metalstm.modeling.configuration_meta_lstm import MetaLSTMConfig
from hf_metalstm.modeling.modeling_meta_lstm import MetaLSTMForSequenceClassification
from hf_metalstm.plots.meta_changes import GATES, WordChanges, plot_word_changes, word_changes
from hf_metalstm.tokenization.tokenization_word import WordTokenizer

pytest.importorskip("matplotlib")
TASKS = {"books": ["negative", "positive"], "questions": ["who", "where", "when"]}
TEXT = "The plot is unpredictable , unlike zyxwv plots"
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def tokenizer() -> WordTokenizer:
    return WordTokenizer.train_from_iterator(["the plot is unpredictable , unlike other plots"])


def make_model(tokenizer: WordTokenizer, **fields: object) -> MetaLSTMForSequenceClassification:
    settings: dict = {"embedding_size": 5, "hidden_size": 4, "meta_size": 3, "z_size": 2, "tasks": TASKS, **fields}
    torch.manual_seed(3)
    return MetaLSTMForSequenceClassification(MetaLSTMConfig(vocab_size=len(tokenizer), **settings)).double().eval()


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def brute_force_matrices(model: MetaLSTMForSequenceClassification, ids: list[int], task: int) -> list[torch.Tensor]:
    """W(z_t) of each step, (4, hidden, input + hidden), from the equations and nothing else."""
    cell = model.encoder.layers[0].cells[0]
    meta, basic = cell.meta, cell.basic[task]
    h, c, meta_h, meta_c = torch.zeros(4), torch.zeros(4), torch.zeros(3), torch.zeros(3)
    h, c, meta_h, meta_c = (part.double() for part in (h, c, meta_h, meta_c))
    matrices = []
    for token in ids:
        x = model.encoder.embeddings.weight[token]
        raw = meta.input_weight @ x + meta.meta_weight @ meta_h + meta.hidden_weight @ h + meta.bias
        i, f, g, o = raw[:3].sigmoid(), raw[3:6].sigmoid(), raw[6:9].tanh(), raw[9:].sigmoid()
        meta_c = g * i + meta_c * f
        meta_h = o * meta_c.tanh()
        z = meta.z_weight @ meta_h
        matrix = torch.zeros(4, 4, 9, dtype=torch.float64)
        for gate in range(4):
            q = torch.cat([basic.q_input[gate], basic.q_hidden[gate]], dim=1)
            for k in range(2):
                matrix[gate] += z[k] * torch.outer(basic.p[gate][:, k], q[k])
        i, f, g, o = (matrix[gate] @ torch.cat([x, h]) + basic.b[gate] @ z for gate in range(4))
        c = g.tanh() * i.sigmoid() + c * f.sigmoid()
        h = o.sigmoid() * c.tanh()
        matrices.append(matrix)
    return matrices


@torch.no_grad()
def test_changes_equal_those_of_the_matrices_formed_step_by_step(tokenizer: WordTokenizer) -> None:
    model = make_model(tokenizer)
    changes = word_changes(model, tokenizer, TEXT, "questions")
    matrices = brute_force_matrices(model, tokenizer(TEXT)["input_ids"], task=1)
    for gate, name in enumerate(GATES):
        values = changes.changes[name]
        assert math.isnan(values[0])
        for step in range(1, len(matrices)):
            before, now = matrices[step - 1][gate].flatten().tolist(), matrices[step][gate].flatten().tolist()
            difference = sum(abs(a - b) for a, b in zip(now, before, strict=True)) / len(now)
            assert values[step] == pytest.approx(difference / (sum(map(abs, before)) / len(before)), rel=1e-10)


@pytest.mark.parametrize("pooling", ["last", "mean", "max", "concat"])
@pytest.mark.parametrize("shape", [{}, {"bidirectional": True}, {"num_hidden_layers": 2}])
def test_scores_are_those_of_each_prefix_alone(tokenizer: WordTokenizer, pooling: str, shape: dict) -> None:
    model = make_model(tokenizer, pooling=pooling, **shape)
    changes = word_changes(model, tokenizer, TEXT, "books")
    ids = tokenizer(TEXT, return_tensors="pt")["input_ids"]
    for step in range(ids.shape[1]):
        logits = model(ids[:, : step + 1], task_ids=torch.tensor([0])).logits[0, :2].tolist()
        assert changes.scores[step] == pytest.approx(sigmoid(logits[1] - logits[0]), abs=1e-12)


def test_bidirectional_model_shows_its_forward_cell(tokenizer: WordTokenizer) -> None:
    both = make_model(tokenizer, bidirectional=True)
    forward = make_model(tokenizer)
    weights = {name: value for name, value in both.state_dict().items() if "cells.1" not in name}
    forward.load_state_dict({name: value for name, value in weights.items() if "classifiers" not in name}, strict=False)
    wanted = word_changes(forward, tokenizer, TEXT, "books").changes
    given = word_changes(both, tokenizer, TEXT, "books").changes
    for gate in GATES:
        assert given[gate][1:] == pytest.approx(wanted[gate][1:], rel=1e-10)


def test_words_are_spelt_as_in_the_text_unknown_ones_too(tokenizer: WordTokenizer) -> None:
    changes = word_changes(make_model(tokenizer), tokenizer, TEXT, "books")
    assert changes.words == TEXT.split()
    assert (changes.label, changes.task) == ("positive", "books")


def test_active_task_and_chosen_label_are_used(tokenizer: WordTokenizer) -> None:
    model = make_model(tokenizer)
    model.set_active_task("questions")
    last, middle = word_changes(model, tokenizer, TEXT), word_changes(model, tokenizer, TEXT, label="where")
    assert (last.task, last.label, middle.label) == ("questions", "when", "where")
    assert last.scores != middle.scores


def test_model_without_tasks_has_its_own_labels(tokenizer: WordTokenizer) -> None:
    model = make_model(tokenizer, tasks=None, id2label={0: "bad", 1: "good"}, label2id={"bad": 0, "good": 1})
    changes = word_changes(model, tokenizer, TEXT)
    assert (changes.task, changes.label) == (None, "good")


def test_dropout_is_off_while_scores_are_computed(tokenizer: WordTokenizer) -> None:
    model = make_model(tokenizer, classifier_dropout=0.5, embedding_dropout=0.5)
    wanted = word_changes(model, tokenizer, TEXT, "books").scores
    assert word_changes(model.train(), tokenizer, TEXT, "books").scores == wanted
    assert model.training, "the model is left as it was"


@pytest.mark.parametrize(
    ("fields", "arguments", "message"),
    [
        ({"cell": "lstm", "tasks": None}, (TEXT,), "cell='lstm'"),
        ({}, (TEXT,), "one of books, questions"),
        ({}, (TEXT, "bokks"), "did you mean 'books'"),
        ({}, ("  ", "books"), "text is empty"),
    ],
)
def test_what_cannot_be_shown_is_refused(
    tokenizer: WordTokenizer, fields: dict, arguments: tuple, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        word_changes(make_model(tokenizer, **fields), tokenizer, *arguments)


def test_unknown_label_is_refused_with_the_choices(tokenizer: WordTokenizer) -> None:
    with pytest.raises(ValueError, match="label is 'good', but the classes are negative, positive"):
        word_changes(make_model(tokenizer), tokenizer, TEXT, "books", label="good")


@pytest.mark.parametrize("count", [1, 5, 60])
def test_picture_shows_every_word_and_the_numbers(tmp_path: Path, count: int) -> None:
    words = ["$5 plots", "extraordinarily-unpredictable-cables", *["word"] * 58][:count]
    values = [math.nan, *[0.1 * (step % 4) for step in range(1, count)]]
    changes = WordChanges(words, [step / 60 for step in range(count)], {g: values for g in GATES}, "positive", "books")
    figure = plot_word_changes(changes, tmp_path / "new" / "picture.png")
    assert (tmp_path / "new" / "picture.png").read_bytes().startswith(PNG)
    above, below = figure.axes[:2]
    labels = [label.get_text() for label in below.get_xticklabels()]
    assert len(labels) == count and labels[0] == r"\$5 plots"
    assert max(map(len, labels)) <= 22
    assert [label.get_text() for label in below.get_yticklabels()] == list(GATES)
    assert list(above.get_lines()[-1].get_ydata()) == changes.scores
    shown = below.get_images()[0].get_array()
    assert shown.shape == (4, count)
    assert shown[2].tolist()[1:] == pytest.approx(values[1:])
    figure.canvas.draw()
    boxes = [label.get_window_extent() for label in below.get_xticklabels()]
    assert all(left.x1 <= right.x0 for left, right in zip(boxes, boxes[1:], strict=False)), "labels overlap"


def test_missing_matplotlib_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    changes = WordChanges(["a"], [0.5], {gate: [math.nan] for gate in GATES}, "positive")
    with pytest.raises(ImportError, match=r'pip install "hf-metalstm\[plots\]"'):
        plot_word_changes(changes)


def test_drawing_leaves_pyplot_alone() -> None:
    program = (
        "import math, sys\n"
        "from hf_metalstm.plots.learning_curves import plot_learning_curves\n"
        "plot_learning_curves({'a': [1.0, 0.5]})\n"
        "assert 'matplotlib' in sys.modules and 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
