# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""Losses of the Dynamic Memory Networks: on the gates, from supporting facts, and on the answers."""

import torch
from torch import Tensor, nn
from transformers.utils import logging

from .checks import values_are_known

logger = logging.get_logger(__name__)
IGNORED_LABEL = -100


def supervised_passes(supporting_facts: Tensor, num_passes: int) -> tuple[Tensor, Tensor]:
    """Targets of each pass, and how many passes there are to make.

    Args:
        supporting_facts: 0 or 1, (batch, facts) for the same in every pass, or (batch, passes, facts).

    Returns:
        Targets (batch, num_passes, facts) and (batch,): the first pass without a supporting fact; `num_passes` where
        there is none, also in rows that have no supporting facts at all, which tell nothing.
    """
    if supporting_facts.ndim == 2:
        supporting_facts = supporting_facts[:, None].expand(-1, num_passes, -1)
    targets = supporting_facts != 0
    has_any = targets.any(2)  # (batch, passes)
    to_make = has_any.long().cumprod(1).sum(1)
    return targets, torch.where(has_any.any(1), to_make, num_passes)


def gate_loss(
    scores: Tensor, made: Tensor, supporting_facts: Tensor, real_facts: Tensor, gate: str, has_end: bool
) -> Tensor | None:
    """Cross-entropy of the gates, a mean over the passes for which it is known what they should find.

    Args:
        scores: (batch, passes, facts), or one more for the end of the passes.
        made: (batch,) number of passes; with an end of the passes, the one in which it was chosen comes on top.
        supporting_facts: 0 or 1, (batch, facts) or (batch, passes, facts). A pass after the last supporting fact should
            choose the end of the passes, and tells nothing where there is none.
        real_facts: (batch, facts), True for facts that are no padding.
        gate: "sigmoid": the sum of each fact's binary cross-entropy; "softmax": cross-entropy against equal shares
            for the supporting facts.
        has_end: whether the last score is the end of the passes.

    Returns:
        (), or None where no row has a supporting fact.
    """
    passes = scores.shape[1]
    targets, to_make = supervised_passes(supporting_facts, passes)
    number = torch.arange(passes, device=scores.device)
    known = targets.any(2)
    real = real_facts[:, None].expand_as(targets)
    if has_end:
        at_end = (number == to_make[:, None]) & known.any(1, keepdim=True)
        targets = torch.cat([targets, at_end[:, :, None]], dim=2)
        real = nn.functional.pad(real, (0, 1), value=True)
        known = (known | at_end) & (number <= made[:, None]) & (number <= to_make[:, None])
    if values_are_known() and not bool(known.any()):
        return None
    scores, wanted = scores.float(), targets.float()
    if gate == "sigmoid":
        losses = nn.functional.binary_cross_entropy_with_logits(scores, wanted, reduction="none")
        losses = losses.masked_fill(~real, 0.0).sum(2)
    else:
        log_gates = scores.masked_fill(~real, torch.finfo(scores.dtype).min).log_softmax(2)
        losses = -(log_gates * wanted).sum(2) / wanted.sum(2).clamp(min=1)
    return (losses * known).sum() / known.sum().clamp(min=1)


def add_losses(answer: Tensor | None, gate: Tensor | None, answer_weight: float, gate_weight: float) -> Tensor | None:
    """None without labels. A weight of 0 keeps all parameters in the graph, as distributed training wants it."""
    if answer is None or gate is None:
        return answer
    return answer_weight * answer + gate_weight * gate


def mean_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean over the labels that are not ignored, 0 when all are."""
    total = nn.functional.cross_entropy(logits.float(), labels.long(), reduction="sum", ignore_index=IGNORED_LABEL)
    counted = (labels != IGNORED_LABEL).sum()
    if values_are_known() and int(counted) == 0:
        logger.warning_once("all labels of a batch are -100: its loss is 0 and it trains nothing")
    return total / counted.clamp(min=1)
