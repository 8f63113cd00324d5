# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""LSTM and Meta-LSTM in pure PyTorch, each as one autograd Function over the whole sequence.

What makes them fast without compiled code:

* Rows are sorted by length and laid out step after step, so that step t touches exactly the rows that still have a
  token (a shrinking batch). Padding costs nothing and needs no masks; the other direction is the same code on another
  index.
* All products with x_t are one GEMM before the loop, all weight gradients one GEMM after it. The loop holds the
  recurrent products and the element-wise work alone, written into buffers that exist before the loop starts. Those
  hold every step if there will be a backward pass, and one step otherwise.
* The generated matrix W(z_t) is never formed: P_* diag(z) Q_* v = P_* (z * (Q_* v)). Products that see the same vector
  are one matrix: [h^ ; h] feeds the meta gates and Q together, z scales Q's output and, through B, is the bias.
* The backward loop multiplies by local derivatives that were computed for all steps at once; it never evaluates a
  non-linearity. What is cheap to have again for all steps at once, such as tanh c, is not kept.

`recurrent_packing` holds the pieces that these ops share with the others.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from .recurrent_packing import (
    CellBackward,
    Packing,
    final_rows,
    gate_by_gate,
    last_step_rows,
    needs_backward,
    once_per_size,
    refuse_second_derivative,
    reorder_gates,
    rows_before,
    scratch_of,
    split_output_gate,
    state_buffer,
    step_views,
    steps_of,
)
from .recurrent_types import LSTMState, LSTMWeights, MetaLSTMState, MetaLSTMWeights


class _LSTMLoop(Function):
    """(tokens, 4h) input products -> (tokens, h) hidden states and the final (batch, h) cell."""

    @staticmethod
    def forward(
        ctx: Any, projected: Tensor, hidden_weight: Tensor, h0: Tensor, c0: Tensor, sizes: list[int], keep: bool
    ) -> Any:
        batch, h = h0.shape
        tokens = projected.shape[0]
        # Written over: `linear`, which made it, does not keep its output.
        gates = projected if keep else projected.new_empty(batch, 4 * h)
        hiddens, cells = state_buffer(h0, tokens, True), state_buffer(c0, tokens, keep)
        hidden, cell = step_views(hiddens, sizes), step_views(cells, sizes)
        sums, sigmoids = steps_of(gates, sizes), steps_of(gates[:, : 3 * h], sizes)
        from_input = sums if keep else steps_of(projected, sizes)
        o, i, f, g = (steps_of(gate, sizes) for gate in gates.split(h, dim=1))
        tanh_cell = steps_of(h0.new_empty(batch, h), sizes)
        for t in range(len(sizes)):
            torch.addmm(from_input[t], hidden.before[t], hidden_weight, out=sums[t])
            sigmoids[t].sigmoid_()
            g[t].tanh_()
            torch.mul(f[t], cell.before[t], out=cell.now[t])
            cell.now[t].addcmul_(i[t], g[t])
            torch.tanh(cell.now[t], out=tanh_cell[t])
            torch.mul(o[t], tanh_cell[t], out=hidden.now[t])
        if keep:
            ctx.save_for_backward(hidden_weight, gates, hiddens, cells)
            ctx.sizes, ctx.batch = sizes, batch
        return hiddens[batch:], final_rows(cells, sizes)

    @staticmethod
    def backward(ctx: Any, grad_hidden: Tensor, grad_cell: Tensor) -> Any:
        refuse_second_derivative()
        hidden_weight, gates, hiddens, cells = ctx.saved_tensors
        sizes, batch = ctx.sizes, ctx.batch
        grad_gates = torch.empty_like(gates)
        grad_hiddens = torch.zeros_like(hiddens)
        grad_hiddens[batch:] = grad_hidden
        cell_backward = CellBackward(
            gate_by_gate(gates), cells, grad_cell, *split_output_gate(grad_gates, sizes), sizes
        )
        grad_state = step_views(grad_hiddens, sizes)
        grad_gate = steps_of(grad_gates, sizes)
        transposed = hidden_weight.t().contiguous()
        for t in range(len(sizes) - 1, -1, -1):
            cell_backward.step(t, grad_state.now[t])
            grad_state.before[t].addmm_(grad_gate[t], transposed)
        grad_weight = rows_before(hiddens, sizes).t() @ grad_gates if ctx.needs_input_grad[1] else None
        return grad_gates, grad_weight, grad_hiddens[:batch], cell_backward.grad_cell, None, None


