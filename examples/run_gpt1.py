#!/usr/bin/env python
"""Fine-tunes GPT-1 for multiple choice, entailment, similarity or classification; on request pretrains a small one.

Takes every option of `TrainingArguments`, which go to fine-tuning. The output folder gets the model, its tokenizer and
results.json; with --from_scratch the pretrained language model is in its sub-folder `pretrained`.

A small model on generated data, from nothing, in minutes on a CPU:

    python examples/run_gpt1.py --from_scratch generated --task multiple_choice --output_dir outputs/stories \\
        --n_embd 64 --n_layer 3 --n_head 4 --n_positions 96 --bpe_size 400 --per_device_train_batch_size 32 \\
        --pretraining_epochs 16 --num_train_epochs 6 --learning_rate 1e-3

The published model on data of your own: a folder with train.csv, validation.csv and test.csv, one CSV or JSONL file, or
a data set of the Hub:

    python examples/run_gpt1.py --model_name_or_path path/to/gpt1 --task entailment --data path/to/folder \\
        --output_dir outputs/entailment --learning_rate 6.25e-5
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, DatasetDict, load_dataset
from transformers import DataCollatorForLanguageModeling, HfArgumentParser, Trainer, TrainingArguments, set_seed

from hf_metalstm import (
    DataCollatorForTaskInputs,
    GPT1Config,
    GPT1DoubleHeadsModel,
    GPT1ForSequenceClassification,
    GPT1LMHeadModel,
    GPT1Tokenizer,
)
from hf_metalstm.data.choice_inputs import TASKS, ChoiceColumns, build_task_inputs
from hf_metalstm.data.synthetic_stories import generate_task, generate_texts
from hf_metalstm.training.gpt1_trainer import GPT1Trainer

logger = logging.getLogger("run_gpt1")
_LOADERS = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json"}


@dataclass
class ModelArguments:
    """Where the model comes from, and the sizes of one that is trained from scratch."""

    model_name_or_path: str | None = field(default=None, metadata={"help": "Folder or Hub name to start from."})
    from_scratch: str | None = field(
        default=None, metadata={"help": "Pretrain on this text file, a text a line; or: generated."}
    )
    n_embd: int = field(default=256, metadata={"help": "Width, with --from_scratch."})
    n_layer: int = field(default=4, metadata={"help": "Layers, with --from_scratch."})
    n_head: int = field(default=4, metadata={"help": "Attention heads, with --from_scratch."})
    n_positions: int = field(default=256, metadata={"help": "Longest input in tokens, with --from_scratch."})
    bpe_size: int = field(default=8000, metadata={"help": "Tokens to learn, with --from_scratch."})
    pretraining_epochs: float = field(default=10.0, metadata={"help": "Passes over the text, with --from_scratch."})
    pretraining_learning_rate: float = field(default=2e-3, metadata={"help": "Largest rate, with --from_scratch."})
    generated_texts: int = field(default=4000, metadata={"help": "Texts, with --from_scratch generated."})
    text_rules: str = field(default="tokenizers", metadata={"help": "tokenizers, or authors (needs ftfy and spaCy)."})
    lm_coef: float = field(default=0.5, metadata={"help": "Weight of the language model's loss in fine-tuning."})


@dataclass
class DataArguments:
    """The task and its data."""

    task: str | None = field(default=None, metadata={"help": f"One of {', '.join(TASKS)}; none: pretrain only."})
    data: str = field(
        default="generated", metadata={"help": "Folder, CSV, TSV or JSONL file, Hub name; or: generated."}
    )
    text_columns: list[str] = field(
        default_factory=list, metadata={"help": "Columns of text, or context and answers; none: the usual names."}
    )
    label_column: str = field(default="label", metadata={"help": "Label of multiple choices with --text_columns."})
    class_names: list[str] = field(default_factory=list, metadata={"help": "Classes, where labels are names."})
    max_length: int | None = field(default=None, metadata={"help": "Longest input in tokens; the context is cut."})
    generated_train_size: int = field(default=2000, metadata={"help": "Training rows, with --data generated."})
    ignore_prompt: bool = field(default=False, metadata={"help": "Score the language model behind the delimiter only."})


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Runs the example and returns what results.json holds."""
    groups: Any = (ModelArguments, DataArguments, TrainingArguments)
    model_args, data_args, args = HfArgumentParser(groups).parse_args_into_dataclasses(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    if (model_args.from_scratch is None) == (model_args.model_name_or_path is None):
        raise ValueError("give exactly one of --from_scratch and --model_name_or_path")
    if data_args.task is None and model_args.from_scratch is None:
        raise ValueError(f"give --task, one of {', '.join(TASKS)}: there is nothing to pretrain")
    if data_args.task is not None and data_args.task not in TASKS:
        raise ValueError(f"there is no task {data_args.task!r}; the tasks are {', '.join(TASKS)}")
    set_seed(args.seed)
    folder = Path(args.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {"seed": args.seed, "task": data_args.task}
    source = model_args.model_name_or_path
    if model_args.from_scratch is not None:
        source = str(folder / "pretrained")
        results["pretraining_loss"] = pretrain(model_args, args, source)
    if data_args.task is not None:
        results |= fine_tune(source, model_args, data_args, args)
    (folder / "results.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return results


def pretrain(model_args: ModelArguments, args: TrainingArguments, folder: str) -> float:
    """Learns byte-pair encoding and a language model from plain text, and returns the last loss."""
    if model_args.from_scratch == "generated":
        texts = generate_texts(model_args.generated_texts, seed=args.seed)
    else:
        lines = Path(str(model_args.from_scratch)).read_text(encoding="utf-8").splitlines()
        texts = [line for line in lines if line.strip()]
    tokenizer = GPT1Tokenizer.train_from_iterator(
        texts, model_args.bpe_size, text_rules=model_args.text_rules, model_max_length=model_args.n_positions
    )
    config = GPT1Config(
        vocab_size=len(tokenizer),
        n_embd=model_args.n_embd,
        n_layer=model_args.n_layer,
        n_head=model_args.n_head,
        n_positions=model_args.n_positions,
    )
    model = GPT1LMHeadModel(config)
    tokenizer.add_task_tokens(model)
    rows = [ids for ids in tokenizer(texts, truncation=True).input_ids if len(ids) > 1]
    logger.info(
        "pretraining on %d texts, %d tokens, %d of them different", len(rows), sum(map(len, rows)), len(tokenizer)
    )
    settings = TrainingArguments(
        output_dir=folder,
        num_train_epochs=model_args.pretraining_epochs,
        learning_rate=model_args.pretraining_learning_rate,
        per_device_train_batch_size=args.per_device_train_batch_size,
        warmup_steps=0.1,
        lr_scheduler_type="cosine",
        save_strategy="no",
        seed=args.seed,
        use_cpu=args.use_cpu,
        disable_tqdm=args.disable_tqdm,
        max_steps=args.max_steps,
    )
    trainer = Trainer(
        model,
        settings,
        train_dataset=Dataset.from_dict({"input_ids": rows}),
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
    )
    loss = trainer.train().training_loss
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return float(loss)


def fine_tune(
    source: str | None, model_args: ModelArguments, data_args: DataArguments, args: TrainingArguments
) -> dict[str, Any]:
    """Trains on the task's train split and returns the accuracy on the others."""
    task = str(data_args.task)
    data = read_data(data_args, args.seed)
    tokenizer = GPT1Tokenizer.from_pretrained(source)
    columns: Any = data_args.text_columns or None
    if columns is not None and task == "multiple_choice":
        columns = ChoiceColumns((columns[0],), tuple(columns[1:]), data_args.label_column)
    names = data_args.class_names or class_names(data["train"], task)
    rows = {
        split: build_task_inputs(
            part, tokenizer, task, columns=columns, label_names=names or None, max_length=data_args.max_length
        )
        for split, part in data.items()
    }
    if task == "multiple_choice":
        model = GPT1DoubleHeadsModel.from_pretrained(source, lm_coef=model_args.lm_coef)
    else:
        names = names or [str(label) for label in range(max(rows["train"]["label"]) + 1)]
        ids = dict(enumerate(names))
        model = GPT1ForSequenceClassification.from_pretrained(
            source, id2label=ids, label2id={name: index for index, name in ids.items()}, lm_coef=model_args.lm_coef
        )
    tokenizer.add_task_tokens(model)
    collate = DataCollatorForTaskInputs(
        tokenizer, language_modeling=model_args.lm_coef > 0, ignore_prompt=data_args.ignore_prompt
    )
    trainer = GPT1Trainer(model, args, train_dataset=rows["train"], data_collator=collate, processing_class=tokenizer)
    trainer.train()
    tokenizer.set_task("language-modeling" if task == "multiple_choice" else "classification")
    trainer.save_model()
    results = {
        f"{split}_accuracy": accuracy(model, part, collate, args.per_device_eval_batch_size)
        for split, part in rows.items()
        if split != "train" and "label" in part.column_names
    }
    logger.info("%s", results)
    return results


@torch.no_grad()
def accuracy(model: Any, rows: Dataset, collate: DataCollatorForTaskInputs, batch_size: int) -> float:
    """Share of the rows whose largest score is that of the label."""
    model.eval()
    right = 0
    for start in range(0, rows.num_rows, batch_size):
        batch = collate(rows.select(range(start, min(start + batch_size, rows.num_rows))).to_list())
        labels = batch.pop("mc_labels", None)
        if labels is None:
            labels = batch.pop("labels")
        inputs = {name: batch[name].to(model.device) for name in batch if "labels" not in name}
        output = model(**inputs)
        scores = output.mc_logits if "mc_logits" in output else output.logits
        right += int((scores.argmax(-1).cpu() == labels).sum())
    return right / rows.num_rows


def class_names(rows: Dataset, task: str) -> list[str]:
    """Names of the classes: those of the data set, or the different texts that its labels are."""
    if task == "multiple_choice" or "label" not in rows.column_names:
        return []
    known = getattr(rows.features["label"], "names", None)
    if known is not None:
        return list(known)
    labels = set(rows["label"])
    return sorted(labels) if all(isinstance(label, str) for label in labels) else []


def read_data(data_args: DataArguments, seed: int) -> DatasetDict:
    """The splits of a folder, file, data set of the Hub, or the generator; a lone train split is divided."""
    if data_args.data == "generated":
        return generate_task(str(data_args.task), data_args.generated_train_size, seed=seed)
    path = Path(data_args.data)
    if path.is_file() or path.is_dir():
        files = [path] if path.is_file() else sorted(file for file in path.iterdir() if file.suffix in _LOADERS)
        splits = {"train": str(path)} if path.is_file() else {file.stem: str(file) for file in files}
        if not files or files[0].suffix not in _LOADERS or "train" not in splits:
            raise ValueError(f"{path} has no train file of these kinds: {', '.join(_LOADERS)}")
        options = {"sep": "\t"} if files[0].suffix == ".tsv" else {}
        data = load_dataset(_LOADERS[files[0].suffix], data_files=splits, **options)
    else:
        data = load_dataset(data_args.data)
    if len(data) == 1:
        train = next(iter(data.values())).train_test_split(0.2, seed=seed)
        data = DatasetDict({"train": train["train"], "test": train["test"]})
    return data


if __name__ == "__main__":
    main()
