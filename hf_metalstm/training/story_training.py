"""Trains a Dynamic Memory Network on stories, keeps the epoch that is best on validation, and scores its answers."""

import json
import shutil
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, DatasetDict
from torch import Tensor
from transformers import EvalPrediction, PrinterCallback, ProgressCallback, TrainerCallback, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

from ..data.dmn_collator import DataCollatorForDMN, prepare_stories
from ..modeling.configuration_dmn import DMNConfig
from ..modeling.modeling_dmn import DMNForQuestionAnswering
from ..tokenization.tokenization_dmn import DMNTokenizer
from .gates_first import GatesFirst
from .loss_guard import GuardedTrainer

MODEL_FOLDER = "model"
_IGNORED_LABEL = -100
_RESULT = "result.json"


@dataclass
class StoryArguments(TrainingArguments):
    """`TrainingArguments` with defaults for memory networks: the epoch that is best on validation is kept."""

    learning_rate: float = field(default=3e-3, metadata={"help": "The initial learning rate."})
    weight_decay: float = field(default=1e-3, metadata={"help": "The l2 regularisation, through AdamW."})
    per_device_train_batch_size: int = field(default=32, metadata={"help": "The batch size in training."})
    per_device_eval_batch_size: int = field(default=200, metadata={"help": "The batch size in evaluation."})
    num_train_epochs: float = field(default=120.0, metadata={"help": "Epochs to train each model for."})
    lr_scheduler_type: str = field(default="linear", metadata={"help": "The learning rate's schedule."})
    max_grad_norm: float = field(default=5.0, metadata={"help": "Longer gradients are shortened to this."})
    eval_strategy: str = field(default="epoch", metadata={"help": "When to score on validation."})
    save_strategy: str = field(default="epoch", metadata={"help": "When to write checkpoints."})
    logging_strategy: str = field(default="epoch", metadata={"help": "When to log the training loss."})
    save_total_limit: int | None = field(default=1, metadata={"help": "Checkpoints kept beside the best one."})
    load_best_model_at_end: bool = field(default=True, metadata={"help": "Keep the epoch that is best on validation."})
    metric_for_best_model: str | None = field(default="accuracy", metadata={"help": "What is best."})
    # Stories are small, and pinning warns on machines without an accelerator.
    dataloader_pin_memory: bool = field(default=False, metadata={"help": "Pin memory in the data loaders."})


@dataclass
class StoryResult:
    """One trained model.

    Args:
        name: of the run.
        test: accuracy of each task on its test stories, from 0 to 1; an answer counts when all its tokens and its end
            are right.
        validation: accuracy on all validation stories.
        seed, epochs: what it was trained with; epochs are those made.
        best_epoch: the one that is kept.
        seconds: of training, with the evaluations in it.
        supervised: whether supporting facts were used.
    """

    name: str
    test: dict[str, float]
    validation: float
    seed: int
    epochs: float
    best_epoch: float
    seconds: float
    supervised: bool

    @property
    def average(self) -> float:
        """Mean of the tasks' test accuracies."""
        return sum(self.test.values()) / len(self.test)


def best_tokens(logits: Tensor | tuple[Tensor, ...], labels: Tensor) -> Tensor:
    """The most likely token at each place, for `Trainer`'s `preprocess_logits_for_metrics`."""
    return (logits[0] if isinstance(logits, tuple) else logits).argmax(-1)


def right_answers(predictions: Any, labels: Any) -> np.ndarray:
    """Which answers are right in all tokens, the end token included: just those that greedy generation gives.

    Args:
        predictions: (answers, tokens) most likely tokens when the right tokens before them were read.
        labels: (answers, tokens); -100 is ignored.
    """
    return ((predictions == labels) | (labels == _IGNORED_LABEL)).all(axis=1)


def answer_accuracy(prediction: EvalPrediction) -> dict[str, float]:
    """`compute_metrics` of a memory network: the share of right answers."""
    return {"accuracy": float(right_answers(prediction.predictions, prediction.label_ids).mean())}


