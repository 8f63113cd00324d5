"""Stops a training whose loss is no longer a number, at the step where it happens.

transformers' Trainer by default replaces such losses in its log by the average of earlier ones (0.0 when there is
none) and trains on. `GuardedTrainer`, the base of this package's trainers, raises an error that says where it stood.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import Trainer


class NonFiniteLossError(FloatingPointError):
    """The training loss became NaN or infinite. The weights are those before the step that the message names."""


class GuardedTrainer(Trainer):
    """A `Trainer` that raises `NonFiniteLossError` when the loss of a batch is NaN or infinite.

    The check takes the place of `TrainingArguments.logging_nan_inf_filter`, which is switched off: it waits for the
    device as often as that filter does, once a batch.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.args.logging_nan_inf_filter = False
        self._last_grad_norm: Tensor | float | None = None

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        """As `Trainer.training_step`.

        Raises:
            NonFiniteLossError: the loss is NaN or infinite; no optimizer step was made with it.
        """
        loss = super().training_step(model, inputs, num_items_in_batch)
        if not bool(torch.isfinite(loss).all()):
            raise NonFiniteLossError(self._describe_failure(loss, inputs))
        return loss

    def describe_batch(self, inputs: dict[str, Any]) -> str:
        """What the error message says about the batch at fault; trainers that know more about it override this."""
        return f"{len(next(iter(inputs.values())))} rows"

    def _describe_failure(self, loss: Tensor, inputs: dict[str, Any]) -> str:
        norm = self._last_grad_norm
        last_norm = "none yet" if norm is None else f"{float(norm):.3g}"
        return (
            f"loss is {float(loss.max())} at step {self.state.global_step + 1} "
            f"(learning rate {self._get_learning_rate():.3g}, last gradient norm {last_norm}): training stopped before "
            f"this step changed the weights. The batch has {self.describe_batch(inputs)}. Lower learning_rate or "
            "max_grad_norm, and look for NaN in the weights that training started from"
        )

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> Any:
        # Kept as a tensor: reading its value here would make every step wait for the device.
        self._last_grad_norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        return self._last_grad_norm
