# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""Recurrent ops in pure PyTorch, each as one autograd Function over the whole sequence.

What makes them fast without compiled code:

* Rows are sorted by length and laid out step after step, so that step t touches exactly the rows that still have a
  token (a shrinking batch). Padding costs nothing and needs no masks; the other direction is the same code on another
  index.
* All products with x_t are one GEMM before the loop, all weight gradients one GEMM after it. The loop holds the
  recurrent products and the element-wise work alone, written into buffers that exist before the loop starts.
* The generated matrix W(z_t) is never formed: P_* diag(z) Q_* v = P_* (z * (Q_* v)). Products that see the same vector
  are one matrix: [h^ ; h] feeds the meta gates and Q together, z scales Q's output and, through B, is the bias.
* The backward loop multiplies by local derivatives that were computed for all steps at once; it never evaluates a
  non-linearity.

Inside, gates are ordered output, input, forget, candidate: the three sigmoids lie side by side in the forward pass, the
three gates that receive their gradient through the cell in the backward pass.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from .recurrent_types import LSTMState, LSTMWeights, MetaLSTMState, MetaLSTMWeights


class Packing:
    """Step-after-step layout of a padded batch: where each (row, step) goes and how many rows each step has.

    Attributes:
        batch_sizes: rows that are still alive, one number a step, never growing.
        order: (batch,) original row at each sorted place; None when rows keep their place.
        source: (tokens,) place of each packed token in the flattened `(batch * steps)` input.
        last: (batch,) packed place of each original row's last real step.
    """

    def __init__(self, batch: int, steps: int, lengths: Tensor | None, reverse: bool, device: torch.device):
        self.batch, self.steps = batch, steps
        self.order: Tensor | None = None
        step = torch.arange(steps, device=device)[:, None]
        row = torch.arange(batch, device=device)
        if lengths is None:
            position = step.flip(0) if reverse else step
            self.source = (row * steps + position).flatten()
            self.batch_sizes = [batch] * steps
            self.last = (steps - 1) * batch + row
            return
        lengths = lengths.to(device, torch.int64)
        sorted_lengths, order = lengths.sort(descending=True, stable=True)
        alive = step < sorted_lengths  # (steps, batch)
        position = sorted_lengths - 1 - step if reverse else step
        self.order = order
        self.source = (order * steps + position)[alive]
        # The one read-back to the host, before any loop.
        self.batch_sizes = [size for size in alive.sum(1).tolist() if size]
        starts = alive.sum(1).cumsum(0) - alive.sum(1)
        self.last = torch.empty_like(order).scatter_(0, order, starts[sorted_lengths - 1] + row)

    def pack(self, padded: Tensor) -> Tensor:
        """(batch, steps, n) -> (tokens, n)"""
        return padded.flatten(0, 1).index_select(0, self.source)

    def unpack(self, packed: Tensor) -> Tensor:
        """(tokens, n) -> (batch, steps, n), zeros where there is no token."""
        flat = packed.new_zeros(self.batch * self.steps, packed.shape[1])
        return flat.index_copy(0, self.source, packed).view(self.batch, self.steps, -1)

    def sort_rows(self, rows: Tensor) -> Tensor:
        return rows if self.order is None else rows.index_select(0, self.order)

    def unsort_rows(self, rows: Tensor) -> Tensor:
        return rows if self.order is None else torch.empty_like(rows).index_copy(0, self.order, rows)


class _StepViews(NamedTuple):
    """Views of a state buffer `(batch + tokens, n)`, whose first rows are the initial state."""

    now: Sequence[Tensor]  # rows of step t
    before: Sequence[Tensor]  # the same rows one step earlier


def _step_views(buffer: Tensor, batch_sizes: list[int]) -> _StepViews:
    first = buffer.shape[0] - sum(batch_sizes)
    blocks = buffer.split([first, *batch_sizes])
    before = [
        block if block.shape[0] == size else block[:size] for block, size in zip(blocks[:-1], batch_sizes, strict=True)
    ]
    return _StepViews(blocks[1:], before)


def _rows_before(buffer: Tensor, batch_sizes: list[int]) -> Tensor:
    """All rows "one step earlier" as one matrix, aligned with the packed tokens."""
    tokens = sum(batch_sizes)
    first = buffer.shape[0] - tokens
    if batch_sizes[-1] == first:
        return buffer[:tokens]
    return torch.cat(list(_step_views(buffer, batch_sizes).before))


