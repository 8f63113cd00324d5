"""The steps of the demo, in the order in which the user sees them."""

import argparse
import contextlib
import io
import itertools
import json
import runpy
import tempfile
import textwrap
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import datasets
import torch
from tqdm.auto import tqdm
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.utils import logging as transformers_logging

from .._version import __version__
from ..data.collators import tokenize_tasks
from ..data.reviews import MultiTaskData, load_multitask_dataset, read_review_tasks
from ..data.synthetic_reviews import DOMAINS, FLIPPING, generate_reviews, word_polarity
from ..modeling.modeling_meta_lstm import MetaLSTMForSequenceClassification
from ..plots.figures import new_figure
from ..plots.learning_curves import plot_learning_curves
from ..plots.meta_changes import plot_word_changes, word_changes
from ..tokenization.tokenization_word import WordTokenizer
from ..training.compare import MODEL_FOLDER, Comparison, ComparisonArguments
from ..training.comparison_results import SYSTEMS, SystemResult
from ..training.comparison_table import as_text, cost_rows, score_rows
from ..training.word_vectors import WordVectors

# The systems share them. For generated reviews they were found on the dev texts; for other data they are those of the
# run on sixteen review tasks in benchmarks/, with smaller models and shorter texts.
GENERATED = {"embedding_size": 32, "hidden_size": 32, "epochs": 8, "learning_rate": 0.01, "max_length": None}
OWN_DATA = {"embedding_size": 50, "hidden_size": 64, "epochs": 5, "learning_rate": 0.002, "max_length": 100}
_DROPOUT_OWN_DATA = 0.3
_CONTRASTS = {"but", "although", "not", "hardly", "however"}
_MULTI_TASK = "meta-multi"

_PROGRAM = '''\
"""Loads the demo's multi-task model and asks it."""

import hf_metalstm  # tells transformers about the models
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

folder = {folder!r}
model = AutoModelForSequenceClassification.from_pretrained(folder)
tokenizer = AutoTokenizer.from_pretrained(folder)
classify = pipeline("text-classification", model=model, tokenizer=tokenizer)

text = {text!r}
print(classify(text)[0])  # the active task, {active!r}, answers
for task in {tasks!r}:
    answer = classify(text, task_name=task)[0]
    print(f"{{task}}: {{answer['label']}} ({{answer['score']:.4f}})")
'''


def run_demo(options: argparse.Namespace) -> None:
    """Runs the whole demo; see `demo.add_parser` for the options.

    Raises:
        ImportError: matplotlib is missing; said before anything is trained.
        ValueError, OSError: the data cannot be read, or an option does not fit.
    """
    new_figure(1, 1)
    with quiet_libraries(), _one_thread():
        demo = _Demo(options)
        demo.show_data()
        demo.train()
        demo.show_results()
        demo.write_results()
        demo.draw()
        demo.save_and_ask()


