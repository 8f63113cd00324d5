"""Scores of sequence taggers: chunks found, in two ways of counting that are chosen by name, and accuracy of tags.

* "conlleval" reads tags as the script of the CoNLL shared tasks does (Tjong Kim Sang and Buchholz 2000): leniently. A
  chunk begins at B-, and at I- behind O or behind another type; it ends before O, B- or another type. So I-X I-X is a
  chunk like B-X I-X. Tags of IOBES are read in the same spirit: S- begins one too, and E- and S- end theirs.
* "strict" counts only chunks that are well formed in IOB2 or IOBES, as `seqeval` reads them in its strict mode.

On well-formed tags both give the same numbers. A chunk is right when its borders and its type are.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from seqeval import scheme as seqeval_scheme
from transformers import EvalPrediction

from ..data.tag_schemes import check_tags
from ..modeling.tag_constraints import SCHEMES, check_scheme
from .classification import IGNORED_LABEL

Scoring = Literal["conlleval", "strict", "accuracy"]
_SCORINGS = ("conlleval", "strict", "accuracy")
_STRICT_SCHEMES = {"IOB2": seqeval_scheme.IOB2, "IOBES": seqeval_scheme.IOBES}
_WITHOUT_TYPE = "_"

Span = tuple[int, int, int, str]  # sentence, start, end (exclusive), type


@dataclass(frozen=True)
class ChunkCounts:
    """Chunks in the references, chunks predicted, and those of them that are right."""

    gold: int
    predicted: int
    right: int

    @property
    def precision(self) -> float:
        """right / predicted, 0 where nothing is predicted."""
        return self.right / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """right / gold, 0 where there is nothing to find."""
        return self.right / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall, 0 where both are."""
        return 2 * self.right / (self.gold + self.predicted) if self.right else 0.0

    def scores(self) -> dict[str, float]:
        """`{"precision", "recall", "f1"}`"""
        return {"precision": self.precision, "recall": self.recall, "f1": self.f1}


@dataclass(frozen=True)
class TaggingScores:
    """What `score_tags` found.

    Args:
        chunks: of all types together.
        types: `{type: its chunks}`, in alphabetical order.
        tags: number of tags.
        right_tags: those that equal the reference.
    """

    chunks: ChunkCounts
    types: dict[str, ChunkCounts]
    tags: int
    right_tags: int

    @property
    def accuracy(self) -> float:
        """Share of the tags that equal the reference."""
        return self.right_tags / self.tags

    def as_dict(self) -> dict[str, Any]:
        """`precision`, `recall`, `f1`, `accuracy`, and `types` with the first three and the number of gold chunks."""
        types = {kind: {**counts.scores(), "number": counts.gold} for kind, counts in self.types.items()}
        return {**self.chunks.scores(), "accuracy": self.accuracy, "types": types}

    def table(self) -> str:
        """All types and their total as an aligned table, in percent.

        Example:
            >>> print(score_tags([["B-NP", "O"]], [["B-NP", "B-VP"]]).table())
            type   gold  predicted  right  precision  recall     F1
            NP        1          1      1     100.00  100.00  100.00
            VP        1          0      0       0.00    0.00    0.00
            total     2          1      1     100.00   50.00   66.67
            accuracy of the tags: 50.00 (1 of 2)
        """
        width = max(map(len, [*self.types, "total"]))
        lines = [f"{'type':{width}}  {'gold':>4}  predicted  right  precision  recall     F1"]
        for kind, counts in [*self.types.items(), ("total", self.chunks)]:
            percent = [100 * value for value in (counts.precision, counts.recall, counts.f1)]
            lines.append(
                f"{kind:{width}}  {counts.gold:4}  {counts.predicted:9}  {counts.right:5}  "
                f"{percent[0]:9.2f}  {percent[1]:6.2f}  {percent[2]:6.2f}"
            )
        accuracy = f"{100 * self.accuracy:.2f} ({self.right_tags} of {self.tags})"
        return "\n".join([*lines, f"accuracy of the tags: {accuracy}"])


