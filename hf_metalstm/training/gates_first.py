"""A schedule for memory networks with supporting facts: the gates are trained before the answers."""

from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


class GatesFirst(TrainerCallback):
    """Trains the gates of a `DMNForQuestionAnswering` alone for some epochs, then gates and answers (Kumar et al.).

    Batches without supporting facts train their answers from the start. A resumed run goes on where it stood.

    Args:
        epochs: how long the gates come first; 0 trains both from the start.

    Raises:
        ValueError: a negative number.

    Example:
        >>> trainer = Trainer(model, args, callbacks=[GatesFirst(5)], ...)  # doctest: +SKIP
    """

    def __init__(self, epochs: int):
        if epochs < 0:
            raise ValueError(f"epochs is {epochs}, but must be at least 0")
        self.epochs = epochs

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        # In an epoch that is resumed in its middle the count is a fraction.
        kwargs["model"].train_gates_only = int(state.epoch or 0) < self.epochs

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        kwargs["model"].train_gates_only = False
