# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""LSTM and GRU in compiled code, as custom operators of torch.

Each op is one operator forward and one backward over the whole padded batch, so torch.compile and torch.export keep it
as one node. What the backward pass reads has room for every step of the padded batch, so its shape is known before
the lengths are; what short rows leave untouched costs no memory.
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
from .recurrent_types import GRUWeights, LSTMState, LSTMWeights


@torch.library.custom_op(f"{NAMESPACE}::lstm", mutates_args=())
def _lstm(
    inputs: Tensor,
    input_weight: Tensor,
    hidden_weight: Tensor,
    bias: Tensor,
    h0: Tensor,
    c0: Tensor,
    lengths: Tensor | None,
    reverse: bool,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Outputs, final hidden and cell; then gates and cells for the backward pass, empty unless `keep`."""
    rows, steps, d = inputs.shape
    h = hidden_weight.shape[1]
    outputs = inputs.new_empty(rows, steps, h)
    hidden, cell = inputs.new_empty(rows, h), inputs.new_empty(rows, h)
    gates, cells = _new_lstm_buffers(inputs, rows * steps if keep else 0, h)
    run_kernel(
        "LSTM_FORWARD",
        PaddedBatch(rows, steps, lengths, reverse),
        (d, h),
        [input_weight, hidden_weight],
        [inputs, bias, h0, c0],
        [outputs, hidden, cell, *((gates, cells) if keep else (None, None))],
        reuse_layout=not keep,
    )
    return outputs, hidden, cell, gates, cells


def _new_lstm_buffers(like: Tensor, room: int, h: int) -> list[Tensor]:
    """Activated gates and cells of every token."""
    return [like.new_empty(room, 4 * h), like.new_empty(room, h)]


@_lstm.register_fake
def _lstm_shapes(inputs: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    rows, steps, _ = inputs.shape
    h = arguments[1].shape[1]
    kept = _new_lstm_buffers(inputs, rows * steps if arguments[-1] else 0, h)
    return inputs.new_empty(rows, steps, h), inputs.new_empty(rows, h), inputs.new_empty(rows, h), *kept


@torch.library.custom_op(f"{NAMESPACE}::lstm_backward", mutates_args=())
def _lstm_backward(
    grad_outputs: Tensor | None,
    grad_hidden: Tensor | None,
    grad_cell: Tensor | None,
    inputs: Tensor,
    input_weight: Tensor,
    hidden_weight: Tensor,
    bias: Tensor,
    h0: Tensor,
    c0: Tensor,
    lengths: Tensor | None,
    outputs: Tensor,
    gates: Tensor,
    cells: Tensor,
    reverse: bool,
    needs: Sequence[bool],
) -> list[Tensor]:
    """Gradients of the first six arguments of `_lstm`."""
    rows, steps, d = inputs.shape
    arguments = (inputs, input_weight, hidden_weight, bias, h0, c0)
    gradients = new_gradients(arguments, needs)
    of_inputs, of_input_weight, of_hidden_weight, of_bias, of_h0, of_c0 = gradients
    run_kernel(
        "LSTM_BACKWARD",
        PaddedBatch(rows, steps, lengths, reverse),
        (d, hidden_weight.shape[1]),
        [input_weight, hidden_weight],
        [grad_outputs, grad_hidden, grad_cell, inputs, h0, c0, outputs, gates, cells],
        [of_inputs, of_h0, of_c0, of_input_weight, of_hidden_weight, of_bias],
    )
    return returned(gradients, inputs)


@_lstm_backward.register_fake
def _lstm_backward_shapes(*arguments: Any) -> list[Tensor]:
    return returned_shapes(arguments[3:9], arguments[-1])


def _keep_for_lstm_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    outputs, _, _, gates, cells = output
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(gates, cells)
    ctx.save_for_backward(*inputs[:7], outputs, gates, cells)
    ctx.reverse = inputs[7]


def _differentiate_lstm(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
    refuse_second_derivative()
    needs = list(ctx.needs_input_grad[:6])
    results = _lstm_backward(*gradients[:3], *ctx.saved_tensors, ctx.reverse, needs)
    return (*given_back(needs, results), None, None, None)


_lstm.register_autograd(_differentiate_lstm, setup_context=_keep_for_lstm_backward)


def lstm(
    inputs: Tensor, weights: LSTMWeights, lengths: Tensor | None, initial_state: LSTMState, reverse: bool
) -> tuple[Tensor, LSTMState]:
    """See `recurrent.lstm`."""
    keep = needs_backward(inputs, *weights, *initial_state)
    outputs, hidden, cell, *_ = _lstm(inputs, *weights, *initial_state, lengths, reverse, keep)
    return outputs, LSTMState(hidden, cell)


@torch.library.custom_op(f"{NAMESPACE}::gru", mutates_args=())
def _gru(
    inputs: Tensor,
    input_weight: Tensor,
    hidden_weight: Tensor,
    input_bias: Tensor,
    hidden_bias: Tensor,
    h0: Tensor,
    lengths: Tensor | None,
    reverse: bool,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Outputs and the final state; then gates, hidden products and states before for the backward pass."""
    rows, steps, d = inputs.shape
    h = hidden_weight.shape[1]
    outputs, final = inputs.new_empty(rows, steps, h), inputs.new_empty(rows, h)
    gates, products, previous = kept = _new_gru_buffers(inputs, rows * steps if keep else 0, h)
    run_kernel(
        "GRU_FORWARD",
        PaddedBatch(rows, steps, lengths, reverse),
        (d, h),
        [input_weight, hidden_weight],
        [inputs, input_bias, hidden_bias, None, h0],
        [outputs, final, *(kept if keep else [None] * 3)],
        reuse_layout=not keep,
    )
    return outputs, final, gates, products, previous


def _new_gru_buffers(like: Tensor, room: int, h: int) -> list[Tensor]:
    """Activated gates, the candidate's hidden products and the states before, of every token."""
    return [like.new_empty(room, 3 * h), like.new_empty(room, h), like.new_empty(room, h)]


@_gru.register_fake
def _gru_shapes(inputs: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    rows, steps, _ = inputs.shape
    h = arguments[1].shape[1]
    kept = _new_gru_buffers(inputs, rows * steps if arguments[-1] else 0, h)
    return inputs.new_empty(rows, steps, h), inputs.new_empty(rows, h), *kept


@torch.library.custom_op(f"{NAMESPACE}::gru_backward", mutates_args=())
def _gru_backward(
    grad_outputs: Tensor | None,
    grad_final: Tensor | None,
    inputs: Tensor,
    input_weight: Tensor,
    hidden_weight: Tensor,
    input_bias: Tensor,
    hidden_bias: Tensor,
    h0: Tensor,
    lengths: Tensor | None,
    gates: Tensor,
    products: Tensor,
    previous: Tensor,
    reverse: bool,
    needs: Sequence[bool],
) -> list[Tensor]:
    """Gradients of the first six arguments of `_gru`."""
    rows, steps, d = inputs.shape
    arguments = (inputs, input_weight, hidden_weight, input_bias, hidden_bias, h0)
    gradients = new_gradients(arguments, needs)
    of_inputs, *of_weights, of_h0 = gradients
    run_kernel(
        "GRU_BACKWARD",
        PaddedBatch(rows, steps, lengths, reverse),
        (d, hidden_weight.shape[1]),
        [input_weight, hidden_weight],
        [grad_outputs, grad_final, inputs, None, gates, products, previous],
        [of_inputs, None, of_h0, *of_weights],
    )
    return returned(gradients, inputs)


@_gru_backward.register_fake
def _gru_backward_shapes(*arguments: Any) -> list[Tensor]:
    return returned_shapes(arguments[2:8], arguments[-1])


def _keep_for_gru_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*output[2:])
    ctx.save_for_backward(*inputs[:7], *output[2:])
    ctx.reverse = inputs[7]


def _differentiate_gru(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
    refuse_second_derivative()
    needs = list(ctx.needs_input_grad[:6])
    results = _gru_backward(*gradients[:2], *ctx.saved_tensors, ctx.reverse, needs)
    return (*given_back(needs, results), None, None, None)


_gru.register_autograd(_differentiate_gru, setup_context=_keep_for_gru_backward)


def gru(
    inputs: Tensor, weights: GRUWeights, lengths: Tensor | None, initial_state: Tensor, reverse: bool
) -> tuple[Tensor, Tensor]:
    """See `recurrent.gru`."""
    keep = needs_backward(inputs, *weights, initial_state)
    outputs, final, *_ = _gru(inputs, *weights, initial_state, lengths, reverse, keep)
    return outputs, final


@torch.library.custom_op(f"{NAMESPACE}::attention_gru", mutates_args=())
def _attention_gru(
    projected: Tensor,
    attention: Tensor,
    hidden_weight: Tensor,
    hidden_bias: Tensor,
    h0: Tensor,
    lengths: Tensor | None,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The final state; then gates, hidden products and states before for the backward pass."""
    rows, steps, _ = projected.shape
    h = hidden_weight.shape[1]
    final = projected.new_empty(rows, h)
    gates, products, previous = kept = _new_gru_buffers(projected, rows * steps if keep else 0, h)
    run_kernel(
        "GRU_FORWARD",
        PaddedBatch(rows, steps, lengths, False),
        (0, h),
        [None, hidden_weight],
        [projected, None, hidden_bias, attention, h0],
        [None, final, *(kept if keep else [None] * 3)],
        reuse_layout=not keep,
    )
    return final, gates, products, previous


@_attention_gru.register_fake
def _attention_gru_shapes(projected: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    rows, steps, _ = projected.shape
    h = arguments[1].shape[1]
    return projected.new_empty(rows, h), *_new_gru_buffers(projected, rows * steps if arguments[-1] else 0, h)


@torch.library.custom_op(f"{NAMESPACE}::attention_gru_backward", mutates_args=())
def _attention_gru_backward(
    grad_final: Tensor,
    projected: Tensor,
    attention: Tensor,
    hidden_weight: Tensor,
    hidden_bias: Tensor,
    h0: Tensor,
    lengths: Tensor | None,
    gates: Tensor,
    products: Tensor,
    previous: Tensor,
    needs: Sequence[bool],
) -> list[Tensor]:
    """Gradients of the first five arguments of `_attention_gru`."""
    rows, steps, _ = projected.shape
    arguments = (projected, attention, hidden_weight, hidden_bias, h0)
    gradients = new_gradients(arguments, needs)
    of_projected, of_attention, of_hidden_weight, of_hidden_bias, of_h0 = gradients
    run_kernel(
        "GRU_BACKWARD",
        PaddedBatch(rows, steps, lengths, False),
        (0, hidden_weight.shape[1]),
        [None, hidden_weight],
        [None, grad_final, None, attention, gates, products, previous],
        [of_projected, of_attention, of_h0, None, of_hidden_weight, None, of_hidden_bias],
    )
    return returned(gradients, projected)


@_attention_gru_backward.register_fake
def _attention_gru_backward_shapes(*arguments: Any) -> list[Tensor]:
    return returned_shapes(arguments[1:6], arguments[-1])


def _keep_for_attention_gru_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.mark_non_differentiable(*output[1:])
    ctx.save_for_backward(*inputs[:6], *output[1:])


def _differentiate_attention_gru(ctx: Any, grad_final: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    refuse_second_derivative()
    needs = list(ctx.needs_input_grad[:5])
    results = _attention_gru_backward(grad_final, *ctx.saved_tensors, needs)
    return (*given_back(needs, results), None, None)


_attention_gru.register_autograd(_differentiate_attention_gru, setup_context=_keep_for_attention_gru_backward)


def attention_gru(
    projected: Tensor, gates: Tensor, weights: GRUWeights, lengths: Tensor | None, initial_state: Tensor
) -> Tensor:
    """See `recurrent.attention_gru`; `projected` is W_x x + b_x of each step, (batch, steps, 3h)."""
    arguments = (projected, gates, weights.hidden, weights.hidden_bias, initial_state)
    final, *_ = _attention_gru(*arguments, lengths, needs_backward(*arguments))
    return final
