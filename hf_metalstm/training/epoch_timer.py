"""How long the epochs of a training take; survives an interruption."""

import time
from typing import Any, cast

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState


class EpochTimer(TrainerCallback, ExportableState):
    """Measures the seconds of each epoch, without the evaluation and saving at its end (`eval_strategy="epoch"`).

    A resumed run goes on with the times of the checkpoint; an epoch that was interrupted counts from where it resumed.

    Attributes:
        seconds: of each finished epoch.
    """

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._began = 0.0

    def state(self) -> dict[str, Any]:
        """What a checkpoint holds."""
        return {"args": {}, "attributes": {"seconds": list(self.seconds)}}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        callbacks = cast(dict[str, Any], state.stateful_callbacks)
        stored = callbacks.get(type(self).__name__) if state.global_step else None
        self.seconds = list(stored["attributes"]["seconds"]) if stored else []

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._began = time.perf_counter()

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.seconds.append(time.perf_counter() - self._began)
