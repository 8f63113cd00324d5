#!/usr/bin/env python
"""Trains and compares classifiers of several tasks: an LSTM or a Meta-LSTM for each task, or one multi-task Meta-LSTM.

Takes every option of `TrainingArguments`. Without any of --do_train, --do_eval and --do_predict it does all three. The
epoch that is best on dev is kept, and test accuracy is reported with and without the test texts that are also in train
or dev. A run that was interrupted goes on where it stood when it is started again: finished models are skipped, the
unfinished one resumes from its last checkpoint. The output folder gets, beside a folder for each model,

    results.json  results.md  train.log  and, with --plot, learning_curves.png

The sixteen review tasks of Chen et al. 2018, in the background:

    nohup python examples/run_multitask_classification.py --data_dir path/to/sixteen_tasks --system all \\
        --vectors glove-6b-50d --output_dir outputs/sixteen --disable_tqdm true > /dev/null 2>&1 &

One task from the Hub:

    python examples/run_multitask_classification.py --dataset imdb --system meta-single --output_dir outputs/imdb
"""

import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import datasets
import transformers
from transformers import HfArgumentParser, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from hf_metalstm import WordTokenizer, __version__
from hf_metalstm.data.collators import tokenize_tasks
from hf_metalstm.data.reviews import MultiTaskData, load_multitask_dataset, read_review_tasks
from hf_metalstm.plots.learning_curves import plot_learning_curves
from hf_metalstm.training.compare import Comparison, ComparisonArguments
from hf_metalstm.training.comparison_results import SYSTEMS, SystemResult, choose_systems
from hf_metalstm.training.comparison_table import as_markdown, cost_rows, score_rows
from hf_metalstm.training.word_vectors import WordVectors

logger = logging.getLogger("run_multitask_classification")


@dataclass
class ModelArguments:
    """The models, the same sizes for all systems."""

    system: list[str] = field(
        default_factory=lambda: ["all"],
        metadata={"help": f"Systems to train: {', '.join(SYSTEMS)}, or all."},
    )
    embedding_size: int = field(default=50, metadata={"help": "Width of the word embeddings."})
    hidden_size: int = field(default=100, metadata={"help": "Units of the (basic) LSTM."})
    meta_size: int = field(default=40, metadata={"help": "Units of the meta network."})
    z_size: int = field(default=40, metadata={"help": "Length of the meta vector."})
    num_hidden_layers: int = field(default=1, metadata={"help": "Stacked layers."})
    bidirectional: bool = field(default=False, metadata={"help": "Read both ways."})
    pooling: str = field(default="last", metadata={"help": "What the classifier reads: last, mean, max or concat."})
    embedding_dropout: float = field(default=0.0, metadata={"help": "Dropout on the embeddings."})
    hidden_dropout: float = field(default=0.0, metadata={"help": "Dropout between layers."})
    classifier_dropout: float = field(default=0.3, metadata={"help": "Dropout before the classifier."})
    vectors: str | None = field(
        default=None, metadata={"help": "Word vectors: glove-6b-50d, or a GloVe or word2vec file (.txt, .gz, .zip)."}
    )


@dataclass
class DataArguments:
    """The texts, and how they become tokens."""

    data_dir: str | None = field(default=None, metadata={"help": "Folder of <task>.task.train and .test files."})
    dataset: str | None = field(
        default=None, metadata={"help": "Data set of the Hub, or a CSV, TSV, JSON or JSONL file, or a folder of them."}
    )
    text_column: str = field(default="text", metadata={"help": "Column of --dataset with the text."})
    label_column: str = field(default="label", metadata={"help": "Column of --dataset with the label."})
    task_column: str | None = field(default=None, metadata={"help": "Column of --dataset with the task's name."})
    tasks: list[str] | None = field(default=None, metadata={"help": "Use these tasks only."})
    dev_size: int = field(default=200, metadata={"help": "Last lines of --data_dir's training files, used as dev."})
    max_length: int | None = field(default=150, metadata={"help": "Cut texts after so many words; 0: do not cut."})
    lowercase: bool = field(default=True, metadata={"help": "Treat upper and lower case alike."})
    split: str = field(default="words", metadata={"help": "words, or whitespace for texts that are tokenized already."})
    vocab_size: int | None = field(default=None, metadata={"help": "Keep so many of the most frequent words."})
    min_frequency: int = field(default=2, metadata={"help": "Leave out words that occur less often in train."})


