"""What must fit together before a multi-task training starts."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from transformers import TrainingArguments

from .multitask_dataset import check_task_names
from .task_metrics import AVERAGE


def tasks_of(model: Any) -> dict[str, list[str]]:
    """Label names of each of the model's tasks, in the order of the task ids.

    Raises:
        ValueError: the model has no named tasks, or one has the name of the average in the metrics.
    """
    tasks = getattr(getattr(model, "config", None), "tasks", None)
    if not tasks:
        raise ValueError(
            f"{type(model).__name__} has no named tasks: make its config with tasks={{name: label names}}, or use "
            "transformers.Trainer"
        )
    if AVERAGE in tasks:
        raise ValueError(f"a task is named {AVERAGE!r}, which stands for the average over the tasks in the metrics")
    return {name: list(labels) for name, labels in tasks.items()}


def weights_of_tasks(weights: Mapping[str, float], tasks: Sequence[str]) -> list[float]:
    """The weight of each task, 1 for those that `weights` does not name.

    Raises:
        ValueError: an unknown task, or a weight that is negative or not finite.
    """
    check_task_names(list(weights), tasks, "task_weights")
    for name, weight in weights.items():
        if not (math.isfinite(weight) and weight >= 0):
            raise ValueError(f"task_weights[{name!r}] is {weight}, but must be finite and not negative")
    return [float(weights.get(name, 1.0)) for name in tasks]


def check_train_tasks(given: Sequence[str], wanted: Sequence[str] | None, tasks: Sequence[str]) -> None:
    """Checks which tasks the training data has.

    Args:
        given: tasks in the data.
        wanted: tasks that the user says are in it; None: all of the model's.
        tasks: the model's.

    Raises:
        ValueError: they differ; the message lists both sides.
    """
    if wanted is None:
        hint = "pass train_tasks=[...] to train only some tasks"
        check_task_names(given, tasks, "train_dataset", all_needed=True, hint=hint)
        return
    check_task_names(wanted, tasks, "train_tasks")
    if set(given) != set(wanted):
        raise ValueError(f"train_tasks is {', '.join(wanted)}, but train_dataset has {', '.join(given)}")


def check_arguments(args: TrainingArguments) -> None:
    """Refuses the few TrainingArguments that contradict batches and metrics by task.

    Raises:
        ValueError: one of them is set; the message names it.
    """
    accelerate: Any = args.accelerator_config
    refused = {
        "batch_eval_metrics=True": args.batch_eval_metrics,
        "eval_do_concat_batches=False": not args.eval_do_concat_batches,
        "include_for_metrics": bool(args.include_for_metrics),
        "accelerator_config with split_batches": accelerate.split_batches,
        "accelerator_config with dispatch_batches": bool(accelerate.dispatch_batches),
    }
    for name, is_set in refused.items():
        if is_set:
            raise ValueError(f"TrainingArguments: {name} does not go with batches and metrics by task; leave it out")
    if args.train_sampling_strategy not in ("random", "group_by_length"):
        raise ValueError(
            f"train_sampling_strategy is {args.train_sampling_strategy!r}; allowed here: 'random', 'group_by_length'"
        )
