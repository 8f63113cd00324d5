"""Trains several systems on the same tasks under the same settings, and scores them on the same test texts.

The systems are those of Chen et al. 2018: an LSTM for each task, a Meta-LSTM for each task, one multi-task Meta-LSTM.
Every model is trained on its own, its result is kept in its folder, and a run that was interrupted goes on where it
stood: finished models are not trained again, the unfinished one resumes from its last checkpoint.
"""

import copy
import json
import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from transformers import (
    PreTrainedTokenizerBase,
    PrinterCallback,
    ProgressCallback,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

from ..metrics.classification import accuracy
from ..modeling.configuration_meta_lstm import MetaLSTMConfig
from ..modeling.modeling_meta_lstm import MetaLSTMForSequenceClassification
from .comparison_results import SYSTEMS, ModelResult, SystemResult
from .epoch_timer import EpochTimer
from .multitask_checks import weights_of_tasks
from .multitask_trainer import MultiTaskTrainer

logger = logging.getLogger(__name__)

SETTINGS_FILE, RESULT_FILE, MODEL_FOLDER = "settings.json", "result.json", "model"
# The training arguments on which a result depends; the others say where, when and how loudly it is reported.
_ARGUMENTS_OF_RESULTS = (
    *("learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "optim", "optim_args"),
    *("adam_beta1", "adam_beta2", "adam_epsilon", "weight_decay", "max_grad_norm", "label_smoothing_factor"),
    *("num_train_epochs", "max_steps", "per_device_train_batch_size", "gradient_accumulation_steps"),
    *("seed", "data_seed", "train_sampling_strategy", "dataloader_drop_last", "bf16", "fp16"),
    *("eval_strategy", "eval_steps", "load_best_model_at_end", "metric_for_best_model"),
)


@dataclass
class ComparisonArguments(TrainingArguments):
    """`TrainingArguments` with defaults for small recurrent models: the epoch that is best on dev is kept."""

    learning_rate: float = field(default=1e-3, metadata={"help": "The initial learning rate."})
    per_device_train_batch_size: int = field(default=16, metadata={"help": "The batch size in training."})
    per_device_eval_batch_size: int = field(default=64, metadata={"help": "The batch size in evaluation."})
    num_train_epochs: float = field(default=6.0, metadata={"help": "Epochs to train each model for."})
    lr_scheduler_type: str = field(default="constant", metadata={"help": "The learning rate's schedule."})
    eval_strategy: str = field(default="epoch", metadata={"help": "When to score on dev."})
    save_strategy: str = field(default="epoch", metadata={"help": "When to write checkpoints."})
    logging_strategy: str = field(default="epoch", metadata={"help": "When to log the training loss."})
    save_total_limit: int | None = field(default=1, metadata={"help": "Checkpoints kept beside the best one."})
    load_best_model_at_end: bool = field(default=True, metadata={"help": "Keep the epoch that is best on dev."})
    metric_for_best_model: str | None = field(
        default="average_accuracy", metadata={"help": "What is best: the average of the tasks' dev accuracy."}
    )


class Comparison:
    """Trains and scores systems on the same data.

    Results and models stand in `args.output_dir`: `<system>/<task>/` for each model of a single-task system,
    `<system>/` for a multi-task one, with `result.json` and the best model in `model/`.

    Args:
        splits: `{split: {task: dataset}}`, from `data.collators.tokenize_tasks`, with train, validation and test.
        tasks: label names of each task, in the order of their ids.
        tokenizer: what made the ids.
        model_fields: fields of `MetaLSTMConfig` that all systems share, such as `{"hidden_size": 64}`.
        args: for each model; `ComparisonArguments` has fitting defaults.
        trainer_options: of `MultiTaskTrainer`: `sampling`, `temperature`, `batching`, `task_weights`.
        prepare_model: called with each new model before it is trained, to fill in word vectors for instance.
        settings: whatever else a result depends on, such as the data's name; compared when a run is continued.
        callbacks: for every trainer; `args.run_name` tells them which model is trained.
        quiet: leave out Trainer's own progress bars and printed logs.
        overwrite: delete what an earlier run left in the output folder instead of continuing it.

    Raises:
        ValueError: the output folder holds a run with other settings; the message says which.

    Example:
        >>> comparison = Comparison(  # doctest: +SKIP
        ...     tokenize_tasks(data, tokenizer), data.label_names, tokenizer,
        ...     {"hidden_size": 64}, ComparisonArguments("outputs/compare"),
        ... )
        >>> result = comparison.run("meta-multi")  # doctest: +SKIP
        >>> result.scores("test"), result.average("test")  # doctest: +SKIP
    """

    def __init__(
        self,
        splits: Mapping[str, Mapping[str, Dataset]],
        tasks: Mapping[str, Sequence[str]],
        tokenizer: PreTrainedTokenizerBase,
        model_fields: Mapping[str, Any],
        args: TrainingArguments,
        *,
        trainer_options: Mapping[str, Any] | None = None,
        prepare_model: Callable[[MetaLSTMForSequenceClassification], object] | None = None,
        settings: Mapping[str, Any] | None = None,
        callbacks: Sequence[TrainerCallback] = (),
        quiet: bool = False,
        overwrite: bool = False,
    ):
        self.splits = splits
        self.tasks = {name: list(labels) for name, labels in tasks.items()}
        self.tokenizer = tokenizer
        self.model_fields = dict(model_fields)
        self.args = args
        self.trainer_options = dict(trainer_options or {})
        # Trainers of single tasks never see the weights, so they are checked here.
        weights_of_tasks(self.trainer_options.get("task_weights") or {}, list(self.tasks))
        self.prepare_model = prepare_model
        self.callbacks = list(callbacks)
        self.quiet = quiet
        self.folder = Path(args.output_dir or "")
        if overwrite:
            self._delete_earlier_run()
        self._check_settings(self._settings(settings or {}))

    # ---- systems and models ----

    def models_of(self, system: str) -> list[list[str]]:
        """The tasks of each model that a system needs."""
        names = list(self.tasks)
        return [names] if SYSTEMS[system].multi_task else [[name] for name in names]

    def run(self, system: str, train: bool = True, dev: bool = True, test: bool = True) -> SystemResult:
        """Trains and scores all models of a system; those that are finished are read from their folders.

        Args:
            system: one of `SYSTEMS`.
            train: False: score models that an earlier run saved.
            dev, test: which splits to score.

        Raises:
            FileNotFoundError: `train` is False and there is no saved model.
            ValueError: the arguments have a checkpoint to resume from or push to the Hub, but there are several models.
        """
        one_model = {"resume_from_checkpoint": self.args.resume_from_checkpoint, "push_to_hub": self.args.push_to_hub}
        for name, value in one_model.items():
            if value and len(self.models_of(system)) > 1:
                raise ValueError(
                    f"{name} is {value!r}, which is for one model, but {system} has {len(self.models_of(system))}; "
                    "interrupted runs resume by themselves"
                )
        models = [self.run_model(system, tasks, train, dev, test) for tasks in self.models_of(system)]
        return SystemResult(system, models)

    def run_model(
        self, system: str, tasks: Sequence[str], train: bool = True, dev: bool = True, test: bool = True
    ) -> ModelResult:
        """Trains and scores one model; see `run`."""
        folder = self.model_folder(system, tasks)
        name = folder.relative_to(self.folder).as_posix()
        result = self._stored_result(folder)
        missing = [
            split for split, wanted in (("dev", dev), ("test", test)) if wanted and not getattr(result, split, 0)
        ]
        if result is not None and not missing:
            logger.info("%s: finished in an earlier run", name)
            return result
        # Each model starts from the same random state, whether those before it were trained or skipped.
        set_seed(self.args.seed)
        is_new = train and result is None
        if not is_new and not (folder / MODEL_FOLDER).is_dir():
            raise FileNotFoundError(f"there is no trained model in {folder / MODEL_FOLDER}: train first")
        model = self._new_model(system, tasks) if is_new else self._load_model(folder)
        trainer = self._trainer(model, tasks, folder, name)
        if result is None:
            embeddings = model.encoder.embeddings.weight.numel()
            result = ModelResult(system, list(tasks), self.args.seed, model.num_parameters(), embeddings)
        if is_new:
            self._train(trainer, result, folder)
        if dev:
            result.dev = self._score(trainer, "validation", tasks)[0]
        if test:
            result.test, result.test_unique = self._score(trainer, "test", tasks)
        if trainer.is_world_process_zero():
            (folder / RESULT_FILE).write_text(json.dumps(asdict(result), indent=2) + "\n", encoding="utf-8")
            for checkpoint in folder.glob("checkpoint-*"):
                shutil.rmtree(checkpoint)
        return result

    def model_folder(self, system: str, tasks: Sequence[str]) -> Path:
        """Where a model's result and weights stand."""
        folder = self.folder / system
        return folder if SYSTEMS[system].multi_task else folder / tasks[0]

    def _new_model(self, system: str, tasks: Sequence[str]) -> MetaLSTMForSequenceClassification:
        config = MetaLSTMConfig(
            vocab_size=len(self.tokenizer),
            cell=SYSTEMS[system].cell,
            sharing="meta" if SYSTEMS[system].multi_task else "single",
            tasks={task: self.tasks[task] for task in tasks},
            pad_token_id=self.tokenizer.pad_token_id,
            bos_token_id=self.tokenizer.bos_token_id,
            eos_token_id=self.tokenizer.eos_token_id,
            **self.model_fields,
        )
        model = MetaLSTMForSequenceClassification(config)
        if self.prepare_model is not None:
            self.prepare_model(model)
        return model

    def _load_model(self, folder: Path) -> MetaLSTMForSequenceClassification:
        return MetaLSTMForSequenceClassification.from_pretrained(folder / MODEL_FOLDER)

    def _trainer(
        self, model: MetaLSTMForSequenceClassification, tasks: Sequence[str], folder: Path, name: str
    ) -> MultiTaskTrainer:
        args = copy.copy(self.args)
        args.output_dir, args.run_name = str(folder), name
        options = dict(self.trainer_options)
        if len(tasks) == 1:
            # There is nothing to weigh, and the weight would scale the learning rate.
            options.pop("task_weights", None)
        trainer = MultiTaskTrainer(
            model=model,
            args=args,
            train_dataset={task: self.splits["train"][task] for task in tasks},
            eval_dataset={task: self.splits["validation"][task] for task in tasks},
            processing_class=self.tokenizer,
            callbacks=[EpochTimer(), *self.callbacks],
            **options,
        )
        if self.quiet:
            trainer.remove_callback(PrinterCallback)
            trainer.remove_callback(ProgressCallback)
        return trainer

    def _train(self, trainer: MultiTaskTrainer, result: ModelResult, folder: Path) -> None:
        checkpoint = self.args.resume_from_checkpoint or _last_checkpoint(folder)
        if checkpoint is not None:
            logger.info("%s: going on from %s", trainer.args.run_name, checkpoint)
        trainer.train(resume_from_checkpoint=checkpoint)
        timer = next(c for c in trainer.callback_handler.callbacks if isinstance(c, EpochTimer))
        state = trainer.state
        best_step = state.best_global_step if self.args.load_best_model_at_end else None
        result.epochs = float(state.epoch or 0)
        result.best_epoch = result.epochs
        if best_step:
            result.best_epoch = round(result.epochs * best_step / state.global_step, 2)
        result.seconds = sum(timer.seconds)
        result.seconds_an_epoch = result.seconds / max(1, len(timer.seconds))
        result.losses = {
            task: [epoch["tasks"][task] for epoch in trainer.epoch_losses if task in epoch["tasks"]]
            for task in result.tasks
        }
        trainer.save_model(str(folder / MODEL_FOLDER))

    def _score(
        self, trainer: MultiTaskTrainer, split: str, tasks: Sequence[str]
    ) -> tuple[dict[str, float], dict[str, float]]:
        """Accuracy by task on all texts of a split, and on those that are not marked as duplicated."""
        data = {task: self.splits[split][task] for task in tasks}
        output = trainer.predict(data, metric_key_prefix=split)
        logits = output.predictions[0] if isinstance(output.predictions, tuple) else output.predictions
        predicted = np.asarray(logits).argmax(-1)
        scores, unique_scores, start = {}, {}, 0
        for task, rows in data.items():
            own = slice(start, start + len(rows))
            labels, start = np.asarray(rows["labels"]), start + len(rows)
            scores[task] = accuracy(predicted[own], labels)
            unique = ~np.asarray(rows["duplicated"]) if "duplicated" in rows.column_names else np.ones(len(rows), bool)
            if unique.any():
                unique_scores[task] = accuracy(predicted[own][unique], labels[unique])
        logger.info("%s: %s accuracy %.4f", trainer.args.run_name, split, sum(scores.values()) / len(scores))
        return scores, unique_scores

    # ---- what an earlier run left ----

    def _stored_result(self, folder: Path) -> ModelResult | None:
        path = folder / RESULT_FILE
        return ModelResult(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None

    def _settings(self, further: Mapping[str, Any]) -> dict[str, Any]:
        """Everything that a model's result depends on."""
        args = self.args.to_dict()
        sizes = {split: {task: len(rows) for task, rows in tasks.items()} for split, tasks in self.splits.items()}
        settings = {
            "tasks": self.tasks,
            "examples": sizes,
            "vocabulary": len(self.tokenizer),
            "model": self.model_fields,
            "trainer": self.trainer_options,
            "training_arguments": {name: args[name] for name in _ARGUMENTS_OF_RESULTS},
            **further,
        }
        # As they will be read back: tuples become lists, numbers as keys strings.
        return json.loads(json.dumps(settings, default=str))

    def _check_settings(self, settings: dict[str, Any]) -> None:
        path = self.folder / SETTINGS_FILE
        if path.exists():
            earlier = json.loads(path.read_text(encoding="utf-8"))
            changes = _differences(earlier, settings)
            if changes:
                raise ValueError(
                    f"{self.folder} holds a run with other settings ({'; '.join(changes[:5])}): choose another "
                    "output_dir, or overwrite it"
                )
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")

    def _delete_earlier_run(self) -> None:
        """Deletes what this class wrote in the output folder, and nothing else."""
        (self.folder / SETTINGS_FILE).unlink(missing_ok=True)
        for system in SYSTEMS:
            for path in sorted((self.folder / system).rglob(RESULT_FILE)):
                path.unlink()
            for checkpoint in (self.folder / system).rglob("checkpoint-*"):
                shutil.rmtree(checkpoint)


def _last_checkpoint(folder: Path) -> str | None:
    """The newest checkpoint of a folder. Trainer writes its state last, so one without it is incomplete."""
    found = [path for path in folder.glob("checkpoint-*") if (path / "trainer_state.json").exists()]
    return str(max(found, key=lambda path: int(path.name.rpartition("-")[2]))) if found else None


def _differences(earlier: Any, now: Any, name: str = "") -> list[str]:
    """Names and values that differ between two nested dicts."""
    if isinstance(earlier, dict) and isinstance(now, dict):
        keys = [*earlier, *(key for key in now if key not in earlier)]
        return [
            change
            for key in keys
            for change in _differences(earlier.get(key), now.get(key), f"{name}.{key}" if name else str(key))
        ]
    return [] if earlier == now else [f"{name} was {earlier!r}, now {now!r}"]
