# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""Weights and states of the recurrent ops.

Gates of LSTMs are stacked in torch.nn.LSTM's order everywhere: input, forget, candidate, output; those of GRUs in
torch.nn.GRU's: reset, update, candidate. Sizes: d input, h hidden, m hidden of a meta or hyper LSTM, z meta or hyper
vector.
"""

from typing import NamedTuple

from torch import Tensor


class LSTMWeights(NamedTuple):
    """A standard LSTM: gates = input x_t + hidden h_{t-1} + bias."""

    input: Tensor  # (4h, d)
    hidden: Tensor  # (4h, h)
    bias: Tensor  # (4h,)


class LSTMState(NamedTuple):
    """State of an LSTM after a step."""

    hidden: Tensor  # (batch, h)
    cell: Tensor  # (batch, h)


class MetaLSTMWeights(NamedTuple):
    """A Meta-LSTM: theta_m is the first five, the task's basic LSTM theta_b the other four.

    The paper prints Q_* as z x d, but W(z_t) acts on [x_t ; h_{t-1}], so Q_* is z x (d + h) here, held in two parts;
    this also is what the paper's own count "8hz + 4dz" of P and Q says. B_* (4hz more) is not part of that count.
    """

    meta_input: Tensor  # (4m, d), columns of W_m that see x_t
    meta_meta: Tensor  # (4m, m), columns of W_m that see the meta hidden state
    meta_hidden: Tensor  # (4m, h), columns of W_m that see the basic hidden state
    meta_bias: Tensor  # (4m,)
    z: Tensor  # (z, m), W_z
    p: Tensor  # (4, h, z)
    q_input: Tensor  # (4, z, d), columns of Q that see x_t
    q_hidden: Tensor  # (4, z, h), columns of Q that see h_{t-1}
    b: Tensor  # (4, h, z)


class MetaLSTMState(NamedTuple):
    """State of a Meta-LSTM after a step."""

    hidden: Tensor  # (batch, h)
    cell: Tensor  # (batch, h)
    meta_hidden: Tensor  # (batch, m)
    meta_cell: Tensor  # (batch, m)


class HyperLSTMWeights(NamedTuple):
    """A HyperLSTM: the hyper LSTM is the first four, what it generates the next eight, the main LSTM the rest.

    The last axis of `scale_*` and the middle one of `z_*` is z; gate by gate along the first axis.
    """

    hyper_input: Tensor  # (4m, d), columns of the hyper LSTM's matrix that see x_t
    hyper_hyper: Tensor  # (4m, m), columns that see the hyper hidden state
    hyper_hidden: Tensor  # (4m, h), columns that see the main hidden state
    hyper_bias: Tensor  # (4m,)
    z_hidden: Tensor  # (4, z, m), W_{h^ h}
    z_hidden_bias: Tensor  # (4, z)
    z_input: Tensor  # (4, z, m), W_{h^ x}
    z_input_bias: Tensor  # (4, z)
    z_bias: Tensor  # (4, z, m), W_{h^ b}
    scale_hidden: Tensor  # (4, h, z), W_{hz}
    scale_input: Tensor  # (4, h, z), W_{xz}
    scale_bias: Tensor  # (4, h, z), W_{bz}
    input: Tensor  # (4h, d), W_x
    hidden: Tensor  # (4h, h), W_h
    bias: Tensor  # (4h,), b_0


class HyperLSTMState(NamedTuple):
    """State of a HyperLSTM after a step."""

    hidden: Tensor  # (batch, h)
    cell: Tensor  # (batch, h)
    hyper_hidden: Tensor  # (batch, m)
    hyper_cell: Tensor  # (batch, m)


class GRUWeights(NamedTuple):
    """A gated recurrent unit as torch.nn.GRU has it: the reset gate acts on the hidden product and its bias."""

    input: Tensor  # (3h, d)
    hidden: Tensor  # (3h, h)
    input_bias: Tensor  # (3h,)
    hidden_bias: Tensor  # (3h,)


class ProjectedInputs(NamedTuple):
    """Products of a GRU's input matrix with its inputs, bias included, for several passes over the same inputs."""

    gates: Tensor  # (batch, steps, 3h)