class _MetaLSTMLoop(Function):
    """The loop of a Meta-LSTM.

    Args of forward:
        projected: (tokens, 4m + 4z), W_m and Q applied to x_t, bias included.
        state_weight: (m + h, 4m + 4z), what [h^ ; h] adds to it.
        z_weight: (m, z), W_z transposed.
        p_and_b: (4, 2z, h), P and B of each gate, transposed: gates = [z * Q [x ; h] ; z] p_and_b.
        h0, c0, meta_h0, meta_c0: initial states, rows sorted.
        sizes: rows of each step.
        keep: whether there will be a backward pass.

    Returns:
        hidden states (tokens, h), meta vectors (tokens, z), final cell, meta hidden and meta cell.
    """

    @staticmethod
    def forward(
        ctx: Any,
        projected: Tensor,
        state_weight: Tensor,
        z_weight: Tensor,
        p_and_b: Tensor,
        h0: Tensor,
        c0: Tensor,
        meta_h0: Tensor,
        meta_c0: Tensor,
        sizes: list[int],
        keep: bool,
    ) -> Any:
        batch, h = h0.shape
        m, z_size = z_weight.shape
        tokens = projected.shape[0]
        # Meta gates, then Q [x ; h]; written over: `linear`, which made it, does not keep its output.
        sums = projected if keep else projected.new_empty(batch, projected.shape[1])
        gates = h0.new_empty(4, tokens if keep else batch, h)
        states = state_buffer(torch.cat([meta_h0, h0], dim=1), tokens, True)  # [h^ ; h]
        cells, meta_cells = state_buffer(c0, tokens, keep), state_buffer(meta_c0, tokens, keep)
        zs = h0.new_empty(tokens, z_size)

        state, cell, meta_cell = (step_views(buffer, sizes) for buffer in (states, cells, meta_cells))
        meta_hidden, hidden = steps_of(states[batch:, :m], sizes), steps_of(states[batch:, m:], sizes)
        sum_views = steps_of(sums, sizes)
        from_input = sum_views if keep else steps_of(projected, sizes)
        meta_sigmoids = steps_of(sums[:, : 3 * m], sizes)
        mo, mi, mf, mg = (steps_of(gate, sizes) for gate in sums[:, : 4 * m].split(m, dim=1))
        q, z = steps_of(gate_by_gate(sums[:, 4 * m :]), sizes, dim=1), steps_of(zs, sizes)
        sigmoids = steps_of(gates[:3], sizes, dim=1)
        o, i, f, g = (steps_of(gate, sizes) for gate in gates)
        # Scratch: [z * Q [x ; h] ; z] of each gate, the gates' sums, tanh of the cells.
        scaled_of, sums_of = scratch_of(h0, batch, 2 * z_size), scratch_of(h0, batch, h)
        scaled, gate_sums = once_per_size(scaled_of, sizes), once_per_size(sums_of, sizes)
        by_q = once_per_size(lambda rows: scaled_of(rows)[..., :z_size], sizes)
        by_one = once_per_size(lambda rows: scaled_of(rows)[..., z_size:], sizes)
        sigmoid_sums = once_per_size(lambda rows: sums_of(rows)[:3], sizes)
        tanh_sums = once_per_size(lambda rows: sums_of(rows)[3], sizes)
        tanh_cell, tanh_meta_cell = steps_of(torch.empty_like(h0), sizes), steps_of(torch.empty_like(meta_h0), sizes)
        for t in range(len(sizes)):
            torch.addmm(from_input[t], state.before[t], state_weight, out=sum_views[t])
            meta_sigmoids[t].sigmoid_()
            mg[t].tanh_()
            torch.mul(mf[t], meta_cell.before[t], out=meta_cell.now[t])
            meta_cell.now[t].addcmul_(mi[t], mg[t])
            torch.tanh(meta_cell.now[t], out=tanh_meta_cell[t])
            torch.mul(mo[t], tanh_meta_cell[t], out=meta_hidden[t])
            torch.mm(meta_hidden[t], z_weight, out=z[t])
            torch.mul(q[t], z[t], out=by_q[t])
            by_one[t].copy_(z[t])
            torch.bmm(scaled[t], p_and_b, out=gate_sums[t])
            torch.sigmoid(sigmoid_sums[t], out=sigmoids[t])
            torch.tanh(tanh_sums[t], out=g[t])
            torch.mul(f[t], cell.before[t], out=cell.now[t])
            cell.now[t].addcmul_(i[t], g[t])
            torch.tanh(cell.now[t], out=tanh_cell[t])
            torch.mul(o[t], tanh_cell[t], out=hidden[t])
        if keep:
            ctx.save_for_backward(state_weight, z_weight, p_and_b, sums, gates, states, cells, meta_cells, zs)
            ctx.sizes, ctx.batch = sizes, batch
        return (
            states[batch:, m:].contiguous(),
            zs,
            final_rows(cells, sizes),
            final_rows(states[:, :m], sizes),
            final_rows(meta_cells, sizes),
        )

    @staticmethod
    def backward(
        ctx: Any,
        grad_hidden: Tensor,
        grad_zs: Tensor,
        grad_cell: Tensor,
        grad_meta_hidden: Tensor,
        grad_meta_cell: Tensor,
    ) -> Any:
        refuse_second_derivative()
        state_weight, z_weight, p_and_b, sums, gates, states, cells, meta_cells, zs = ctx.saved_tensors
        sizes, batch = ctx.sizes, ctx.batch
        m, z_size = z_weight.shape
        grad_sums, grad_gates = torch.empty_like(sums), torch.empty_like(gates)
        grad_states = torch.zeros_like(states)
        grad_states[batch:, m:] = grad_hidden
        torch.mm(grad_zs, z_weight.t(), out=grad_states[batch:, :m])
        grad_state = step_views(grad_states, sizes)
        for first, end, step in last_step_rows(sizes):
            grad_state.now[step][first:end, :m] += grad_meta_hidden[first:end]

        basic_out = steps_of(grad_gates[0], sizes), steps_of(grad_gates[1:], sizes, dim=1)
        basic = CellBackward(gates, cells, grad_cell, *basic_out, sizes)
        meta_out = split_output_gate(grad_sums[:, : 4 * m], sizes)
        meta = CellBackward(gate_by_gate(sums[:, : 4 * m]), meta_cells, grad_meta_cell, *meta_out, sizes)
        grad_h, grad_meta_h = steps_of(grad_states[batch:, m:], sizes), steps_of(grad_states[batch:, :m], sizes)
        all_q = gate_by_gate(sums[:, 4 * m :])
        q, grad_q = steps_of(all_q, sizes, dim=1), steps_of(gate_by_gate(grad_sums[:, 4 * m :]), sizes, dim=1)
        z = steps_of(zs, sizes)
        # dz is the sum of two halves, one through Q and one through B, over four gates: the gates are added here, the
        # halves by the product with W_z, which stands twice.
        grad_halves = zs.new_empty(zs.shape[0], 2 * z_size)
        grad_half_views = steps_of(grad_halves, sizes)
        z_back_twice = torch.cat([z_weight.t(), z_weight.t()])
        grad_gate_views, grad_sum_views = steps_of(grad_gates, sizes, dim=1), steps_of(grad_sums, sizes)
        p_and_b_back, state_back = p_and_b.transpose(1, 2).contiguous(), state_weight.t().contiguous()
        grad_scaled_of = scratch_of(zs, batch, 2 * z_size)
        grad_scaled = once_per_size(grad_scaled_of, sizes)
        grad_by_q = once_per_size(lambda rows: grad_scaled_of(rows)[..., :z_size], sizes)
        for t in range(len(sizes) - 1, -1, -1):
            basic.step(t, grad_h[t])
            torch.bmm(grad_gate_views[t], p_and_b_back, out=grad_scaled[t])
            torch.mul(grad_by_q[t], z[t], out=grad_q[t])
            grad_by_q[t].mul_(q[t])
            torch.sum(grad_scaled[t], 0, out=grad_half_views[t])
            grad_meta_h[t].addmm_(grad_half_views[t], z_back_twice)
            meta.step(t, grad_meta_h[t])
            grad_state.before[t].addmm_(grad_sum_views[t], state_back)

        needs = ctx.needs_input_grad
        grad_state_weight = rows_before(states, sizes).t() @ grad_sums if needs[1] else None
        grad_z_weight = grad_p_and_b = None
        if needs[2]:
            grad_z = grad_halves[:, :z_size] + grad_halves[:, z_size:] + grad_zs
            grad_z_weight = states[batch:, :m].t() @ grad_z
        if needs[3]:
            scaled = torch.cat([all_q * zs, zs.expand(4, -1, -1)], dim=2)
            grad_p_and_b = scaled.transpose(1, 2) @ grad_gates
        return (
            grad_sums,
            grad_state_weight,
            grad_z_weight,
            grad_p_and_b,
            grad_states[:batch, m:],
            basic.grad_cell,
            grad_states[:batch, :m],
            meta.grad_cell,
            None,
            None,
        )


