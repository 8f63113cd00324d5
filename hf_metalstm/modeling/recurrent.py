# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""Sequence operations of the package's recurrent models, and the one place where their backend is chosen.

Every op runs one direction over a padded batch with the length of each row, so padding never changes a result, and
gives the outputs of all steps and the state after each row's last real step. Three backends compute the same numbers:

* "cpp": compiled loops, the default where the package was built with them; CPU only, other devices take "torch";
* "torch": one autograd Function over the whole sequence, in pure PyTorch, any device;
* "reference": the naive formulas, step by step, for checking.

The environment variable `HF_METALSTM_BACKEND` or `use_backend` chooses one explicitly. torch.compile and torch.export
keep an op of "cpp" as one node of their graph and call the others outside of it.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from .compiled_kernels import kernels_available
from .recurrent_cpp import lstm as _cpp_lstm
from .recurrent_cpp_generated import meta_lstm as _cpp_meta_lstm
from .recurrent_reference import lstm as _reference_lstm
from .recurrent_reference import meta_lstm as _reference_meta_lstm
from .recurrent_torch import lstm as _torch_lstm
from .recurrent_torch import meta_lstm as _torch_meta_lstm
from .recurrent_types import LSTMState, LSTMWeights, MetaLSTMState, MetaLSTMWeights


def _untraced(**ops: Any) -> SimpleNamespace:
    """Ops whose time loop is Python: tracing would unroll it, for minutes and again for every new length."""

    def with_lengths_checked(op: str, run: Callable[..., Any]) -> Callable[..., Any]:
        @torch.compiler.disable
        def checked(inputs: Tensor, weights: Any, lengths: Tensor | None, *rest: Any) -> Any:
            if lengths is not None:
                _check_lengths(op, lengths, inputs.shape[1])
            with torch.autocast(inputs.device.type, enabled=False):
                return run(inputs, weights, lengths, *rest)

        return checked

    return SimpleNamespace(**{name: with_lengths_checked(name, run) for name, run in ops.items()})


def _check_lengths(op: str, lengths: Tensor, steps: int) -> None:
    bad = ((lengths < 1) | (lengths > steps)).nonzero()
    if bad.numel():
        row = int(bad[0])
        raise ValueError(f"{op}: lengths[{row}] is {int(lengths[row])}, but a row has 1..{steps} steps")


_BACKENDS = {
    "cpp": SimpleNamespace(lstm=_cpp_lstm, meta_lstm=_cpp_meta_lstm),
    "torch": _untraced(lstm=_torch_lstm, meta_lstm=_torch_meta_lstm),
    "reference": _untraced(lstm=_reference_lstm, meta_lstm=_reference_meta_lstm),
}
_chosen: list[str] = []
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def available_backends() -> list[str]:
    """Names that `use_backend` and `HF_METALSTM_BACKEND` accept here."""
    return [name for name in _BACKENDS if name != "cpp" or kernels_available()]


@torch.compiler.assume_constant_result
def current_backend() -> str:
    """Name of the backend that the next call of an op takes; what is compiled keeps the one it was compiled with.

    Raises:
        ValueError: `HF_METALSTM_BACKEND` names a backend that does not exist or was not built.
    """
    if _chosen:
        return _chosen[-1]
    return _check_backend(os.environ.get("HF_METALSTM_BACKEND") or available_backends()[0], "HF_METALSTM_BACKEND")


@contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Computes the recurrent ops with another backend inside a `with` block.

    Args:
        name: one of `available_backends()`.

    Raises:
        ValueError: there is no such backend, or it was not built.

    Example:
        >>> import torch
        >>> from hf_metalstm.modeling.recurrent import LSTMWeights, lstm, use_backend
        >>> weights = LSTMWeights(torch.ones(8, 3), torch.ones(8, 2), torch.zeros(8))
        >>> with use_backend("reference"):
        ...     outputs, state = lstm(torch.ones(1, 4, 3), weights)
        >>> outputs.shape
        torch.Size([1, 4, 2])
    """
    _chosen.append(_check_backend(name, "backend"))
    try:
        yield
    finally:
        _chosen.pop()


def _check_backend(name: str, source: str) -> str:
    available = ", ".join(available_backends())
    if name not in _BACKENDS:
        raise ValueError(f"{source} is {name!r}; available: {available}")
    if name not in available_backends():
        raise ValueError(
            f"{source} is 'cpp', but hf_metalstm was installed without its compiled kernels; available: {available}. "
            "To have them, install a C++17 compiler (GCC or Clang), then the package again from its sources: "
            "HF_METALSTM_KERNELS=require pip install --force-reinstall --no-deps --no-binary hf-metalstm hf-metalstm"
        )
    return name


def _backend_for(device: torch.device) -> str:
    """The current backend, but where that is compiled for the CPU alone."""
    name = current_backend()
    return "torch" if name == "cpp" and device.type != "cpu" else name


def _check_call(
    op: str, inputs: Tensor, weights: Any, shapes: list[tuple[int, ...]], lengths: Tensor | None, state: Any, sizes: Any
) -> None:
    """Raises what the ops promise. `shapes` belong to the weights, `sizes` to the parts of the state.

    The values of the lengths are checked by the backends, so that this function can be traced.
    """
    for name, part, shape in zip(weights._fields, weights, shapes, strict=True):
        if part.shape != shape:
            raise ValueError(f"{op}: weights.{name} has shape {tuple(part.shape)}, expected {shape}")
    input_size = shapes[0][1]
    if inputs.ndim != 3 or inputs.shape[2] != input_size:
        raise ValueError(f"{op}: inputs have shape {tuple(inputs.shape)}, expected (batch, steps, {input_size})")
    if not inputs.is_floating_point():
        raise TypeError(f"{op}: inputs must be floating-point vectors, got {inputs.dtype}")
    batch, steps, _ = inputs.shape
    if batch == 0 or steps == 0:
        raise ValueError(f"{op}: inputs have shape {tuple(inputs.shape)}: an empty batch has no states")
    if lengths is not None:
        if lengths.shape != (batch,) or lengths.dtype not in _INTEGERS:
            raise ValueError(
                f"{op}: lengths must be integers of shape ({batch},), got {lengths.dtype} {tuple(lengths.shape)}"
            )
    if state is not None:
        for name, part, size in zip(state._fields, state, sizes, strict=True):
            if part.shape != (batch, size):
                raise ValueError(
                    f"{op}: initial_state.{name} has shape {tuple(part.shape)}, expected ({batch}, {size})"
                )


def _run(
    op: str,
    inputs: Tensor,
    weights: Any,
    lengths: Tensor | None,
    state: Any,
    state_class: type,
    sizes: list[int],
    reverse: bool,
) -> Any:
    """Brings everything to one precision, calls the backend and rounds the results to the inputs' precision."""
    if state is None:
        state = state_class(*(inputs.new_zeros(inputs.shape[0], size) for size in sizes))
    given = inputs.dtype
    # Half precision would lose the small updates of a long recurrence: it is computed in float32.
    compute = torch.promote_types(torch.promote_types(given, weights[0].dtype), torch.float32)
    cast_weights = type(weights)(*(_cast(part, compute) for part in weights))
    cast_state = state_class(*(_cast(part, compute) for part in state))
    backend = _backend_for(inputs.device)
    if lengths is not None and backend == "cpp":
        lengths = lengths.to("cpu", torch.int64).contiguous()
    run = getattr(_BACKENDS[backend], op)
    *outputs, final = run(_cast(inputs, compute), cast_weights, lengths, cast_state, reverse)
    return (*(_cast(output, given) for output in outputs), state_class(*(_cast(part, given) for part in final)))


def _cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """`Tensor.to`, but what is as it should be leaves no trace in a compiled graph, and costs nothing."""
    return tensor if tensor.dtype == dtype else tensor.to(dtype)


