# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""Calls the compiled loops of the recurrent ops, where the package was built with them.

The compiled module knows nothing of torch: it gets addresses and sizes. What they point to is this module's business:
contiguous CPU tensors of one precision that live until the call returns.
"""

import os
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

try:
    from hf_metalstm import _kernels
except ImportError:  # Not built, or the code of a shared model in a place without the package.
    _kernels = None  # type: ignore[assignment]

_PRECISIONS = (torch.float32, torch.float64)
# Multiply-adds below which another thread costs more than it brings.
_LEAST_WORK_OF_THREAD = 1_000_000
# Weights laid out for the kernels: enough for the layers and directions of a model or two.
_MOST_LAYOUTS = 32


def kernels_available() -> bool:
    """Whether the package was built with the compiled module."""
    return _kernels is not None


def instruction_sets() -> tuple[str, ...]:
    """Instruction sets that this processor has kernels for, the best one last; empty without the compiled module."""
    return () if _kernels is None else _kernels.instruction_sets()


def instruction_set() -> str:
    """The instruction set of the next call: `HF_METALSTM_INSTRUCTION_SET`, or the best that the processor has.

    Raises:
        ValueError: the variable names one that this processor does not have.
    """
    supported = instruction_sets()
    wanted = os.environ.get("HF_METALSTM_INSTRUCTION_SET") or supported[-1]
    if wanted not in supported:
        raise ValueError(f"HF_METALSTM_INSTRUCTION_SET is {wanted!r}; this processor has: {', '.join(supported)}")
    return wanted


class PaddedBatch(NamedTuple):
    """Size and row lengths of a batch, and the direction in which it is read."""

    rows: int
    steps: int
    lengths: Tensor | None  # (rows,) int64 on the CPU, or None: every row has all steps
    reverse: bool


def run_kernel(
    op: str,
    batch: PaddedBatch,
    sizes: tuple[int, ...],
    weights: Sequence[Tensor | None],
    read: Sequence[Tensor | None],
    written: Sequence[Tensor | None],
    reuse_layout: bool = False,
) -> None:
    """Runs one kernel over a batch.

    Args:
        op: name of the kernel, such as "LSTM_FORWARD".
        batch: the batch; its lengths are checked.
        sizes: the op's sizes, as its C++ source lists them.
        weights: matrices that the kernel multiplies with, in the order of its `Weight` enumeration.
        read: what else it reads, in the order of its `Data` enumeration; None where there is nothing.
        written: what it writes, in the same order; contiguous.
        reuse_layout: keep the weights' layout for the next call with equal weights, as inference has it.

    Raises:
        ValueError: a length is 0 or larger than the batch's steps.
    """
    name, index = instruction_set(), getattr(_kernels, op)
    matrices = [None if weight is None else weight.contiguous() for weight in weights]
    data = [*(None if part is None else part.contiguous() for part in read), *written]
    is_double = _check_tensors(op, [*matrices, *data])
    addresses = tuple(0 if matrix is None else matrix.data_ptr() for matrix in matrices)
    key: Any = None
    packed = None
    if reuse_layout:
        # By contents, not by identity or version: writes through `.data` or numpy leave no other trace.
        sizes_in_bytes = tuple(0 if matrix is None else matrix.nbytes for matrix in matrices)
        key = (name, index, is_double, sizes, _kernels.digest(addresses, sizes_in_bytes))
        packed = _layouts.get(key)
    if packed is None:
        packed = torch.empty(_kernels.packed_bytes(name, index, is_double, sizes), dtype=torch.uint8)
        _kernels.pack(name, index, is_double, sizes, addresses, packed.data_ptr())
        if reuse_layout:
            _layouts.put(key, packed)
    lengths = batch.lengths
    try:
        _kernels.run(
            name,
            index,
            is_double,
            torch.get_num_threads(),
            _LEAST_WORK_OF_THREAD,
            batch.rows,
            batch.steps,
            0 if lengths is None else lengths.data_ptr(),
            batch.reverse,
            sizes,
            tuple(0 if part is None else part.data_ptr() for part in data),
            packed.data_ptr(),
        )
    except ValueError as error:
        raise ValueError(f"{op.rsplit('_', 1)[0].lower()}: {error}") from None


def _check_tensors(op: str, tensors: Sequence[Tensor | None]) -> bool:
    """Whether all are float64. The last line before raw memory, where a mistake would be a wild write."""
    dtype = next(tensor.dtype for tensor in tensors if tensor is not None)
    for tensor in tensors:
        if tensor is not None and not (
            tensor.dtype == dtype and dtype in _PRECISIONS and tensor.is_contiguous() and tensor.device.type == "cpu"
        ):
            raise TypeError(
                f"{op}: the compiled kernels take contiguous CPU tensors of one precision, float32 or float64; "
                f"got {tensor.dtype}, strides {tensor.stride()}, on {tensor.device}"
            )
    return dtype == torch.float64


class _Layouts:
    """The most recently used layouts of weights."""

    def __init__(self, most: int):
        self._most = most
        self._kept: OrderedDict[Any, Tensor] = OrderedDict()

    def get(self, key: Any) -> Tensor | None:
        packed = self._kept.pop(key, None)
        if packed is not None:
            self._kept[key] = packed
        return packed

    def put(self, key: Any, packed: Tensor) -> None:
        self._kept[key] = packed
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def clear(self) -> None:
        self._kept.clear()

    def __len__(self) -> int:
        return len(self._kept)


_layouts = _Layouts(_MOST_LAYOUTS)
