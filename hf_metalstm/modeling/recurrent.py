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
from .recurrent_cpp import attention_gru as _cpp_attention_gru
from .recurrent_cpp import gru as _cpp_gru
from .recurrent_cpp import lstm as _cpp_lstm
from .recurrent_cpp_generated import hyper_lstm as _cpp_hyper_lstm
from .recurrent_cpp_generated import meta_lstm as _cpp_meta_lstm
from .recurrent_reference import attention_gru as _reference_attention_gru
from .recurrent_reference import gru as _reference_gru
from .recurrent_reference import hyper_lstm as _reference_hyper_lstm
from .recurrent_reference import lstm as _reference_lstm
from .recurrent_reference import meta_lstm as _reference_meta_lstm
from .recurrent_torch import lstm as _torch_lstm
from .recurrent_torch import meta_lstm as _torch_meta_lstm
from .recurrent_torch_gru import attention_gru as _torch_attention_gru
from .recurrent_torch_gru import gru as _torch_gru
from .recurrent_torch_hyper import hyper_lstm as _torch_hyper_lstm
from .recurrent_types import (
    GRUWeights,
    HyperLSTMState,
    HyperLSTMWeights,
    LSTMState,
    LSTMWeights,
    MetaLSTMState,
    MetaLSTMWeights,
    ProjectedInputs,
)


def _untraced(**ops: Any) -> SimpleNamespace:
    """Ops whose time loop is Python: tracing would unroll it, for minutes and again for every new length."""

    def with_lengths_checked(op: str, run: Callable[..., Any]) -> Callable[..., Any]:
        @torch.compiler.disable
        def checked(inputs: Tensor, *arguments: Any, lengths: Tensor | None, **options: Any) -> Any:
            if lengths is not None:
                _check_lengths(op, lengths, inputs.shape[1])
            with torch.autocast(inputs.device.type, enabled=False):
                return run(inputs, *arguments, lengths=lengths, **options)

        return checked

    return SimpleNamespace(**{name: with_lengths_checked(name, run) for name, run in ops.items()})


def _check_lengths(op: str, lengths: Tensor, steps: int) -> None:
    bad = ((lengths < 1) | (lengths > steps)).nonzero()
    if bad.numel():
        row = int(bad[0])
        raise ValueError(f"{op}: lengths[{row}] is {int(lengths[row])}, but a row has 1..{steps} steps")