def lstm(
    inputs: Tensor, weights: LSTMWeights, lengths: Tensor | None, initial_state: LSTMState, reverse: bool
) -> tuple[Tensor, LSTMState]:
    """See `recurrent.lstm`."""
    packing = Packing(inputs.shape[0], inputs.shape[1], lengths, reverse, inputs.device)
    projected = torch.nn.functional.linear(
        packing.pack(inputs), reorder_gates(weights.input), reorder_gates(weights.bias)
    )
    h0, c0 = (packing.sort_rows(part) for part in initial_state)
    keep = needs_backward(inputs, *weights, *initial_state)
    hidden, cell = _LSTMLoop.apply(projected, reorder_gates(weights.hidden).t(), h0, c0, packing.batch_sizes, keep)
    state = LSTMState(hidden.index_select(0, packing.last), packing.unsort_rows(cell))
    return packing.unpack(hidden), state


def meta_lstm(
    inputs: Tensor, weights: MetaLSTMWeights, lengths: Tensor | None, initial_state: MetaLSTMState, reverse: bool
) -> tuple[Tensor, Tensor, MetaLSTMState]:
    """See `recurrent.meta_lstm`."""
    z_size, m = weights.z.shape
    packing = Packing(inputs.shape[0], inputs.shape[1], lengths, reverse, inputs.device)
    # Q and z scale gate by gate without mixing gates: their order must only agree with that of P and B.
    q_input, q_hidden, p, b = (reorder_gates(w) for w in (weights.q_input, weights.q_hidden, weights.p, weights.b))
    projected = torch.nn.functional.linear(
        packing.pack(inputs),
        torch.cat([reorder_gates(weights.meta_input), q_input.flatten(0, 1)]),
        torch.nn.functional.pad(reorder_gates(weights.meta_bias), (0, 4 * z_size)),
    )
    from_meta = torch.nn.functional.pad(reorder_gates(weights.meta_meta).t(), (0, 4 * z_size))
    from_hidden = torch.cat([reorder_gates(weights.meta_hidden), q_hidden.flatten(0, 1)]).t()
    h0, c0, meta_h0, meta_c0 = (packing.sort_rows(part) for part in initial_state)
    hidden, z, cell, meta_hidden, meta_cell = _MetaLSTMLoop.apply(
        projected,
        torch.cat([from_meta, from_hidden]),
        weights.z.t(),
        torch.cat([p, b], dim=2).transpose(1, 2).contiguous(),
        h0,
        c0,
        meta_h0,
        meta_c0,
        packing.batch_sizes,
        needs_backward(inputs, *weights, *initial_state),
    )
    cell, meta_hidden, meta_cell = (packing.unsort_rows(part) for part in (cell, meta_hidden, meta_cell))
    state = MetaLSTMState(hidden.index_select(0, packing.last), cell, meta_hidden, meta_cell)
    return packing.unpack(hidden), packing.unpack(z), state