def score_tags(
    predictions: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    scoring: Literal["conlleval", "strict"] = "conlleval",
    scheme: str = "IOB2",
) -> TaggingScores:
    """Counts the chunks of predicted tags that are right.

    Args:
        predictions: tags of each sentence.
        references: the right tags, as many.
        scoring: "conlleval" or "strict".
        scheme: of the tags, "IOB2" or "IOBES"; only "strict" needs it.

    Raises:
        ValueError: sentences of different lengths, nothing to score, a tag that is no chunk tag, or, for "strict",
            references that do not follow the scheme; their chunks would be lost silently.

    Example:
        >>> gold, predicted = [["B-X", "I-X"]], [["I-X", "I-X"]]
        >>> score_tags(predicted, gold).chunks.f1, score_tags(predicted, gold, "strict").chunks.f1
        (1.0, 0.0)
    """
    if scoring not in ("conlleval", "strict"):
        raise ValueError(f"scoring is {scoring!r}, but must be 'conlleval' or 'strict'")
    _check_lengths(predictions, references)
    if scoring == "strict":
        scheme = check_scheme(scheme)
        if scheme not in _STRICT_SCHEMES:
            raise ValueError(f"scheme is {scheme!r}, but strict scores are for {', '.join(_STRICT_SCHEMES)}")
        check_tags(references, scheme)
        _check_prefixes(predictions, SCHEMES[scheme] + "O", scheme)
        gold, predicted = _strict_chunks(references, scheme), _strict_chunks(predictions, scheme)
    else:
        gold, predicted = set(_lenient_chunks(references)), set(_lenient_chunks(predictions))
    counts = [Counter(kind for *_, kind in chunks) for chunks in (gold, predicted, gold & predicted)]
    types = {kind: ChunkCounts(*(count[kind] for count in counts)) for kind in sorted(counts[0] | counts[1])}
    total = ChunkCounts(len(gold), len(predicted), len(gold & predicted))
    right = sum(
        tag == wanted
        for tags, wanted_tags in zip(predictions, references, strict=True)
        for tag, wanted in zip(tags, wanted_tags, strict=True)
    )
    return TaggingScores(total, types, sum(map(len, references)), right)


