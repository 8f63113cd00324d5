"""The systems that a comparison knows, and what it finds out about each."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class System:
    """What is compared: a cell, in one model a task or in one model for all."""

    title: str
    cell: str
    multi_task: bool


SYSTEMS = {
    "lstm-single": System("LSTM single-task", "lstm", multi_task=False),
    "meta-single": System("Meta-LSTM single-task", "meta_lstm", multi_task=False),
    "meta-multi": System("Meta-LSTM multi-task", "meta_lstm", multi_task=True),
}


@dataclass
class ModelResult:
    """One trained model and its scores.

    Args:
        system: name of the system it belongs to.
        tasks: what it was trained on.
        seed: of weights and batches.
        parameters, embedding_parameters: all its numbers, and those of them that are word embeddings.
        epochs: trained.
        best_epoch: the one kept, by dev.
        seconds: of training, all epochs.
        seconds_an_epoch: mean.
        losses: average training loss of each epoch, by task.
        dev, test: accuracy, by task.
        test_unique: accuracy on the test texts that are not also in train or dev, by task.
    """

    system: str
    tasks: list[str]
    seed: int
    parameters: int
    embedding_parameters: int
    epochs: float = 0.0
    best_epoch: float = 0.0
    seconds: float = 0.0
    seconds_an_epoch: float = 0.0
    losses: dict[str, list[float]] = field(default_factory=dict)
    dev: dict[str, float] = field(default_factory=dict)
    test: dict[str, float] = field(default_factory=dict)
    test_unique: dict[str, float] = field(default_factory=dict)


@dataclass
class SystemResult:
    """All models of one system."""

    system: str
    models: list[ModelResult]

    @property
    def title(self) -> str:
        return SYSTEMS[self.system].title

    def total(self, name: str) -> float:
        """Sum of a field of the models, such as "parameters", "seconds" or "seconds_an_epoch"."""
        return sum(getattr(model, name) for model in self.models)

    def scores(self, name: str) -> dict[str, float]:
        """Accuracy by task, of "dev", "test" or "test_unique"."""
        return {task: score for model in self.models for task, score in getattr(model, name).items()}

    def average(self, name: str) -> float:
        """Mean over the tasks of `scores(name)`; nan when there are none."""
        scores = list(self.scores(name).values())
        return sum(scores) / len(scores) if scores else float("nan")

    @property
    def losses(self) -> list[float]:
        """Training loss of each epoch, averaged over the tasks; as long as every model was trained."""
        curves = [curve for model in self.models for curve in model.losses.values()]
        return [sum(values) / len(values) for values in zip(*curves, strict=False)]

    def to_dict(self) -> dict[str, Any]:
        """For JSON: the summary, and each model's result."""
        splits = [name for name in ("dev", "test", "test_unique") if self.scores(name)]
        totals = ("parameters", "embedding_parameters", "seconds", "seconds_an_epoch")
        return {
            "system": self.system,
            "title": self.title,
            **{f"average_{name}": self.average(name) for name in splits},
            **{name: self.total(name) for name in totals},
            "losses": self.losses,
            "models": [asdict(model) for model in self.models],
        }


def choose_systems(names: Sequence[str]) -> list[str]:
    """The named systems, in the order of `SYSTEMS`; "all" means all of them.

    Raises:
        ValueError: an unknown name.
    """
    for name in names:
        if name != "all" and name not in SYSTEMS:
            raise ValueError(f"there is no system {name!r}; the systems are {', '.join(SYSTEMS)}, or all")
    return [name for name in SYSTEMS if "all" in names or name in names]
