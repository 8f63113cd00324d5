# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""Recurrent ops in pure PyTorch, each as one autograd Function over the whole sequence.

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

Inside, gates are ordered output, input, forget, candidate: the three sigmoids lie side by side in the forward pass, the
three gates that receive their gradient through the cell in the backward pass.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
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


def _steps(buffer: Tensor, sizes: list[int], dim: int = 0) -> Sequence[Tensor]:
    """Rows of each step, from a buffer of every token; or from one of a single step, the same rows again and again."""
    if buffer.shape[dim] == sum(sizes):
        # Short sequences are dominated by making views: those without autograd's bookkeeping take two thirds the time.
        return buffer.unsafe_split_with_sizes(sizes, dim)
    return _once_per_size(lambda rows: buffer.narrow(dim, 0, rows), sizes)


def _once_per_size(make: Callable[[int], Tensor], sizes: list[int]) -> list[Tensor]:
    """`make(rows)` for each step, called once for each number of rows."""
    made = {rows: make(rows) for rows in set(sizes)}
    return [made[rows] for rows in sizes]


def _scratch_of_four(like: Tensor, batch: int, n: int) -> Callable[[int], Tensor]:
    """Scratch `(4, rows, n)` for any `rows`, always contiguous: only then is a batched GEMM into it one call."""
    flat = like.new_empty(4 * batch * n)
    return lambda rows: flat[: 4 * rows * n].view(4, rows, n)


class _StepViews(NamedTuple):
    """Views of a state buffer `(batch + tokens, n)`, whose first rows are the initial state."""

    now: Sequence[Tensor]  # rows of step t
    before: Sequence[Tensor]  # the same rows one step earlier


def _step_views(buffer: Tensor, sizes: list[int]) -> _StepViews:
    """Of a buffer `(batch, n)`, where each step overwrites the one before, both are the same rows."""
    first = buffer.shape[0] - sum(sizes)
    if first <= 0:
        rows = _steps(buffer, sizes)
        return _StepViews(rows, rows)
    first_rows, *now = buffer.unsafe_split_with_sizes([first, *sizes])
    before = [first_rows, *now[:-1]]
    if sizes[-1] < first:
        before = [rows if rows.shape[0] == size else rows[:size] for rows, size in zip(before, sizes, strict=True)]
    return _StepViews(now, before)


def _state_buffer(initial: Tensor, tokens: int, keep: bool) -> Tensor:
    """The initial state, followed by room for the state after every token if those are kept."""
    if not keep:
        return initial.clone()
    buffer = initial.new_empty(initial.shape[0] + tokens, initial.shape[1])
    buffer[: initial.shape[0]] = initial
    return buffer


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


def _final_rows(buffer: Tensor, sizes: list[int]) -> Tensor:
    """(batch, n): each sorted row's state after its last step, out of `(batch + tokens, n)` or `(batch, n)`."""
    if buffer.shape[0] == sizes[0]:
        return buffer
    starts = list(accumulate([sizes[0], *sizes]))  # of the steps' rows, behind the initial state
    return torch.cat(
        [buffer[starts[step] + first : starts[step] + end] for first, end, step in reversed(_last_step_rows(sizes))]
    )


def _by_gate(rows: Tensor) -> Tensor:
    """(tokens, 4n) -> a view (4, tokens, n)"""
    return rows.unflatten(1, (4, -1)).transpose(0, 1)


def _split_output_gate(rows: Tensor, sizes: list[int]) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    """Step views of (tokens, 4n) gates: output gates, and the other three as `(3, rows, n)`."""
    by_gate = _by_gate(rows)
    return _steps(by_gate[0], sizes), _steps(by_gate[1:], sizes, dim=1)