def _last_step_rows(batch_sizes: list[int]) -> list[tuple[int, int, int]]:
    """(first row, end row, step) of the rows whose last step is `step`; final states are copied by these blocks."""
    blocks = []
    following = [*batch_sizes[1:], 0]
    for step, (size, rest) in enumerate(zip(batch_sizes, following, strict=True)):
        if size > rest:
            blocks.append((rest, size, step))
    return blocks


def _final_rows(views: _StepViews, batch_sizes: list[int]) -> Tensor:
    """(batch, n): each sorted row's state after its last step."""
    return torch.cat([views.now[step][first:end] for first, end, step in reversed(_last_step_rows(batch_sizes))])


class _StepBlocks:
    """A buffer whose step t is one contiguous `(4, rows, n)` block: what a batched GEMM over the four gates wants."""

    def __init__(self, buffer: Tensor, n: int, sizes: list[int]):
        self.buffer = buffer  # (4 * tokens * n,)
        self.whole: Tensor | None = None
        if sizes[0] == sizes[-1]:
            self.whole = buffer.view(len(sizes), 4, sizes[0], n)
            self.now: Sequence[Tensor] = self.whole.unbind(0)
        else:
            blocks = buffer.split([4 * size * n for size in sizes])
            self.now = [block.view(4, size, n) for block, size in zip(blocks, sizes, strict=True)]

    def gates(self, index: int | slice) -> Sequence[Tensor]:
        """One gate `(rows, n)` or several `(k, rows, n)` of each step."""
        # One call for all steps where the batch never shrinks: short sequences are dominated by making views.
        return [block[index] for block in self.now] if self.whole is None else self.whole[:, index].unbind(0)

    def columns(self, index: slice) -> Sequence[Tensor]:
        """Some columns `(4, rows, k)` of each step."""
        return [block[..., index] for block in self.now] if self.whole is None else self.whole[..., index].unbind(0)

    def by_gate(self) -> Tensor:
        """A copy as `(4, tokens, n)`."""
        if self.whole is None:
            return torch.cat(list(self.now), dim=1)
        return self.whole.transpose(0, 1).reshape(4, -1, self.whole.shape[3])


def _by_gate(rows: Tensor) -> Tensor:
    """(tokens, 4n) -> a view (4, tokens, n)"""
    return rows.unflatten(1, (4, -1)).transpose(0, 1)


def _split_output_gate(rows: Tensor, sizes: list[int]) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    """Step views of (tokens, 4n) gates: output gates, and the other three as `(3, rows, n)`."""
    by_gate = _by_gate(rows)
    return by_gate[0].split(sizes), by_gate[1:].split(sizes, dim=1)


class _CellBackward:
    """Gradient of one LSTM cell step by step, from dh to the gates' pre-activations; keeps the running dc.

    The local derivatives do not depend on what flows back, so they are computed for all steps at once: those of the
    input, forget and candidate pre-activations by dc, that of the output gate by dh, and dc by dh through
    h = o tanh(c).

    Args:
        gates: (4, tokens, n), activated.
        cells: (batch + tokens, n), initial state first.
        tanh_cells: (tokens, n).
        grad_final: (batch, n) gradient of the final cells.
        grad_o, grad_ifg: where each step's gradients go, `(rows, n)` and `(3, rows, n)`.
    """

    def __init__(
        self,
        gates: Tensor,
        cells: Tensor,
        tanh_cells: Tensor,
        grad_final: Tensor,
        grad_o: Sequence[Tensor],
        grad_ifg: Sequence[Tensor],
        sizes: list[int],
    ):
        o, i, f, g = gates
        factors = torch.empty_like(gates)
        by_o, by_i, by_f, by_g = factors
        torch.mul(gates[:3], 1 - gates[:3], out=factors[:3])
        by_o.mul_(tanh_cells)
        by_i.mul_(g)
        by_f.mul_(_rows_before(cells, sizes))
        torch.mul(i, 1 - g * g, out=by_g)
        self.grad_cell = grad_final.clone()
        self.running = [self.grad_cell[:size] for size in sizes]
        self.dc_by_dh = (o * (1 - tanh_cells * tanh_cells)).split(sizes)
        self.forget = f.split(sizes)
        self.by_dc, self.by_dh = factors[1:].split(sizes, dim=1), by_o.split(sizes)
        self.grad_o, self.grad_ifg = grad_o, grad_ifg

    def step(self, t: int, dh: Tensor) -> None:
        dc = self.running[t]
        dc.addcmul_(dh, self.dc_by_dh[t])
        torch.mul(self.by_dc[t], dc, out=self.grad_ifg[t])
        torch.mul(self.by_dh[t], dh, out=self.grad_o[t])
        dc.mul_(self.forget[t])


