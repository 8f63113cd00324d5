"""What a Meta-LSTM does word by word: Fig. 4 of Chen et al. 2018.

For every word: the classifier's score of the text up to it, and how much the matrices W(z_t) that the meta network
generates change from the word before. The models never form W(z_t); it is formed here, for the picture alone.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ..modeling.modeling_meta_lstm import MetaLSTMCell, MetaLSTMForSequenceClassification, MetaLSTMLayer
from ..modeling.recurrent_reference import generate_weights
from ..modeling.recurrent_types import MetaLSTMWeights
from .figures import COLORS, new_figure, save_figure, square_root_scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# In the order in which `recurrent_types` stacks them.
GATES = ("input", "forget", "candidate", "output")
_INCHES_A_WORD = 0.26
_LONGEST_LABEL = 22  # characters


@dataclass(frozen=True)
class WordChanges:
    """One text, word by word.

    Args:
        words: of the text, as it spells them.
        scores: probability of `label` for the text up to and including each word.
        changes: for each of `GATES`, the relative change of its generated matrix at each word; nan at the first word,
            which has no matrix before it.
        label: the class whose probability `scores` holds.
        task: name of the task; None for a model without tasks.
    """

    words: list[str]
    scores: list[float]
    changes: dict[str, list[float]]
    label: str
    task: str | None = None


def word_changes(
    model: MetaLSTMForSequenceClassification,
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    task_name: str | None = None,
    *,
    label: str | None = None,
) -> WordChanges:
    """Computes the numbers of Fig. 4 for one text.

    The change at word t of a gate * is mean |W(z_t)_* - W(z_{t-1})_*| / mean |W(z_{t-1})_*|, the means over the
    entries of the matrix. (The mean of each entry's own ratio would show nothing but entries that are close to 0.)
    In a stacked model these are the matrices of the last layer. In a bidirectional one they are those of its forward
    cell, which reads as the reader does; the scores are always those of the whole model.

    Args:
        model: a classifier with `cell="meta_lstm"`.
        tokenizer: the model's; texts longer than its `model_max_length` are cut.
        text: any text with at least one token.
        task_name: a task of the model; None: its active or only task.
        label: the class to score; None: the task's last, which is "positive" of ("negative", "positive").

    Raises:
        ValueError: the model generates no weights, an unknown task or label, no task is chosen, or an empty text.

    Example:
        >>> changes = word_changes(model, tokenizer, "an unpredictable plot", "books")  # doctest: +SKIP
        >>> plot_word_changes(changes, "word_changes.png")  # doctest: +SKIP
    """
    config = model.config
    if config.cell != "meta_lstm":
        raise ValueError(f"the model has cell={config.cell!r}, which generates no weights; use one with 'meta_lstm'")
    task = _task_id(model, task_name)
    task_of_model = list(config.tasks)[task] if config.tasks else None
    names = config.tasks[task_of_model] if config.tasks and task_of_model else _label_names(model)
    label = names[-1] if label is None else label
    if label not in names:
        raise ValueError(f"label is {label!r}, but the classes are {', '.join(names)}")
    ids, places, words = _tokens(tokenizer, text)
    with _evaluation(model), torch.no_grad():
        scores = _prefix_scores(model, ids, places, task)[:, names.index(label)]
        vectors = _run(model, ids.unsqueeze(0), None, task, output_meta_vectors=True).meta_vectors[0]
        cells = cast(MetaLSTMLayer, model.encoder.layers[-1]).cells
        weights = cast(MetaLSTMCell, cells[0]).weights(task)
        changes = _matrix_changes(weights, vectors[places, : config.z_size])  # (words, gates)
    return WordChanges(
        words=words,
        scores=scores.tolist(),
        changes={gate: changes[:, index].tolist() for index, gate in enumerate(GATES)},
        label=label,
        task=task_of_model,
    )


def plot_word_changes(changes: WordChanges, path: str | os.PathLike[str] | None = None) -> Figure:
    """Draws the scores above a heat map of the changes, words on the common axis; readable up to about 60 words.

    Args:
        changes: from `word_changes`.
        path: where to write the picture; the ending chooses the format.

    Raises:
        ImportError: matplotlib is not installed.
    """
    count = len(changes.words)
    longest = min(max(map(len, changes.words)), _LONGEST_LABEL)
    width = max(5.0, 1.9 + _INCHES_A_WORD * count)
    figure = new_figure(width, 3.1 + 0.075 * longest)
    grid = figure.add_gridspec(2, 2, height_ratios=(1.5, 1), width_ratios=(width - 1.6, 0.13))
    above = figure.add_subplot(grid[0, 0])
    below = figure.add_subplot(grid[1, 0], sharex=above)
    _draw_scores(above, changes)
    values = [changes.changes[gate] for gate in GATES]
    highest = max((value for row in values for value in row if math.isfinite(value)), default=1.0)
    # A few words change the matrices far more than all others: the square root keeps the others apart too.
    scale = square_root_scale(highest)
    image = below.imshow(values, aspect="auto", cmap="YlOrRd", norm=scale, interpolation="none")
    below.set_facecolor("0.92")  # shows through where there is no change to show
    below.set_yticks(range(len(GATES)), GATES)
    below.set_xticks(range(count), [_shorten(word) for word in changes.words], rotation=90, fontsize=9)
    below.tick_params(length=0)
    bar = figure.colorbar(image, cax=figure.add_subplot(grid[1, 1]))
    bar.set_label("relative change\nof W(z)", fontsize=8)
    bar.ax.tick_params(labelsize=8)
    save_figure(figure, path)
    return figure


def _draw_scores(axes: Axes, changes: WordChanges) -> None:
    places = range(len(changes.words))
    axes.axhline(0.5, color="0.6", linewidth=0.8, linestyle="--")
    colors = [COLORS[2] if score >= 0.5 else COLORS[1] for score in changes.scores]
    axes.bar(places, [score - 0.5 for score in changes.scores], bottom=0.5, width=0.8, color=colors, alpha=0.35)
    axes.plot(places, changes.scores, color=COLORS[0], marker="o", markersize=3, linewidth=1.4)
    axes.set_ylim(0, 1)
    axes.set_yticks([0, 0.5, 1])
    axes.set_ylabel(f"P({changes.label})")
    axes.tick_params(labelbottom=False, bottom=False)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    if changes.task is not None:
        axes.set_title(f"task: {changes.task}", loc="left", fontsize=10)


def _shorten(word: str) -> str:
    # A lone $ would start a formula.
    word = word if len(word) <= _LONGEST_LABEL else word[: _LONGEST_LABEL - 3] + "..."
    return word.replace("$", r"\$")


def _task_id(model: MetaLSTMForSequenceClassification, task_name: str | None) -> int:
    tasks = model.config.tasks
    if task_name is not None:
        return model.config.task_id(task_name)
    if tasks is None:
        return 0
    if model.config.active_task is None:
        raise ValueError(f"the model has several tasks and no active one: give task_name, one of {', '.join(tasks)}")
    return model.config.task_id(model.config.active_task)


def _label_names(model: MetaLSTMForSequenceClassification) -> list[str]:
    return [str(label) for label in (model.config.id2label or {}).values()]


def _tokens(tokenizer: PreTrainedTokenizerBase, text: str) -> tuple[Tensor, list[int], list[str]]:
    """Ids of a text, the places of those that are words, and the words."""
    encoded = tokenizer(
        text, truncation=True, return_offsets_mapping=tokenizer.is_fast, return_special_tokens_mask=True
    )
    ids = encoded["input_ids"]
    offsets = encoded.get("offset_mapping") or [(0, 0)] * len(ids)
    # An unknown word has the id of a special token, but a place in the text.
    special = encoded["special_tokens_mask"]
    places = [place for place, (start, end) in enumerate(offsets) if end > start or not special[place]]
    if not places or not text.strip():
        raise ValueError(f"text is empty after tokenization: {text!r}")
    tokens = tokenizer.convert_ids_to_tokens(ids)
    words = [text[slice(*offsets[place])] or tokens[place] for place in places]
    return torch.tensor(ids), places, words


def _prefix_scores(model: MetaLSTMForSequenceClassification, ids: Tensor, places: list[int], task: int) -> Tensor:
    """Class probabilities of each prefix, (words, classes), from one batch.

    Special tokens that stand before the first and after the last word belong to every prefix.
    """
    after = ids[places[-1] + 1 :]
    prefixes = [torch.cat([ids[: place + 1], after]) for place in places]
    batch = torch.nn.utils.rnn.pad_sequence(prefixes, batch_first=True, padding_value=model.config.pad_token_id or 0)
    lengths = torch.tensor([len(prefix) for prefix in prefixes])
    mask = (torch.arange(batch.shape[1]) < lengths.unsqueeze(1)).long()  # (words, tokens)
    return _run(model, batch, mask, task).logits.softmax(-1)


def _run(
    model: MetaLSTMForSequenceClassification,
    ids: Tensor,
    mask: Tensor | None,
    task: int,
    output_meta_vectors: bool = False,
) -> Any:
    device = model.device
    return model(
        ids.to(device),
        attention_mask=None if mask is None else mask.to(device),
        task_ids=torch.full((len(ids),), task, device=device) if model.config.tasks else None,
        output_meta_vectors=output_meta_vectors,
        return_dict=True,
    )


def _matrix_changes(weights: MetaLSTMWeights, vectors: Tensor) -> Tensor:
    """Relative change of each gate's matrix at each step, (steps, 4).

    Args:
        weights: of the cell.
        vectors: (steps, z) meta vectors z_t.
    """
    # Half precision would round most changes away.
    dtype = torch.promote_types(vectors.dtype, torch.float32)
    weights = MetaLSTMWeights(*(part.to(dtype) for part in weights))
    changes = [torch.full((len(GATES),), math.nan, dtype=dtype, device=vectors.device)]
    before: Tensor | None = None
    for vector in vectors.to(dtype):
        matrix, _ = generate_weights(weights, vector)
        by_gate = matrix.view(len(GATES), -1)  # (gates, hidden * (input + hidden))
        if before is not None:
            changes.append((by_gate - before).abs().mean(1) / before.abs().mean(1))
        before = by_gate
    return torch.stack(changes)


@contextmanager
def _evaluation(model: torch.nn.Module) -> Iterator[None]:
    """Switches dropout off inside a `with` block."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