class _CellBackward:
    """Gradient of one LSTM cell step by step, from dh to the gates' pre-activations; keeps the running dc.

    The local derivatives do not depend on what flows back, so they are computed for all steps at once: those of the
    input, forget and candidate pre-activations by dc, that of the output gate by dh, and dc by dh through
    h = o tanh(c).

    Args:
        gates: (4, tokens, n), activated.
        cells: (batch + tokens, n), initial state first.
        grad_final: (batch, n) gradient of the final cells.
        grad_o, grad_ifg: where each step's gradients go, `(rows, n)` and `(3, rows, n)`.
    """

    def __init__(
        self,
        gates: Tensor,
        cells: Tensor,
        grad_final: Tensor,
        grad_o: Sequence[Tensor],
        grad_ifg: Sequence[Tensor],
        sizes: list[int],
    ):
        o, i, f, g = gates
        tanh_cells = cells[grad_final.shape[0] :].tanh()
        factors = torch.empty_like(gates)
        by_o, by_i, by_f, by_g = factors
        torch.mul(gates[:3], 1 - gates[:3], out=factors[:3])
        by_o.mul_(tanh_cells)
        by_i.mul_(g)
        by_f.mul_(_rows_before(cells, sizes))
        torch.mul(i, 1 - g * g, out=by_g)
        self.grad_cell = grad_final.clone()
        self.running = _once_per_size(lambda rows: self.grad_cell[:rows], sizes)
        self.dc_by_dh = _steps(o * (1 - tanh_cells * tanh_cells), sizes)
        self.forget = _steps(f, sizes)
        self.by_dc, self.by_dh = _steps(factors[1:], sizes, dim=1), _steps(by_o, sizes)
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
    def forward(
        ctx: Any, projected: Tensor, hidden_weight: Tensor, h0: Tensor, c0: Tensor, sizes: list[int], keep: bool
    ) -> Any:
        batch, h = h0.shape
        tokens = projected.shape[0]
        # Written over: `linear`, which made it, does not keep its output.
        gates = projected if keep else projected.new_empty(batch, 4 * h)
        hiddens, cells = _state_buffer(h0, tokens, True), _state_buffer(c0, tokens, keep)
        hidden, cell = _step_views(hiddens, sizes), _step_views(cells, sizes)
        sums, sigmoids = _steps(gates, sizes), _steps(gates[:, : 3 * h], sizes)
        from_input = sums if keep else _steps(projected, sizes)
        o, i, f, g = (_steps(gate, sizes) for gate in gates.split(h, dim=1))
        tanh_cell = _steps(h0.new_empty(batch, h), sizes)
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
        return hiddens[batch:], _final_rows(cells, sizes)

    @staticmethod
    def backward(ctx: Any, grad_hidden: Tensor, grad_cell: Tensor) -> Any:
        _refuse_second_derivative()
        hidden_weight, gates, hiddens, cells = ctx.saved_tensors
        sizes, batch = ctx.sizes, ctx.batch
        grad_gates = torch.empty_like(gates)
        grad_hiddens = torch.zeros_like(hiddens)
        grad_hiddens[batch:] = grad_hidden
        cell_backward = _CellBackward(_by_gate(gates), cells, grad_cell, *_split_output_gate(grad_gates, sizes), sizes)
        grad_state = _step_views(grad_hiddens, sizes)
        grad_gate = _steps(grad_gates, sizes)
        transposed = hidden_weight.t().contiguous()
        for t in range(len(sizes) - 1, -1, -1):
            cell_backward.step(t, grad_state.now[t])
            grad_state.before[t].addmm_(grad_gate[t], transposed)
        grad_weight = _rows_before(hiddens, sizes).t() @ grad_gates if ctx.needs_input_grad[1] else None
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
        states = _state_buffer(torch.cat([meta_h0, h0], dim=1), tokens, True)  # [h^ ; h]
        cells, meta_cells = _state_buffer(c0, tokens, keep), _state_buffer(meta_c0, tokens, keep)
        zs = h0.new_empty(tokens, z_size)

        state, cell, meta_cell = (_step_views(buffer, sizes) for buffer in (states, cells, meta_cells))
        meta_hidden, hidden = _steps(states[batch:, :m], sizes), _steps(states[batch:, m:], sizes)
        sum_views = _steps(sums, sizes)
        from_input = sum_views if keep else _steps(projected, sizes)
        meta_sigmoids = _steps(sums[:, : 3 * m], sizes)
        mo, mi, mf, mg = (_steps(gate, sizes) for gate in sums[:, : 4 * m].split(m, dim=1))
        q, z = _steps(_by_gate(sums[:, 4 * m :]), sizes, dim=1), _steps(zs, sizes)
        sigmoids = _steps(gates[:3], sizes, dim=1)
        o, i, f, g = (_steps(gate, sizes) for gate in gates)
        # Scratch: [z * Q [x ; h] ; z] of each gate, the gates' sums, tanh of the cells.
        scaled_of, sums_of = _scratch_of_four(h0, batch, 2 * z_size), _scratch_of_four(h0, batch, h)
        scaled, gate_sums = _once_per_size(scaled_of, sizes), _once_per_size(sums_of, sizes)
        by_q = _once_per_size(lambda rows: scaled_of(rows)[..., :z_size], sizes)
        by_one = _once_per_size(lambda rows: scaled_of(rows)[..., z_size:], sizes)
        sigmoid_sums = _once_per_size(lambda rows: sums_of(rows)[:3], sizes)
        tanh_sums = _once_per_size(lambda rows: sums_of(rows)[3], sizes)
        tanh_cell, tanh_meta_cell = _steps(torch.empty_like(h0), sizes), _steps(torch.empty_like(meta_h0), sizes)
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
            _final_rows(cells, sizes),
            _final_rows(states[:, :m], sizes),
            _final_rows(meta_cells, sizes),
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
        state_weight, z_weight, p_and_b, sums, gates, states, cells, meta_cells, zs = ctx.saved_tensors
        sizes, batch = ctx.sizes, ctx.batch
        m, z_size = z_weight.shape
        grad_sums, grad_gates = torch.empty_like(sums), torch.empty_like(gates)
        grad_states = torch.zeros_like(states)
        grad_states[batch:, m:] = grad_hidden
        torch.mm(grad_zs, z_weight.t(), out=grad_states[batch:, :m])
        grad_state = _step_views(grad_states, sizes)
        for first, end, step in _last_step_rows(sizes):
            grad_state.now[step][first:end, :m] += grad_meta_hidden[first:end]

        basic_out = _steps(grad_gates[0], sizes), _steps(grad_gates[1:], sizes, dim=1)
        basic = _CellBackward(gates, cells, grad_cell, *basic_out, sizes)
        meta_out = _split_output_gate(grad_sums[:, : 4 * m], sizes)
        meta = _CellBackward(_by_gate(sums[:, : 4 * m]), meta_cells, grad_meta_cell, *meta_out, sizes)
        grad_h, grad_meta_h = _steps(grad_states[batch:, m:], sizes), _steps(grad_states[batch:, :m], sizes)
        all_q = _by_gate(sums[:, 4 * m :])
        q, grad_q = _steps(all_q, sizes, dim=1), _steps(_by_gate(grad_sums[:, 4 * m :]), sizes, dim=1)
        z = _steps(zs, sizes)
        # dz is the sum of two halves, one through Q and one through B, over four gates: the gates are added here, the
        # halves by the product with W_z, which stands twice.
        grad_halves = zs.new_empty(zs.shape[0], 2 * z_size)
        grad_half_views = _steps(grad_halves, sizes)
        z_back_twice = torch.cat([z_weight.t(), z_weight.t()])
        grad_gate_views, grad_sum_views = _steps(grad_gates, sizes, dim=1), _steps(grad_sums, sizes)
        p_and_b_back, state_back = p_and_b.transpose(1, 2).contiguous(), state_weight.t().contiguous()
        grad_scaled_of = _scratch_of_four(zs, batch, 2 * z_size)
        grad_scaled = _once_per_size(grad_scaled_of, sizes)
        grad_by_q = _once_per_size(lambda rows: grad_scaled_of(rows)[..., :z_size], sizes)
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
        grad_state_weight = _rows_before(states, sizes).t() @ grad_sums if needs[1] else None
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