def _refuse_second_derivative() -> None:
    """Called first in a backward pass, where gradients are recorded only if they shall be differentiated again.

    `once_differentiable` is not enough: it lets the derivative of a plain sum of the outputs pass as a constant.
    """
    if torch.is_grad_enabled():
        raise RuntimeError(
            "the recurrent ops' 'torch' backend has no second derivatives (create_graph=True); "
            "compute inside use_backend('reference'), which has them"
        )


class _LSTMLoop(Function):
    """(tokens, 4h) input products -> (tokens, h) hidden states and the final (batch, h) cell."""

    @staticmethod
    def forward(ctx: Any, projected: Tensor, hidden_weight: Tensor, h0: Tensor, c0: Tensor, sizes: list[int]) -> Any:
        batch, h = h0.shape
        tokens = projected.shape[0]
        gates = projected  # written over: `linear`, which made it, does not keep its output
        hiddens = projected.new_empty(batch + tokens, h)
        cells = torch.empty_like(hiddens)
        tanh_cells = projected.new_empty(tokens, h)
        hiddens[:batch], cells[:batch] = h0, c0
        hidden, cell = _step_views(hiddens, sizes), _step_views(cells, sizes)
        whole = gates.split(sizes)
        sigmoids = gates[:, : 3 * h].split(sizes)
        o, i, f, g = (gate.split(sizes) for gate in gates.split(h, dim=1))
        tanh_cell = tanh_cells.split(sizes)
        for t in range(len(sizes)):
            whole[t].addmm_(hidden.before[t], hidden_weight)
            sigmoids[t].sigmoid_()
            g[t].tanh_()
            torch.mul(f[t], cell.before[t], out=cell.now[t])
            cell.now[t].addcmul_(i[t], g[t])
            torch.tanh(cell.now[t], out=tanh_cell[t])
            torch.mul(o[t], tanh_cell[t], out=hidden.now[t])
        ctx.save_for_backward(hidden_weight, gates, hiddens, cells, tanh_cells)
        ctx.sizes, ctx.batch = sizes, batch
        return hiddens[batch:], _final_rows(cell, sizes)

    @staticmethod
    def backward(ctx: Any, grad_hidden: Tensor, grad_cell: Tensor) -> Any:
        _refuse_second_derivative()
        hidden_weight, gates, hiddens, cells, tanh_cells = ctx.saved_tensors
        sizes, batch = ctx.sizes, ctx.batch
        tokens, h = tanh_cells.shape
        grad_gates = torch.empty_like(gates)
        grad_hiddens = torch.zeros_like(hiddens)
        grad_hiddens[batch:] = grad_hidden
        cell_backward = _CellBackward(
            _by_gate(gates), cells, tanh_cells, grad_cell, *_split_output_gate(grad_gates, sizes), sizes
        )
        grad_state = _step_views(grad_hiddens, sizes)
        grad_gate = grad_gates.split(sizes)
        transposed = hidden_weight.t().contiguous()
        for t in range(len(sizes) - 1, -1, -1):
            cell_backward.step(t, grad_state.now[t])
            grad_state.before[t].addmm_(grad_gate[t], transposed)
        grad_weight = _rows_before(hiddens, sizes).t() @ grad_gates if ctx.needs_input_grad[1] else None
        return grad_gates, grad_weight, grad_hiddens[:batch], cell_backward.grad_cell, None


