"""A Trainer for GPT-1's models with two objectives: accumulated batches train exactly as one large batch."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from .loss_guard import GuardedTrainer

_IGNORED_LABEL = -100


class GPT1Trainer(GuardedTrainer):
    """Trains `GPT1DoubleHeadsModel` and `GPT1ForSequenceClassification` on L3 = L2 + lambda L1.

    Each objective is a mean over items of its own: the task's over rows, the language model's over tokens (or over
    sequences, as the config's `lm_loss_reduction` says). With gradient accumulation or several processes, plain
    `Trainer` averages the means of the parts, which is the mean of the whole only where every part has as many items.
    This one weighs each part by its items, so that 4 batches of 2 rows train as 1 of 8, however long the texts are.

    Example:
        >>> from hf_metalstm.training.gpt1_trainer import GPT1Trainer
        >>> trainer = GPT1Trainer(model, args, train_dataset=rows, data_collator=collate)  # doctest: +SKIP
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._items: Tensor | None = None

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[Any], Tensor | int | None]:
        samples, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        counts = [self._count(batch) for batch in samples]
        items = torch.stack(counts).sum(0).to(device) if counts else None
        if items is not None and self.args.world_size > 1:
            items = self.accelerator.gather(items[None]).sum(0)
        self._items = items
        return samples, None

    def _count(self, batch: dict[str, Tensor]) -> Tensor:
        """How many items each objective has in a batch: (the task's, the language model's)."""
        config = self.accelerator.unwrap_model(self.model).config
        choices = "mc_token_ids" in batch or "mc_labels" in batch
        task, language = ("mc_labels", "labels") if choices else ("labels", "lm_labels")
        counts = torch.zeros(2, dtype=torch.float64)
        if (labels := batch.get(task)) is not None:
            counts[0] = labels.numel() if labels.is_floating_point() else (labels != _IGNORED_LABEL).sum()
        if (labels := batch.get(language)) is not None:
            scored = labels[..., 1:] != _IGNORED_LABEL
            counts[1] = scored.sum() if config.lm_loss_reduction == "token" else scored.any(-1).sum()
        return counts

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """The loss of a batch as its share of the whole step's; in evaluation the batch's own."""
        outputs = model(**inputs)
        loss = outputs.loss
        if loss is None:
            raise ValueError(
                f"the batch has no labels of any objective, only {', '.join(inputs)}: the collator makes them"
            )
        if model.training and self._items is not None:
            config = self.accelerator.unwrap_model(self.model).config
            shares = (self._count(inputs).to(loss.device) / self._items.clamp(min=1)).to(loss.dtype)
            task = outputs.mc_loss if "mc_loss" in outputs else outputs.get("task_loss")
            language = outputs.get("lm_loss")
            # As `add_objectives`: the coefficient is for a language model beside a task.
            coefficient = 1.0 if task is None else config.lm_coef
            loss = loss.new_zeros(())
            if task is not None:
                loss = loss + shares[0] * task
            if language is not None:
                loss = loss + shares[1] * coefficient * language
            # What Trainer and the averaging of gradients over processes divide by afterwards.
            loss = loss * self.current_gradient_accumulation_steps * self.accelerator.num_processes
        return (loss, outputs) if return_outputs else loss
