"""`MultiTaskTrainer`: transformers' Trainer for models whose examples belong to named tasks."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader
from transformers import (
    EvalPrediction,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer_utils import EvalLoopOutput, PredictionOutput, seed_worker

from ..convert.vocabulary import check_vocabulary
from ..data.collators import DataCollatorForMultiTask
from ..data.samplers import MultiTaskBatchSampler
from ..metrics import classification_metrics
from .epoch_losses import EpochLosses
from .loss_guard import GuardedTrainer
from .multitask_checks import check_arguments, check_train_tasks, tasks_of, weights_of_tasks
from .multitask_dataset import MultiTaskDataset
from .multitask_loss import count_labels, element_losses, share_of_loss, sums_by_task
from .task_metrics import metrics_by_task

Optimizers = tuple[torch.optim.Optimizer | None, torch.optim.lr_scheduler.LambdaLR | None]


class MultiTaskTrainer(GuardedTrainer):
    """Trains a model on several named tasks.

    **Sampling.** An epoch is as long as it must be for every example of every task to be seen at least once at the
    stated proportions: n = max_k size_k / p_k examples, where p_k is proportional to size_k ("proportional"), to
    size_k ** (1 / temperature) ("temperature"), or the same for all ("uniform"). Smaller tasks are repeated in new
    orders. Batches depend on the seed (`data_seed`, else `seed`) and the epoch alone. On n processes each takes every
    n-th batch, of whatever task it is, and up to n - 1 batches are seen twice in an epoch.

    **Loss.** The mean over the labels of the whole batch: all gradient-accumulation steps and all processes together
    (`average_tokens_across_devices=False` averages on each process alone). With `task_weights`,
    sum_k w_k (mean over the batch's labels of task k) instead. So eight batches of 2 accumulated, or spread over
    processes, train exactly as one of 16. What a model adds to its `task_loss` is averaged over the rows.

    **Evaluation.** One pass over all tasks gives `eval_<task>_accuracy`, `eval_<task>_macro_f1`, `eval_<task>_loss` and
    the means over the tasks `eval_average_accuracy`, ... (so `metric_for_best_model="average_accuracy"`), and
    `eval_loss`, the model's own loss averaged over the examples, without task weights. Predictions come in input order:
    the datasets of a dict one after the other.

    **Learning curves.** `epoch_losses` holds the average loss of each epoch by task; each is also logged, as
    `epoch_train_loss` and `epoch_train_<task>_loss`.

    A loss that is NaN or infinite raises `NonFiniteLossError`; a resumed run continues exactly, its curves too.

    Args:
        model: has `config.tasks`, `{name: label names}`, and `task_ids` among its forward's arguments. Its output has
            `loss`, `task_loss` (the mean cross-entropy; `loss` where missing) and `logits`.
        args: any `TrainingArguments`. Adagrad as in the paper is `optim="adagrad"`.
            `train_sampling_strategy="group_by_length"` puts examples of similar length into a batch, in evaluation too.
        data_collator: makes batches with `task_ids` and `labels`. Default: `DataCollatorForMultiTask`, if there is a
            `processing_class`.
        train_dataset: `{task: dataset}`, or one dataset with a `task_ids` column.
        eval_dataset: the same; it may leave tasks out.
        processing_class: the tokenizer; saved with the model.
        model_init, callbacks, optimizers, optimizer_cls_and_kwargs: see `Trainer`.
        compute_metrics: called for each task, with the logits (as wide as the task's labels) and labels of its
            examples; returns `{name: value}`.
        sampling: "proportional", "uniform" or "temperature".
        temperature: for "temperature"; 1 is proportional, infinity uniform.
        batching: "homogeneous", one task a batch as in Chen et al. 2018, or "mixed".
        task_weights: weight of each task's loss; 1 where a task is not named.
        train_tasks: the tasks that `train_dataset` has if not all of the model's; in the transfer experiment, the new
            one.

    Raises:
        TypeError, ValueError: datasets, tasks, weights or arguments do not fit together; the message lists both sides.

    Example:
        >>> trainer = MultiTaskTrainer(  # doctest: +SKIP
        ...     model=model,
        ...     args=TrainingArguments("outputs", optim="adagrad", learning_rate=0.1, per_device_train_batch_size=16),
        ...     train_dataset={"books": books["train"], "dvd": dvd["train"]},
        ...     eval_dataset={"books": books["dev"], "dvd": dvd["dev"]},
        ...     processing_class=tokenizer,
        ... )
        >>> trainer.train()  # doctest: +SKIP
        >>> trainer.predict({"books": books["test"]}).metrics["test_books_accuracy"]  # doctest: +SKIP
    """

    # `compute_loss` divides by what the whole accumulated batch holds.
    loss_is_scaled_for_ga = True

    def __init__(
        self,
        model: PreTrainedModel | nn.Module | None = None,
        args: TrainingArguments | None = None,
        data_collator: Callable[[list[dict[str, Any]]], dict[str, Any]] | None = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        model_init: Callable[..., PreTrainedModel] | None = None,
        compute_metrics: Callable[[EvalPrediction], dict[str, float]] | None = None,
        callbacks: list[TrainerCallback] | None = None,
        optimizers: Optimizers = (None, None),
        optimizer_cls_and_kwargs: tuple[type[torch.optim.Optimizer], dict[str, Any]] | None = None,
        *,
        sampling: str = "proportional",
        temperature: float = 2.0,
        batching: str = "homogeneous",
        task_weights: Mapping[str, float] | None = None,
        train_tasks: Sequence[str] | None = None,
    ):
        args = TrainingArguments(output_dir="tmp_trainer") if args is None else args
        check_arguments(args)
        if args.ddp_find_unused_parameters is None:
            # A process that holds a batch of one task gets no gradient for the private parts of the others.
            args.ddp_find_unused_parameters = True
        if data_collator is None and processing_class is not None:
            data_collator = DataCollatorForMultiTask(processing_class)
        super().__init__(
            model=model,
            args=args,
            data_collator=data_collator,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            model_init=model_init,
            callbacks=callbacks,
            optimizers=optimizers,
            optimizer_cls_and_kwargs=optimizer_cls_and_kwargs,
        )
        self.compute_metrics = classification_metrics if compute_metrics is None else compute_metrics
        self._tasks = tasks_of(self.model)
        self.task_names = list(self._tasks)
        self._weights = None if task_weights is None else weights_of_tasks(task_weights, self.task_names)
        self._sampler_options: dict[str, Any] = {
            "sampling": sampling,
            "temperature": temperature,
            "batching": batching,
        }
        self._batch_sampler: MultiTaskBatchSampler | None = None
        if isinstance(self.model, PreTrainedModel) and isinstance(processing_class, PreTrainedTokenizerBase):
            check_vocabulary(self.model, processing_class)
        if train_dataset is not None:
            self.train_dataset = self._as_multitask(train_dataset, "train_dataset")
            given = [self.task_names[task] for task in np.unique(self.train_dataset.task_ids)]
            check_train_tasks(given, train_tasks, self.task_names)
            self._batch_sampler = self._make_batch_sampler(self.train_dataset)
        if eval_dataset is not None:
            self.eval_dataset = self._as_multitask(eval_dataset, "eval_dataset")
        self.add_callback(EpochLosses(self.task_names))
        self.add_callback(_EpochEvents(self))

    @property
    def epoch_losses(self) -> list[dict[str, Any]]:
        """`[{"epoch": 1.0, "loss": mean over all labels, "tasks": {name: mean over the task's labels}}, ...]`.

        The last entry has a fractional epoch when training ended inside one.
        """
        return list(self._epoch_losses.finished)

    @property
    def _epoch_losses(self) -> EpochLosses:
        # Looked up each time: restore_callback_states_from_checkpoint replaces callbacks by new instances.
        return next(c for c in self.callback_handler.callbacks if isinstance(c, EpochLosses))

    # ---- data ----

    def _as_multitask(self, data: Any, argument: str) -> MultiTaskDataset:
        return data if isinstance(data, MultiTaskDataset) else MultiTaskDataset(data, self.task_names, argument)

    def _make_batch_sampler(self, dataset: MultiTaskDataset) -> MultiTaskBatchSampler:
        return MultiTaskBatchSampler(
            dataset.task_ids,
            self._train_batch_size,
            lengths=self._lengths(dataset),
            drop_last=self.args.dataloader_drop_last,
            seed=self.args.seed if self.args.data_seed is None else self.args.data_seed,
            **self._sampler_options,
        )

    def _lengths(self, dataset: MultiTaskDataset) -> np.ndarray | None:
        if self.args.train_sampling_strategy != "group_by_length":
            return None
        return dataset.lengths(self.args.length_column_name, getattr(self.model, "main_input_name", "input_ids"))

    def get_train_dataloader(self) -> DataLoader[Any]:
        if self.train_dataset is None:
            raise ValueError("training needs a train_dataset")
        self.train_dataset = self._as_multitask(self.train_dataset, "train_dataset")
        # Made anew: auto_find_batch_size changes the batch size between attempts.
        self._batch_sampler = self._make_batch_sampler(self.train_dataset)
        return self._make_dataloader(self.train_dataset, self._batch_sampler, training=True)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader[Any]:
        given = self.eval_dataset if eval_dataset is None else eval_dataset
        if given is None:
            raise ValueError("evaluation needs an eval_dataset, here or when the trainer is made")
        dataset = self._as_multitask(given, "eval_dataset")
        # drop_last is for training: every example is evaluated.
        batches = BatchSampler(self._eval_order(dataset).tolist(), self.args.eval_batch_size, drop_last=False)
        return self._make_dataloader(dataset, batches, training=False)

    def get_test_dataloader(self, test_dataset: Any) -> DataLoader[Any]:
        return self.get_eval_dataloader(self._as_multitask(test_dataset, "test_dataset"))

    def _eval_order(self, dataset: MultiTaskDataset) -> np.ndarray:
        """The order in which examples are evaluated; `evaluation_loop` puts the results back into the dataset's."""
        lengths = self._lengths(dataset)
        return np.arange(len(dataset)) if lengths is None else np.argsort(-lengths, kind="stable")

    def _make_dataloader(self, dataset: Any, batch_sampler: Any, training: bool) -> DataLoader[Any]:
        description = "training" if training else "evaluation"
        loader: DataLoader[Any] = DataLoader(
            dataset,
            batch_sampler=batch_sampler,
            collate_fn=self._get_collator_with_removed_columns(self.data_collator, description=description),
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory,
            # Kept alive, the workers of every evaluation would add up.
            persistent_workers=self.args.dataloader_persistent_workers and training,
            multiprocessing_context=self.args.dataloader_multiprocessing_context,
            prefetch_factor=self.args.dataloader_prefetch_factor,
            in_order=self.args.dataloader_in_order,
            worker_init_fn=partial(
                seed_worker, num_workers=self.args.dataloader_num_workers, rank=self.args.process_index
            )
            if training
            else None,
        )
        return self.accelerator.prepare(loader)

    def num_examples(self, dataloader: DataLoader[Any]) -> int:
        """Examples in an epoch of a dataloader, repeated ones counted."""
        sampler: Any = dataloader.batch_sampler
        while hasattr(sampler, "batch_sampler"):  # accelerate's share of one process, or what is left after a resume
            sampler = sampler.batch_sampler
        if isinstance(sampler, MultiTaskBatchSampler):
            return sampler.num_examples
        return super().num_examples(dataloader)

    # ---- loss ----

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[Any], Tensor | None]:
        """As `Trainer.get_batch_samples`, but what the batches hold is counted by task, over all processes."""
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        if not batches:
            return batches, None
        counts = torch.stack([self._count(batch).to(device) for batch in batches]).sum(0)
        if self.args.average_tokens_across_devices:
            counts = self.accelerator.reduce(counts, "sum")
        return batches, counts

    def _count(self, inputs: Mapping[str, Any]) -> Tensor:
        labels = inputs.get("labels")
        if labels is None:
            raise ValueError(
                f"the batches have no 'labels' (they have {', '.join(inputs)}): the training data needs a column "
                "'label' or 'labels'"
            )
        return count_labels(labels, self._task_ids(inputs), len(self.task_names))

    def _task_ids(self, inputs: Mapping[str, Any]) -> Tensor:
        labels, task_ids = inputs["labels"], inputs.get("task_ids")
        if task_ids is None:
            if len(self.task_names) > 1:
                raise ValueError(
                    f"the batches have no 'task_ids' (they have {', '.join(inputs)}), but the model has "
                    f"{len(self.task_names)} tasks: the data collator must pass that column on"
                )
            return torch.zeros(len(labels), dtype=torch.int64, device=labels.device)
        if task_ids.shape != labels.shape[:1]:
            raise ValueError(f"task_ids have shape {tuple(task_ids.shape)}, but labels have {tuple(labels.shape)}")
        return task_ids

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """The batch's share of the loss of the whole (accumulated, global) batch.

        Args:
            model: the model, wrapped or not.
            inputs: one batch, with `labels` and `task_ids`.
            return_outputs: also return the model's output.
            num_items_in_batch: counts from `get_batch_samples`; None: `inputs` are the whole batch.
        """
        counts = num_items_in_batch
        own_counts = self._count(inputs)
        task_ids = self._task_ids(inputs)
        outputs = model(**inputs, return_dict=True)
        losses = element_losses(outputs.logits, inputs["labels"], self.args.label_smoothing_factor)
        by_task = sums_by_task(losses, task_ids, len(self.task_names))  # (tasks,)
        whole = counts if isinstance(counts, Tensor) else own_counts
        loss = share_of_loss(by_task, whole, self._weights)
        if outputs.get("task_loss") is not None and outputs.loss is not outputs.task_loss:
            extra = (outputs.loss - outputs.task_loss).mean()
            loss = loss + extra * own_counts[-1] / whole[-1]
        if isinstance(counts, Tensor):
            self._epoch_losses.add(by_task, own_counts[:-1])
            if self.args.average_tokens_across_devices:
                # Gradients are averaged over the processes, but the counts are those of all.
                loss = loss * self.accelerator.num_processes
        return (loss, outputs) if return_outputs else loss

    def describe_batch(self, inputs: dict[str, Any]) -> str:
        counts = self._count(inputs)[:-1].tolist()
        tasks = [f"{name}: {count}" for name, count in zip(self.task_names, counts, strict=True) if count]
        return f"{super().describe_batch(inputs)}, labels: {', '.join(tasks) or 'none'}"

    # ---- evaluation ----

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Evaluates all tasks in one pass; see the class for the names of the metrics.

        Args:
            eval_dataset: `{task: dataset}` or one dataset; None is the one given when the trainer was made.
            ignore_keys: parts of the model's output that predictions leave out.
            metric_key_prefix: instead of "eval".
        """
        if eval_dataset is not None:
            eval_dataset = self._as_multitask(eval_dataset, "eval_dataset")
        return super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)

    def predict(
        self, test_dataset: Any, ignore_keys: list[str] | None = None, metric_key_prefix: str = "test"
    ) -> PredictionOutput:
        """Predicts all tasks in one pass; metrics where there are labels.

        Args:
            test_dataset: `{task: dataset}` or one dataset.
            ignore_keys: parts of the model's output that predictions leave out.
            metric_key_prefix: of the metrics' names.

        Returns:
            Logits and labels in input order, the datasets of a dict one after the other.
        """
        return super().predict(self._as_multitask(test_dataset, "test_dataset"), ignore_keys, metric_key_prefix)

    def prediction_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
    ) -> tuple[Any, Any, Any]:
        """One batch of an evaluation: the model's own loss, its outputs with a row for each example, the labels."""
        inputs = self._prepare_inputs(inputs)
        labels = inputs.get("labels")
        with torch.no_grad(), self.compute_loss_context_manager():
            outputs = model(**inputs, return_dict=True)
        loss = None if labels is None else outputs.loss.mean()
        if prediction_loss_only:
            return loss, None, None
        if ignore_keys is None:
            ignore_keys = getattr(getattr(self.model, "config", None), "keys_to_ignore_at_inference", [])
        rest = [
            value
            for name, value in outputs.items()
            if name != "logits" and name not in ignore_keys and not (isinstance(value, Tensor) and value.ndim == 0)
        ]
        return loss, (outputs.logits, *rest) if rest else outputs.logits, labels

    def evaluation_loop(
        self,
        dataloader: DataLoader[Any],
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:
        """As `Trainer.evaluation_loop`, with the results in the dataset's order and the metrics of each task."""
        compute_metrics, self.compute_metrics = self.compute_metrics, None  # it is for one task's examples
        try:
            output = super().evaluation_loop(
                dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix
            )
        finally:
            self.compute_metrics = compute_metrics
        dataset: Any = dataloader.dataset
        places = np.argsort(self._eval_order(dataset))
        predictions, labels = _rows(output.predictions, places), _rows(output.label_ids, places)
        metrics = dict(output.metrics or {})
        if compute_metrics is not None and predictions is not None and labels is not None:
            logits = predictions[0] if isinstance(predictions, tuple) else predictions
            by_task = metrics_by_task(logits, labels, dataset.task_ids, self._tasks, compute_metrics)
            metrics.update({f"{metric_key_prefix}_{name}": value for name, value in by_task.items()})
        return output._replace(predictions=predictions, label_ids=labels, metrics=metrics)

    # ---- learning curves ----

    def collect_epoch_losses(self) -> None:
        """Brings the processes' sums of this epoch's losses together; every process must call it."""
        self._epoch_losses.collect(partial(self.accelerator.reduce, reduction="sum"), self.args.device)

    def close_epoch_losses(self, goes_on: bool) -> None:
        """Ends the epoch of the learning curves and logs its averages; see `EpochLosses.close`."""
        entry = self._epoch_losses.close(float(self.state.epoch), goes_on)
        if entry is None:
            return
        by_task = {f"epoch_train_{task}_loss": loss for task, loss in entry["tasks"].items()}
        # Logging clears the flag by which Trainer remembers to log its own loss.
        should_log = self.control.should_log
        self.log({"epoch_train_loss": entry["loss"], **by_task})
        self.control.should_log = should_log

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        # Only one process writes the state, and it must be that of all.
        self.collect_epoch_losses()
        super()._save_checkpoint(model, trial)


class _EpochEvents(TrainerCallback):
    """Tells a trainer's batch sampler and learning curves when epochs begin and end."""

    def __init__(self, trainer: MultiTaskTrainer):
        self._trainer = trainer
        self._epoch = 0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        steps = math.ceil(len(kwargs["train_dataloader"]) / args.gradient_accumulation_steps)
        self._epoch = state.global_step // max(steps, 1)
        self._trainer._epoch_losses.begin(state)
        if float(state.epoch).is_integer():
            # The checkpoint was written after an epoch's last step, but before its end.
            self._trainer.close_epoch_losses(goes_on=False)

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        # Trainer sets the epoch too, but on several processes it does not reach the sampler of a resumed epoch.
        assert self._trainer._batch_sampler is not None
        self._trainer._batch_sampler.set_epoch(self._epoch)
        self._epoch += 1

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._trainer.collect_epoch_losses()
        interrupted = control.should_training_stop and not float(state.epoch).is_integer()
        self._trainer.close_epoch_losses(goes_on=interrupted)


def _rows(arrays: Any, places: np.ndarray) -> Any:
    """Rows in another order, of an array or of each array in nested tuples."""
    if arrays is None:
        return None
    if isinstance(arrays, tuple):
        return tuple(_rows(part, places) for part in arrays)
    return arrays[places]
