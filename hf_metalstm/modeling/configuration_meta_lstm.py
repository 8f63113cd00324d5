# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""Configuration of the Meta-LSTM family: which cell, what the tasks share, and the tasks themselves."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from transformers import PreTrainedConfig

CELLS = ("meta_lstm", "lstm")
SHARINGS = ("single", "meta")
POOLINGS = ("last", "mean", "max", "concat")
_DROPOUTS = ("embedding_dropout", "hidden_dropout", "classifier_dropout")


class MetaLSTMConfig(PreTrainedConfig):
    """Describes a Meta-LSTM model (Chen et al. 2018, "Meta Multi-Task Learning for Sequence Modeling").

    Args:
        vocab_size: number of token ids.
        embedding_size: width of the word embeddings.
        hidden_size: units of the (basic) LSTM in one direction.
        meta_size: units of the Meta-LSTM, m in the paper. Used by `cell="meta_lstm"` alone, as is `z_size`.
        z_size: length of the meta vector z_t. The paper finds 20 to 60 equally good.
        num_hidden_layers: stacked layers.
        bidirectional: each layer reads both ways; its output is 2 * hidden_size wide.
        cell: "meta_lstm" (the LSTM whose weights a Meta-LSTM generates) or "lstm".
        sharing: "single" (one task) or "meta" (tasks share the embeddings and the meta network and have a private basic
            LSTM and output layer each). None chooses "meta" when `tasks` is given, else "single".
        tasks: label names of each task, `{"books": ["negative", "positive"], ...}`. The order gives the task ids. None:
            an ordinary model with `num_labels` / `id2label` / `label2id`.
        active_task: the task that is used where no task id is given; `id2label` is that task's.
        pooling: what the classifier reads: "last" state (the paper; with two directions the last state of each), "mean"
            or "max" over the real tokens, or "concat" of the three.
        embedding_dropout, hidden_dropout, classifier_dropout: on the embeddings, between layers, before the classifier.
        initializer_range: standard deviation of the embeddings; recurrent weights are scaled by their own sizes.
        pad_token_id, bos_token_id, eos_token_id: ids of the special tokens.
        task_order: written by `save_pretrained`, because JSON files sort the keys of `tasks`.

    Raises:
        ValueError: a field has a value that is not allowed; the message names the field.

    Example:
        >>> from hf_metalstm import MetaLSTMConfig
        >>> labels = ["negative", "positive"]
        >>> config = MetaLSTMConfig(vocab_size=100, tasks={"books": labels, "dvd": labels}, active_task="dvd")
        >>> config.sharing, config.task_id("dvd"), config.id2label
        ('meta', 1, {0: 'negative', 1: 'positive'})
    """

    model_type = "meta_lstm"

    def __init__(
        self,
        vocab_size: int = 30000,
        embedding_size: int = 200,
        hidden_size: int = 100,
        meta_size: int = 40,
        z_size: int = 40,
        num_hidden_layers: int = 1,
        bidirectional: bool = False,
        cell: str = "meta_lstm",
        sharing: str | None = None,
        tasks: Mapping[str, Iterable[str]] | None = None,
        active_task: str | None = None,
        pooling: str = "last",
        embedding_dropout: float = 0.0,
        hidden_dropout: float = 0.0,
        classifier_dropout: float = 0.0,
        initializer_range: float = 0.1,
        pad_token_id: int | None = 0,
        bos_token_id: int | None = None,
        eos_token_id: int | None = None,
        task_order: list[str] | None = None,
        **kwargs: Any,
    ):
        self.vocab_size = vocab_size
        self.embedding_size = embedding_size
        self.hidden_size = hidden_size
        self.meta_size = meta_size
        self.z_size = z_size
        self.num_hidden_layers = num_hidden_layers
        self.bidirectional = bidirectional
        self.cell = cell
        self.tasks: dict[str, list[str]] | None = None
        self.task_order: list[str] | None = None
        if tasks is not None:
            _check_are_tasks(tasks)
            self.tasks = {name: list(labels) for name, labels in tasks.items()}
            self.task_order = list(task_order or self.tasks)
        self.sharing = sharing if sharing is not None else ("single" if self.tasks is None else "meta")
        self.pooling = pooling
        self.embedding_dropout = embedding_dropout
        self.hidden_dropout = hidden_dropout
        self.classifier_dropout = classifier_dropout
        self.initializer_range = initializer_range
        self.pad_token_id = pad_token_id
        self.bos_token_id = bos_token_id
        self.eos_token_id = eos_token_id
        self._check_fields()
        _check_label_maps(kwargs)
        self.active_task: str | None = None
        if self.tasks is not None and self.task_order is not None:
            self.tasks = {name: self.tasks[name] for name in self.task_order}
            if kwargs.get("num_labels") is not None:
                raise ValueError(
                    f"num_labels is {kwargs['num_labels']}, but the tasks say what the labels are: leave it out"
                )
            # Whatever an older active task left in the file is replaced.
            for field in ("num_labels", "id2label", "label2id"):
                kwargs.pop(field, None)
        super().__init__(**kwargs)
        if self.tasks is not None:
            self.set_active_task(active_task)
        elif active_task is not None:
            raise ValueError(
                f"active_task is {active_task!r}, but the config has no tasks: give tasks={{name: labels}}"
            )

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        # `from_pretrained(folder, num_labels=3)` asks for a new head: the names in the file belong to the old one.
        names = config_dict.get("id2label")
        if names is not None and "id2label" not in kwargs and kwargs.get("num_labels") not in (None, len(names)):
            config_dict = {key: value for key, value in config_dict.items() if key not in ("id2label", "label2id")}
        return super().from_dict(config_dict, **kwargs)

    def _check_fields(self) -> None:
        for name in ("vocab_size", "embedding_size", "hidden_size", "meta_size", "z_size", "num_hidden_layers"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)!r}, but must be an integer of at least 1")
        for name in _DROPOUTS:
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, but must lie in [0, 1)")
        for name, allowed in (("cell", CELLS), ("sharing", SHARINGS), ("pooling", POOLINGS)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}; allowed: {', '.join(map(repr, allowed))}")
        if self.pad_token_id is not None and not 0 <= self.pad_token_id < self.vocab_size:
            raise ValueError(f"pad_token_id is {self.pad_token_id}, but vocab_size is {self.vocab_size}")
        self._check_tasks()
        if self.sharing == "meta" and self.cell != "meta_lstm":
            raise ValueError(f"sharing='meta' shares the meta network, which cell={self.cell!r} does not have")
        if self.sharing == "meta" and self.tasks is None:
            raise ValueError("sharing='meta' needs tasks={name: labels, ...}")
        if self.sharing == "single" and self.tasks is not None and len(self.tasks) > 1:
            raise ValueError(f"sharing='single' is for one task, but there are {len(self.tasks)}: use sharing='meta'")

    def _check_tasks(self) -> None:
        if self.tasks is None:
            return
        if not self.tasks:
            raise ValueError("tasks is empty; give at least one {name: labels}, or None for a single-task model")
        for name, labels in self.tasks.items():
            if len(labels) < 2 or len(set(labels)) != len(labels):
                raise ValueError(
                    f"tasks[{name!r}] is {labels}; it must be a list of at least two different label names"
                )
        if self.task_order is not None and sorted(self.task_order) != sorted(self.tasks):
            raise ValueError(f"task_order is {self.task_order}, but the tasks are {sorted(self.tasks)}")

    def task_id(self, name: str) -> int:
        """Number of a task: its position in `tasks`.

        Raises:
            ValueError: there is no such task; the message lists the tasks and the nearest name.
        """
        names = list(self.tasks or {})
        if name not in names:
            if not names:
                raise ValueError(f"there is no task {name!r}: this is a single-task model without named tasks")
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"there is no task {name!r}; the tasks are {', '.join(names)}{hint}")
        return names.index(name)

    def set_active_task(self, name: str | None) -> None:
        """Chooses the task used where no task id is given; `id2label`, `label2id` and `num_labels` become that task's.

        With several tasks and None, the labels are those of all tasks if they agree, else LABEL_0, LABEL_1, ...

        Args:
            name: a task, or None for no active task. A config with one task always uses that one.

        Raises:
            ValueError: there is no such task.
        """
        if name is not None:
            self.task_id(name)
        if self.tasks is None:
            return
        if len(self.tasks) == 1:
            name = next(iter(self.tasks))
        self.active_task = name
        label_sets = [self.tasks[name]] if name is not None else list(self.tasks.values())
        labels = label_sets[0]
        if any(other != labels for other in label_sets):
            labels = [f"LABEL_{index}" for index in range(max(map(len, label_sets)))]
        self.id2label = dict(enumerate(labels))
        self.label2id = {label: index for index, label in enumerate(labels)}

    def add_task(self, name: str, labels: Iterable[str]) -> int:
        """Appends a task and returns its id. `MetaLSTMForSequenceClassification.add_task` also makes its weights.

        Raises:
            ValueError: the name exists, the labels are no list of different names, or nothing can be shared.
        """
        if self.tasks is None or self.sharing == "single":
            raise ValueError(
                f"cannot add task {name!r}: sharing is {self.sharing!r}; build the model with tasks and sharing='meta'"
            )
        if name in self.tasks:
            raise ValueError(f"task {name!r} exists already; the tasks are {', '.join(self.tasks)}")
        _check_are_tasks({name: labels})
        tasks, order = self.tasks, self.task_order
        self.tasks, self.task_order = {**tasks, name: list(labels)}, [*tasks, name]
        try:
            self._check_tasks()
        except ValueError:
            self.tasks, self.task_order = tasks, order
            raise
        self.set_active_task(self.active_task)
        return len(tasks)


def _check_are_tasks(tasks: Any) -> None:
    if not isinstance(tasks, Mapping):
        raise ValueError(f"tasks is {tasks!r}; it must map each task to its label names: {{'books': ['bad', 'good']}}")
    for name, labels in tasks.items():
        # A string would be taken apart into letters.
        if isinstance(labels, str) or not isinstance(labels, Iterable):
            raise ValueError(f"tasks[{name!r}] is {labels!r}; it must be a list of at least two different label names")


def _check_label_maps(kwargs: Mapping[str, Any]) -> None:
    """`num_labels`, `id2label` and `label2id` must tell the same story; transformers lets them differ."""
    num_labels, id2label, label2id = (kwargs.get(key) for key in ("num_labels", "id2label", "label2id"))
    if id2label is not None and num_labels is not None and len(id2label) != num_labels:
        raise ValueError(f"num_labels is {num_labels}, but id2label has {len(id2label)} entries: change one of them")
    if id2label is not None and label2id is not None:
        if {str(label): int(index) for index, label in id2label.items()} != {k: int(v) for k, v in label2id.items()}:
            raise ValueError(f"id2label {id2label} and label2id {label2id} disagree: change one of them")


MetaLSTMConfig.register_for_auto_class()
