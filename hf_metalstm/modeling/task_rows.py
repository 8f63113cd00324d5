# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""Batches that mix tasks: rows of one task are computed together, results come back in the order of the batch."""

from collections.abc import Callable

import torch
from torch import Tensor


class TaskRows:
    """Which rows of a batch belong to which task.

    Args:
        task_ids: (batch,) task of each row, or one task for all rows.
    """

    def __init__(self, task_ids: Tensor | int):
        self.of_row = None if isinstance(task_ids, int) else task_ids
        self._groups: list[tuple[int, Tensor | None]]
        if isinstance(task_ids, int):
            self._groups = [(task_ids, None)]
            return
        tasks = task_ids.unique().tolist()
        if len(tasks) == 1:
            self._groups = [(tasks[0], None)]
            return
        self._groups = [(task, (task_ids == task).nonzero().squeeze(1)) for task in tasks]
        order = torch.cat([rows for _, rows in self._groups if rows is not None])
        self._place = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))

    @property
    def only(self) -> int:
        """The task of all rows, when they have one task."""
        return self._groups[0][0]

    def run(self, compute: Callable[..., tuple[Tensor, ...]], *tensors: Tensor | None) -> tuple[Tensor, ...]:
        """Calls `compute(task, *rows of the tensors)` for each task and puts the rows of its results in batch order."""
        if self._groups[0][1] is None:
            return compute(self._groups[0][0], *tensors)
        results = []
        for task, rows in self._groups:
            results.append(compute(task, *(None if tensor is None else tensor[rows] for tensor in tensors)))
        return tuple(torch.cat(parts).index_select(0, self._place) for parts in zip(*results, strict=True))
