# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""The objectives of GPT-1 (Radford et al. 2018, equations 1, 4 and 5): L1 of the language model, L2 of the task, L3."""

import torch
from torch import Tensor, nn
from transformers.utils import logging

from .checks import check_class_labels, check_float_labels, values_are_known
from .chunked_loss import IGNORED_LABEL, chunked_linear_cross_entropy
from .configuration_gpt1 import GPT1Config

logger = logging.get_logger(__name__)


def following_tokens(labels: Tensor) -> Tensor:
    """(..., tokens) labels of each token's successor; the last token has none."""
    return nn.functional.pad(labels[..., 1:], (0, 1), value=IGNORED_LABEL)


def language_model_loss(
    hidden: Tensor, output_layer: nn.Linear, labels: Tensor, reduction: str, num_items: Tensor | int | None = None
) -> Tensor:
    """L1: each state against the token that follows.

    Args:
        hidden: (..., tokens, n_embd).
        output_layer: gives the logits, which are never held as a whole.
        labels: (..., tokens), each state's next token, as `following_tokens` gives it.
        reduction: "token" or "sequence", as `GPT1Config.lm_loss_reduction`.
        num_items: what to divide the sum over the tokens by, where a batch is a part of a larger one.
    """
    _warn_if_nothing_counts(labels)
    if num_items is not None:
        total = _cross_entropy(hidden, output_layer, labels, "sum")
        return total / num_items if isinstance(num_items, int) else total / num_items.to(total.device)
    return _cross_entropy(hidden, output_layer, labels, "mean" if reduction == "token" else "sequence_mean")


def _cross_entropy(hidden: Tensor, output_layer: nn.Linear, labels: Tensor, reduction: str) -> Tensor:
    bias = output_layer.bias
    return chunked_linear_cross_entropy(hidden, output_layer.weight, labels.long(), bias, reduction=reduction)


def choice_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """L2 over choices or classes: mean cross-entropy of (batch, classes), 0 where all labels are -100."""
    _warn_if_nothing_counts(labels)
    total = nn.functional.cross_entropy(scores.float(), labels.long(), reduction="sum", ignore_index=IGNORED_LABEL)
    return total / (labels != IGNORED_LABEL).sum().clamp(min=1)


def classification_loss(logits: Tensor, labels: Tensor, config: GPT1Config) -> Tensor:
    """L2 of a classifier, or the loss of a regression or multi-label problem; changes nothing in the config.

    Raises:
        TypeError, ValueError: labels of another kind, shape or range.
    """
    problem = config.problem_type
    if problem == "regression" or (problem is None and config.num_labels == 1):
        predictions = logits.squeeze(1) if logits.shape[1] == 1 else logits
        check_float_labels(labels, tuple(predictions.shape), "regression")
        return nn.functional.mse_loss(predictions.float(), labels.float())
    if problem == "multi_label_classification":
        check_float_labels(labels, tuple(logits.shape), problem)
        return nn.functional.binary_cross_entropy_with_logits(logits.float(), labels.float())
    names = [str(label) for label in (config.id2label or {}).values()]
    check_class_labels(labels, logits.shape[0], [names], None)
    return choice_loss(logits, labels)


def add_objectives(task: Tensor | None, language_model: Tensor | None, lm_coef: float) -> Tensor | None:
    """L3 = L2 + lambda L1, or the one of them that there is."""
    if task is None or language_model is None:
        return language_model if task is None else task
    return task + lm_coef * language_model


def shared_dropout(states: Tensor, probability: float, training: bool) -> Tensor:
    """Dropout of (batch, choices, size) with one mask for all choices of a row, as in the authors' code.

    Choices are compared with each other: with a mask each, they would be looked at through different units.
    """
    if not training or probability == 0:
        return states
    mask = torch.ones_like(states[:, :1])
    return states * nn.functional.dropout(mask, probability)


def _warn_if_nothing_counts(labels: Tensor) -> None:
    if values_are_known() and bool((labels == IGNORED_LABEL).all()):
        logger.warning_once("all labels of a batch are -100: its loss is 0 and it trains nothing")
