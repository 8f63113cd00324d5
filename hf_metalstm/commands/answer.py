"""`hf-metalstm answer`: tell a story, ask, and see the answer and the facts that were looked at."""

import argparse
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

_HELP = """Type one fact a line; a line that ends with "?" asks. Further commands:
  :new      begin a new story      :facts   show the facts
  :undo     take back a fact       :quit    leave (as does the end of the input)"""
# Of the stories that a model is trained on where none is given: these can be learned in a minute.
_TRAINED = {"gate": "softmax", "fact_encoder": "position", "fusion_layer": True, "use_end_of_passes": True}
_EPOCHS = 40


def add_parser(subparsers: Any) -> None:
    """Adds the sub-command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "answer",
        help="answer questions about a story in the terminal",
        description="Answers questions about a story with a Dynamic Memory Network, and shows its gates on the facts. "
        "Without a model it trains one on generated stories first, in a minute on a CPU.",
    )
    parser.add_argument("--model", metavar="DIR", help="folder or Hub name of a trained model with its tokenizer")
    parser.add_argument(
        "--task", type=int, default=1, metavar="N", help="kind of generated stories, 1 to 20 (default: 1)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of stories and weights (default: 0)")
    parser.add_argument(
        "--output_dir", default="outputs/answer", metavar="DIR", help="for the trained model (default: outputs/answer)"
    )
    parser.add_argument("--num_beams", type=int, default=1, metavar="N", help="answers followed up (default: 1)")


def run(args: argparse.Namespace) -> None:
    """Answers until the input ends."""
    from transformers import pipeline

    folder, example = args.model, None
    if folder is None:
        folder, example = _train(args)
    elif Path(folder).is_dir() and not (Path(folder) / "config.json").exists():
        raise FileNotFoundError(f"{folder} has no config.json: name the folder that a model was saved in")
    # transformers' type hints list its own tasks alone.
    make_pipeline: Any = pipeline
    ask = make_pipeline("memory-question-answering", model=str(folder))
    if example is not None:
        print("A story of the kind that the model knows:\n")
        print("\n".join([*example["facts"], example["question"]]), "\n")
    terminal = sys.stdin.isatty()
    print(_HELP)
    for reply in converse(_lines(terminal), ask, num_beams=args.num_beams):
        print(reply, flush=True)


def _lines(terminal: bool) -> Iterator[str]:
    while True:
        try:
            yield input("> " if terminal else "")
        except EOFError:
            return


def converse(lines: Iterable[str], ask: Any, **settings: Any) -> Iterator[str]:
    """Replies to the lines of a user.

    Args:
        lines: facts, questions and commands.
        ask: a `memory-question-answering` pipeline.
        settings: of each question, such as `num_beams`.
    """
    from ..plots.gates import format_gates

    facts: list[str] = []
    for line in map(str.strip, lines):
        if line == ":quit":
            return
        if line == ":new":
            facts = []
            yield "a new story"
        elif line == ":undo":
            yield f"taken back: {facts.pop()}" if facts else "there are no facts"
        elif line == ":facts":
            yield "\n".join(facts) or "there are no facts"
        elif line.startswith(":"):
            yield f"{line} is no command\n{_HELP}"
        elif line.endswith("?"):
            if not facts:
                yield "there are no facts yet: type one a line"
                continue
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", UserWarning)
                answer = ask(facts=facts, question=line, **settings)
            unknown = [str(warning.message) for warning in caught if "not in the vocabulary" in str(warning.message)]
            said = answer["answer"] or "(nothing)"
            shown = [*unknown, f"{said}  ({100 * answer['score']:.1f} %)"]
            if answer["gates"]:
                shown.append(format_gates(answer["gates"], facts))
            yield "\n".join(shown)
        elif line:
            facts.append(line)


def _train(args: argparse.Namespace) -> tuple[Path, dict[str, Any]]:
    """Trains on generated stories, unless that was done before; the model's folder and an unknown story."""
    import datasets
    from transformers.utils import logging

    from ..data.babi_generator import generate_babi
    from ..training.story_training import MODEL_FOLDER, StoryArguments, train_on_stories

    data = generate_babi(tasks=[args.task], train_size=900, validation_size=100, test_size=100, seed=args.seed)
    folder = Path(args.output_dir) / f"task_{args.task}_seed_{args.seed}"
    print(f"training on {data['train'].num_rows} generated questions of task {args.task} ...", flush=True)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    datasets.disable_progress_bars()
    arguments = StoryArguments(output_dir=str(folder), num_train_epochs=_EPOCHS, seed=args.seed)
    result = train_on_stories(f"task {args.task}", data, arguments, _TRAINED, gate_epochs=2, quiet=True)
    print(f"it answers {100 * result.average:.0f} % of new questions right; the model is in {folder / MODEL_FOLDER}\n")
    return folder / MODEL_FOLDER, data["test"][0]
