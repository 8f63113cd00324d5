"""From the columns of common data sets to the inputs of GPT-1's tasks (Radford et al. 2018, section 3.3).

| task | columns that are known |
|---|---|
| multiple choice | `story` + `endings`; Story Cloze's `InputSentence1..4` + `RandomFifthSentenceQuiz1..2` and `AnswerRightEnding`; |
| | RACE's `article`, `question`, `options`, `answer`; ARC's `question`, `choices`, `answerKey`; SWAG's `sent1`, `sent2`, `ending0..3` |
| entailment | `premise` + `hypothesis` |
| similarity | `sentence1` + `sentence2`, `question1` + `question2` |
| classification | `text`, `sentence` |
"""  # noqa: E501

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from datasets import Dataset

from ..tokenization.tokenization_gpt1 import GPT1Tokenizer

TASKS = ("multiple_choice", "entailment", "similarity", "classification")
_PAIRS = {
    "entailment": [("premise", "hypothesis")],
    "similarity": [("sentence1", "sentence2"), ("question1", "question2")],
}
_PAIRS["entailment"].append(("sentence1", "sentence2"))
_TEXTS = ("text", "sentence")
_LABELS = ("label", "labels", "answer", "answerKey", "AnswerRightEnding")


@dataclass(frozen=True)
class TaskExample:
    """One example, whichever columns it came from.

    Args:
        texts: the text, the two texts, or the context alone.
        answers: the answers of a multiple choice, else empty.
        label: as it stands in the data; None where there is none.
    """

    texts: tuple[str, ...]
    answers: tuple[str, ...] = ()
    label: Any = None


@dataclass(frozen=True)
class ChoiceColumns:
    """Which columns hold the parts of a multiple choice.

    Args:
        context: columns whose texts are joined by a blank; None values are left out.
        answers: one column of lists, or a column for each answer.
        label: index, letter or text of the right answer.
        first: index of the first answer in `label`: 0, or 1 for Story Cloze.
    """

    context: tuple[str, ...]
    answers: tuple[str, ...]
    label: str = "label"
    first: int = 0


KNOWN_CHOICES = (
    ChoiceColumns(("story",), ("endings",)),
    ChoiceColumns(("context",), ("answers",)),
    ChoiceColumns(
        tuple(f"InputSentence{i}" for i in range(1, 5)),
        ("RandomFifthSentenceQuiz1", "RandomFifthSentenceQuiz2"),
        "AnswerRightEnding",
        first=1,
    ),
    ChoiceColumns(("article", "question"), ("options",), "answer"),
    ChoiceColumns(("sent1", "sent2"), tuple(f"ending{i}" for i in range(4))),
    ChoiceColumns(("question",), ("choices",), "answerKey"),
    ChoiceColumns(("question",), ("choices",)),
)


def build_task_inputs(
    dataset: Dataset,
    tokenizer: GPT1Tokenizer,
    task: str,
    *,
    columns: ChoiceColumns | Sequence[str] | None = None,
    label_names: Sequence[str] | None = None,
    max_length: int | None = None,
) -> Dataset:
    """Tokenizes a data set for one task.

    Args:
        dataset: texts and labels; a test set may lack the labels.
        tokenizer: builds the inputs.
        task: "multiple_choice", "entailment", "similarity" or "classification".
        columns: `ChoiceColumns` for multiple choice, else the column or the two columns of text. None finds the names
            that are common.
        label_names: classes in the order of their indexes, for labels that are names; None takes those of the data set.
            Multiple choice has none.
        max_length: tokens of an input at most; None means the tokenizer's `model_max_length`.

    Returns:
        A data set of `input_ids`, `attention_mask`, for multiple choice `mc_token_ids`, and `label` (an index), for
        `DataCollatorForTaskInputs`.

    Raises:
        TypeError: a text is no string.
        ValueError: an unknown task or column, other numbers of answers in other rows, a label outside the classes or
            answers, an empty text; the message names the row.

    Example:
        >>> from hf_metalstm import GPT1Tokenizer
        >>> from hf_metalstm.data.choice_inputs import build_task_inputs
        >>> from hf_metalstm.data.synthetic_stories import generate_task
        >>> stories = generate_task("multiple_choice", 2, 2, 2)["train"]
        >>> rows = build_task_inputs(stories, GPT1Tokenizer.train_from_iterator(stories["story"]), "multiple_choice")
        >>> rows.column_names
        ['input_ids', 'attention_mask', 'mc_token_ids', 'label']
    """
    if task not in TASKS:
        raise ValueError(f"there is no task {task!r}; the tasks are {', '.join(TASKS)}")
    names = dataset.column_names
    if task == "multiple_choice":
        read = choice_reader(names, columns)
    else:
        read = _text_reader(names, task, columns)
        feature = dataset.features.get(read.label or "")
        label_names = getattr(feature, "names", None) if label_names is None else label_names
    build = {
        "multiple_choice": lambda one: tokenizer.build_multiple_choice(one.texts[0], one.answers, max_length),
        "entailment": lambda one: tokenizer.build_entailment(one.texts[0], one.texts[1], max_length),
        "similarity": lambda one: tokenizer.build_similarity(one.texts[0], one.texts[1], max_length),
        "classification": lambda one: tokenizer.build_classification(one.texts[0], max_length),
    }[task]
    answers: int | None = None
    rows: list[dict[str, Any]] = []
    for number, record in enumerate(dataset):
        try:
            example = read(record)
            if task == "multiple_choice":
                answers = len(example.answers) if answers is None else answers
                if len(example.answers) != answers:
                    raise ValueError(
                        f"{len(example.answers)} answers, but row 0 has {answers}: choices must not be ragged; drop "
                        "the row or fill its answers up"
                    )
            row: dict[str, Any] = dict(build(example))
            label = _label_index(example, label_names, answers)
        except (TypeError, ValueError) as error:
            raise type(error)(f"row {number}: {error}") from error
        if label is not None:
            row["label"] = label
        rows.append(row)
    if not rows:
        raise ValueError("the data set has no rows")
    labelled = sum("label" in row for row in rows)
    if labelled not in (0, len(rows)):
        bare = next(number for number, row in enumerate(rows) if "label" not in row)
        raise ValueError(f"row {bare} has no label, but others have: give one to all rows or to none")
    return Dataset.from_dict({name: [row[name] for row in rows] for name in rows[0]})


