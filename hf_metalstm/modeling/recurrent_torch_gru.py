# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""GRU in pure PyTorch, with or without an attention gate, as one autograd Function over the whole sequence.

Built as the ops of `recurrent_torch`, whose docstring says what makes them fast.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from .recurrent_packing import (
    Packing,
    needs_backward,
    once_per_size,
    refuse_second_derivative,
    rows_before,
    state_buffer,
    step_views,
    steps_of,
)
from .recurrent_types import GRUWeights


class _GRULoop(Function):
    """(tokens, 3h) input products and (tokens, 1) attention gates, or None, -> (tokens, h) states."""

    @staticmethod
    def forward(
        ctx: Any,
        projected: Tensor,
        attention: Tensor | None,
        hidden_weight: Tensor,
        hidden_bias: Tensor,
        h0: Tensor,
        sizes: list[int],
        keep: bool,
    ) -> Tensor:
        batch, h = h0.shape
        tokens = projected.shape[0]
        room = tokens if keep else batch
        gates, products = projected.new_empty(room, 3 * h), projected.new_empty(room, h)
        hiddens = state_buffer(h0, tokens, True)
        hidden, input_rows = step_views(hiddens, sizes), steps_of(projected, sizes)
        r_and_z, n, z, r = (steps_of(part, sizes) for part in (gates[:, : 2 * h], *reversed(gates.split(h, dim=1))))
        product = steps_of(products, sizes)
        open_gate = None if attention is None else steps_of(attention, sizes)
        scratch = projected.new_empty(batch, 3 * h)
        sums = once_per_size(lambda rows: scratch[:rows], sizes)
        for t in range(len(sizes)):
            before = hidden.before[t]
            torch.addmm(hidden_bias, before, hidden_weight, out=sums[t])
            torch.add(input_rows[t][:, : 2 * h], sums[t][:, : 2 * h], out=r_and_z[t]).sigmoid_()
            product[t].copy_(sums[t][:, 2 * h :])
            torch.addcmul(input_rows[t][:, 2 * h :], r[t], product[t], out=n[t]).tanh_()
            if open_gate is None:
                torch.lerp(n[t], before, z[t], out=hidden.now[t])
            else:
                torch.addcmul(before, open_gate[t] * (1 - z[t]), n[t] - before, out=hidden.now[t])
        if keep:
            ctx.save_for_backward(attention, hidden_weight, gates, products, hiddens)
            ctx.sizes, ctx.batch = sizes, batch
        return hiddens[batch:]

    @staticmethod
    def backward(ctx: Any, grad_hidden: Tensor) -> Any:
        refuse_second_derivative()
        attention, hidden_weight, gates, products, hiddens = ctx.saved_tensors
        sizes, batch, h = ctx.sizes, ctx.batch, products.shape[1]
        r, z, n = gates.split(h, dim=1)
        before = rows_before(hiddens, sizes)
        grad_hiddens = torch.zeros_like(hiddens)
        grad_hiddens[batch:] = grad_hidden
        grad_state = step_views(grad_hiddens, sizes)
        # Local derivatives of all steps at once: by the new state, and from the candidate to the reset gate.
        opened = 1 - z if attention is None else attention * (1 - z)
        by_n = opened * (1 - n * n)
        by_z = (before - n) * z * (1 - z)
        if attention is not None:
            by_z = by_z * attention
        by_r = products * r * (1 - r)
        grad_projected, grad_products = torch.empty_like(gates), torch.empty_like(gates)
        n_views, z_views, r_views, reset, kept = (steps_of(part, sizes) for part in (by_n, by_z, by_r, r, 1 - opened))
        d_r, d_z, d_n = (steps_of(part, sizes) for part in grad_projected.split(h, dim=1))
        two_gates, d_product = steps_of(grad_products[:, : 2 * h], sizes), steps_of(grad_products[:, 2 * h :], sizes)
        d_sums, first_two = steps_of(grad_products, sizes), steps_of(grad_projected[:, : 2 * h], sizes)
        back = hidden_weight.t().contiguous()
        for t in range(len(sizes) - 1, -1, -1):
            dh = grad_state.now[t]
            torch.mul(dh, n_views[t], out=d_n[t])
            torch.mul(dh, z_views[t], out=d_z[t])
            torch.mul(d_n[t], r_views[t], out=d_r[t])
            torch.mul(d_n[t], reset[t], out=d_product[t])
            two_gates[t].copy_(first_two[t])
            grad_state.before[t].addcmul_(dh, kept[t]).addmm_(d_sums[t], back)
        grad_attention = grad_weight = grad_bias = None
        if attention is not None and ctx.needs_input_grad[1]:
            grad_attention = (grad_hiddens[batch:] * (1 - z) * (n - before)).sum(1, keepdim=True)
        if ctx.needs_input_grad[2]:
            grad_weight = before.t() @ grad_products
        if ctx.needs_input_grad[3]:
            grad_bias = grad_products.sum(0)
        return grad_projected, grad_attention, grad_weight, grad_bias, grad_hiddens[:batch], None, None


def gru(
    inputs: Tensor, weights: GRUWeights, lengths: Tensor | None, initial_state: Tensor, reverse: bool
) -> tuple[Tensor, Tensor]:
    """See `recurrent.gru`."""
    packing = Packing(inputs.shape[0], inputs.shape[1], lengths, reverse, inputs.device)
    projected = torch.nn.functional.linear(packing.pack(inputs), weights.input, weights.input_bias)
    hidden = _GRULoop.apply(
        projected,
        None,
        weights.hidden.t(),
        weights.hidden_bias,
        packing.sort_rows(initial_state),
        packing.batch_sizes,
        needs_backward(inputs, *weights, initial_state),
    )
    return packing.unpack(hidden), hidden.index_select(0, packing.last)


def attention_gru(
    projected: Tensor, gates: Tensor, weights: GRUWeights, lengths: Tensor | None, initial_state: Tensor
) -> Tensor:
    """See `recurrent.attention_gru`; `projected` is W_x x + b_x of each step, (batch, steps, 3h)."""
    packing = Packing(projected.shape[0], projected.shape[1], lengths, False, projected.device)
    hidden = _GRULoop.apply(
        packing.pack(projected),
        packing.pack(gates[:, :, None]),
        weights.hidden.t(),
        weights.hidden_bias,
        packing.sort_rows(initial_state),
        packing.batch_sizes,
        needs_backward(projected, gates, weights.hidden, weights.hidden_bias, initial_state),
    )
    return hidden.index_select(0, packing.last)
