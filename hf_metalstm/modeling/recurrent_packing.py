# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""What the recurrent ops in pure PyTorch share: layout of a ragged batch, views of its steps, the backward LSTM cell.

Inside these ops, gates of LSTMs are ordered output, input, forget, candidate: the three sigmoids lie side by side in
the forward pass, the three gates that receive their gradient through the cell in the backward pass.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor


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


def steps_of(buffer: Tensor, sizes: list[int], dim: int = 0) -> Sequence[Tensor]:
    """Rows of each step, from a buffer of every token; or from one of a single step, the same rows again and again."""
    if buffer.shape[dim] == sum(sizes):
        # Short sequences are dominated by making views: those without autograd's bookkeeping take two thirds the time.
        return buffer.unsafe_split_with_sizes(sizes, dim)
    return once_per_size(lambda rows: buffer.narrow(dim, 0, rows), sizes)


def once_per_size(make: Callable[[int], Tensor], sizes: list[int]) -> list[Tensor]:
    """`make(rows)` for each step, called once for each number of rows."""
    made = {rows: make(rows) for rows in set(sizes)}
    return [made[rows] for rows in sizes]


def scratch_of(like: Tensor, batch: int, n: int, parts: int = 4) -> Callable[[int], Tensor]:
    """Scratch `(parts, rows, n)` for any `rows`, always contiguous: only then is a batched GEMM into it one call."""
    flat = like.new_empty(parts * batch * n)
    return lambda rows: flat[: parts * rows * n].view(parts, rows, n)


class StepViews(NamedTuple):
    """Views of a state buffer `(batch + tokens, n)`, whose first rows are the initial state."""

    now: Sequence[Tensor]  # rows of step t
    before: Sequence[Tensor]  # the same rows one step earlier


def step_views(buffer: Tensor, sizes: list[int]) -> StepViews:
    """Of a buffer `(batch, n)`, where each step overwrites the one before, both are the same rows."""
    first = buffer.shape[0] - sum(sizes)
    if first <= 0:
        rows = steps_of(buffer, sizes)
        return StepViews(rows, rows)
    first_rows, *now = buffer.unsafe_split_with_sizes([first, *sizes])
    before = [first_rows, *now[:-1]]
    if sizes[-1] < first:
        before = [rows if rows.shape[0] == size else rows[:size] for rows, size in zip(before, sizes, strict=True)]
    return StepViews(now, before)


def state_buffer(initial: Tensor, tokens: int, keep: bool) -> Tensor:
    """The initial state, followed by room for the state after every token if those are kept."""
    if not keep:
        return initial.clone()
    buffer = initial.new_empty(initial.shape[0] + tokens, initial.shape[1])
    buffer[: initial.shape[0]] = initial
    return buffer


def rows_before(buffer: Tensor, batch_sizes: list[int]) -> Tensor:
    """All rows "one step earlier" as one matrix, aligned with the packed tokens."""
    tokens = sum(batch_sizes)
    first = buffer.shape[0] - tokens
    if batch_sizes[-1] == first:
        return buffer[:tokens]
    return torch.cat(list(step_views(buffer, batch_sizes).before))


def last_step_rows(batch_sizes: list[int]) -> list[tuple[int, int, int]]:
    """(first row, end row, step) of the rows whose last step is `step`; final states are copied by these blocks."""
    blocks = []
    following = [*batch_sizes[1:], 0]
    for step, (size, rest) in enumerate(zip(batch_sizes, following, strict=True)):
        if size > rest:
            blocks.append((rest, size, step))
    return blocks


def final_rows(buffer: Tensor, sizes: list[int]) -> Tensor:
    """(batch, n): each sorted row's state after its last step, out of `(batch + tokens, n)` or `(batch, n)`."""
    if buffer.shape[0] == sizes[0]:
        return buffer
    starts = list(accumulate([sizes[0], *sizes]))  # of the steps' rows, behind the initial state
    return torch.cat(
        [buffer[starts[step] + first : starts[step] + end] for first, end, step in reversed(last_step_rows(sizes))]
    )


def gate_by_gate(rows: Tensor) -> Tensor:
    """(tokens, 4n) -> a view (4, tokens, n)"""
    return rows.unflatten(1, (4, -1)).transpose(0, 1)


def split_output_gate(rows: Tensor, sizes: list[int]) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    """Step views of (tokens, 4n) gates: output gates, and the other three as `(3, rows, n)`."""
    gates = gate_by_gate(rows)
    return steps_of(gates[0], sizes), steps_of(gates[1:], sizes, dim=1)


class CellBackward:
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
        by_f.mul_(rows_before(cells, sizes))
        torch.mul(i, 1 - g * g, out=by_g)
        self.grad_cell = grad_final.clone()
        self.running = once_per_size(lambda rows: self.grad_cell[:rows], sizes)
        self.dc_by_dh = steps_of(o * (1 - tanh_cells * tanh_cells), sizes)
        self.forget = steps_of(f, sizes)
        self.by_dc, self.by_dh = steps_of(factors[1:], sizes, dim=1), steps_of(by_o, sizes)
        self.grad_o, self.grad_ifg = grad_o, grad_ifg

    def step(self, t: int, dh: Tensor) -> None:
        dc = self.running[t]
        dc.addcmul_(dh, self.dc_by_dh[t])
        torch.mul(self.by_dc[t], dc, out=self.grad_ifg[t])
        torch.mul(self.by_dh[t], dh, out=self.grad_o[t])
        dc.mul_(self.forget[t])


def refuse_second_derivative() -> None:
    """Called first in a backward pass, where gradients are recorded only if they shall be differentiated again.

    `once_differentiable` is not enough: it lets the derivative of a plain sum of the outputs pass as a constant.
    """
    if torch.is_grad_enabled():
        raise RuntimeError(
            "the recurrent ops' 'torch' backend has no second derivatives (create_graph=True); "
            "compute inside use_backend('reference'), which has them"
        )


def reorder_gates(stacked: Tensor) -> Tensor:
    """Input, forget, candidate, output -> output, input, forget, candidate, along the first axis."""
    return stacked.roll(stacked.shape[0] // 4, 0)


def needs_backward(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