@contextlib.contextmanager
def quiet_libraries() -> Iterator[None]:
    """Keeps the bars and notes of transformers and datasets out of the output inside a `with` block."""
    verbosity = transformers_logging.get_verbosity()
    models_show_bars, data_show_bars = (
        transformers_logging.is_progress_bar_enabled(),
        not datasets.are_progress_bars_disabled(),
    )
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if models_show_bars:
            transformers_logging.enable_progress_bar()
        if data_show_bars:
            datasets.enable_progress_bars()


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Computes in one thread inside a `with` block.

    With matrices as small as the demo's two threads were no faster, took twice the processor's time, and made the
    results depend on the machine.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class _Demo:
    """What the steps share."""

    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.generated = options.data_dir is None and options.dataset is None
        for name, value in (GENERATED if self.generated else OWN_DATA).items():
            if getattr(options, name) is None:
                setattr(options, name, value)
        self.data = self._load()
        self.tasks = list(self.data)
        self.folder = Path(options.output_dir)
        self.folder.mkdir(parents=True, exist_ok=True)
        texts = (text for rows in self.data.split("train").values() for text in rows["text"])
        self.tokenizer = WordTokenizer.train_from_iterator(texts, min_frequency=1 if self.generated else 2)
        self.results: list[SystemResult] = []
        self.model: MetaLSTMForSequenceClassification

    def _load(self) -> MultiTaskData:
        options = self.options
        if options.data_dir is not None:
            return read_review_tasks(options.data_dir, tasks=options.tasks)
        if options.dataset is not None:
            return load_multitask_dataset(
                options.dataset,
                text_column=options.text_column,
                label_column=options.label_column,
                task_column=options.task_column,
                tasks=options.tasks,
                seed=options.seed,
            )
        return generate_reviews(options.tasks, train_size=options.train_size, seed=options.seed)

    def show_data(self) -> None:
        print(f"Data\n{textwrap.indent(self.data.summary(), '  ')}\n")

    def train(self) -> None:
        """Trains and scores the three systems, keeps the multi-task model and shows a bar for each system."""
        options = self.options
        print(f"Training three systems, {options.epochs} {'epoch' if options.epochs == 1 else 'epochs'} each")
        splits = tokenize_tasks(self.data, self.tokenizer, options.max_length)
        vectors = None if options.vectors is None else WordVectors(options.vectors, self.tokenizer)
        fields = {name: getattr(options, name) for name in ("embedding_size", "hidden_size", "meta_size", "z_size")}
        dropout = 0.0 if self.generated else _DROPOUT_OWN_DATA
        fields.update(pooling="max", embedding_dropout=dropout, classifier_dropout=dropout)
        with tempfile.TemporaryDirectory() as scratch:
            args = ComparisonArguments(
                output_dir=scratch,
                num_train_epochs=options.epochs,
                learning_rate=options.learning_rate,
                per_device_train_batch_size=options.batch_size,
                seed=options.seed,
                save_only_model=True,
                dataloader_pin_memory=False,
                disable_tqdm=True,
            )
            progress = _Progress()
            comparison = Comparison(
                splits,
                self.data.label_names,
                self.tokenizer,
                fields,
                args,
                prepare_model=vectors,
                callbacks=[progress],
                quiet=True,
            )
            for system in SYSTEMS:
                with progress.of(SYSTEMS[system].title, len(comparison.models_of(system))):
                    self.results.append(comparison.run(system))
            saved = comparison.model_folder(_MULTI_TASK, self.tasks) / MODEL_FOLDER
            self.model = MetaLSTMForSequenceClassification.from_pretrained(saved)
        if vectors is not None:
            print(f"  Word vectors of {options.vectors}: {vectors.report}")

    def show_results(self) -> None:
        scores = score_rows(self.results)
        print("\nTest accuracy in per cent" + (", on synthetic reviews" if self.generated else ""))
        print(textwrap.indent(as_text(scores, rules=(1, len(scores) - 1)), "  "))
        if self.results[0].scores("test") != self.results[0].scores("test_unique"):
            averages = [f"{100 * result.average('test_unique'):.1f}" for result in self.results]
            print(f"  Averages without the test texts that are also in train or dev: {', '.join(averages)}")
        print("\nWhat it took")
        print(textwrap.indent(as_text(cost_rows(self.results)), "  "))

    def write_results(self) -> None:
        record = {
            "version": __version__,
            "source": self.data.source,
            "settings": {name: value for name, value in vars(self.options).items() if name not in ("command", "debug")},
            "systems": [result.to_dict() for result in self.results],
        }
        path = self.folder / "results.json"
        path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        print(f"\nWritten\n  {path}")

    def draw(self) -> None:
        """Writes the learning curves (Fig. 5 of the paper) and the changes word by word (Fig. 4)."""
        path = self.folder / "learning_curves.png"
        curves = {result.title: result.losses for result in self.results}
        title = "Learning curves" + (", synthetic reviews" if self.generated else "")
        plot_learning_curves(curves, path, title=title)
        print(f"  {path}: average training loss of each epoch")
        task = self._question()[0][0]
        text, label = self._text_to_draw(task)
        path = self.folder / "word_changes.png"
        changes = word_changes(self.model, self.tokenizer, text, task)
        plot_word_changes(changes, path)
        print(f"  {path}: what the multi-task model does word by word with this test text of {task!r}")
        print(textwrap.fill(f'"{text}"', 110, initial_indent="    ", subsequent_indent="    "))
        print(f"    whose label is {label!r}; at its end the model gives {changes.label!r} {changes.scores[-1]:.2f}")

    def _text_to_draw(self, task: str) -> tuple[str, str]:
        """A test text that turns around (contrasts, negations, words that depend on the task), and its label."""
        rows = self.data.split("test")[task]
        turning = _CONTRASTS | (set(FLIPPING) if self.generated else set())
        texts = {" ".join(text.split()[:40]): label for text, label in zip(rows["text"], rows["label"], strict=True)}
        text = max(texts, key=lambda text: (text.strip() != "", len(turning & set(text.split()))))
        return text, self.data.label_names[task][texts[text]]

    def save_and_ask(self) -> None:
        """Saves the multi-task model, and runs the program that loads it and asks it."""
        tasks, text = self._question()
        self.model.set_active_task(tasks[0])
        folder = self.folder / "model"
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        print(f"  {folder}: the multi-task model with its tokenizer; active task {tasks[0]!r}")
        program = _PROGRAM.format(folder=str(folder), text=text, active=tasks[0], tasks=list(tasks))
        path = self.folder / "ask.py"
        path.write_text(program, encoding="utf-8")
        print(f"  {path}: this program, which loads it and asks it\n")
        print(textwrap.indent(program, "    "))
        print("It prints\n")
        answers = io.StringIO()
        with contextlib.redirect_stdout(answers):
            runpy.run_path(str(path))
        print(textwrap.indent(answers.getvalue(), "    "), end="")

    def _question(self) -> tuple[tuple[str, ...], str]:
        question = opposite_question(self.tasks) if self.generated else None
        return question or (tuple(self.tasks[:2]), self._text_to_draw(self.tasks[0])[0])


def opposite_question(tasks: Sequence[str]) -> tuple[tuple[str, str], str] | None:
    """Two of the generated tasks and a sentence that praises in the one and blames in the other; None without such."""
    for word, (first, second) in itertools.product(FLIPPING, itertools.combinations(tasks, 2)):
        shared = [thing for thing in DOMAINS[first] if thing in DOMAINS[second]]
        if shared and {word_polarity(word, first), word_polarity(word, second)} == {1, -1}:
            return (first, second), f"the {shared[0]} is {word} ."
    return None


class _Progress(TrainerCallback):
    """One bar for all models of a system."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._before = 0

    @contextlib.contextmanager
    def of(self, title: str, models: int) -> Iterator[None]:
        """Shows the bar of a system inside a `with` block, and a line with its time at the end."""
        self._before, began = 0, time.perf_counter()
        shown = "  {desc}  {percentage:3.0f}% {bar:30} {elapsed}, {remaining} left"
        with tqdm(total=models, desc=f"{title:<22}", bar_format=shown, leave=False, disable=None) as self._bar:
            yield
        seconds = time.perf_counter() - began
        print(f"  {title:<22}  {models} {'model' if models == 1 else 'models'}, {seconds:.0f} s with evaluation")

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._bar.update(self._before + state.global_step / state.max_steps - self._bar.n)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._before += 1
