"""The loss of batches that hold several tasks, such that small batches add up to the loss of the large one.

Everything is computed per labelled element: a row for classifiers, a token for taggers. Gradient accumulation and
several processes then only need the counts of the whole (accumulated, global) batch to give its exact loss.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

IGNORED_LABEL = -100


def element_losses(logits: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Cross-entropy of each label.

    Args:
        logits: (..., classes). Columns that a row's task does not have hold the dtype's minimum.
        labels: (...) class indexes, -100 where there is none.
        label_smoothing: share of the probability that is wanted evenly on all classes of the task.

    Returns:
        (...) in at least float32; 0 where there is no label.
    """
    # Autocast and accelerate change the dtype on the way here, so any dtype's minimum counts.
    missing = logits <= torch.finfo(torch.float16).min  # (..., classes)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    log_probabilities = logits.log_softmax(-1)
    labelled = labels != IGNORED_LABEL
    losses = -log_probabilities.gather(-1, labels.where(labelled, 0).unsqueeze(-1)).squeeze(-1)
    if label_smoothing:
        evenly = -log_probabilities.masked_fill(missing, 0).sum(-1) / (~missing).sum(-1)
        losses = (1 - label_smoothing) * losses + label_smoothing * evenly
    return losses.where(labelled, 0)


def sums_by_task(values: Tensor, task_ids: Tensor, num_tasks: int) -> Tensor:
    """Sums (rows, ...) values over the rows of each task: (num_tasks,)."""
    by_row = values.reshape(len(values), -1).sum(1)  # (rows,)
    members = task_ids.unsqueeze(1) == torch.arange(num_tasks, device=task_ids.device)  # (rows, tasks)
    return by_row.unsqueeze(1).where(members, 0).sum(0)


def count_labels(labels: Tensor, task_ids: Tensor, num_tasks: int) -> Tensor:
    """Counts what a batch is averaged over: (num_tasks + 1,) int64, the labels of each task and, last, the rows."""
    labelled = sums_by_task((labels != IGNORED_LABEL).long(), task_ids, num_tasks)
    return torch.cat([labelled, labelled.new_tensor([len(labels)])])


def share_of_loss(sums: Tensor, counts: Tensor, weights: Sequence[float] | None = None) -> Tensor:
    """What a batch adds to the loss of the whole batch that it is a part of.

    Args:
        sums: (num_tasks,) summed losses of the labels of each task in this batch.
        counts: (num_tasks + 1,) from `count_labels`, for the whole batch.
        weights: w_k of each task, for sum_k w_k (mean over the labels of task k); None: the mean over all labels.
    """
    labels = counts[:-1]
    if weights is None:
        return sums.sum() / labels.sum().clamp(min=1)
    return (sums.new_tensor(weights) * sums / labels.clamp(min=1)).sum()