@dataclass
class MultiTaskArguments:
    """What the multi-task system does with its tasks, and what is written at the end."""

    sampling: str = field(default="proportional", metadata={"help": "proportional, uniform or temperature."})
    temperature: float = field(default=2.0, metadata={"help": "Of --sampling temperature."})
    batching: str = field(default="homogeneous", metadata={"help": "homogeneous (one task a batch) or mixed."})
    task_weights: list[str] = field(
        default_factory=list,
        metadata={"help": "Weights of the multi-task system's losses, such as: books=2 MR=0.5"},
    )
    plot: bool = field(default=False, metadata={"help": "Draw the learning curves."})
    overwrite: bool = field(default=False, metadata={"help": "Start afresh instead of continuing an earlier run."})


def main(argv: Sequence[str] | None = None) -> list[SystemResult]:
    """Runs the example.

    Args:
        argv: arguments; None: those of the process.

    Returns:
        The results, one for each system.
    """
    groups: Any = (ModelArguments, DataArguments, MultiTaskArguments, ComparisonArguments)
    parser = HfArgumentParser(groups)
    if argv is None and len(sys.argv) == 2 and sys.argv[1].endswith(".json"):
        parsed = parser.parse_json_file(sys.argv[1])
    else:
        parsed = parser.parse_args_into_dataclasses(argv)
    model_args, data_args, task_args, training_args = parsed
    folder = Path(training_args.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    log_file = _set_up_logging(folder / "train.log", training_args)
    try:
        return _run(model_args, data_args, task_args, training_args, folder)
    except Exception:
        # A run in the background has nothing but its log.
        logger.exception("stopped by an error")
        raise
    finally:
        logging.getLogger().removeHandler(log_file)
        log_file.close()


def _run(
    model_args: ModelArguments,
    data_args: DataArguments,
    task_args: MultiTaskArguments,
    training_args: TrainingArguments,
    folder: Path,
) -> list[SystemResult]:
    systems = choose_systems(model_args.system)
    data = _load(data_args)
    logger.info("data\n%s", data.summary())
    tokenizer = WordTokenizer.train_from_iterator(
        (text for rows in data.split("train").values() for text in rows["text"]),
        lowercase=data_args.lowercase,
        split=data_args.split,
        min_frequency=data_args.min_frequency,
        max_size=data_args.vocab_size,
    )
    logger.info("vocabulary: %d words", len(tokenizer))
    fields = asdict(model_args)
    del fields["system"], fields["vectors"]
    vectors = None if model_args.vectors is None else WordVectors(model_args.vectors, tokenizer)
    comparison = Comparison(
        tokenize_tasks(data, tokenizer, data_args.max_length or None),
        data.label_names,
        tokenizer,
        fields,
        training_args,
        trainer_options={
            "sampling": task_args.sampling,
            "temperature": task_args.temperature,
            "batching": task_args.batching,
            "task_weights": _weights(task_args.task_weights),
        },
        prepare_model=vectors,
        settings={"data": asdict(data_args), "vectors": model_args.vectors},
        callbacks=[_LogEpochs()],
        quiet=bool(training_args.disable_tqdm),
        overwrite=task_args.overwrite,
    )
    steps = {"train": training_args.do_train, "dev": training_args.do_eval, "test": training_args.do_predict}
    # `eval_strategy` switches do_eval on, so it alone says nothing.
    if not (steps["train"] or steps["test"]):
        steps = dict.fromkeys(steps, True)
    results: list[SystemResult] = []
    for system in systems:
        results.append(comparison.run(system, **steps))
        # Written after each system, so that a long run shows what it has.
        tables = _write(results, data, training_args, vectors, folder)
    logger.info("results, also in %s\n%s", folder / "results.md", tables)
    if task_args.plot and training_args.should_save and any(result.losses for result in results):
        path = folder / "learning_curves.png"
        plot_learning_curves({result.title: result.losses for result in results}, path)
        logger.info("wrote %s", path)
    return results


def _load(args: DataArguments) -> MultiTaskData:
    if (args.data_dir is None) == (args.dataset is None):
        raise ValueError("give exactly one of --data_dir and --dataset")
    if args.data_dir is not None:
        return read_review_tasks(args.data_dir, tasks=args.tasks, dev_size=args.dev_size)
    return load_multitask_dataset(
        args.dataset,
        text_column=args.text_column,
        label_column=args.label_column,
        task_column=args.task_column,
        tasks=args.tasks,
    )


def _weights(pairs: Sequence[str]) -> dict[str, float] | None:
    weights = {}
    for pair in pairs:
        task, equals, weight = pair.partition("=")
        try:
            weights[task] = float(weight)
        except ValueError as error:
            raise ValueError(f"--task_weights has {pair!r}, expected task=number, such as books=0.5") from error
    return weights or None


def _write(
    results: list[SystemResult],
    data: MultiTaskData,
    args: TrainingArguments,
    vectors: WordVectors | None,
    folder: Path,
) -> str:
    """Writes results.json and results.md, and returns the text of the latter."""
    path = folder / "results.json"
    found = None if vectors is None or vectors.report is None else str(vectors.report)
    if vectors is not None and found is None and path.exists():
        # Nothing was trained this time, so the vectors were not read again.
        found = json.loads(path.read_text(encoding="utf-8"))["vectors"]
    record = {
        "version": __version__,
        "source": data.source,
        "seed": args.seed,
        "vectors": found,
        "settings": json.loads((folder / "settings.json").read_text(encoding="utf-8")),
        "systems": [result.to_dict() for result in results],
    }
    parts = [f"Source: {data.source}. Seed: {args.seed}."]
    for title, split in (
        ("Test accuracy, per cent", "test"),
        ("Test accuracy without the texts that are also in train or dev, per cent", "test_unique"),
        ("Dev accuracy, per cent", "dev"),
    ):
        if any(result.scores(split) for result in results):
            parts.append(f"{title}:\n\n{as_markdown(score_rows(results, split))}")
    parts.append(f"Cost, all models of a system together:\n\n{as_markdown(cost_rows(results))}")
    text = "\n\n".join(parts) + "\n"
    if args.should_save:
        path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        path.with_suffix(".md").write_text(text, encoding="utf-8")
    return text


def _set_up_logging(path: Path, args: TrainingArguments) -> logging.Handler:
    """Sends the log to stderr and to a file that restarted runs append to."""
    line, date = "%(asctime)s %(levelname)s %(name)s: %(message)s", "%Y-%m-%d %H:%M:%S"
    log_file = logging.FileHandler(path, encoding="utf-8")
    log_file.setFormatter(logging.Formatter(line, date))
    logging.basicConfig(format=line, datefmt=date, level=logging.WARNING)
    logging.getLogger().addHandler(log_file)
    for name in ("run_multitask_classification", "hf_metalstm"):
        logging.getLogger(name).setLevel(logging.INFO if args.should_log else logging.WARNING)
    transformers.utils.logging.set_verbosity(max(args.get_process_log_level(), logging.WARNING))
    transformers.utils.logging.disable_progress_bar()
    datasets.disable_progress_bars()
    return log_file


class _LogEpochs(TrainerCallback):
    """One line of log an epoch."""

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        metrics = kwargs["metrics"]
        if state.is_world_process_zero and "eval_average_accuracy" in metrics:
            logger.info(
                "%s: epoch %g of %g, dev accuracy %.4f, dev loss %.4f",
                args.run_name,
                round(state.epoch or 0, 2),
                args.num_train_epochs,
                metrics["eval_average_accuracy"],
                metrics["eval_loss"],
            )


if __name__ == "__main__":
    main()
