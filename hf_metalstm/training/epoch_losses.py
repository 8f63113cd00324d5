"""Average training loss of each epoch, per task: the learning curves of a multi-task training.

A step of a multi-task training sees one random task, so its loss says little; the average over an epoch does (Chen et
al. 2018, Fig. 5). The sums are kept on the device and travel with the checkpoints.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import TrainerCallback, TrainerState
from transformers.trainer_callback import ExportableState


class EpochLosses(TrainerCallback, ExportableState):
    """Adds up the losses of an epoch. A callback without events, because Trainer stores the state of callbacks.

    Args:
        tasks: names, in the order of their ids.
    """

    def __init__(self, tasks: Sequence[str]):
        self.tasks = list(tasks)
        self.finished: list[dict[str, Any]] = []
        # Sum of the losses and number of labels of each task in the present epoch, over all processes.
        self.sums = [0.0] * len(self.tasks)
        self.counts = [0.0] * len(self.tasks)
        self._pending: Tensor | None = None

    def state(self) -> dict[str, Any]:
        """What a checkpoint holds; call `collect` before."""
        attributes = {"finished": list(self.finished), "sums": list(self.sums), "counts": list(self.counts)}
        return {"args": {"tasks": self.tasks}, "attributes": attributes}

    def begin(self, state: TrainerState) -> None:
        """Starts afresh, or where the checkpoint that `state` comes from stood."""
        known: Any = state.stateful_callbacks
        stored = known.get(type(self).__name__) if state.global_step else None
        if stored is None or stored["args"]["tasks"] != self.tasks:
            stored = EpochLosses(self.tasks).state()
        known[type(self).__name__] = stored
        for name, value in stored["attributes"].items():
            setattr(self, name, value)
        self._pending = None
        if any(self.counts) and self.finished and not float(self.finished[-1]["epoch"]).is_integer():
            # That was the part of this epoch which the earlier run saw; the epoch goes on now.
            self.finished = self.finished[:-1]

    def add(self, sums: Tensor, counts: Tensor) -> None:
        """Adds one batch of this process: (tasks,) sums of the losses and numbers of labels. Does not wait for them."""
        dtype = torch.float32 if sums.device.type == "mps" else torch.float64
        batch = torch.stack([sums.detach().to(dtype), counts.to(dtype)])  # (2, tasks)
        self._pending = batch if self._pending is None else self._pending + batch

    def collect(self, sum_over_processes: Callable[[Tensor], Tensor], device: torch.device) -> None:
        """Brings the sums of all processes together; every process must call it."""
        pending = self._pending if self._pending is not None else torch.zeros(2, len(self.tasks), device=device)
        sums, counts = sum_over_processes(pending.double() if device.type != "mps" else pending).tolist()
        self.sums = [old + new for old, new in zip(self.sums, sums, strict=True)]
        self.counts = [old + new for old, new in zip(self.counts, counts, strict=True)]
        self._pending = None

    def close(self, epoch: float, goes_on: bool) -> dict[str, Any] | None:
        """Ends the epoch and returns its averages, None when it saw no label.

        Args:
            epoch: number of epochs passed.
            goes_on: the epoch was interrupted and a resumed run will finish it, so the sums stay.

        Returns:
            `{"epoch": 2.0, "loss": mean over all labels, "tasks": {name: mean over the task's labels}}`
        """
        if not any(self.counts):
            return None
        means = {
            task: total / count for task, total, count in zip(self.tasks, self.sums, self.counts, strict=True) if count
        }
        entry = {"epoch": epoch, "loss": sum(self.sums) / sum(self.counts), "tasks": means}
        self.finished = [*self.finished, entry]
        if not goes_on:
            self.sums, self.counts = [0.0] * len(self.tasks), [0.0] * len(self.tasks)
        return entry
