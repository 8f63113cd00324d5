# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""HyperLSTM in pure PyTorch, as one autograd Function over the whole sequence.

Built as the ops of `recurrent_torch`, whose docstring says what makes them fast. "Parts" are the twelve pairs of what a
z vector acts on (hidden product, input product, bias) and gate; all gates of one kind lie side by side.
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
from .recurrent_types import HyperLSTMState, HyperLSTMWeights

_PARTS = 12


class _HyperLSTMLoop(Function):
    """The loop of a HyperLSTM.

    Args of forward:
        projected: (tokens, 4m + 4h), the hyper LSTM's matrix (bias included) and W_x applied to x_t.
        state_weight: (m + h, 4m + 4h), what [h^ ; h] adds to the hyper gates, and W_h.
        z_weight, z_bias: (m, 12z) and (12z,), from h^ to the z vectors.
        scales: (12, z, h), from the z vectors to what scales or shifts the gates.
        bias: (4, 1, h), b_0.
        h0, c0, hyper_h0, hyper_c0: initial states, rows sorted.
        sizes: rows of each step.
        keep: whether there will be a backward pass.

    Returns:
        hidden states (tokens, h), final cell, hyper hidden and hyper cell.
    """

    @staticmethod
    def forward(
        ctx: Any,
        projected: Tensor,
        state_weight: Tensor,
        z_weight: Tensor,
        z_bias: Tensor,
        scales: Tensor,
        bias: Tensor,
        h0: Tensor,
        c0: Tensor,
        hyper_h0: Tensor,
        hyper_c0: Tensor,
        sizes: list[int],
        keep: bool,
    ) -> Any:
        batch, h = h0.shape
        m = hyper_h0.shape[1]
        z_size = scales.shape[1]
        tokens = projected.shape[0]
        room = tokens if keep else batch
        hyper_gates, gates = h0.new_empty(room, 4 * m), h0.new_empty(4, room, h)
        products, zs = h0.new_empty(4, room, h), h0.new_empty(room, _PARTS * z_size)
        scale_values = h0.new_empty(8, room, h)
        states = state_buffer(torch.cat([hyper_h0, h0], dim=1), tokens, True)  # [h^ ; h]
        cells, hyper_cells = state_buffer(c0, tokens, keep), state_buffer(hyper_c0, tokens, keep)

        state, cell, hyper_cell = (step_views(buffer, sizes) for buffer in (states, cells, hyper_cells))
        hyper_hidden, hidden = steps_of(states[batch:, :m], sizes), steps_of(states[batch:, m:], sizes)
        from_input = steps_of(projected[:, : 4 * m], sizes), steps_of(gate_by_gate(projected[:, 4 * m :]), sizes, dim=1)
        hyper_sums, hyper_sigmoids = steps_of(hyper_gates, sizes), steps_of(hyper_gates[:, : 3 * m], sizes)
        ho, hi, hf, hg = (steps_of(gate, sizes) for gate in hyper_gates.split(m, dim=1))
        gate_sums, sigmoids = steps_of(gates, sizes, dim=1), steps_of(gates[:3], sizes, dim=1)
        o, i, f, g = (steps_of(gate, sizes) for gate in gates)
        product, z = steps_of(products, sizes, dim=1), steps_of(zs, sizes)
        kept_scales = steps_of(scale_values, sizes, dim=1)
        # Scratch: the products with [h^ ; h], the values of all scales, tanh of the cells.
        flat = h0.new_empty(batch, 4 * m + 4 * h)
        from_state = once_per_size(lambda rows: flat[:rows], sizes)
        values = once_per_size(scratch_of(h0, batch, h, _PARTS), sizes)
        tanh_cell, tanh_hyper_cell = steps_of(torch.empty_like(h0), sizes), steps_of(torch.empty_like(hyper_h0), sizes)
        for t, rows in enumerate(sizes):
            torch.mm(state.before[t], state_weight, out=from_state[t])
            product[t].copy_(gate_by_gate(from_state[t][:, 4 * m :]))
            torch.add(from_input[0][t], from_state[t][:, : 4 * m], out=hyper_sums[t])
            hyper_sigmoids[t].sigmoid_()
            hg[t].tanh_()
            torch.mul(hf[t], hyper_cell.before[t], out=hyper_cell.now[t])
            hyper_cell.now[t].addcmul_(hi[t], hg[t])
            torch.tanh(hyper_cell.now[t], out=tanh_hyper_cell[t])
            torch.mul(ho[t], tanh_hyper_cell[t], out=hyper_hidden[t])
            torch.addmm(z_bias, hyper_hidden[t], z_weight, out=z[t])
            torch.bmm(z[t].view(rows, _PARTS, z_size).transpose(0, 1), scales, out=values[t])
            by_hidden, by_input, shift = values[t].split(4)
            if keep:
                kept_scales[t].copy_(values[t][:8])
            torch.add(shift, bias, out=gate_sums[t])
            gate_sums[t].addcmul_(by_hidden, product[t]).addcmul_(by_input, from_input[1][t])
            sigmoids[t].sigmoid_()
            g[t].tanh_()
            torch.mul(f[t], cell.before[t], out=cell.now[t])
            cell.now[t].addcmul_(i[t], g[t])
            torch.tanh(cell.now[t], out=tanh_cell[t])
            torch.mul(o[t], tanh_cell[t], out=hidden[t])
        if keep:
            ctx.save_for_backward(
                projected,
                state_weight,
                z_weight,
                scales,
                hyper_gates,
                gates,
                products,
                zs,
                scale_values,
                states,
                cells,
                hyper_cells,
            )
            ctx.sizes, ctx.batch = sizes, batch
        return (
            states[batch:, m:].contiguous(),
            final_rows(cells, sizes),
            final_rows(states[:, :m], sizes),
            final_rows(hyper_cells, sizes),
        )

    @staticmethod
    def backward(
        ctx: Any, grad_hidden: Tensor, grad_cell: Tensor, grad_hyper_hidden: Tensor, grad_hyper_cell: Tensor
    ) -> Any:
        refuse_second_derivative()
        projected, state_weight, z_weight, scales, hyper_gates, gates, products, zs, values, *buffers = (
            ctx.saved_tensors
        )
        states, cells, hyper_cells = buffers
        sizes, batch = ctx.sizes, ctx.batch
        m, h, z_size = z_weight.shape[0], cells.shape[1], scales.shape[1]
        tokens = projected.shape[0]
        from_input = gate_by_gate(projected[:, 4 * m :])
        # Gradients of what [h^ ; h] and x_t give: hyper gates first, then the main gates' products.
        grad_sums, grad_gates = torch.empty_like(projected), torch.empty_like(gates)
        grad_zs = torch.empty_like(zs)
        grad_states = torch.zeros_like(states)
        grad_states[batch:, m:] = grad_hidden
        grad_state = step_views(grad_states, sizes)
        for first, end, step in last_step_rows(sizes):
            grad_state.now[step][first:end, :m] += grad_hyper_hidden[first:end]

        main_out = steps_of(grad_gates[0], sizes), steps_of(grad_gates[1:], sizes, dim=1)
        main = CellBackward(gates, cells, grad_cell, *main_out, sizes)
        hyper_out = split_output_gate(grad_sums[:, : 4 * m], sizes)
        hyper = CellBackward(gate_by_gate(hyper_gates), hyper_cells, grad_hyper_cell, *hyper_out, sizes)
        grad_h, grad_hyper_h = steps_of(grad_states[batch:, m:], sizes), steps_of(grad_states[batch:, :m], sizes)
        d_gate, d_z = steps_of(grad_gates, sizes, dim=1), steps_of(grad_zs, sizes)
        d_product = steps_of(gate_by_gate(grad_sums[:, 4 * m :]), sizes, dim=1)
        d_state = steps_of(grad_sums, sizes)
        product, input_product = steps_of(products, sizes, dim=1), steps_of(from_input, sizes, dim=1)
        by_hidden = steps_of(values[:4], sizes, dim=1)
        grad_values = once_per_size(scratch_of(projected, batch, h, _PARTS), sizes)
        scales_back, state_back = scales.transpose(1, 2).contiguous(), state_weight.t().contiguous()
        z_back = z_weight.t().contiguous()
        for t in range(len(sizes) - 1, -1, -1):
            main.step(t, grad_h[t])
            torch.mul(d_gate[t], product[t], out=grad_values[t][:4])
            torch.mul(d_gate[t], input_product[t], out=grad_values[t][4:8])
            grad_values[t][8:].copy_(d_gate[t])
            torch.mul(d_gate[t], by_hidden[t], out=d_product[t])
            by_part = torch.bmm(grad_values[t], scales_back)  # (12, rows, z)
            d_z[t].view(-1, _PARTS, z_size).copy_(by_part.transpose(0, 1))
            grad_hyper_h[t].addmm_(d_z[t], z_back)
            hyper.step(t, grad_hyper_h[t])
            grad_state.before[t].addmm_(d_state[t], state_back)

        needs = ctx.needs_input_grad
        grad_projected = torch.cat([grad_sums[:, : 4 * m], _side_by_side(grad_gates * values[4:])], dim=1)
        grad_state_weight = rows_before(states, sizes).t() @ grad_sums if needs[1] else None
        grad_z_weight = states[batch:, :m].t() @ grad_zs if needs[2] else None
        grad_scales = None
        if needs[4]:
            all_grad_values = torch.cat([grad_gates * products, grad_gates * from_input, grad_gates])
            grad_scales = zs.view(tokens, _PARTS, z_size).permute(1, 2, 0) @ all_grad_values
        return (
            grad_projected,
            grad_state_weight,
            grad_z_weight,
            grad_zs.sum(0) if needs[3] else None,
            grad_scales,
            grad_gates.sum(1, keepdim=True) if needs[5] else None,
            grad_states[:batch, m:],
            main.grad_cell,
            grad_states[:batch, :m],
            hyper.grad_cell,
            None,
            None,
        )


