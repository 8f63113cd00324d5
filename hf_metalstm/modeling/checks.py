# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""Checks of model inputs, at the border, with messages that name the argument, the row, the value and what is allowed.

A wrong id or label on CUDA otherwise surfaces as a device-side assertion some kernels later. While a model is traced,
scripted or exported the values are unknown and the checks of values are left out.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def values_are_known() -> bool:
    """Whether tensors hold values that Python may look at: not while compiling, exporting or tracing."""
    return not (torch.compiler.is_compiling() or torch.jit.is_tracing())


def check_sequence_input(
    input_ids: Tensor | None, attention_mask: Tensor | None, inputs_embeds: Tensor | None, vocab_size: int
) -> None:
    """Checks one batch of token sequences.

    Args:
        input_ids: (batch, tokens) integers, or None.
        attention_mask: (batch, tokens), 1 for real tokens, or None.
        inputs_embeds: (batch, tokens, size) instead of input_ids, or None.
        vocab_size: ids must lie below it.

    Raises:
        TypeError: something is no tensor, or the ids are no integers.
        ValueError: both or neither input given, an empty batch or row, an id out of range, or a mask of another shape.
    """
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError("give exactly one of input_ids and inputs_embeds")
    given, name = (input_ids, "input_ids") if input_ids is not None else (inputs_embeds, "inputs_embeds")
    check_is_tensor(given, name)
    assert given is not None
    dimensions = 2 if input_ids is not None else 3
    if given.ndim != dimensions:
        raise ValueError(
            f"{name} has shape {tuple(given.shape)}, expected {dimensions} dimensions (batch, tokens, ...)"
        )
    if given.shape[0] == 0:
        raise ValueError(f"empty batch: {name} has shape {tuple(given.shape)}")
    if given.shape[1] == 0:
        raise ValueError(f"row 0 is empty: {name} has shape {tuple(given.shape)}, but a text needs at least one token")
    if input_ids is not None:
        check_ids(input_ids, vocab_size, "input_ids")
    if attention_mask is None:
        return
    check_is_tensor(attention_mask, "attention_mask")
    if attention_mask.shape != given.shape[:2]:
        raise ValueError(
            f"attention_mask has shape {tuple(attention_mask.shape)}, but {name} has {tuple(given.shape[:2])}"
        )
    if values_are_known():
        empty = (attention_mask == 0).all(dim=1)
        if bool(empty.any()):
            row = int(empty.nonzero()[0])
            raise ValueError(f"row {row} is empty: its attention_mask is all 0, but a text needs at least one token")


def check_is_tensor(value: object, name: str) -> None:
    """Raises TypeError for what is not a tensor, such as the lists that a tokenizer gives by default."""
    if not isinstance(value, Tensor):
        raise TypeError(
            f"{name} must be a tensor, got {type(value).__name__}: use torch.tensor(...), or return_tensors='pt' "
            "where a tokenizer made it"
        )


def check_ids(ids: Tensor, size: int, name: str) -> None:
    """Raises TypeError for ids that are no integers, ValueError for one outside 0..size-1."""
    if ids.is_floating_point() or ids.dtype == torch.bool:
        raise TypeError(f"{name} must hold integers, got {ids.dtype}")
    if values_are_known() and ids.numel():
        low, high = ids.aminmax()
        if int(low) < 0 or int(high) >= size:
            place = ((ids < 0) | (ids >= size)).nonzero()[0].tolist()
            value = int(ids[tuple(place)])
            raise ValueError(f"{name}{place} is {value}, but ids must lie in 0..{size - 1}")


def check_class_labels(
    labels: Tensor,
    batch: int,
    label_names: Sequence[Sequence[str]],
    task_of_row: Tensor | None,
    task_names: Sequence[str] | None = None,
) -> None:
    """Checks class labels of a batch whose rows may belong to different tasks.

    Args:
        labels: (batch,) class indexes within each row's task; -100 is ignored.
        batch: rows of the logits.
        label_names: names of the classes, a list for each task.
        task_of_row: (batch,) index into `label_names`; None means the first everywhere.
        task_names: names of the tasks, for the message; None for a model without tasks.

    Raises:
        TypeError: labels are no integers.
        ValueError: another number of labels than rows, or a label that its task does not have.
    """
    if not isinstance(labels, Tensor):
        raise TypeError(f"labels must be a tensor of class indexes, got {type(labels).__name__}")
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise TypeError(f"labels must be integers (class indexes), got {labels.dtype}")
    if labels.shape != (batch,):
        raise ValueError(f"labels have shape {tuple(labels.shape)}, but the logits are for ({batch},) rows")
    if not values_are_known():
        return
    counts = torch.tensor([len(names) for names in label_names], device=labels.device)
    allowed = counts[0].expand(batch) if task_of_row is None else counts[task_of_row]
    wrong = ((labels < 0) & (labels != -100)) | (labels >= allowed)
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        task = 0 if task_of_row is None else int(task_of_row[row])
        names = label_names[task]
        owner = "the model has" if task_names is None else f"task {task_names[task]!r} has"
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        raise ValueError(f"labels[{row}] is {int(labels[row])}, but {owner} classes 0..{len(names) - 1} ({shown})")


def check_float_labels(labels: Tensor, shape: tuple[int, ...], problem_type: str) -> None:
    """Raises TypeError or ValueError when regression or multi-label targets do not have the shape of the logits."""
    check_is_tensor(labels, "labels")
    if labels.shape != shape:
        raise ValueError(f"labels have shape {tuple(labels.shape)}, but {problem_type} logits have {shape}")