_BACKENDS = {
    "cpp": SimpleNamespace(
        lstm=_cpp_lstm,
        meta_lstm=_cpp_meta_lstm,
        hyper_lstm=_cpp_hyper_lstm,
        gru=_cpp_gru,
        attention_gru=_cpp_attention_gru,
    ),
    "torch": _untraced(
        lstm=_torch_lstm,
        meta_lstm=_torch_meta_lstm,
        hyper_lstm=_torch_hyper_lstm,
        gru=_torch_gru,
        attention_gru=_torch_attention_gru,
    ),
    "reference": _untraced(
        lstm=_reference_lstm,
        meta_lstm=_reference_meta_lstm,
        hyper_lstm=_reference_hyper_lstm,
        gru=_reference_gru,
        attention_gru=_reference_attention_gru,
    ),
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


def _check_weights(op: str, weights: Any, shapes: list[tuple[int, ...]]) -> None:
    for name, part, shape in zip(weights._fields, weights, shapes, strict=True):
        if part.shape != shape:
            raise ValueError(f"{op}: weights.{name} has shape {tuple(part.shape)}, expected {shape}")


def _check_sequence(op: str, name: str, sequence: Tensor, size: int, lengths: Tensor | None) -> None:
    """The values of the lengths are checked by the backends, so that this function can be traced."""
    if sequence.ndim != 3 or sequence.shape[2] != size:
        raise ValueError(f"{op}: {name} have shape {tuple(sequence.shape)}, expected (batch, steps, {size})")
    if not sequence.is_floating_point():
        raise TypeError(f"{op}: {name} must be floating-point vectors, got {sequence.dtype}")
    batch, steps, _ = sequence.shape
    if batch == 0 or steps == 0:
        raise ValueError(f"{op}: {name} have shape {tuple(sequence.shape)}: an empty batch has no states")
    if lengths is not None and (lengths.shape != (batch,) or lengths.dtype not in _INTEGERS):
        raise ValueError(
            f"{op}: lengths must be integers of shape ({batch},), got {lengths.dtype} {tuple(lengths.shape)}"
        )


def _check_state(op: str, name: str, part: Tensor, batch: int, size: int) -> None:
    if part.shape != (batch, size):
        raise ValueError(f"{op}: {name} has shape {tuple(part.shape)}, expected ({batch}, {size})")


def _initial_state(op: str, inputs: Tensor, state: Any, state_class: type, sizes: list[int]) -> Any:
    """The given state, checked, or zeros."""
    batch = inputs.shape[0]
    if state is None:
        return state_class(*(inputs.new_zeros(batch, size) for size in sizes))
    for name, part, size in zip(state._fields, state, sizes, strict=True):
        _check_state(op, f"initial_state.{name}", part, batch, size)
    return state


def _run(
    op: str, tensors: tuple[Tensor, ...], weights: Any, lengths: Tensor | None, state: Any, **options: bool
) -> Any:
    """Brings everything to one precision, calls the backend and rounds the results to the inputs' precision.

    Args:
        op: name of the op.
        tensors: its inputs and what else it takes for each step.
        weights, state: tuples of tensors, or a single one.
        options: given to the backend as they are.
    """
    given = tensors[0].dtype
    # Half precision would lose the small updates of a long recurrence: it is computed in float32.
    compute = torch.promote_types(torch.promote_types(given, weights[0].dtype), torch.float32)
    backend = _backend_for(tensors[0].device)
    if lengths is not None and backend == "cpp":
        lengths = lengths.to("cpu", torch.int64).contiguous()
    results = getattr(_BACKENDS[backend], op)(
        *(_cast(tensor, compute) for tensor in tensors),
        _cast(weights, compute),
        lengths=lengths,
        initial_state=_cast(state, compute),
        **options,
    )
    return _cast(results, given)


def _cast(tensors: Any, dtype: torch.dtype) -> Any:
    """`Tensor.to` of a tensor or of all in a tuple; what is as it should be leaves no trace in a compiled graph."""
    if isinstance(tensors, Tensor):
        return tensors if tensors.dtype == dtype else tensors.to(dtype)
    parts = [_cast(part, dtype) for part in tensors]
    return type(tensors)(*parts) if hasattr(tensors, "_fields") else tuple(parts)


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
    _check_weights("lstm", weights, [(4 * h, d), (4 * h, h), (4 * h,)])
    _check_sequence("lstm", "inputs", inputs, d, lengths)
    state = _initial_state("lstm", inputs, initial_state, LSTMState, [h, h])
    outputs, state = _run("lstm", (inputs,), weights, lengths, state, reverse=reverse)
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
    _check_weights("meta_lstm", weights, shapes)
    _check_sequence("meta_lstm", "inputs", inputs, d, lengths)
    state = _initial_state("meta_lstm", inputs, initial_state, MetaLSTMState, [h, h, m, m])
    outputs, vectors, state = _run("meta_lstm", (inputs,), weights, lengths, state, reverse=reverse)
    return outputs, vectors, state


def hyper_lstm(
    inputs: Tensor,
    weights: HyperLSTMWeights,
    lengths: Tensor | None = None,
    initial_state: HyperLSTMState | None = None,
    reverse: bool = False,
) -> tuple[Tensor, HyperLSTMState]:
    """LSTM whose gates a smaller LSTM scales and shifts at every step (Ha, Dai, Le 2016, "HyperNetworks").

        [i^ f^ g^ o^] = [s s tanh s](W_m [x_t ; h^_{t-1} ; h_{t-1}] + b_m)
        c^_t = g^ * i^ + c^_{t-1} * f^        h^_t = o^ * tanh(c^_t)
        z_h = W_{h^ h} h^_t + b_{h^ h}        z_x = W_{h^ x} h^_t + b_{h^ x}        z_b = W_{h^ b} h^_t
        y = (W_{hz} z_h) * (W_h h_{t-1}) + (W_{xz} z_x) * (W_x x_t) + W_{bz} z_b + b_0       for y in {i, f, g, o}
        c_t = tanh(g) * s(i) + c_{t-1} * s(f)                                   h_t = s(o) * tanh(c_t)

    Each gate has its own z vectors and matrices. The vectors come from the hyper LSTM's state of the same step, as in
    the authors' code; the paper prints the state before. There is no layer norm.

    Args:
        inputs: (batch, steps, input_size), real steps first in each row.
        weights: `HyperLSTMWeights`.
        lengths: (batch,) integers, real steps of each row; None means all.
        initial_state: `HyperLSTMState`; zeros when None.
        reverse: read each row's real steps from the last to the first. The output of a step stays at its place.

    Returns:
        Outputs (batch, steps, hidden_size), zero beyond a row's length, and the `HyperLSTMState` after the last step.

    Raises:
        TypeError: the inputs are integers.
        ValueError: a length is 0 or larger than `steps`, or a shape does not fit.

    Example:
        >>> import torch
        >>> from hf_metalstm.modeling.recurrent import HyperLSTMWeights, hyper_lstm
        >>> d, h, m, z = 3, 5, 4, 2
        >>> shapes = [(4 * m, d), (4 * m, m), (4 * m, h), (4 * m,), (4, z, m), (4, z), (4, z, m), (4, z), (4, z, m)]
        >>> shapes += [(4, h, z), (4, h, z), (4, h, z), (4 * h, d), (4 * h, h), (4 * h,)]
        >>> outputs, state = hyper_lstm(torch.randn(2, 7, d), HyperLSTMWeights(*map(torch.randn, shapes)))
        >>> outputs.shape, state.hyper_hidden.shape
        (torch.Size([2, 7, 5]), torch.Size([2, 4]))
    """
    d, h, m, z = weights.input.shape[-1], weights.hidden.shape[-1], weights.z_bias.shape[-1], weights.z_bias.shape[1]
    hyper_shapes = [(4 * m, d), (4 * m, m), (4 * m, h), (4 * m,)]
    z_shapes = [(4, z, m), (4, z), (4, z, m), (4, z), (4, z, m)]
    main_shapes = [(4, h, z), (4, h, z), (4, h, z), (4 * h, d), (4 * h, h), (4 * h,)]
    _check_weights("hyper_lstm", weights, [*hyper_shapes, *z_shapes, *main_shapes])
    _check_sequence("hyper_lstm", "inputs", inputs, d, lengths)
    state = _initial_state("hyper_lstm", inputs, initial_state, HyperLSTMState, [h, h, m, m])
    outputs, state = _run("hyper_lstm", (inputs,), weights, lengths, state, reverse=reverse)
    return outputs, state


def gru(
    inputs: Tensor,
    weights: GRUWeights,
    lengths: Tensor | None = None,
    initial_state: Tensor | None = None,
    reverse: bool = False,
) -> tuple[Tensor, Tensor]:
    """Gated recurrent unit over a padded batch, with the equations of torch.nn.GRU.

        r = s(W_xr x_t + b_xr + W_hr h_{t-1} + b_hr)        z = s(W_xz x_t + b_xz + W_hz h_{t-1} + b_hz)
        n = tanh(W_xn x_t + b_xn + r * (W_hn h_{t-1} + b_hn))        h_t = (1 - z) * n + z * h_{t-1}

    Args:
        inputs: (batch, steps, input_size), real steps first in each row.
        weights: `GRUWeights`.
        lengths: (batch,) integers, real steps of each row; None means all.
        initial_state: (batch, hidden_size); zeros when None.
        reverse: read each row's real steps from the last to the first. The output of a step stays at its place.

    Returns:
        Outputs (batch, steps, hidden_size), zero beyond a row's length, and the state after the last step read,
        (batch, hidden_size).

    Raises:
        TypeError: the inputs are integers.
        ValueError: a length is 0 or larger than `steps`, or a shape does not fit.

    Example:
        >>> import torch
        >>> from hf_metalstm.modeling.recurrent import GRUWeights, gru
        >>> weights = GRUWeights(torch.randn(15, 3), torch.randn(15, 5), torch.zeros(15), torch.zeros(15))
        >>> outputs, state = gru(torch.randn(2, 7, 3), weights, lengths=torch.tensor([7, 4]))
        >>> outputs.shape, state.shape
        (torch.Size([2, 7, 5]), torch.Size([2, 5]))
    """
    d, h = weights.input.shape[-1], weights.hidden.shape[-1]
    _check_weights("gru", weights, [(3 * h, d), (3 * h, h), (3 * h,), (3 * h,)])
    _check_sequence("gru", "inputs", inputs, d, lengths)
    state = _gru_state("gru", inputs, initial_state, h)
    outputs, final = _run("gru", (inputs,), weights, lengths, state, reverse=reverse)
    return outputs, final


def _gru_state(op: str, inputs: Tensor, state: Tensor | None, size: int) -> Tensor:
    if state is None:
        return inputs.new_zeros(inputs.shape[0], size)
    _check_state(op, "initial_state", state, inputs.shape[0], size)
    return state


def project_gru_inputs(inputs: Tensor, weights: GRUWeights) -> ProjectedInputs:
    """W_x x + b_x of every step, for several calls of `attention_gru` over the same inputs.

    Args:
        inputs: (batch, steps, input_size).
        weights: `GRUWeights`; those of the calls.

    Example:
        >>> import torch
        >>> from hf_metalstm.modeling.recurrent import GRUWeights, attention_gru, project_gru_inputs
        >>> weights = GRUWeights(torch.randn(15, 3), torch.randn(15, 5), torch.zeros(15), torch.zeros(15))
        >>> projected = project_gru_inputs(torch.randn(2, 7, 3), weights)
        >>> episodes = [attention_gru(projected, torch.rand(2, 7), weights) for _ in range(3)]
        >>> episodes[0].shape
        torch.Size([2, 5])
    """
    return ProjectedInputs(torch.nn.functional.linear(inputs, weights.input, weights.input_bias))


def attention_gru(
    inputs: Tensor | ProjectedInputs,
    gates: Tensor,
    weights: GRUWeights,
    lengths: Tensor | None = None,
    initial_state: Tensor | None = None,
) -> Tensor:
    """GRU whose update is opened by a gate: h_t = g_t GRU(x_t, h_{t-1}) + (1 - g_t) h_{t-1}.

    Used for the episode of a Dynamic Memory Network (Kumar et al. 2016, section 2.3); GRU is that of `gru`.

    Args:
        inputs: (batch, steps, input_size) facts, or what `project_gru_inputs` made of them.
        gates: (batch, steps), how far each fact is let in.
        weights: `GRUWeights`.
        lengths: (batch,) integers, real steps of each row; None means all.
        initial_state: (batch, hidden_size); zeros when None.

    Returns:
        (batch, hidden_size): the state after each row's last real step.

    Raises:
        TypeError: the inputs are integers.
        ValueError: a length is 0 or larger than `steps`, or a shape does not fit.

    Example:
        >>> import torch
        >>> from hf_metalstm.modeling.recurrent import GRUWeights, attention_gru
        >>> weights = GRUWeights(torch.randn(15, 3), torch.randn(15, 5), torch.zeros(15), torch.zeros(15))
        >>> attention_gru(torch.randn(2, 7, 3), torch.rand(2, 7), weights, lengths=torch.tensor([7, 4])).shape
        torch.Size([2, 5])
    """
    op, h = "attention_gru", weights.hidden.shape[-1]
    d = weights.input.shape[-1]
    _check_weights(op, weights, [(3 * h, d), (3 * h, h), (3 * h,), (3 * h,)])
    if not isinstance(inputs, ProjectedInputs):
        _check_sequence(op, "inputs", inputs, d, lengths)
        if lengths is not None:
            # Whatever stands in padding would reach the input matrix's gradient.
            padding = torch.arange(inputs.shape[1], device=inputs.device) >= lengths.to(inputs.device)[:, None]
            inputs = inputs.masked_fill(padding[:, :, None], 0.0)
        inputs = project_gru_inputs(inputs, weights)
    projected = inputs.gates
    _check_sequence(op, "projected inputs", projected, 3 * h, lengths)
    if gates.shape != projected.shape[:2]:
        raise ValueError(f"{op}: gates have shape {tuple(gates.shape)}, expected {tuple(projected.shape[:2])}")
    state = _gru_state(op, projected, initial_state, h)
    return _run(op, (projected, gates), weights, lengths, state)