class _MetaLSTMLoop(Function):
    """The loop of a Meta-LSTM.

    Args of forward:
        projected: (tokens, 4m + 4z), W_m and Q applied to x_t, bias included.
        state_weight: (m + h, 4m + 4z), what [h^ ; h] adds to it.
        z_weight: (m, z), W_z transposed.
        p_and_b: (4, 2z, h), P and B of each gate, transposed: gates = [z * Q [x ; h] ; z] p_and_b.
        h0, c0, meta_h0, meta_c0: initial states, rows sorted.

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
    ) -> Any:
        batch, h = h0.shape
        m, z_size = z_weight.shape
        tokens = projected.shape[0]
        # Meta gates, then Q [x ; h]; written over: `linear`, which made it, does not keep its output.
        sums = projected
        states = projected.new_empty(batch + tokens, m + h)  # [h^ ; h]
        cells, meta_cells = states.new_empty(batch + tokens, h), states.new_empty(batch + tokens, m)
        tanh_cells, tanh_meta_cells = states.new_empty(tokens, h), states.new_empty(tokens, m)
        zs = states.new_empty(tokens, z_size)
        scaled = _StepBlocks(
            states.new_empty(8 * tokens * z_size), 2 * z_size, sizes
        )  # [z * Q [x ; h] ; z] of each gate
        gates = _StepBlocks(states.new_empty(4 * tokens * h), h, sizes)
        states[:batch, :m], states[:batch, m:] = meta_h0, h0
        cells[:batch], meta_cells[:batch] = c0, meta_c0

        state, cell, meta_cell = (_step_views(buffer, sizes) for buffer in (states, cells, meta_cells))
        meta_hidden, hidden = states[batch:, :m].split(sizes), states[batch:, m:].split(sizes)
        sum_views = sums.split(sizes)
        meta_sigmoids = sums[:, : 3 * m].split(sizes)
        mo, mi, mf, mg = (gate.split(sizes) for gate in sums[:, : 4 * m].split(m, dim=1))
        q = _by_gate(sums[:, 4 * m :]).split(sizes, dim=1)
        z = zs.split(sizes)
        by_q, by_one = scaled.columns(slice(z_size)), scaled.columns(slice(z_size, None))
        sigmoids = gates.gates(slice(3))
        o, i, f, g = (gates.gates(index) for index in range(4))
        tanh_cell, tanh_meta_cell = tanh_cells.split(sizes), tanh_meta_cells.split(sizes)
        for t in range(len(sizes)):
            sum_views[t].addmm_(state.before[t], state_weight)
            meta_sigmoids[t].sigmoid_()
            mg[t].tanh_()
            torch.mul(mf[t], meta_cell.before[t], out=meta_cell.now[t])
            meta_cell.now[t].addcmul_(mi[t], mg[t])
            torch.tanh(meta_cell.now[t], out=tanh_meta_cell[t])
            torch.mul(mo[t], tanh_meta_cell[t], out=meta_hidden[t])
            torch.mm(meta_hidden[t], z_weight, out=z[t])
            torch.mul(q[t], z[t], out=by_q[t])
            by_one[t].copy_(z[t])
            torch.bmm(scaled.now[t], p_and_b, out=gates.now[t])
            sigmoids[t].sigmoid_()
            g[t].tanh_()
            torch.mul(f[t], cell.before[t], out=cell.now[t])
            cell.now[t].addcmul_(i[t], g[t])
            torch.tanh(cell.now[t], out=tanh_cell[t])
            torch.mul(o[t], tanh_cell[t], out=hidden[t])
        ctx.save_for_backward(
            state_weight, z_weight, p_and_b, sums, states, cells, meta_cells, tanh_cells, tanh_meta_cells, zs,
            scaled.buffer, gates.buffer,
        )  # fmt: skip
        ctx.sizes, ctx.batch = sizes, batch
        return (
            states[batch:, m:].contiguous(),
            zs.clone(),
            _final_rows(cell, sizes),
            _final_rows(_step_views(states[:, :m], sizes), sizes),
            _final_rows(meta_cell, sizes),
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
        _refuse_second_derivative()
        (state_weight, z_weight, p_and_b, sums, states, cells, meta_cells, tanh_cells, tanh_meta_cells, zs,
         scaled_buffer, gate_buffer) = ctx.saved_tensors  # fmt: skip
        sizes, batch = ctx.sizes, ctx.batch
        m, z_size = z_weight.shape
        h = tanh_cells.shape[1]
        grad_sums = torch.empty_like(sums)
        grad_gates = _StepBlocks(torch.empty_like(gate_buffer), h, sizes)
        grad_states = torch.zeros_like(states)
        grad_states[batch:, m:] = grad_hidden
        torch.mm(grad_zs, z_weight.t(), out=grad_states[batch:, :m])
        grad_state = _step_views(grad_states, sizes)
        for first, end, step in _last_step_rows(sizes):
            grad_state.now[step][first:end, :m] += grad_meta_hidden[first:end]

        basic = _CellBackward(
            _StepBlocks(gate_buffer, h, sizes).by_gate(),
            cells,
            tanh_cells,
            grad_cell,
            grad_gates.gates(0),
            grad_gates.gates(slice(1, None)),
            sizes,
        )
        meta = _CellBackward(
            _by_gate(sums[:, : 4 * m]),
            meta_cells,
            tanh_meta_cells,
            grad_meta_cell,
            *_split_output_gate(grad_sums[:, : 4 * m], sizes),
            sizes,
        )
        grad_h, grad_meta_h = grad_states[batch:, m:].split(sizes), grad_states[batch:, :m].split(sizes)
        q = _by_gate(sums[:, 4 * m :]).split(sizes, dim=1)
        grad_q = _by_gate(grad_sums[:, 4 * m :]).split(sizes, dim=1)
        z = zs.split(sizes)
        # dz is the sum of two halves, one through Q and one through B, over four gates: the gates are added here, the
        # halves by the product with W_z, which stands twice.
        grad_halves = zs.new_empty(zs.shape[0], 2 * z_size)
        grad_half_views = grad_halves.split(sizes)
        z_back_twice = torch.cat([z_weight.t(), z_weight.t()])
        grad_sum_views = grad_sums.split(sizes)
        p_and_b_back, state_back = p_and_b.transpose(1, 2).contiguous(), state_weight.t().contiguous()
        scratch = states.new_empty(8 * batch * z_size)
        scratches = {size: scratch[: 8 * size * z_size].view(4, size, 2 * z_size) for size in set(sizes)}
        scratch_halves = {size: block[..., :z_size] for size, block in scratches.items()}
        for t in range(len(sizes) - 1, -1, -1):
            basic.step(t, grad_h[t])
            grad_scaled, grad_by_q = scratches[sizes[t]], scratch_halves[sizes[t]]
            torch.bmm(grad_gates.now[t], p_and_b_back, out=grad_scaled)
            torch.mul(grad_by_q, z[t], out=grad_q[t])
            grad_by_q.mul_(q[t])
            torch.sum(grad_scaled, 0, out=grad_half_views[t])
            grad_meta_h[t].addmm_(grad_half_views[t], z_back_twice)
            meta.step(t, grad_meta_h[t])
            grad_state.before[t].addmm_(grad_sum_views[t], state_back)

        needs = ctx.needs_input_grad
        grad_state_weight = _rows_before(states, sizes).t() @ grad_sums if needs[1] else None
        grad_z_weight = grad_p_and_b = None
        if needs[2]:
            grad_z = grad_halves[:, :z_size] + grad_halves[:, z_size:] + grad_zs
            grad_z_weight = states[batch:, :m].t() @ grad_z
        if needs[3]:
            scaled = _StepBlocks(scaled_buffer, 2 * z_size, sizes)
            grad_p_and_b = scaled.by_gate().transpose(1, 2) @ grad_gates.by_gate()
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
        )


def _reorder_gates(stacked: Tensor) -> Tensor:
    """Input, forget, candidate, output -> output, input, forget, candidate, along the first axis."""
    i, f, g, o = stacked.chunk(4)
    return torch.cat([o, i, f, g])


def lstm(
    inputs: Tensor, weights: LSTMWeights, lengths: Tensor | None, initial_state: LSTMState, reverse: bool
) -> tuple[Tensor, LSTMState]:
    """See `recurrent.lstm`."""
    packing = Packing(inputs.shape[0], inputs.shape[1], lengths, reverse, inputs.device)
    projected = torch.nn.functional.linear(
        packing.pack(inputs), _reorder_gates(weights.input), _reorder_gates(weights.bias)
    )
    h0, c0 = (packing.sort_rows(part) for part in initial_state)
    hidden, cell = _LSTMLoop.apply(projected, _reorder_gates(weights.hidden).t(), h0, c0, packing.batch_sizes)
    state = LSTMState(hidden.index_select(0, packing.last), packing.unsort_rows(cell))
    return packing.unpack(hidden), state


def meta_lstm(
    inputs: Tensor, weights: MetaLSTMWeights, lengths: Tensor | None, initial_state: MetaLSTMState, reverse: bool
) -> tuple[Tensor, Tensor, MetaLSTMState]:
    """See `recurrent.meta_lstm`."""
    z_size, m = weights.z.shape
    packing = Packing(inputs.shape[0], inputs.shape[1], lengths, reverse, inputs.device)
    # Q and z scale gate by gate without mixing gates: their order must only agree with that of P and B.
    q_input, q_hidden, p, b = (_reorder_gates(w) for w in (weights.q_input, weights.q_hidden, weights.p, weights.b))
    projected = torch.nn.functional.linear(
        packing.pack(inputs),
        torch.cat([_reorder_gates(weights.meta_input), q_input.flatten(0, 1)]),
        torch.nn.functional.pad(_reorder_gates(weights.meta_bias), (0, 4 * z_size)),
    )
    from_meta = torch.nn.functional.pad(_reorder_gates(weights.meta_meta).t(), (0, 4 * z_size))
    from_hidden = torch.cat([_reorder_gates(weights.meta_hidden), q_hidden.flatten(0, 1)]).t()
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
    )
    cell, meta_hidden, meta_cell = (packing.unsort_rows(part) for part in (cell, meta_hidden, meta_cell))
    state = MetaLSTMState(hidden.index_select(0, packing.last), cell, meta_hidden, meta_cell)
    return packing.unpack(hidden), packing.unpack(z), state
