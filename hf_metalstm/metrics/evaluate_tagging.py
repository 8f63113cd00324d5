"""The scores of taggers as `evaluate` metrics that need no network; see `evaluate_modules` for how they are used."""

from typing import Any

import datasets
import evaluate

from .tagging import score_tags

_INPUTS = """
Args:
    predictions: list of sentences, each a list of predicted tags.
    references: list of sentences, each a list of right tags.
"""


class _ChunkMetric(evaluate.Metric):
    """A score of sentences of tags."""

    description = ""
    citation = ""

    def _info(self) -> evaluate.MetricInfo:
        tags = datasets.List(datasets.Value("string"))
        return evaluate.MetricInfo(
            description=self.description,
            citation=self.citation,
            inputs_description=_INPUTS,
            features=datasets.Features({"predictions": tags, "references": tags}),
        )


class Conlleval(_ChunkMetric):
    """Chunks counted as the conlleval script counts them; see `tagging.score_tags`.

    `compute` returns `precision`, `recall`, `f1`, `accuracy`, and the first three for each of `types`.

    Example:
        >>> Conlleval().compute(predictions=[["I-X", "I-X"]], references=[["B-X", "I-X"]])["f1"]
        1.0
    """

    description = "Precision, recall and F1 of chunks, read leniently as the conlleval script does."
    citation = "Tjong Kim Sang and Buchholz 2000, Introduction to the CoNLL-2000 shared task: chunking"

    def _compute(self, predictions: list[list[str]], references: list[list[str]]) -> dict[str, Any]:
        return score_tags(predictions, references, "conlleval").as_dict()


class StrictChunks(_ChunkMetric):
    """Well-formed chunks of IOB2 or IOBES; see `tagging.score_tags`.

    `compute(predictions=..., references=..., scheme="IOB2")` returns the same keys as `Conlleval`.

    Example:
        >>> gold, predicted = [["B-PER", "E-PER", "S-PER"]], [["B-PER", "I-PER", "S-PER"]]
        >>> scores = StrictChunks().compute(predictions=predicted, references=gold, scheme="IOBES")
        >>> scores["precision"], scores["recall"], round(scores["f1"], 2)
        (1.0, 0.5, 0.67)
    """

    description = "Precision, recall and F1 of chunks that are well formed in their scheme."
    citation = "Nakayama 2018, seqeval: a Python framework for sequence labeling evaluation"

    def _compute(
        self, predictions: list[list[str]], references: list[list[str]], scheme: str = "IOB2"
    ) -> dict[str, Any]:
        return score_tags(predictions, references, "strict", scheme).as_dict()
