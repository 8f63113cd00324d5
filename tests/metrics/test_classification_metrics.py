"""Accuracy and macro F1, as functions and as `evaluate` metrics, against their definitions."""

import evaluate
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import EvalPrediction

from hf_metalstm.metrics import Accuracy, MacroF1, accuracy, classification_metrics, macro_f1

pairs = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30)


@given(pairs)
def test_scores_equal_their_definitions(rows):
    predicted, wanted = zip(*rows, strict=True)
    assert accuracy(predicted, wanted) == pytest.approx(sum(a == b for a, b in rows) / len(rows))
    scores = []
    for label in {label for row in rows for label in row}:
        hits = sum(a == b == label for a, b in rows)
        precision = hits / max(1, sum(a == label for a, _ in rows))
        recall = hits / max(1, sum(b == label for _, b in rows))
        scores.append(2 * precision * recall / (precision + recall) if hits else 0.0)
    assert macro_f1(predicted, wanted) == pytest.approx(sum(scores) / len(scores))


def test_ignored_labels_are_not_counted():
    assert accuracy([0, 1, 2], [0, 0, -100]) == 0.5
    assert macro_f1([0, 1, 2], [0, 0, -100]) == macro_f1([0, 1], [0, 0])


def test_nothing_to_score_is_an_error():
    with pytest.raises(ValueError, match="nothing to score: 2 references, none of them a label"):
        accuracy([0, 1], [-100, -100])
    with pytest.raises(ValueError, match=r"predictions have shape \(1,\), but references have \(2,\)"):
        macro_f1([0], [0, 1])


@pytest.mark.parametrize("wrapped", [False, True])
def test_compute_metrics_takes_the_largest_logit(wrapped):
    logits = np.array([[0.1, 0.9, -9.0], [2.0, 1.0, -9.0], [0.0, 1.0, -9.0]])
    labels = np.array([1, 1, -100])
    prediction = EvalPrediction(predictions=(logits, logits) if wrapped else logits, label_ids=labels)
    assert classification_metrics(prediction) == {"accuracy": 0.5, "macro_f1": pytest.approx(1 / 3)}


def test_metrics_work_with_evaluate_and_without_a_network():
    both = evaluate.combine([Accuracy(), MacroF1()])
    both.add_batch(predictions=[0, 1], references=[0, 1])
    both.add_batch(predictions=[1, 0], references=[0, 0])
    assert both.compute() == {"accuracy": 0.75, "macro_f1": pytest.approx((0.8 + 2 / 3) / 2)}
    assert MacroF1().compute(predictions=[0, 1, 2], references=[0, 1, -100]) == {"macro_f1": 1.0}