def _side_by_side(by_gates: Tensor) -> Tensor:
    """(4, tokens, n) -> (tokens, 4n)"""
    return by_gates.transpose(0, 1).flatten(1)


def hyper_lstm(
    inputs: Tensor, weights: HyperLSTMWeights, lengths: Tensor | None, initial_state: HyperLSTMState, reverse: bool
) -> tuple[Tensor, HyperLSTMState]:
    """See `recurrent.hyper_lstm`."""
    w = HyperLSTMWeights(*(reorder_gates(part) for part in weights))
    m, h = w.hyper_hyper.shape[1], w.hidden.shape[1]
    packing = Packing(inputs.shape[0], inputs.shape[1], lengths, reverse, inputs.device)
    projected = torch.nn.functional.linear(
        packing.pack(inputs), torch.cat([w.hyper_input, w.input]), torch.nn.functional.pad(w.hyper_bias, (0, 4 * h))
    )
    from_hyper = torch.nn.functional.pad(w.hyper_hyper.t(), (0, 4 * h))
    from_hidden = torch.cat([w.hyper_hidden, w.hidden]).t()
    h0, c0, hyper_h0, hyper_c0 = (packing.sort_rows(part) for part in initial_state)
    hidden, cell, hyper_hidden, hyper_cell = _HyperLSTMLoop.apply(
        projected,
        torch.cat([from_hyper, from_hidden]),
        torch.cat([w.z_hidden, w.z_input, w.z_bias]).reshape(-1, m).t(),
        torch.cat([w.z_hidden_bias, w.z_input_bias, torch.zeros_like(w.z_input_bias)]).flatten(),
        torch.cat([w.scale_hidden, w.scale_input, w.scale_bias]).transpose(1, 2).contiguous(),
        w.bias.view(4, 1, h),
        h0,
        c0,
        hyper_h0,
        hyper_c0,
        packing.batch_sizes,
        needs_backward(inputs, *weights, *initial_state),
    )
    cell, hyper_hidden, hyper_cell = (packing.unsort_rows(part) for part in (cell, hyper_hidden, hyper_cell))
    state = HyperLSTMState(hidden.index_select(0, packing.last), cell, hyper_hidden, hyper_cell)
    return packing.unpack(hidden), state
