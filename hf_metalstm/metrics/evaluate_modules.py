"""The scores as `evaluate` metrics.

`evaluate.load("accuracy")` fetches code from the Hub; these are ordinary classes, so they work without a network. They
combine (`evaluate.combine([Accuracy(), MacroF1()])`), accumulate batches (`add_batch`) and serve as `metric=` of
`evaluate.evaluator(...)`.
"""

import datasets
import evaluate

from .classification import accuracy, macro_f1

_CITATION = ""
_INPUTS = """
Args:
    predictions: list of predicted class indexes.
    references: list of right class indexes; -100 is not counted.
"""


class _ClassificationMetric(evaluate.Metric):
    """A score of class indexes."""

    description = ""

    def _info(self) -> evaluate.MetricInfo:
        features = datasets.Features({"predictions": datasets.Value("int64"), "references": datasets.Value("int64")})
        return evaluate.MetricInfo(
            description=self.description, citation=_CITATION, inputs_description=_INPUTS, features=features
        )


class Accuracy(_ClassificationMetric):
    """Share of right class indexes; `compute` returns `{"accuracy": x}`.

    Example:
        >>> Accuracy().compute(predictions=[0, 1, 1], references=[0, 1, 0])
        {'accuracy': 0.6666666666666666}
    """

    description = "Share of the predicted classes that are right."

    def _compute(self, predictions: list[int], references: list[int]) -> dict[str, float]:
        return {"accuracy": accuracy(predictions, references)}


class MacroF1(_ClassificationMetric):
    """F1 averaged over the classes; `compute` returns `{"macro_f1": x}`.

    Example:
        >>> MacroF1().compute(predictions=[0, 1, 1, 0], references=[0, 1, 0, 0])
        {'macro_f1': 0.7333333333333334}
    """

    description = "F1 averaged over the classes that occur, each counting the same."

    def _compute(self, predictions: list[int], references: list[int]) -> dict[str, float]:
        return {"macro_f1": macro_f1(predictions, references)}
