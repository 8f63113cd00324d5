# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""From the states of all tokens to one vector a text; padding never takes part."""

import torch
from torch import Tensor


def pool(states: Tensor, last: Tensor, attention_mask: Tensor | None, pooling: str) -> Tensor:
    """Summarises each row of states.

    Args:
        states: (batch, tokens, size).
        last: (batch, size) last state; with two directions the last state of each.
        attention_mask: (batch, tokens), non-zero for real tokens, wherever they stand; None means all are real.
        pooling: "last", "mean", "max", or "concat" for [last ; max ; mean] (Howard and Ruder 2018).

    Returns:
        (batch, size), or (batch, 3 * size) for "concat".

    Example:
        >>> import torch
        >>> from hf_metalstm.modeling.pooling import pool
        >>> states = torch.tensor([[[1.0], [3.0], [9.0]]])  # the third token is padding
        >>> pool(states, torch.tensor([[3.0]]), torch.tensor([[1, 1, 0]]), "concat")
        tensor([[3., 3., 2.]])
    """
    if pooling == "last":
        return last
    if attention_mask is None:
        mean, highest = states.mean(1), states.amax(1)
    else:
        real = (attention_mask != 0).unsqueeze(-1)
        mean = states.masked_fill(~real, 0).sum(1) / real.sum(1).to(states.dtype)
        highest = states.masked_fill(~real, torch.finfo(states.dtype).min).amax(1)
    if pooling == "mean":
        return mean
    if pooling == "max":
        return highest
    return torch.cat([last, highest, mean], dim=1)


def pooled_size(size: int, pooling: str) -> int:
    """Width of `pool`'s result for states of this size."""
    return 3 * size if pooling == "concat" else size