def train_on_stories(
    name: str,
    data: DatasetDict,
    arguments: TrainingArguments,
    model_fields: Mapping[str, Any],
    *,
    gate_epochs: int = 5,
    supervise_gates: bool = True,
    callbacks: list[TrainerCallback] | None = None,
    quiet: bool = False,
) -> StoryResult:
    """Trains one model in `arguments.output_dir`, whose `model/` holds it and its tokenizer afterwards.

    A run that was interrupted resumes from its last checkpoint, and a finished one is not repeated.

    Args:
        name: of the run, for the result.
        data: the splits train, validation and test, as `read_babi`, `read_stories` and `generate_babi` give them.
        arguments: of the training; `StoryArguments` has fitting defaults.
        model_fields: fields of `DMNConfig`, without the vocabulary's size.
        gate_epochs: the gates come first for so many epochs where they are supervised.
        supervise_gates: use the supporting facts.
        callbacks: for the trainer.
        quiet: leave out Trainer's own progress bars and printed logs.

    Raises:
        ValueError: a split is missing, or the folder holds a run with other settings.
    """
    for split in ("train", "validation", "test"):
        if split not in data:
            raise ValueError(f"there is no {split} split, but {', '.join(map(str, data)) or 'nothing'}")
    folder = Path(str(arguments.output_dir))
    settings = {
        "name": name,
        "model": dict(model_fields),
        "seed": arguments.seed,
        "epochs": arguments.num_train_epochs,
        "learning_rate": arguments.learning_rate,
        "weight_decay": arguments.weight_decay,
        "batch_size": arguments.per_device_train_batch_size,
        "gate_epochs": gate_epochs,
        "supervise_gates": supervise_gates,
        "questions": {str(split): rows.num_rows for split, rows in data.items()},
    }
    done = _finished(folder, settings)
    if done is not None:
        return done
    set_seed(arguments.seed)
    tokenizer = DMNTokenizer.train_from_dataset(data)
    prepared = prepare_stories(data, tokenizer)
    if not supervise_gates:
        prepared = DatasetDict({split: rows.remove_columns("supporting_facts") for split, rows in prepared.items()})
    fields = dict(model_fields)
    if not supervise_gates:
        # Nothing would teach the gates when to end.
        fields["use_end_of_passes"] = False
    config = DMNConfig(vocab_size=len(tokenizer), **fields)
    model = DMNForQuestionAnswering(config)
    trainer = GuardedTrainer(
        model=model,
        args=arguments,
        train_dataset=_rows(prepared["train"]),
        eval_dataset=_rows(prepared["validation"]),
        data_collator=DataCollatorForDMN(tokenizer, num_passes=config.num_passes),
        compute_metrics=answer_accuracy,
        preprocess_logits_for_metrics=best_tokens,
        callbacks=[*(callbacks or []), *([GatesFirst(gate_epochs)] if supervise_gates else [])],
    )
    if quiet:
        for callback in (PrinterCallback, ProgressCallback):
            trainer.remove_callback(callback)
    folder.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    trainer.train(resume_from_checkpoint=get_last_checkpoint(str(folder)))
    seconds = time.perf_counter() - began
    validation = trainer.evaluate()["eval_accuracy"]
    predicted = trainer.predict(_rows(prepared["test"]))
    right = right_answers(predicted.predictions, predicted.label_ids)
    of_task = defaultdict(list)
    for task, is_right in zip(prepared["test"]["task"][:], right.tolist(), strict=True):
        of_task[task].append(is_right)
    best = trainer.state.best_global_step or trainer.state.global_step
    steps_an_epoch = trainer.state.global_step / (trainer.state.epoch or 1)
    result = StoryResult(
        name=name,
        test={task: sum(answers) / len(answers) for task, answers in of_task.items()},
        validation=validation,
        seed=arguments.seed,
        epochs=trainer.state.epoch or 0.0,
        best_epoch=round(best / steps_an_epoch, 2),
        seconds=seconds,
        supervised=supervise_gates,
    )
    if trainer.is_world_process_zero():
        model.save_pretrained(folder / MODEL_FOLDER)
        tokenizer.save_pretrained(folder / MODEL_FOLDER)
        record = {"settings": settings, "result": asdict(result)}
        (folder / _RESULT).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        for checkpoint in folder.glob("checkpoint-*"):
            shutil.rmtree(checkpoint)
    return result


def _finished(folder: Path, settings: Mapping[str, Any]) -> StoryResult | None:
    path = folder / _RESULT
    if not path.exists():
        return None
    record = json.loads(path.read_text(encoding="utf-8"))
    differing = [key for key, value in settings.items() if record["settings"].get(key) != value]
    if differing:
        key = differing[0]
        raise ValueError(
            f"{folder} holds a run with {key} {record['settings'].get(key)}, not {settings[key]}: choose another "
            "output folder, or delete it"
        )
    return StoryResult(**record["result"])


def _rows(data: Dataset) -> Any:
    """A list is read far faster than a data set, and stories are small."""
    return data.remove_columns("task").to_list()


def as_markdown(results: Mapping[str, list[StoryResult]], published: Mapping[str, float] | None = None) -> str:
    """A table of test accuracies in per cent: a row for each task and the mean, a column for each heading.

    Args:
        results: of the runs under each heading; of several runs of a task the one that is best on validation counts.
        published: accuracies of each task, in per cent, for a column of their own.
    """
    chosen: dict[str, dict[str, float]] = {}
    for heading, runs in results.items():
        best: dict[str, StoryResult] = {}
        for run in runs:
            for task in run.test:
                if task not in best or run.validation > best[task].validation:
                    best[task] = run
        chosen[heading] = {task: 100 * run.test[task] for task, run in best.items()}
    if published:
        chosen["published"] = dict(published)
    tasks = sorted({task for scores in chosen.values() for task in scores}, key=_task_number)
    lines = ["| task | " + " | ".join(chosen) + " |", "|:--" + "|--:" * len(chosen) + "|"]
    for task in tasks:
        cells = [f"{scores[task]:.1f}" if task in scores else "-" for scores in chosen.values()]
        lines.append(f"| {task} | " + " | ".join(cells) + " |")
    means = [f"{sum(scores.values()) / len(scores):.1f}" if scores else "-" for scores in chosen.values()]
    lines.append("| mean | " + " | ".join(means) + " |")
    return "\n".join(lines) + "\n"


def _task_number(task: str) -> tuple[int, str]:
    digits = "".join(character for character in task.split("_")[0] if character.isdigit())
    return (int(digits) if digits else 0, task)
