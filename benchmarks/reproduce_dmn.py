"""Accuracy on the bAbI tasks: one model a task with and without supporting facts, and one model for all tasks.

The same settings for all tasks; of several seeds the model that is best on validation (a tenth of train) counts.
Started again, it goes on where it was stopped, and trains nothing twice. The table stands beside the paper's.

    OMP_NUM_THREADS=1 python benchmarks/reproduce_dmn.py --babi_dir path/to/babi --output_dir outputs/reproduce_dmn

Parts of it: `--parts supervised weak joint`, `--tasks 1 2 3`, `--seeds 0 1 2`, `--epochs 120`.
"""

import argparse
import json
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import datasets
from transformers.utils import logging

from hf_metalstm import __version__
from hf_metalstm.data.babi import read_babi
from hf_metalstm.training.story_training import StoryArguments, StoryResult, as_markdown, train_on_stories

# Fixed for all tasks.
MODEL: dict[str, Any] = {
    "gate": "softmax",
    "fact_encoder": "position",
    "fusion_layer": True,
    "use_end_of_passes": True,
    "num_passes": 3,
    "embedding_dropout": 0.1,
    "initializer_range": 0.5,
}
# Kumar et al. 2016, table 1: 1,000 training questions a task, supporting facts used.
PAPER = dict(
    enumerate(
        [
            100,
            98.2,
            95.2,
            100,
            99.3,
            100,
            96.9,
            96.5,
            100,
            97.5,
            99.9,
            100,
            99.8,
            100,
            100,
            99.4,
            59.6,
            95.3,
            34.5,
            100,
        ],
        start=1,
    )
)
PARTS = {"supervised": "supporting facts", "weak": "without supporting facts", "joint": "joint, supporting facts"}


def main(argv: Sequence[str] | None = None) -> None:
    """Runs or continues the benchmark and writes the table after each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--babi_dir", required=True, metavar="DIR")
    parser.add_argument("--version", default="en", choices=["en", "en-10k"])
    parser.add_argument("--output_dir", type=Path, default=Path("outputs/reproduce_dmn"), metavar="DIR")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--tasks", nargs="+", type=int, default=list(range(1, 21)), metavar="N")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], metavar="N")
    parser.add_argument("--epochs", type=float, default=120, metavar="N")
    parser.add_argument("--learning_rate", type=float, default=StoryArguments.learning_rate, metavar="RATE")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table here too")
    args = parser.parse_args(argv)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    datasets.disable_progress_bars()
    results: dict[str, list[StoryResult]] = defaultdict(list)
    # Seed by seed, so that a run that is cut short has all tasks.
    for seed in args.seeds:
        for part in args.parts:
            for tasks in [args.tasks] if part == "joint" else [[number] for number in args.tasks]:
                name = "joint" if part == "joint" else f"task_{tasks[0]}"
                data = read_babi(args.babi_dir, args.version, tasks, seed=0)
                arguments = StoryArguments(
                    output_dir=str(args.output_dir / part / name / f"seed_{seed}"),
                    num_train_epochs=args.epochs,
                    learning_rate=args.learning_rate,
                    seed=seed,
                )
                result = train_on_stories(name, data, arguments, MODEL, supervise_gates=part != "weak", quiet=True)
                results[part].append(result)
                print(
                    f"{part} {name} seed {seed}: validation {100 * result.validation:.1f}, test "
                    f"{100 * result.average:.1f}, best epoch {result.best_epoch:g} of {result.epochs:g}, "
                    f"{result.seconds:.0f} s",
                    flush=True,
                )
                write(results, args)


def write(results: dict[str, list[StoryResult]], args: argparse.Namespace) -> None:
    """The table of what there is, as JSON and Markdown."""
    tasks = sorted({task for runs in results.values() for run in runs for task in run.test})
    paper = {task: PAPER[int(task.split("_")[0].removeprefix("qa"))] for task in tasks}
    table = as_markdown({PARTS[part]: runs for part, runs in results.items()}, paper)
    runs = [run for part in results.values() for run in part]
    questions = "1,000" if args.version == "en" else "10,000"
    text = (
        f"bAbI {args.version}, {questions} training questions a task, a tenth of them for validation. Test accuracy in "
        f"per cent, of the best on validation of {len(args.seeds)} seeds. hf_metalstm {__version__}, "
        f"{args.epochs:g} epochs, median {statistics.median(run.seconds for run in runs):.0f} seconds a model. "
        "The published column is that of Kumar et al. 2016, with supporting facts.\n\n" + table
    )
    record = {
        "model": MODEL,
        "epochs": args.epochs,
        "learning_rate": args.learning_rate,
        "runs": {part: [asdict(run) for run in part_runs] for part, part_runs in results.items()},
    }
    (args.output_dir / "results.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    (args.output_dir / "results.md").write_text(text, encoding="utf-8")
    if args.markdown is not None:
        args.markdown.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
