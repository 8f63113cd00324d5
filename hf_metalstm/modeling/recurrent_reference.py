# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""The readable reference of every recurrent op: one row, one step, one formula at a time.

This is what the fast backends are tested against. It forms the generated matrices W(z_t) literally, as the paper prints
them, and costs accordingly; choose it (`HF_METALSTM_BACKEND=reference`) to check a result, not to train.
"""

import torch
from torch import Tensor

from .recurrent_types import (
    GRUWeights,
    HyperLSTMState,
    HyperLSTMWeights,
    LSTMState,
    LSTMWeights,
    MetaLSTMState,
    MetaLSTMWeights,
)


def _steps_of(row: int, lengths: Tensor | None, steps: int, reverse: bool) -> list[int]:
    """Positions of one row's real tokens in the order in which they are read."""
    length = steps if lengths is None else int(lengths[row])
    return list(range(length - 1, -1, -1)) if reverse else list(range(length))


def _gates(pre_activation: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    i, f, g, o = pre_activation.chunk(4)
    return i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()


def lstm(
    inputs: Tensor, weights: LSTMWeights, lengths: Tensor | None, initial_state: LSTMState, reverse: bool
) -> tuple[Tensor, LSTMState]:
    """See `recurrent.lstm`."""
    batch, steps, _ = inputs.shape
    rows, finals = [], []
    for row in range(batch):
        h, c = initial_state.hidden[row], initial_state.cell[row]
        outputs = [torch.zeros_like(h)] * steps
        for t in _steps_of(row, lengths, steps, reverse):
            i, f, g, o = _gates(weights.input @ inputs[row, t] + weights.hidden @ h + weights.bias)
            c = g * i + c * f
            h = o * c.tanh()
            outputs[t] = h
        rows.append(torch.stack(outputs))
        finals.append((h, c))
    return torch.stack(rows), LSTMState(*(torch.stack(parts) for parts in zip(*finals, strict=True)))


def generate_weights(weights: MetaLSTMWeights, z: Tensor) -> tuple[Tensor, Tensor]:
    """The basic LSTM's parameters of one step: W(z) `(4 * hidden, input + hidden)` and b(z) `(4 * hidden,)`.

    W(z)_* = P_* diag(z) Q_* and b(z)_* = B_* z for each gate *, stacked in the order input, forget, candidate, output.
    """
    q = torch.cat([weights.q_input, weights.q_hidden], dim=2)  # (4, z, input + hidden)
    matrix = torch.stack([weights.p[gate] @ torch.diag(z) @ q[gate] for gate in range(4)])
    bias = torch.stack([weights.b[gate] @ z for gate in range(4)])
    return matrix.flatten(0, 1), bias.flatten()


def meta_lstm(
    inputs: Tensor, weights: MetaLSTMWeights, lengths: Tensor | None, initial_state: MetaLSTMState, reverse: bool
) -> tuple[Tensor, Tensor, MetaLSTMState]:
    """See `recurrent.meta_lstm`."""
    batch, steps, _ = inputs.shape
    rows, vectors, finals = [], [], []
    for row in range(batch):
        h, c, meta_h, meta_c = (part[row] for part in initial_state)
        outputs = [torch.zeros_like(h)] * steps
        zs = [inputs.new_zeros(weights.z.shape[0])] * steps
        for t in _steps_of(row, lengths, steps, reverse):
            x = inputs[row, t]
            i, f, g, o = _gates(
                weights.meta_input @ x + weights.meta_meta @ meta_h + weights.meta_hidden @ h + weights.meta_bias
            )
            meta_c = g * i + meta_c * f
            meta_h = o * meta_c.tanh()
            z = weights.z @ meta_h
            matrix, bias = generate_weights(weights, z)
            i, f, g, o = _gates(matrix @ torch.cat([x, h]) + bias)
            c = g * i + c * f
            h = o * c.tanh()
            outputs[t], zs[t] = h, z
        rows.append(torch.stack(outputs))
        vectors.append(torch.stack(zs))
        finals.append((h, c, meta_h, meta_c))
    state = MetaLSTMState(*(torch.stack(parts) for parts in zip(*finals, strict=True)))
    return torch.stack(rows), torch.stack(vectors), state


def hyper_lstm(
    inputs: Tensor, weights: HyperLSTMWeights, lengths: Tensor | None, initial_state: HyperLSTMState, reverse: bool
) -> tuple[Tensor, HyperLSTMState]:
    """See `recurrent.hyper_lstm`."""
    batch, steps, _ = inputs.shape
    w, rows, finals = weights, [], []
    for row in range(batch):
        h, c, hyper_h, hyper_c = (part[row] for part in initial_state)
        outputs = [torch.zeros_like(h)] * steps
        for t in _steps_of(row, lengths, steps, reverse):
            x = inputs[row, t]
            i, f, g, o = _gates(w.hyper_input @ x + w.hyper_hyper @ hyper_h + w.hyper_hidden @ h + w.hyper_bias)
            hyper_c = g * i + hyper_c * f
            hyper_h = o * hyper_c.tanh()
            from_hidden, from_input, bias = (part.chunk(4) for part in (w.hidden @ h, w.input @ x, w.bias))
            sums = []
            for gate in range(4):
                z_hidden = w.z_hidden[gate] @ hyper_h + w.z_hidden_bias[gate]
                z_input = w.z_input[gate] @ hyper_h + w.z_input_bias[gate]
                z_bias = w.z_bias[gate] @ hyper_h
                sums.append(
                    (w.scale_hidden[gate] @ z_hidden) * from_hidden[gate]
                    + (w.scale_input[gate] @ z_input) * from_input[gate]
                    + w.scale_bias[gate] @ z_bias
                    + bias[gate]
                )
            i, f, g, o = _gates(torch.cat(sums))
            c = g * i + c * f
            h = o * c.tanh()
            outputs[t] = h
        rows.append(torch.stack(outputs))
        finals.append((h, c, hyper_h, hyper_c))
    return torch.stack(rows), HyperLSTMState(*(torch.stack(parts) for parts in zip(*finals, strict=True)))


def _gru_step(projected: Tensor, h: Tensor, weights: GRUWeights) -> Tensor:
    """From W_x x_t + b_x and h_{t-1} to the next state."""
    r, z, n = projected.chunk(3)
    hidden_r, hidden_z, hidden_n = (weights.hidden @ h + weights.hidden_bias).chunk(3)
    r, z = (r + hidden_r).sigmoid(), (z + hidden_z).sigmoid()
    n = (n + r * hidden_n).tanh()
    return (1 - z) * n + z * h


def gru(
    inputs: Tensor, weights: GRUWeights, lengths: Tensor | None, initial_state: Tensor, reverse: bool
) -> tuple[Tensor, Tensor]:
    """See `recurrent.gru`."""
    batch, steps, _ = inputs.shape
    rows, finals = [], []
    for row in range(batch):
        h = initial_state[row]
        outputs = [torch.zeros_like(h)] * steps
        for t in _steps_of(row, lengths, steps, reverse):
            h = _gru_step(weights.input @ inputs[row, t] + weights.input_bias, h, weights)
            outputs[t] = h
        rows.append(torch.stack(outputs))
        finals.append(h)
    return torch.stack(rows), torch.stack(finals)


def attention_gru(
    projected: Tensor, gates: Tensor, weights: GRUWeights, lengths: Tensor | None, initial_state: Tensor
) -> Tensor:
    """See `recurrent.attention_gru`; `projected` is W_x x + b_x of each step, (batch, steps, 3h)."""
    batch, steps, _ = projected.shape
    finals = []
    for row in range(batch):
        h = initial_state[row]
        for t in _steps_of(row, lengths, steps, reverse=False):
            h = gates[row, t] * _gru_step(projected[row, t], h, weights) + (1 - gates[row, t]) * h
        finals.append(h)
    return torch.stack(finals)
