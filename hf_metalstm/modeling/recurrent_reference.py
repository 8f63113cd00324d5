# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""The readable reference of every recurrent op: one row, one step, one formula at a time.

This is what the fast backends are tested against. It forms the generated matrices W(z_t) literally, as the paper prints
them, and costs accordingly; choose it (`HF_METALSTM_BACKEND=reference`) to check a result, not to train.
"""

import torch
from torch import Tensor

from .recurrent_types import LSTMState, LSTMWeights, MetaLSTMState, MetaLSTMWeights


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
