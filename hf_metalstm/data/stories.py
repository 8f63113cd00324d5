"""Stories with questions: facts in their order, questions about them, answers and the facts that lead to each answer.

All readers and the generator end up as a `DatasetDict` with one row a question and the columns of `FEATURES`. Own
stories come from JSON lines:

    {"facts": ["Ada took the key.", "Ada ran to the cellar."], "question": "Where is the key?", "answer": "cellar",
     "supporting_facts": [0, 1]}

(each on one line), where `"context": "Ada took the key. Ada ran to the cellar."` may stand in place of the facts.
"""

import difflib
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict, DatasetInfo, Features, Value
from datasets import Sequence as ListOf

from ..tokenization.sentences import split_sentences
from .text_files import read_rows

SPLITS = ("train", "validation", "test")
LIST_ANSWERS = ("tokens", "class")
FEATURES = Features(
    {
        "facts": ListOf(Value("string")),
        "question": Value("string"),
        "answer": ListOf(Value("string")),
        "supporting_facts": ListOf(Value("int64")),
        "task": Value("string"),
        "source": Value("string"),
    }
)
_KEYS = ("facts", "context", "question", "answer", "supporting_facts", "task")


@dataclass(frozen=True)
class Question:
    """A question about the facts told before it.

    Args:
        text: the question.
        answer: its words, or the one class that it is.
        supporting_facts: indexes, from 0, of the facts that the answer follows from, in the order of the reasoning;
            None where they are not known.
        position: how many facts of the story come before the question.
        source: where it stands, for messages.
    """

    text: str
    answer: tuple[str, ...]
    supporting_facts: tuple[int, ...] | None
    position: int
    source: str


@dataclass
class Story:
    """Facts in their order, and the questions between them."""

    task: str
    facts: list[str] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)


def check_list_answers(list_answers: str) -> None:
    """Raises ValueError for what is none of `LIST_ANSWERS`."""
    if list_answers not in LIST_ANSWERS:
        raise ValueError(f"list_answers is {list_answers!r}; allowed: {', '.join(map(repr, LIST_ANSWERS))}")


def make_story_dataset(stories: Iterable[Story], description: str = "") -> Dataset:
    """One row a question, with the facts that come before it.

    Args:
        stories: with their questions; facts after a story's last question appear in no row.
        description: what the data are, kept in the dataset's `info.description`.
    """
    columns: dict[str, list[Any]] = {name: [] for name in FEATURES}
    for story in stories:
        for question in story.questions:
            columns["facts"].append(story.facts[: question.position])
            columns["question"].append(question.text)
            columns["answer"].append(list(question.answer))
            supporting = question.supporting_facts
            columns["supporting_facts"].append(None if supporting is None else list(supporting))
            columns["task"].append(story.task)
            columns["source"].append(question.source)
    return Dataset.from_dict(columns, info=DatasetInfo(description=description, features=FEATURES))


def cut_validation(stories: Sequence[Story], fraction: float, seed: int) -> tuple[list[Story], list[Story]]:
    """Parts the training stories in two, of each task in proportion; a story's questions stay together.

    Args:
        stories: all of them.
        fraction: of the questions of each task that go to validation, as near as whole stories allow.
        seed: of the draw; the same stories and seed give the same parts.

    Returns:
        The stories that stay and those drawn, both in their order.

    Raises:
        ValueError: the fraction does not lie between 0 and 1, or a task has a single story.
    """
    if not 0 < fraction < 1:
        raise ValueError(f"validation_fraction is {fraction}, but must lie between 0 and 1")
    drawn: set[int] = set()
    numbers: dict[str, list[int]] = {}
    for number, story in enumerate(stories):
        if story.questions:
            numbers.setdefault(story.task, []).append(number)
    for task, own in numbers.items():
        if len(own) < 2:
            raise ValueError(f"task {task!r} has one story: too few to draw a validation split from")
        wanted = fraction * sum(len(stories[number].questions) for number in own)
        order = random.Random(f"{task} {seed}").sample(own, len(own))
        questions = 0
        for number in order[:-1]:
            size = len(stories[number].questions)
            # Take the story while that brings the count nearer to what is wanted.
            if questions and questions + size / 2 > wanted:
                break
            drawn.add(number)
            questions += size
    rest = [story for number, story in enumerate(stories) if number not in drawn]
    return rest, [stories[number] for number in sorted(drawn)]


