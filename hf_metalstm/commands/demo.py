"""`hf-metalstm demo`: trains, compares, draws, saves, loads and asks, on generated reviews or on the user's data."""

import argparse
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Adds the sub-command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "demo",
        help="train and compare the systems of the paper, save the best and ask it",
        description="Trains an LSTM for each task, a Meta-LSTM for each task and one multi-task Meta-LSTM; prints "
        "their test accuracy; writes two pictures, the results and the multi-task model. Without data of your own it "
        "runs on generated reviews, in a few minutes on a CPU.",
    )
    number: dict[str, Any] = {"type": positive_int, "metavar": "N"}
    data = parser.add_argument_group("data")
    source = data.add_mutually_exclusive_group()
    source.add_argument("--data_dir", metavar="DIR", help="folder of <task>.task.train / .test files: label TAB text")
    source.add_argument(
        "--dataset",
        metavar="NAME",
        help="data set of the Hub, or a CSV, TSV, JSON or JSONL file, or a folder of them",
    )
    data.add_argument("--text_column", default="text", metavar="NAME", help="column with the text (default: text)")
    data.add_argument("--label_column", default="label", metavar="NAME", help="column with the label (default: label)")
    data.add_argument("--task_column", metavar="NAME", help="column with the task's name (default: there is one task)")
    data.add_argument("--tasks", nargs="+", metavar="TASK", help="use only these tasks (default: all)")
    data.add_argument(
        "--train_size",
        type=positive_int,
        default=400,
        metavar="N",
        help="generated training reviews of a task (default: 400)",
    )
    data.add_argument(
        "--max_length",
        type=positive_int,
        metavar="N",
        help="cut texts after N words (default: 100; generated ones are not cut)",
    )
    model = parser.add_argument_group(
        "models and training",
        "The same for the three systems. Where there are two defaults, the second is for data of your own.",
    )
    model.add_argument("--epochs", **number, help="train so long, keep the best on dev (default: 8, 5)")
    model.add_argument("--learning_rate", type=float, metavar="RATE", help="of AdamW (default: 0.01, 0.002)")
    model.add_argument("--batch_size", **number, default=16, help="texts in a batch (default: 16)")
    model.add_argument("--embedding_size", **number, help="of the words (default: 32, 50)")
    model.add_argument("--hidden_size", **number, help="units of the LSTM (default: 32, 64)")
    model.add_argument("--meta_size", **number, default=20, help="units of the meta network (default: 20)")
    model.add_argument("--z_size", **number, default=20, help="length of the meta vector (default: 20)")
    model.add_argument("--vectors", metavar="SOURCE", help="word vectors: glove-6b-50d, or a GloVe or word2vec file")
    model.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of generated data, weights and batches (default: 0)"
    )
    parser.add_argument(
        "--output_dir", default="outputs/demo", metavar="DIR", help="for all that is written (default: outputs/demo)"
    )


def positive_int(text: str) -> int:
    """Reads a number of things; argparse turns the error into a message that names the option."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def run(args: argparse.Namespace) -> None:
    """Runs the demo."""
    from .demo_steps import run_demo

    run_demo(args)
