# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""The ops whose weights a second LSTM generates, Meta-LSTM and HyperLSTM, as custom operators with compiled loops.

Built as the ops of `recurrent_cpp`, whose docstring says how.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .compiled_gradients import (
    NAMESPACE,
    given_back,
    needs_backward,
    new_gradients,
    refuse_second_derivative,
    returned,
    returned_shapes,
)
from .compiled_kernels import PaddedBatch, run_kernel
from .recurrent_types import HyperLSTMState, HyperLSTMWeights, MetaLSTMState, MetaLSTMWeights

_PARTS = 12  # of a HyperLSTM: vectors for the hidden product, the input product and the bias of each gate


@torch.library.custom_op(f"{NAMESPACE}::meta_lstm", mutates_args=())
def _meta_lstm(
    inputs: Tensor,
    meta_input: Tensor,
    meta_meta: Tensor,
    meta_hidden: Tensor,
    meta_bias: Tensor,
    z_weight: Tensor,
    p: Tensor,
    q_input: Tensor,
    q_hidden: Tensor,
    b: Tensor,
    h0: Tensor,
    c0: Tensor,
    meta_h0: Tensor,
    meta_c0: Tensor,
    lengths: Tensor | None,
    reverse: bool,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Outputs, vectors, four final states; then what the backward pass reads: sums, gates, cells, meta states."""
    rows, steps, d = inputs.shape
    h, m, z = meta_hidden.shape[1], meta_meta.shape[1], z_weight.shape[0]
    outputs, vectors = (inputs.new_empty(rows, steps, size) for size in (h, z))
    hidden, cell, second_hidden, second_cell = finals = _new_states(inputs, rows, h, m)
    sums, gates, cells, metas, meta_cells = kept = _new_meta_buffers(inputs, rows * steps if keep else 0, h, m, z)
    run_kernel(
        "META_LSTM_FORWARD",
        PaddedBatch(rows, steps, lengths, reverse),
        (d, h, m, z),
        [meta_input, meta_meta, meta_hidden, z_weight, p, q_input, q_hidden, b],
        [inputs, meta_bias, h0, c0, meta_h0, meta_c0],
        [outputs, vectors, *finals, *(kept if keep else [None] * 5)],
        reuse_layout=not keep,
    )
    return outputs, vectors, hidden, cell, second_hidden, second_cell, sums, gates, cells, metas, meta_cells


def _new_states(like: Tensor, rows: int, h: int, m: int) -> list[Tensor]:
    """Hidden state and cell of both LSTMs, the main one first."""
    return [like.new_empty(rows, size) for size in (h, h, m, m)]


def _new_meta_buffers(like: Tensor, room: int, h: int, m: int, z: int) -> list[Tensor]:
    """Meta gates with Q [x ; h], gates, cells, meta hidden states and meta cells of every token."""
    return [like.new_empty(room, size) for size in (4 * m + 4 * z, 4 * h, h, m, m)]


@_meta_lstm.register_fake
def _meta_lstm_shapes(inputs: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    rows, steps, _ = inputs.shape
    h, m, z = arguments[2].shape[1], arguments[1].shape[1], arguments[4].shape[0]
    shapes = [(rows, steps, h), (rows, steps, z), (rows, h), (rows, h), (rows, m), (rows, m)]
    kept = _new_meta_buffers(inputs, rows * steps if arguments[-1] else 0, h, m, z)
    return (*(inputs.new_empty(shape) for shape in shapes), *kept)


@torch.library.custom_op(f"{NAMESPACE}::meta_lstm_backward", mutates_args=())
def _meta_lstm_backward(
    grad_outputs: Tensor | None,
    grad_vectors: Tensor | None,
    grad_hidden: Tensor | None,
    grad_cell: Tensor | None,
    grad_meta_hidden: Tensor | None,
    grad_meta_cell: Tensor | None,
    inputs: Tensor,
    meta_input: Tensor,
    meta_meta: Tensor,
    meta_hidden: Tensor,
    meta_bias: Tensor,
    z_weight: Tensor,
    p: Tensor,
    q_input: Tensor,
    q_hidden: Tensor,
    b: Tensor,
    h0: Tensor,
    c0: Tensor,
    meta_h0: Tensor,
    meta_c0: Tensor,
    lengths: Tensor | None,
    outputs: Tensor,
    vectors: Tensor,
    sums: Tensor,
    gates: Tensor,
    cells: Tensor,
    meta_hiddens: Tensor,
    meta_cells: Tensor,
    reverse: bool,
    needs: Sequence[bool],
) -> list[Tensor]:
    """Gradients of the first fourteen arguments of `_meta_lstm`."""
    rows, steps, d = inputs.shape
    weights = (meta_input, meta_meta, meta_hidden, meta_bias, z_weight, p, q_input, q_hidden, b)
    states = (h0, c0, meta_h0, meta_c0)
    gradients = new_gradients((inputs, *weights, *states), needs)
    run_kernel(
        "META_LSTM_BACKWARD",
        PaddedBatch(rows, steps, lengths, reverse),
        (d, meta_hidden.shape[1], meta_meta.shape[1], z_weight.shape[0]),
        [meta_input, meta_meta, meta_hidden, z_weight, p, q_input, q_hidden, b],
        [
            *(grad_outputs, grad_vectors, grad_hidden, grad_cell, grad_meta_hidden, grad_meta_cell),
            *(inputs, *states, outputs, vectors, sums, gates, cells, meta_hiddens, meta_cells),
        ],
        [gradients[0], *gradients[-len(states) :], *gradients[1 : -len(states)]],
    )
    return returned(gradients, inputs)


@_meta_lstm_backward.register_fake
def _meta_lstm_backward_shapes(*arguments: Any) -> list[Tensor]:
    return returned_shapes(arguments[6:20], arguments[-1])


def _keep_for_meta_lstm_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*output[6:])
    ctx.save_for_backward(*inputs[:15], *output[:2], *output[6:])
    ctx.reverse = inputs[15]


def _differentiate_meta_lstm(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
    refuse_second_derivative()
    needs = list(ctx.needs_input_grad[:14])
    results = _meta_lstm_backward(*gradients[:6], *ctx.saved_tensors, ctx.reverse, needs)
    return (*given_back(needs, results), None, None, None)


_meta_lstm.register_autograd(_differentiate_meta_lstm, setup_context=_keep_for_meta_lstm_backward)


def meta_lstm(
    inputs: Tensor, weights: MetaLSTMWeights, lengths: Tensor | None, initial_state: MetaLSTMState, reverse: bool
) -> tuple[Tensor, Tensor, MetaLSTMState]:
    """See `recurrent.meta_lstm`."""
    keep = needs_backward(inputs, *weights, *initial_state)
    outputs, vectors, *rest = _meta_lstm(inputs, *weights, *initial_state, lengths, reverse, keep)
    return outputs, vectors, MetaLSTMState(*rest[:4])


@torch.library.custom_op(f"{NAMESPACE}::hyper_lstm", mutates_args=())
def _hyper_lstm(
    inputs: Tensor,
    hyper_input: Tensor,
    hyper_hyper: Tensor,
    hyper_hidden: Tensor,
    hyper_bias: Tensor,
    zs: Tensor,
    z_biases: Tensor,
    scales: Tensor,
    input_weight: Tensor,
    hidden_weight: Tensor,
    bias: Tensor,
    h0: Tensor,
    c0: Tensor,
    hyper_h0: Tensor,
    hyper_c0: Tensor,
    lengths: Tensor | None,
    reverse: bool,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Outputs, four final states; then what the backward pass reads, see `_new_hyper_buffers`.

    zs (12, z, m), z_biases (12, z) and scales (12, h, z) hold the parts of all gates, kind by kind.
    """
    rows, steps, d = inputs.shape
    h, m, z = hyper_hidden.shape[1], hyper_hyper.shape[1], zs.shape[1]
    outputs = inputs.new_empty(rows, steps, h)
    hidden, cell, second_hidden, second_cell = finals = _new_states(inputs, rows, h, m)
    kept = _new_hyper_buffers(inputs, rows * steps if keep else 0, h, m, z)
    sums, gates, cells, hypers, hyper_cells, products, z_vectors, scale_values = kept
    run_kernel(
        "HYPER_LSTM_FORWARD",
        PaddedBatch(rows, steps, lengths, reverse),
        (d, h, m, z),
        [hyper_input, hyper_hyper, hyper_hidden, zs, scales, input_weight, hidden_weight],
        [inputs, hyper_bias, z_biases, bias, h0, c0, hyper_h0, hyper_c0],
        [outputs, *finals, *(kept if keep else [None] * 8)],
        reuse_layout=not keep,
    )
    finals_and_kept = (hidden, cell, second_hidden, second_cell, sums, gates, cells, hypers, hyper_cells)
    return outputs, *finals_and_kept, products, z_vectors, scale_values


def _new_hyper_buffers(like: Tensor, room: int, h: int, m: int, z: int) -> list[Tensor]:
    """Hyper gates with W_x x, gates, cells, hyper states, hyper cells, W_h h, z vectors, scales of both products."""
    return [like.new_empty(room, size) for size in (4 * m + 4 * h, 4 * h, h, m, m, 4 * h, _PARTS * z, 8 * h)]


@_hyper_lstm.register_fake
def _hyper_lstm_shapes(inputs: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    rows, steps, _ = inputs.shape
    h, m, z = arguments[2].shape[1], arguments[1].shape[1], arguments[4].shape[1]
    shapes = [(rows, steps, h), (rows, h), (rows, h), (rows, m), (rows, m)]
    kept = _new_hyper_buffers(inputs, rows * steps if arguments[-1] else 0, h, m, z)
    return (*(inputs.new_empty(shape) for shape in shapes), *kept)


@torch.library.custom_op(f"{NAMESPACE}::hyper_lstm_backward", mutates_args=())
def _hyper_lstm_backward(
    grad_outputs: Tensor | None,
    grad_hidden: Tensor | None,
    grad_cell: Tensor | None,
    grad_hyper_hidden: Tensor | None,
    grad_hyper_cell: Tensor | None,
    inputs: Tensor,
    hyper_input: Tensor,
    hyper_hyper: Tensor,
    hyper_hidden: Tensor,
    hyper_bias: Tensor,
    zs: Tensor,
    z_biases: Tensor,
    scales: Tensor,
    input_weight: Tensor,
    hidden_weight: Tensor,
    bias: Tensor,
    h0: Tensor,
    c0: Tensor,
    hyper_h0: Tensor,
    hyper_c0: Tensor,
    lengths: Tensor | None,
    outputs: Tensor,
    sums: Tensor,
    gates: Tensor,
    cells: Tensor,
    hyper_hiddens: Tensor,
    hyper_cells: Tensor,
    products: Tensor,
    z_vectors: Tensor,
    scale_values: Tensor,
    reverse: bool,
    needs: Sequence[bool],
) -> list[Tensor]:
    """Gradients of the first fifteen arguments of `_hyper_lstm`."""
    rows, steps, d = inputs.shape
    hyper = (hyper_input, hyper_hyper, hyper_hidden, hyper_bias, zs, z_biases, scales)
    weights = (*hyper, input_weight, hidden_weight, bias)
    states = (h0, c0, hyper_h0, hyper_c0)
    gradients = new_gradients((inputs, *weights, *states), needs)
    run_kernel(
        "HYPER_LSTM_BACKWARD",
        PaddedBatch(rows, steps, lengths, reverse),
        (d, hyper_hidden.shape[1], hyper_hyper.shape[1], zs.shape[1]),
        [hyper_input, hyper_hyper, hyper_hidden, zs, scales, input_weight, hidden_weight],
        [
            *(grad_outputs, grad_hidden, grad_cell, grad_hyper_hidden, grad_hyper_cell, inputs, *states, outputs),
            *(sums, gates, cells, hyper_hiddens, hyper_cells, products, z_vectors, scale_values),
        ],
        [gradients[0], *gradients[-len(states) :], *gradients[1 : -len(states)]],
    )
    return returned(gradients, inputs)


@_hyper_lstm_backward.register_fake
def _hyper_lstm_backward_shapes(*arguments: Any) -> list[Tensor]:
    return returned_shapes(arguments[5:20], arguments[-1])


def _keep_for_hyper_lstm_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*output[5:])
    ctx.save_for_backward(*inputs[:16], output[0], *output[5:])
    ctx.reverse = inputs[16]


def _differentiate_hyper_lstm(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
    refuse_second_derivative()
    needs = list(ctx.needs_input_grad[:15])
    results = _hyper_lstm_backward(*gradients[:5], *ctx.saved_tensors, ctx.reverse, needs)
    return (*given_back(needs, results), None, None, None)


_hyper_lstm.register_autograd(_differentiate_hyper_lstm, setup_context=_keep_for_hyper_lstm_backward)


def hyper_lstm(
    inputs: Tensor, weights: HyperLSTMWeights, lengths: Tensor | None, initial_state: HyperLSTMState, reverse: bool
) -> tuple[Tensor, HyperLSTMState]:
    """See `recurrent.hyper_lstm`."""
    w = weights
    arguments = (
        inputs,
        w.hyper_input,
        w.hyper_hyper,
        w.hyper_hidden,
        w.hyper_bias,
        torch.cat([w.z_hidden, w.z_input, w.z_bias]),
        torch.cat([w.z_hidden_bias, w.z_input_bias, torch.zeros_like(w.z_input_bias)]),
        torch.cat([w.scale_hidden, w.scale_input, w.scale_bias]),
        w.input,
        w.hidden,
        w.bias,
        *initial_state,
    )
    outputs, *rest = _hyper_lstm(*arguments, lengths, reverse, needs_backward(*arguments))
    return outputs, HyperLSTMState(*rest[:4])