def read_stories(
    source: str | Path | Mapping[str, str | Path],
    list_answers: str = "tokens",
    validation_fraction: float = 0.1,
    seed: int = 0,
) -> DatasetDict:
    """Reads own stories from JSON lines (or a JSON list), one question a line.

    Each has `facts` (a list of sentences) or `context` (a paragraph, which is split into sentences), `question`,
    `answer` (words, or a list of words) and, where they are known, `supporting_facts` (indexes of facts, from 0, in the
    order of the reasoning) and `task` (a name; that of the file otherwise).

    Args:
        source: a file, which becomes the train split, or `{"train": file, "validation": file, "test": file}`.
        list_answers: "tokens" makes of an answer of several words as many tokens, "class" makes it one.
        validation_fraction: part of train that becomes the validation split where no file is given for it. Questions
            about the same facts stay together.
        seed: of the draw.

    Returns:
        A `DatasetDict` with the columns `facts`, `question`, `answer` (list of tokens), `supporting_facts` (list of
        indexes from 0, or None), `task` and `source` (file and line).

    Raises:
        ValueError: what is wrong, with file and line.

    Example:
        >>> import json, pathlib, tempfile
        >>> from hf_metalstm.data.stories import read_stories
        >>> rows = [
        ...     {"context": f"Ada took the {thing}. Ada ran to the cellar.", "question": f"Where is the {thing}?",
        ...      "answer": "cellar", "supporting_facts": [0, 1]}
        ...     for thing in ("key", "lamp")
        ... ]
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "own.jsonl"
        >>> _ = path.write_text("\\n".join(map(json.dumps, rows)))
        >>> data = read_stories(path)
        >>> data["train"].num_rows, data["validation"].num_rows, data["train"][0]["facts"][1]
        (1, 1, 'Ada ran to the cellar.')
    """
    check_list_answers(list_answers)
    files = {"train": source} if isinstance(source, (str, Path)) else dict(source)
    for split in files:
        if split not in SPLITS:
            raise ValueError(f"there is no split {split!r}; the splits are {', '.join(SPLITS)}")
    if not files:
        raise ValueError("no file is given: name at least one of train, validation and test")
    read = {split: _read_file(Path(path), list_answers) for split, path in files.items()}
    if "train" in read and "validation" not in read:
        read["train"], read["validation"] = cut_validation(read["train"], validation_fraction, seed)
    names = ", ".join(str(path) for path in files.values())
    return DatasetDict(
        {split: make_story_dataset(read[split], f"stories of {names}") for split in SPLITS if split in read}
    )


def _read_file(path: Path, list_answers: str) -> list[Story]:
    if path.suffix.lower() not in (".json", ".jsonl"):
        raise ValueError(f"{path}: stories are read from .jsonl or .json, one question a line")
    rows = read_rows(path)
    for name in rows.columns:
        if name not in _KEYS:
            near = difflib.get_close_matches(name, _KEYS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{path}: unknown name {name!r}; known are {', '.join(_KEYS)}{hint}")
    stories: dict[tuple[str, ...], Story] = {}
    for number, line in enumerate(rows.lines):
        row = {name: values[number] for name, values in rows.columns.items() if values[number] is not None}
        place = f"{path}, line {line}"
        task = _text(row, "task", place) if "task" in row else path.stem
        facts = _facts(row, place)
        story = stories.setdefault((task, *facts), Story(task, facts))
        question = Question(
            text=_text(row, "question", place),
            answer=_answer(row, list_answers, place),
            supporting_facts=_supporting(row, len(facts), place),
            position=len(facts),
            source=place,
        )
        story.questions.append(question)
    return list(stories.values())


def _text(row: Mapping[str, Any], name: str, place: str) -> str:
    if name not in row:
        raise ValueError(f"{place}: there is no {name!r}")
    if not isinstance(row[name], str):
        raise ValueError(f"{place}: {name} is {row[name]!r:.60} ({type(row[name]).__name__}), expected a text")
    if not row[name].strip():
        raise ValueError(f"{place}: the {name} is empty")
    return row[name].strip()


def _facts(row: Mapping[str, Any], place: str) -> list[str]:
    if ("facts" in row) == ("context" in row):
        raise ValueError(f"{place}: give either facts (a list of sentences) or context (a paragraph)")
    facts = split_sentences(_text(row, "context", place)) if "context" in row else row["facts"]
    if not isinstance(facts, list):
        raise ValueError(f"{place}: facts is {facts!r:.60}, expected a list of sentences; a paragraph is a context")
    if not facts:
        raise ValueError(f"{place}: the story has no facts")
    for index, fact in enumerate(facts):
        if not isinstance(fact, str) or not fact.strip():
            raise ValueError(f"{place}: fact {index} is {fact!r:.60}, expected a sentence")
    return [fact.strip() for fact in facts]


def _answer(row: Mapping[str, Any], list_answers: str, place: str) -> tuple[str, ...]:
    answer = row.get("answer")
    if isinstance(answer, str):
        words = answer.split()
    elif isinstance(answer, list) and all(isinstance(word, str) and word.strip() for word in answer):
        words = [word.strip() for word in answer]
    else:
        raise ValueError(f"{place}: answer is {answer!r:.60}, expected a text or a list of words")
    if not words:
        raise ValueError(f"{place}: the answer is empty")
    return tuple(words) if list_answers == "tokens" else (" ".join(words),)


def _supporting(row: Mapping[str, Any], facts: int, place: str) -> tuple[int, ...] | None:
    supporting = row.get("supporting_facts")
    if supporting is None:
        return None
    if not isinstance(supporting, list) or not all(type(index) is int for index in supporting):
        raise ValueError(f"{place}: supporting_facts is {supporting!r:.60}, expected a list of indexes")
    for index in supporting:
        if not 0 <= index < facts:
            raise ValueError(f"{place}: supporting fact {index} is beyond the story, whose facts are 0..{facts - 1}")
    return tuple(dict.fromkeys(supporting))
