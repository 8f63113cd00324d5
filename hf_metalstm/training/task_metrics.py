"""Metrics of an evaluation over several tasks: those of each task, and their averages."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from transformers import EvalPrediction

from .multitask_loss import IGNORED_LABEL, element_losses

AVERAGE = "average"


def metrics_by_task(
    logits: np.ndarray,
    labels: np.ndarray,
    task_ids: np.ndarray,
    tasks: Mapping[str, Sequence[str]],
    compute_metrics: Callable[[EvalPrediction], dict[str, float]],
) -> dict[str, float]:
    """Computes `<task>_<metric>` and `<task>_loss` of each task, and `average_<metric>`, the mean over the tasks.

    A task without any labelled example has no metrics and does not count in the averages.

    Args:
        logits: (examples, ..., widest task's classes).
        labels: (examples, ...), -100 where there is none.
        task_ids: (examples,).
        tasks: label names of each task, in the order of the ids.
        compute_metrics: called with the logits, as wide as the task's labels, and labels of one task's examples.
    """
    metrics: dict[str, float] = {}
    of_all_tasks: dict[str, list[float]] = {}
    for task, (name, label_names) in enumerate(tasks.items()):
        rows = task_ids == task
        labelled = int((labels[rows] != IGNORED_LABEL).sum())
        if not labelled:
            continue
        own_logits = logits[rows][..., : len(label_names)]
        values = dict(compute_metrics(EvalPrediction(predictions=own_logits, label_ids=labels[rows])))
        losses = element_losses(torch.as_tensor(own_logits), torch.as_tensor(labels[rows]))
        values["loss"] = float(losses.double().sum()) / labelled
        for metric, value in values.items():
            metrics[f"{name}_{metric}"] = value
            of_all_tasks.setdefault(metric, []).append(value)
    averages = {f"{AVERAGE}_{metric}": float(np.mean(values)) for metric, values in of_all_tasks.items()}
    return {**metrics, **averages}
