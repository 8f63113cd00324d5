"""Scores of classifiers as plain functions, and the default metrics of the multi-task trainer."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from transformers import EvalPrediction

IGNORED_LABEL = -100


def _pairs(predictions: ArrayLike, references: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    predicted, wanted = np.asarray(predictions), np.asarray(references)
    if predicted.shape != wanted.shape:
        raise ValueError(f"predictions have shape {predicted.shape}, but references have {wanted.shape}")
    counted = wanted != IGNORED_LABEL
    if not counted.any():
        raise ValueError(f"there is nothing to score: {wanted.size} references, none of them a label")
    return predicted[counted], wanted[counted]


def accuracy(predictions: ArrayLike, references: ArrayLike) -> float:
    """Share of the predicted classes that are right.

    Args:
        predictions: class indexes, any shape.
        references: the right ones, the same shape; where they are -100 nothing is counted.

    Raises:
        ValueError: the shapes differ, or no reference is a label.

    Example:
        >>> accuracy([0, 1, 1, 0], [0, 1, 0, -100])
        0.6666666666666666
    """
    predicted, wanted = _pairs(predictions, references)
    return float((predicted == wanted).mean())


def macro_f1(predictions: ArrayLike, references: ArrayLike) -> float:
    """Mean over the classes of F1 = 2 tp / (2 tp + fp + fn), each class counting the same however rare it is.

    The classes are those that occur among the predictions or the references.

    Args:
        predictions: class indexes, any shape.
        references: the right ones, the same shape; where they are -100 nothing is counted.

    Raises:
        ValueError: the shapes differ, or no reference is a label.

    Example:
        >>> macro_f1([0, 1, 1, 0], [0, 1, 0, 0])
        0.7333333333333334
    """
    predicted, wanted = _pairs(predictions, references)
    scores = []
    for label in np.union1d(predicted, wanted):
        found, right = predicted == label, wanted == label
        scores.append(2 * (found & right).sum() / (found.sum() + right.sum()))
    return float(np.mean(scores))


def classification_metrics(prediction: EvalPrediction) -> dict[str, float]:
    """`compute_metrics` for classifiers: accuracy and macro-averaged F1 of the classes with the largest logits.

    Args:
        prediction: logits (..., classes) and label ids (...); -100 is not counted.

    Raises:
        ValueError: no label to compare with.
    """
    logits: Any = prediction.predictions
    predicted = np.asarray(logits[0] if isinstance(logits, tuple) else logits).argmax(axis=-1)
    return {
        "accuracy": accuracy(predicted, prediction.label_ids),
        "macro_f1": macro_f1(predicted, prediction.label_ids),
    }