def _reorder_gates(stacked: Tensor) -> Tensor:
    """Input, forget, candidate, output -> output, input, forget, candidate, along the first axis."""
    return stacked.roll(stacked.shape[0] // 4, 0)


def _needs_backward(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def lstm(
    inputs: Tensor, weights: LSTMWeights, lengths: Tensor | None, initial_state: LSTMState, reverse: bool
) -> tuple[Tensor, LSTMState]:
    """See `recurrent.lstm`."""
    packing = Packing(inputs.shape[0], inputs.shape[1], lengths, reverse, inputs.device)
    projected = torch.nn.functional.linear(
        packing.pack(inputs), _reorder_gates(weights.input), _reorder_gates(weights.bias)
    )
    h0, c0 = (packing.sort_rows(part) for part in initial_state)
    keep = _needs_backward(inputs, *weights, *initial_state)
    hidden, cell = _LSTMLoop.apply(projected, _reorder_gates(weights.hidden).t(), h0, c0, packing.batch_sizes, keep)
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
        _needs_backward(inputs, *weights, *initial_state),
    )
    cell, meta_hidden, meta_cell = (packing.unsort_rows(part) for part in (cell, meta_hidden, meta_cell))
    state = MetaLSTMState(hidden.index_select(0, packing.last), cell, meta_hidden, meta_cell)
    return packing.unpack(hidden), packing.unpack(z), state
