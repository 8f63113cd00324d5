#!/usr/bin/env python
"""Trains Dynamic Memory Networks that answer questions about stories: one task, several in turn, or all jointly.

Takes every option of `TrainingArguments`. The stories are generated ones of the twenty bAbI kinds, unless a bAbI folder
or files of your own are named. The epoch that is best on validation is kept. A run that was interrupted goes on where
it stood when it is started again, and finished models are not trained twice. The output folder gets a folder for each
model, with `model/` for `pipeline("memory-question-answering")` and a picture `gates.png` of where it looked, and

    results.json  results.md

One generated task, in about a minute on a CPU:

    python examples/run_dmn_qa.py --tasks 1 --num_train_epochs 40 --output_dir outputs/dmn

The twenty bAbI tasks in turn, one model each, and one model for all:

    python examples/run_dmn_qa.py --babi_dir path/to/babi --output_dir outputs/babi
    python examples/run_dmn_qa.py --babi_dir path/to/babi --joint --output_dir outputs/babi_joint

Stories of your own, one question a line, {"facts": [...], "question": ..., "answer": ..., "supporting_facts": [...]}:

    python examples/run_dmn_qa.py --train_file train.jsonl --test_file test.jsonl --output_dir outputs/own
"""

import copy
import json
import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import datasets
import transformers
from datasets import DatasetDict
from transformers import HfArgumentParser, pipeline

import hf_metalstm
from hf_metalstm.data.babi import read_babi
from hf_metalstm.data.babi_generator import generate_babi
from hf_metalstm.data.stories import read_stories
from hf_metalstm.plots.gates import format_gates, plot_gates
from hf_metalstm.training.story_training import (
    MODEL_FOLDER,
    StoryArguments,
    StoryResult,
    as_markdown,
    train_on_stories,
)

logger = logging.getLogger("run_dmn_qa")


@dataclass
class ModelArguments:
    """The model; the defaults are those of benchmarks/reproduce_dmn.py."""

    hidden_size: int = field(default=80, metadata={"help": "Width of facts, question and memory."})
    embedding_size: int = field(default=80, metadata={"help": "Width of the word embeddings."})
    num_passes: int = field(default=3, metadata={"help": "Passes over the facts, at most."})
    input_cell: str = field(default="gru", metadata={"help": "gru or lstm."})
    fact_encoder: str = field(default="position", metadata={"help": "story, sentence or position."})
    fusion_layer: bool = field(default=True, metadata={"help": "Let facts know of each other."})
    gate: str = field(default="softmax", metadata={"help": "sigmoid or softmax."})
    memory_cell: str = field(default="gru", metadata={"help": "gru or relu."})
    tie_memory_weights: bool = field(default=True, metadata={"help": "The same weights in all passes."})
    use_end_of_passes: bool = field(default=True, metadata={"help": "Passes may end early, where gates are taught."})
    gate_loss_weight: float = field(default=1.0, metadata={"help": "Of the loss on the gates."})
    embedding_dropout: float = field(default=0.1, metadata={"help": "Dropout on the embeddings."})
    fact_dropout: float = field(default=0.0, metadata={"help": "Dropout on the facts."})
    answer_dropout: float = field(default=0.0, metadata={"help": "Dropout in the answer module."})
    initializer_range: float = field(default=0.5, metadata={"help": "Standard deviation of the new embeddings."})


@dataclass
class DataArguments:
    """The stories."""

    babi_dir: str | None = field(default=None, metadata={"help": "Folder of the bAbI files."})
    version: str = field(default="en", metadata={"help": "Of the bAbI files: en (1,000 questions) or en-10k."})
    train_file: str | None = field(default=None, metadata={"help": "Own stories (.jsonl or .json)."})
    validation_file: str | None = field(default=None, metadata={"help": "Cut from --train_file where it is missing."})
    test_file: str | None = field(default=None, metadata={"help": "Own stories to test on."})
    tasks: list[int] | None = field(default=None, metadata={"help": "Numbers of bAbI tasks; all twenty without it."})
    joint: bool = field(default=False, metadata={"help": "One model for all tasks instead of one each."})
    list_answers: str = field(default="tokens", metadata={"help": "Answers of several words: tokens, or one class."})
    train_size: int = field(default=900, metadata={"help": "Generated questions of each task to train on."})
    test_size: int = field(default=1000, metadata={"help": "Generated questions of each task to test on."})
    supervise_gates: bool = field(default=True, metadata={"help": "Use the supporting facts."})
    gate_epochs: int = field(default=5, metadata={"help": "Train the gates alone for so many epochs first."})


