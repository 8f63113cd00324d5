# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""Padding for recurrent models: on whatever side it is, the recurrence sees a row's real tokens and nothing else."""

import torch
from torch import Tensor

from .checks import values_are_known


class RealTokens:
    """Knows where a batch's real tokens are and moves them to the front of their rows, and back.

    Args:
        attention_mask: (batch, tokens), non-zero for real tokens; at least one in each row.

    Attributes:
        lengths: (batch,) number of real tokens; None when no token is padding.
    """

    def __init__(self, attention_mask: Tensor | None):
        self.lengths: Tensor | None = None
        self._front: Tensor | None = None
        if attention_mask is None:
            return
        mask = attention_mask != 0
        if values_are_known() and bool(mask.all()):
            return
        self.lengths = mask.sum(1)
        # Rows that are padded on the right need no moving, and that is nearly every batch.
        if not values_are_known() or bool((mask[:, 1:] & ~mask[:, :-1]).any()):
            self._front = mask.to(torch.int8).argsort(dim=1, descending=True, stable=True)

    def to_front(self, values: Tensor) -> Tensor:
        """(batch, tokens, ...): each row's real tokens first, in order."""
        if self._front is None:
            return values
        return values.gather(1, self._index(values))

    def to_places(self, values: Tensor) -> Tensor:
        """(batch, tokens, n): undoes `to_front`, padding included; an op's outputs hold zeros there."""
        if self._front is None:
            return values
        return torch.empty_like(values).scatter(1, self._index(values), values)

    def _index(self, values: Tensor) -> Tensor:
        assert self._front is not None
        return self._front.view(*self._front.shape, *[1] * (values.ndim - 2)).expand_as(values)
