# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""Cross-entropy over a large vocabulary without ever holding the logits of a whole batch.

A language model's logits are its largest tensor: 2,048 tokens and 40,478 words are 332 MB, and cross-entropy holds them
three times. Here a few hundred rows go through the output layer at a time, and the gradients of hidden states, weight
and bias are made at once, while the logits of these rows are there. Rows without a label cost nothing.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .checks import values_are_known

IGNORED_LABEL = -100
REDUCTIONS = ("sum", "mean", "sequence_mean")
# Fewer rows leave the matrix products too thin, more fall out of the processor's caches.
CHUNK_ROWS = 256


def chunked_linear_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    bias: Tensor | None = None,
    *,
    reduction: str = "mean",
    chunk_rows: int = CHUNK_ROWS,
) -> Tensor:
    """Cross-entropy of `hidden @ weight.T + bias` with `labels`, a few rows at a time.

    Deterministic; differentiable once. Where all labels are ignored the loss is 0, and so are its gradients.

    Args:
        hidden: (..., size) states.
        weight: (vocabulary, size) of the output layer.
        labels: (...) int64, each state's right word; -100 is left out.
        bias: (vocabulary,), or None.
        reduction: "sum" over the rows with a label, their "mean", or "sequence_mean": the mean over sequences (the last
            dimension of `labels`) of each one's mean, sequences without a label left out.
        chunk_rows: rows whose logits are held at a time.

    Returns:
        (), in float32 at least.

    Raises:
        ValueError: an unknown reduction, or labels of another shape than the states.

    Example:
        >>> import torch
        >>> from hf_metalstm.modeling.chunked_loss import chunked_linear_cross_entropy
        >>> hidden, weight = torch.ones(2, 3, 4), torch.zeros(10, 4)
        >>> labels = torch.tensor([[1, 2, -100], [3, -100, -100]])
        >>> round(chunked_linear_cross_entropy(hidden, weight, labels).exp().item(), 4)
        10.0
    """
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction is {reduction!r}; allowed: {', '.join(map(repr, REDUCTIONS))}")
    if labels.shape != hidden.shape[:-1]:
        raise ValueError(f"labels have shape {tuple(labels.shape)}, but there are {tuple(hidden.shape[:-1])} states")
    scored = labels != IGNORED_LABEL
    divisor: Tensor | None
    # Relative weights of the rows and what they are divided by: apart, so that nothing underflows in half precision.
    if reduction == "sequence_mean":
        counts = scored.sum(-1, keepdim=True)
        row_weights = (scored.double() / counts.clamp(min=1)).flatten()
        divisor = (counts > 0).sum()
    else:
        row_weights = scored.float().flatten()
        divisor = scored.sum() if reduction == "mean" else None
    flat_hidden, flat_labels = hidden.flatten(0, -2), labels.flatten()
    if values_are_known():
        # What is traced keeps all rows, as their number must not depend on values; the others have weight 0.
        rows = scored.flatten().nonzero().squeeze(1)
        if len(rows) < len(flat_labels):
            flat_hidden, flat_labels, row_weights = flat_hidden[rows], flat_labels[rows], row_weights[rows]
    else:
        flat_labels = flat_labels.clamp(min=0)
    total = _ChunkedCrossEntropy.apply(
        flat_hidden, weight, bias, flat_labels, row_weights, chunk_rows, torch.is_grad_enabled()
    )
    return total if divisor is None else total / divisor.clamp(min=1)


class _ChunkedCrossEntropy(torch.autograd.Function):
    """sum_r w_r (logsumexp(W h_r + b) - (W h_r + b)[y_r]), its gradients made on the way forward."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        row_weights: Tensor,
        chunk_rows: int,
        needs_gradients: bool,
    ) -> Tensor:
        device = hidden.device.type
        low = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
        # Losses and sums over chunks are kept in this one.
        high = torch.promote_types(low, torch.float32)
        wants = [needs_gradients and need for need in ctx.needs_input_grad[:3]]
        total = torch.zeros((), dtype=high, device=hidden.device)
        grad_hidden = torch.empty_like(hidden, dtype=high) if wants[0] else None
        grad_weight = torch.zeros_like(weight, dtype=high) if wants[1] else None
        grad_bias = torch.zeros_like(bias, dtype=high) if wants[2] and bias is not None else None
        with torch.autocast(device, enabled=False):
            output_layer, output_bias = weight.to(low), None if bias is None else bias.to(high)
            for start in range(0, len(labels), chunk_rows):
                part = slice(start, start + chunk_rows)
                states, targets, row_weight = hidden[part].to(low), labels[part, None], row_weights[part, None].to(high)
                logits = (states @ output_layer.T).to(high)
                if output_bias is not None:
                    logits += output_bias
                log_probabilities = logits.log_softmax(-1)
                del logits
                total -= (log_probabilities.gather(1, targets) * row_weight).sum()
                if not any(wants):
                    continue
                # d loss / d logits = w (softmax - onehot)
                slope = log_probabilities.exp_()
                slope.scatter_add_(1, targets, torch.full_like(row_weight, -1))
                slope *= row_weight
                if grad_bias is not None:
                    grad_bias += slope.sum(0)
                slope = slope.to(low)
                if grad_hidden is not None:
                    grad_hidden[part] = slope @ output_layer
                if grad_weight is not None and low == high:
                    grad_weight.addmm_(slope.T, states)
                elif grad_weight is not None:
                    grad_weight += slope.T @ states
        ctx.save_for_backward(grad_hidden, grad_weight, grad_bias)
        ctx.dtypes = hidden.dtype, weight.dtype, None if bias is None else bias.dtype
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_total: Tensor) -> tuple[Tensor | None, ...]:
        gradients = [
            None if gradient is None else (gradient * grad_total).to(dtype)
            for gradient, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        ]
        return (*gradients, None, None, None, None)
