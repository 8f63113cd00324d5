# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""Small rules that the compiled ops follow as custom operators of torch."""

from collections.abc import Sequence

import torch
from torch import Tensor

# Code that came with a shared model must not replace the operators of the installed package.
NAMESPACE = "hf_metalstm" if __name__.startswith("hf_metalstm.") else f"hf_metalstm_{abs(hash(__name__))}"


def needs_backward(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def new_gradients(arguments: Sequence[Tensor], needs: Sequence[bool]) -> list[Tensor | None]:
    """Room for each gradient that is needed. Kernels write all of it, zeros in padding included."""
    return [
        argument.new_empty(argument.shape) if need else None for argument, need in zip(arguments, needs, strict=True)
    ]


def returned(gradients: Sequence[Tensor | None], like: Tensor) -> list[Tensor]:
    """What a backward operator returns: it must return a tensor even for a gradient that nobody asked for."""
    return [like.new_empty(0) if gradient is None else gradient for gradient in gradients]


def returned_shapes(arguments: Sequence[Tensor], needs: Sequence[bool]) -> list[Tensor]:
    """`returned` while torch traces."""
    return [part.new_empty(part.shape if need else (0,)) for part, need in zip(arguments, needs, strict=True)]


def given_back(needs: Sequence[bool], gradients: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
    """From `returned` to what autograd expects."""
    return tuple(gradient if need else None for need, gradient in zip(needs, gradients, strict=True))


def refuse_second_derivative() -> None:
    """Called first in a backward pass, where gradients are recorded only if they shall be differentiated again."""
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        raise RuntimeError(
            "the recurrent ops' 'cpp' backend has no second derivatives (create_graph=True); "
            "compute inside use_backend('reference'), which has them"
        )