def lstm(
    inputs: Tensor,
    weights: LSTMWeights,
    lengths: Tensor | None = None,
    initial_state: LSTMState | None = None,
    reverse: bool = False,
) -> tuple[Tensor, LSTMState]:
    """Long short-term memory over a padded batch.

        [i f g o] = [s s tanh s](W_x x_t + W_h h_{t-1} + b)
        c_t = g * i + c_{t-1} * f        h_t = o * tanh(c_t)

    Args:
        inputs: (batch, steps, input_size), real steps first in each row.
        weights: `LSTMWeights`.
        lengths: (batch,) integers, real steps of each row; None means all.
        initial_state: `LSTMState` of (batch, hidden_size) tensors; zeros when None.
        reverse: read each row's real steps from the last to the first. The output of a step stays at its place.

    Returns:
        Outputs (batch, steps, hidden_size), zero beyond a row's length, and the `LSTMState` after the last step read.
        Half-precision inputs are computed in float32 and come back in half precision.

    Raises:
        TypeError: the inputs are integers.
        ValueError: a length is 0 or larger than `steps`, or a shape does not fit.

    Example:
        >>> import torch
        >>> from hf_metalstm.modeling.recurrent import LSTMWeights, lstm
        >>> weights = LSTMWeights(torch.randn(20, 3), torch.randn(20, 5), torch.zeros(20))
        >>> outputs, state = lstm(torch.randn(2, 7, 3), weights, lengths=torch.tensor([7, 4]))
        >>> outputs.shape, state.hidden.shape
        (torch.Size([2, 7, 5]), torch.Size([2, 5]))
    """
    d, h = weights.input.shape[-1], weights.hidden.shape[-1]
    sizes = [h, h]
    _check_call("lstm", inputs, weights, [(4 * h, d), (4 * h, h), (4 * h,)], lengths, initial_state, sizes)
    outputs, state = _run("lstm", inputs, weights, lengths, initial_state, LSTMState, sizes, reverse)
    return outputs, state


def meta_lstm(
    inputs: Tensor,
    weights: MetaLSTMWeights,
    lengths: Tensor | None = None,
    initial_state: MetaLSTMState | None = None,
    reverse: bool = False,
) -> tuple[Tensor, Tensor, MetaLSTMState]:
    """LSTM whose weights a smaller Meta-LSTM generates at every step (Chen et al. 2018, equations 8 to 16).

        [g^ o^ i^ f^] = [tanh s s s](W_m [x_t ; h^_{t-1} ; h_{t-1}] + b_m)
        c^_t = g^ * i^ + c^_{t-1} * f^        h^_t = o^ * tanh(c^_t)        z_t = W_z h^_t
        W(z_t)_* = P_* diag(z_t) Q_*          b(z_t)_* = B_* z_t            for * in {c, o, i, f}
        [g o i f] = [tanh s s s](W(z_t) [x_t ; h_{t-1}] + b(z_t))
        c_t = g * i + c_{t-1} * f             h_t = o * tanh(c_t)

    Args:
        inputs: (batch, steps, input_size), real steps first in each row.
        weights: `MetaLSTMWeights`; theta_m may be shared between tasks while each task has its own P, Q and B.
        lengths: (batch,) integers, real steps of each row; None means all.
        initial_state: `MetaLSTMState`; zeros when None.
        reverse: read each row's real steps from the last to the first. The output of a step stays at its place.

    Returns:
        Outputs (batch, steps, hidden_size) and meta vectors z_t (batch, steps, z_size), both zero beyond a row's
        length, and the `MetaLSTMState` after the last step read.

    Raises:
        TypeError: the inputs are integers.
        ValueError: a length is 0 or larger than `steps`, or a shape does not fit.

    Example:
        >>> import torch
        >>> from hf_metalstm.modeling.recurrent import MetaLSTMWeights, meta_lstm
        >>> d, h, m, z = 3, 5, 4, 2
        >>> shapes = [(4 * m, d), (4 * m, m), (4 * m, h), (4 * m,), (z, m), (4, h, z), (4, z, d), (4, z, h), (4, h, z)]
        >>> outputs, vectors, state = meta_lstm(torch.randn(2, 7, d), MetaLSTMWeights(*map(torch.randn, shapes)))
        >>> outputs.shape, vectors.shape
        (torch.Size([2, 7, 5]), torch.Size([2, 7, 2]))
    """
    d, m, h, z = weights.meta_input.shape[-1], weights.z.shape[-1], weights.meta_hidden.shape[-1], weights.z.shape[0]
    meta_shapes = [(4 * m, d), (4 * m, m), (4 * m, h), (4 * m,), (z, m)]
    shapes = [*meta_shapes, (4, h, z), (4, z, d), (4, z, h), (4, h, z)]
    sizes = [h, h, m, m]
    _check_call("meta_lstm", inputs, weights, shapes, lengths, initial_state, sizes)
    outputs, vectors, state = _run("meta_lstm", inputs, weights, lengths, initial_state, MetaLSTMState, sizes, reverse)
    return outputs, vectors, state