def _check_lengths(predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> None:
    if len(predictions) != len(references):
        raise ValueError(f"there are {len(predictions)} sentences of predictions, but {len(references)} of references")
    for sentence, (tags, wanted) in enumerate(zip(predictions, references, strict=True)):
        for given, name in ((tags, "predictions"), (wanted, "references")):
            if isinstance(given, str):
                raise TypeError(f"{name}[{sentence}] is {given!r}, expected the list of a sentence's tags")
        if len(tags) != len(wanted):
            raise ValueError(f"sentence {sentence} has {len(tags)} predicted tags, but {len(wanted)} in the references")
    if not any(map(len, references)):
        raise ValueError("there is nothing to score: the references have no tags")


def _check_prefixes(sentences: Sequence[Sequence[str]], prefixes: str, scheme: str) -> None:
    for sentence, tags in enumerate(sentences):
        for index, tag in enumerate(tags):
            if tag[:1] not in prefixes or not tag or (len(tag) > 1 and (tag[1] != "-" or tag[0] == "O")):
                raise ValueError(f"sentence {sentence}, tag {index}: {tag!r} is no tag of {scheme}")


def _strict_chunks(sentences: Sequence[Sequence[str]], scheme: str) -> set[Span]:
    found = seqeval_scheme.Entities([list(tags) for tags in sentences], _STRICT_SCHEMES[scheme])
    return {(chunk.sent_id, chunk.start, chunk.end, chunk.tag) for chunks in found.entities for chunk in chunks}


def _lenient_chunks(sentences: Sequence[Sequence[str]]) -> Iterable[Span]:
    _check_prefixes(sentences, "OBIES", "a known scheme")
    for number, tags in enumerate(sentences):
        start, before, kind = 0, "O", ""
        for index, tag in enumerate([*tags, "O"]):
            prefix, next_kind = tag[0], tag[2:] or _WITHOUT_TYPE
            breaks = prefix in "OBS" or before in "OES" or next_kind != kind
            if breaks and before != "O":
                yield number, start, index, kind
            if breaks and prefix != "O":
                start = index
            before, kind = prefix, next_kind


@dataclass
class TaggingMetrics:
    """`compute_metrics` of a `Trainer` for taggers; what is labelled -100 is not counted.

    Args:
        labels: names of the tags, in the order of their ids.
        scoring: "conlleval" or "strict", see `score_tags`; "accuracy" for tags that are no chunks, such as parts of
            speech.
        scheme: of the tags, for "strict".
        per_type: also give the F1 of each type of chunk, as `f1_NP`.

    Returns of a call:
        `precision`, `recall`, `f1` (not for "accuracy") and `accuracy`.

    Raises of a call:
        ValueError: predictions and labels do not fit together, an id without a name, or nothing to score.

    Example:
        >>> import numpy as np
        >>> from transformers import EvalPrediction
        >>> from hf_metalstm.metrics.tagging import TaggingMetrics
        >>> compute_metrics = TaggingMetrics(["O", "B-NP", "I-NP"])
        >>> predicted, wanted = np.array([[1, 2, 0], [1, 0, 0]]), np.array([[1, 2, -100], [0, 0, -100]])
        >>> compute_metrics(EvalPrediction(predicted, wanted))
        {'precision': 0.5, 'recall': 1.0, 'f1': 0.6666666666666666, 'accuracy': 0.75}
    """

    labels: Sequence[str]
    scoring: Scoring = "conlleval"
    scheme: str = "IOB2"
    per_type: bool = False

    def __post_init__(self) -> None:
        if self.scoring not in _SCORINGS:
            raise ValueError(f"scoring is {self.scoring!r}, but must be one of {', '.join(_SCORINGS)}")

    def __call__(self, prediction: EvalPrediction) -> dict[str, float]:
        predicted, wanted = predicted_tags(prediction, self.labels)
        if self.scoring == "accuracy":
            pairs = [pair for rows in zip(predicted, wanted, strict=True) for pair in zip(*rows, strict=True)]
            return {"accuracy": sum(tag == right for tag, right in pairs) / len(pairs)}
        scores = score_tags(predicted, wanted, self.scoring, self.scheme)
        result = {**scores.chunks.scores(), "accuracy": scores.accuracy}
        if self.per_type:
            result.update({f"f1_{kind}": counts.f1 for kind, counts in scores.types.items()})
        return result


def predicted_tags(prediction: EvalPrediction, labels: Sequence[str]) -> tuple[list[list[str]], list[list[str]]]:
    """Names of the predicted and of the right tags, a list for each sentence, without what is labelled -100.

    Args:
        prediction: label ids (sentences, tokens), and either scores (sentences, tokens, tags), of which the best
            counts, or tag ids (sentences, tokens), as a CRF decodes them. Of a tuple the first counts.
        labels: names of the tags, in the order of their ids.

    Raises:
        ValueError: shapes that do not fit, an id without a name, or nothing that is labelled.
    """
    given: Any = prediction.predictions
    scores = np.asarray(given[0] if isinstance(given, tuple) else given)
    wanted = np.asarray(prediction.label_ids)
    ids = scores.argmax(-1) if scores.ndim == 3 else scores
    if wanted.ndim != 2 or ids.shape != wanted.shape:
        raise ValueError(
            f"predictions have shape {scores.shape} and labels {wanted.shape}; expected (sentences, tokens, tags) or "
            "(sentences, tokens), and (sentences, tokens)"
        )
    counted = wanted != IGNORED_LABEL
    if not counted.any():
        raise ValueError(f"there is nothing to score: {wanted.size} labels, all of them {IGNORED_LABEL}")
    for values, name in ((ids, "predictions"), (wanted, "labels")):
        wrong = counted & ((values < 0) | (values >= len(labels)))
        if wrong.any():
            row, token = np.argwhere(wrong)[0]
            hint = ": decode every labelled token" if values[row, token] == IGNORED_LABEL else ""
            raise ValueError(
                f"{name}[{row}, {token}] is {values[row, token]}, but there are labels 0..{len(labels) - 1}{hint}"
            )
    names: Mapping[int, str] = dict(enumerate(labels))
    rows = range(len(wanted))
    return (
        [[names[int(value)] for value in ids[row][counted[row]]] for row in rows],
        [[names[int(value)] for value in wanted[row][counted[row]]] for row in rows],
    )