def main(argv: Sequence[str] | None = None) -> list[StoryResult]:
    """Runs the example.

    Args:
        argv: arguments; None: those of the process.

    Returns:
        The results, one for each model.
    """
    parser = HfArgumentParser((ModelArguments, DataArguments, StoryArguments))  # type: ignore[arg-type]
    if argv is None and len(sys.argv) == 2 and sys.argv[1].endswith(".json"):
        model_args, data_args, training_args = parser.parse_json_file(sys.argv[1])
    else:
        model_args, data_args, training_args = parser.parse_args_into_dataclasses(argv)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    logger.setLevel(logging.INFO if training_args.should_log else logging.WARNING)
    transformers.utils.logging.set_verbosity(max(training_args.get_process_log_level(), logging.WARNING))
    datasets.disable_progress_bars()
    folder = Path(training_args.output_dir)
    results: list[StoryResult] = []
    for name, data in _parts(data_args, training_args.seed):
        arguments = copy.copy(training_args)
        arguments.output_dir = str(folder / name)
        logger.info("%s: %s", name, ", ".join(f"{rows.num_rows} {split}" for split, rows in data.items()))
        result = train_on_stories(
            name,
            data,
            arguments,
            asdict(model_args),
            gate_epochs=data_args.gate_epochs,
            supervise_gates=data_args.supervise_gates,
            quiet=bool(training_args.disable_tqdm),
        )
        logger.info("%s: test %.1f %%, best epoch %g", name, 100 * result.average, result.best_epoch)
        results.append(result)
        if training_args.should_save:
            # Written after each model, so that a long run shows what it has.
            _write(results, data_args, folder)
            _show(data, folder / name)
    return results


def _parts(args: DataArguments, seed: int) -> Iterator[tuple[str, DatasetDict]]:
    """The data of each model, and its name."""
    if args.babi_dir is not None and args.train_file is not None:
        raise ValueError("give either --babi_dir or --train_file")
    if args.train_file is not None:
        files = {"train": args.train_file, "validation": args.validation_file, "test": args.test_file}
        given = {split: file for split, file in files.items() if file is not None}
        data = read_stories(given, list_answers=args.list_answers, seed=seed)
        if "test" not in data:
            logger.warning("there is no --test_file: the validation stories are tested on")
            data["test"] = data["validation"]
        yield "stories", data
        return
    numbers = args.tasks or list(range(1, 21))
    for tasks in [numbers] if args.joint else [[number] for number in numbers]:
        name = "joint" if args.joint else f"task_{tasks[0]}"
        if args.babi_dir is None:
            sizes = {"train_size": args.train_size, "validation_size": 100, "test_size": args.test_size}
            yield name, generate_babi(tasks=tasks, **sizes, seed=seed)
        else:
            yield name, read_babi(args.babi_dir, args.version, tasks, args.list_answers, seed=seed)


def _write(results: list[StoryResult], args: DataArguments, folder: Path) -> None:
    source = args.babi_dir or args.train_file or "generated stories"
    how = "with" if args.supervise_gates else "without"
    record = {"version": hf_metalstm.__version__, "source": source, "results": [asdict(result) for result in results]}
    (folder / "results.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    table = as_markdown({"test accuracy": results})
    text = f"Source: {source}, {how} supporting facts. Accuracy in per cent.\n\n{table}"
    (folder / "results.md").write_text(text, encoding="utf-8")


def _show(data: DatasetDict, folder: Path) -> None:
    """The gates of one test question, as text in the log and as a picture."""
    ask: Any = pipeline("memory-question-answering", model=str(folder / MODEL_FOLDER))
    story = data["test"][0]
    answer = ask(facts=story["facts"], question=story["question"])
    if answer["gates"]:
        shown = format_gates(answer["gates"], story["facts"])
        logger.info("%s %s (%.1f %%)\n%s", story["question"], answer["answer"], 100 * answer["score"], shown)
        try:
            plot_gates(answer["gates"], story["facts"], story["question"], answer["answer"], folder / "gates.png")
        except ImportError as error:
            logger.warning("no picture: %s", error)


if __name__ == "__main__":
    main()