class _Reader:
    """Reads an example from a row, and knows which column has the label."""

    def __init__(self, read: Callable[[Mapping[str, Any]], TaskExample], label: str | None):
        self._read, self.label = read, label

    def __call__(self, row: Mapping[str, Any]) -> TaskExample:
        return self._read(row)


def choice_reader(names: Sequence[str], columns: Any = None) -> _Reader:
    """A reader of multiple-choice rows with these columns.

    Raises:
        ValueError: a column is missing, or none of the known sets of columns is there.
    """
    if columns is None:
        fits = (known for known in KNOWN_CHOICES if {*known.context, *known.answers} <= set(names))
        labelled = [known for known in fits]
        if not labelled:
            shown = "; ".join(" + ".join([*known.context, *known.answers]) for known in KNOWN_CHOICES)
            raise ValueError(
                f"the columns are {', '.join(names)}, which is none of the known multiple choices ({shown}): say by "
                "columns=ChoiceColumns(...) which is which"
            )
        columns = next((known for known in labelled if known.label in names), labelled[0])
    if not isinstance(columns, ChoiceColumns):
        raise TypeError(f"columns is {columns!r}, but a multiple choice needs ChoiceColumns(context, answers, label)")
    _need(names, [*columns.context, *columns.answers])
    label = columns.label if columns.label in names else None

    def read(row: Mapping[str, Any]) -> TaskExample:
        parts = [row[name] for name in columns.context if row[name] is not None]
        for part in parts:
            if not isinstance(part, str):
                raise TypeError(f"the context {part!r:.60} ({type(part).__name__}) is no text")
        values = [row[name] for name in columns.answers]
        found = values[0] if len(values) == 1 else values
        letters = None
        if isinstance(found, Mapping):
            # ARC: texts, and the letters or digits that the key means.
            letters, found = list(found["label"]), found["text"]
        if not isinstance(found, (list, tuple)):
            raise TypeError(f"the answers {found!r:.60} ({type(found).__name__}) are no list of texts")
        key = None if label is None else row[label]
        return TaskExample((" ".join(parts),), tuple(found), _choice_index(key, tuple(found), letters, columns.first))

    return _Reader(read, label)


def _choice_index(key: Any, answers: tuple[str, ...], letters: list[str] | None, first: int) -> int | None:
    if key is None:
        return None
    if letters is not None and key in letters:
        return letters.index(key)
    if isinstance(key, str):
        if key in answers:
            return answers.index(key)
        if len(key) == 1 and key.isalpha():
            return ord(key.upper()) - ord("A")
        if not key.strip().lstrip("-").isdigit():
            raise ValueError(f"the label {key!r} is neither an index nor a letter nor one of the answers")
        key = int(key)
    if isinstance(key, bool) or not isinstance(key, int):
        raise TypeError(f"the label is {key!r} ({type(key).__name__}), expected an index, a letter or an answer")
    return key - first


def _text_reader(names: Sequence[str], task: str, columns: Any) -> _Reader:
    if isinstance(columns, str):
        columns = (columns,)
    if columns is None:
        known = [(name,) for name in _TEXTS] if task == "classification" else _PAIRS[task]
        columns = next((found for found in known if set(found) <= set(names)), None)
        if columns is None:
            shown = "; ".join(" + ".join(found) for found in known)
            raise ValueError(
                f"the columns are {', '.join(names)}, but {task} looks for {shown}: name yours by columns="
            )
    wanted = 1 if task == "classification" else 2
    if len(columns) != wanted:
        raise ValueError(f"columns is {tuple(columns)}, but {task} has {wanted} text{'s' if wanted > 1 else ''}")
    _need(names, columns)
    label = next((name for name in _LABELS if name in names), None)

    def read(row: Mapping[str, Any]) -> TaskExample:
        return TaskExample(tuple(row[name] for name in columns), (), None if label is None else row[label])

    return _Reader(read, label)


def _need(names: Sequence[str], wanted: Sequence[str]) -> None:
    for name in wanted:
        if name not in names:
            raise ValueError(f"there is no column {name!r}; the data set has {', '.join(names)}")


def _label_index(example: TaskExample, names: Sequence[str] | None, answers: int | None) -> int | None:
    label = example.label
    if label is None:
        return None
    if answers is not None:
        if not 0 <= label < answers:
            raise ValueError(f"the label means answer {label}, but there are answers 0..{answers - 1}")
        return int(label)
    if isinstance(label, str):
        if names is not None and label in names:
            return list(names).index(label)
        if names is None and label.lstrip("-").isdigit():
            label = int(label)
        else:
            shown = "none are known: give label_names" if names is None else f"the classes are {', '.join(names)}"
            raise ValueError(f"the label is {label!r}, but {shown}")
    if isinstance(label, bool) or not isinstance(label, int):
        raise TypeError(f"the label is {label!r} ({type(label).__name__}), expected the index or name of a class")
    if label < 0 or (names is not None and label >= len(names)):
        most = "" if names is None else f"{len(names) - 1} ({', '.join(names)})"
        raise ValueError(f"the label is {label}, but classes are 0..{most}")
    return label
