"""Labelled texts of several tasks: the sixteen-task review files, and any data set with text, label and task columns.

Everything ends up as `MultiTaskData`: for each task a `DatasetDict` with the splits train, validation and test and the
columns `text` (string), `label` (`ClassLabel`) and `duplicated` (bool: for a test text, that it also stands in train or
validation; for one of those, that it also stands in test). Accuracy on duplicated texts measures memory, so it can be
reported apart.
"""

import difflib
import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datasets import ClassLabel, Dataset, DatasetDict, DatasetInfo, Features, Value, load_dataset

from .text_files import FORMATS, FileRows, read_rows

SPLITS = ("train", "validation", "test")
_SPLIT_NAMES = {
    "train": "train",
    "dev": "validation",
    "valid": "validation",
    "validation": "validation",
    "test": "test",
}
_MOST_LABELS_SHOWN = 4


class MultiTaskData(dict[str, DatasetDict]):
    """`{task name: DatasetDict}` in the order of the task ids.

    Args:
        tasks: the data of each task.
        source: where the data come from, in words; a generator says there that they are synthetic.

    Example:
        >>> from hf_metalstm.data.synthetic_reviews import generate_reviews
        >>> data = generate_reviews(["books", "cars"], train_size=20, dev_size=4, test_size=4)
        >>> data.label_names
        {'books': ['negative', 'positive'], 'cars': ['negative', 'positive']}
        >>> data.split("test")["cars"].num_rows
        4
    """

    def __init__(self, tasks: Mapping[str, DatasetDict], source: str):
        super().__init__(tasks)
        self.source = source

    @property
    def label_names(self) -> dict[str, list[str]]:
        """`{task: names of its classes}`, what `MetaLSTMConfig(tasks=...)` takes."""
        return {name: list(splits["train"].features["label"].names) for name, splits in self.items()}

    def split(self, name: str) -> dict[str, Dataset]:
        """`{task: dataset}` of one split; tasks without it are left out."""
        if name not in SPLITS:
            raise ValueError(f"there is no split {name!r}; the splits are {', '.join(SPLITS)}")
        return {task: splits[name] for task, splits in self.items() if name in splits}

    def only(self, tasks: Sequence[str]) -> "MultiTaskData":
        """The same data with these tasks alone.

        Raises:
            ValueError: there is no such task; the message lists the tasks and the nearest name.
        """
        return MultiTaskData({name: self[name] for name in _choose(tasks, list(self))}, self.source)

    def summary(self) -> str:
        """An aligned table: texts of each split, words a text, empty texts and duplicated test texts."""
        header = ("task", "train", "dev", "test", "words", "empty", "duplicated", "labels")
        rows = [header, *(self._summary_row(name) for name in self)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
        lines = []
        for row in rows:
            cells = [
                row[0].ljust(widths[0]),
                *(cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:-1], strict=True)),
            ]
            lines.append("  ".join([*cells, row[-1]]).rstrip())
        return "\n".join([f"Source: {self.source}", *lines])

    def _summary_row(self, name: str) -> tuple[str, ...]:
        splits = self[name]
        texts = [text for split in splits.values() for text in split["text"]]
        sizes = [str(splits[split].num_rows) if split in splits else "-" for split in SPLITS]
        words = sum(len(text.split()) for text in texts) / max(1, len(texts))
        empty = sum(not text.strip() for text in texts)
        duplicated = sum(splits["test"]["duplicated"]) if "test" in splits else 0
        labels = self.label_names[name]
        shown = ", ".join(labels[:_MOST_LABELS_SHOWN])
        if len(labels) > _MOST_LABELS_SHOWN:
            shown += f", ... ({len(labels)})"
        return (name, *sizes, f"{words:.0f}", str(empty), str(duplicated), shown)


def _choose(tasks: Sequence[str], names: Sequence[str]) -> list[str]:
    """The tasks asked for, when all of them exist."""
    if isinstance(tasks, str):
        raise TypeError(f"tasks is {tasks!r}, expected a list of names, such as [{tasks!r}]")
    for name in tasks:
        if name not in names:
            near = difflib.get_close_matches(str(name), names, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"there is no task {name!r}; the tasks are {', '.join(names)}{hint}")
    if not tasks or len(set(tasks)) < len(tasks):
        raise ValueError(f"tasks is {list(tasks)}, expected one task or more, each of them once")
    return list(tasks)


def make_task(
    splits: Mapping[str, tuple[list[str], list[int]]], names: Sequence[str], description: str = ""
) -> DatasetDict:
    """Builds one task and marks the texts that stand in test and in another split.

    Args:
        splits: `{split: (texts, class indexes)}`.
        names: of the classes.
        description: what the data are, kept in each dataset's `info.description`.
    """
    features = Features({"text": Value("string"), "label": ClassLabel(names=list(names)), "duplicated": Value("bool")})
    info = DatasetInfo(description=description, features=features)
    test = set(splits["test"][0]) if "test" in splits else set()
    rest = {text for split, (texts, _) in splits.items() if split != "test" for text in texts}
    task = DatasetDict()
    for split, (texts, labels) in splits.items():
        elsewhere = rest if split == "test" else test
        rows = {"text": texts, "label": labels, "duplicated": [text in elsewhere for text in texts]}
        task[split] = Dataset.from_dict(rows, info=info)
    return task


def drop_duplicates(data: MultiTaskData, where: str = "test") -> MultiTaskData:
    """Leaves out texts of one side of the border between test and the other splits that stand on both sides.

    Args:
        data: the tasks; they stay as they are.
        where: "test" leaves out test texts that also stand in train or validation; "train" leaves out train and
            validation texts that also stand in test, so that the test split stays whole.
    """
    if where not in ("test", "train"):
        raise ValueError(f"where is {where!r}, but must be 'test' or 'train'")
    tasks = {}
    for name, splits in data.items():
        kept = {}
        for split, rows in splits.items():
            drop = (split == "test") == (where == "test")
            marks = rows["duplicated"] if drop else [False] * rows.num_rows
            columns = zip(rows["text"], rows["label"], marks, strict=True)
            pairs = [(text, label) for text, label, marked in columns if not marked]
            kept[str(split)] = ([text for text, _ in pairs], [label for _, label in pairs])
        tasks[name] = make_task(kept, data.label_names[name], splits["train"].info.description)
    return MultiTaskData(tasks, data.source)


def read_review_tasks(
    folder: str | Path, tasks: Sequence[str] | None = None, dev_size: int = 200, drop_empty: bool = False
) -> MultiTaskData:
    """Reads the sixteen-task review files of Liu et al. 2017: `<task>.task.train` and `<task>.task.test`.

    Each line is `label<TAB>text` with label 0 (negative) or 1 (positive). The last `dev_size` lines of train are the
    validation split, as in the papers. Some files mix encodings, so each line is read as UTF-8 or else as Latin-1.

    Args:
        folder: where the files are.
        tasks: names of the tasks wanted, in the order of their ids; None means all, in alphabetical order.
        dev_size: lines of train that become the validation split.
        drop_empty: leave out empty texts. The published sizes count them, so they are kept by default; tokenized, they
            are one unknown word.

    Raises:
        FileNotFoundError: the folder has no such files, or a task has no test file.
        ValueError: an unknown task, a line that is not label<TAB>text (with file and line number), or too few lines.
    """
    folder = Path(folder)
    if dev_size < 1:
        raise ValueError(f"dev_size is {dev_size}, but must be at least 1")
    names = sorted(path.name.removesuffix(".task.train") for path in folder.glob("*.task.train"))
    if not names:
        raise FileNotFoundError(f"{folder} has no <task>.task.train files")
    source = f"review files in {folder}"
    data = {}
    for name in names if tasks is None else _choose(tasks, names):
        test = folder / f"{name}.task.test"
        if not test.is_file():
            raise FileNotFoundError(f"task {name!r} has a train file, but there is no {test}")
        texts, labels = _read_labelled_lines(folder / f"{name}.task.train")
        if len(texts) <= dev_size:
            raise ValueError(f"{name}.task.train has {len(texts)} lines, too few for dev_size={dev_size}")
        splits = {
            "train": (texts[:-dev_size], labels[:-dev_size]),
            "validation": (texts[-dev_size:], labels[-dev_size:]),
            "test": _read_labelled_lines(test),
        }
        if drop_empty:
            splits = {split: _without_empty(*rows) for split, rows in splits.items()}
        data[name] = make_task(splits, ["negative", "positive"], source)
    return MultiTaskData(data, source)


def _without_empty(texts: list[str], labels: list[int]) -> tuple[list[str], list[int]]:
    kept = [number for number, text in enumerate(texts) if text]
    return [texts[number] for number in kept], [labels[number] for number in kept]


def _read_labelled_lines(path: Path) -> tuple[list[str], list[int]]:
    texts, labels = [], []
    with open(path, "rb") as file:
        for number, raw in enumerate(file, start=1):
            try:
                line = raw.decode("utf-8")
            except UnicodeDecodeError:
                line = raw.decode("latin-1")
            label, tab, text = line.rstrip("\r\n").partition("\t")
            if not tab or label.strip().lstrip("\ufeff") not in ("0", "1"):
                raise ValueError(
                    f"{path}, line {number}: expected 0 or 1, a tab and a text, found {line.rstrip()[:60]!r}"
                )
            texts.append(text.strip())
            labels.append(int(label.strip().lstrip("\ufeff")))
    return texts, labels


def load_multitask_dataset(
    source: Any,
    text_column: str = "text",
    label_column: str = "label",
    task_column: str | None = None,
    tasks: Sequence[str] | None = None,
    dev_fraction: float = 0.1,
    test_fraction: float = 0.2,
    seed: int = 0,
    config_name: str | None = None,
) -> MultiTaskData:
    """Brings any labelled texts into the shape of `MultiTaskData`.

    A test or validation split without any label (None, or -1 in a `ClassLabel`), as benchmarks publish it, counts as
    absent, with a warning.

    Args:
        source: a `Dataset` or `DatasetDict`; `{task: Dataset or DatasetDict}`; a CSV, TSV, JSON or JSONL file; a folder
            of such files named by split (train, dev or validation, test); or the name of a data set on the Hub.
        text_column, label_column: where text and label stand. Labels are names, integers or `ClassLabel`s.
        task_column: column with the task's name, for data of several tasks; None means one task, called "default".
        tasks: the tasks wanted, in the order of their ids; None means all, in alphabetical order (of a dictionary, its
            own).
        dev_fraction, test_fraction: parts of the rows that become validation and test where the source has none, drawn
            from train by `seed`, of each label in proportion and at least one of two.
        seed: of the split.
        config_name: which configuration of a data set on the Hub, such as "sst2" of "nyu-mll/glue".

    Returns:
        `MultiTaskData`; each task's labels are those of its train split, in the order of their `ClassLabel` if they
        have one, of their numbers if all are numbers, else of their names.

    Raises:
        FileNotFoundError, TypeError, ValueError: what is missing or wrong, with file and line or split and row.

    Example:
        >>> from datasets import Dataset
        >>> from hf_metalstm.data.reviews import load_multitask_dataset
        >>> rows = {"review": ["fine", "awful"] * 10, "stars": [5, 1] * 10, "shop": ["toys"] * 20}
        >>> data = load_multitask_dataset(Dataset.from_dict(rows), "review", "stars", "shop")
        >>> data.label_names, [len(rows) for rows in data["toys"].values()]
        ({'toys': ['1', '5']}, [14, 2, 4])
    """
    for name, fraction in (("dev_fraction", dev_fraction), ("test_fraction", test_fraction)):
        if not 0 < fraction < 1:
            raise ValueError(f"{name} is {fraction}, but must lie between 0 and 1")
    if dev_fraction + test_fraction >= 1:
        raise ValueError(f"dev_fraction {dev_fraction} and test_fraction {test_fraction} leave nothing for train")
    found: dict[str, _TaskRows] = {}
    by_name = isinstance(source, Mapping) and not isinstance(source, DatasetDict)
    for default, part in source.items() if by_name else [("default", source)]:
        for split, rows in _splits_of(part, config_name).items():
            _collect(_columns(rows, split), text_column, label_column, None if by_name else task_column, default, found)
    where = str(source) if isinstance(source, (str, Path)) else type(source).__name__
    if not found:
        raise ValueError(f"{where} has no rows")
    names = list(found) if by_name else sorted(found)
    fractions = {"validation": dev_fraction, "test": test_fraction}
    data = {
        task: _finish_task(task, found[task], fractions, seed, where)
        for task in (names if tasks is None else _choose(tasks, names))
    }
    return MultiTaskData(data, where)


@dataclass
class _Columns:
    """One split of any source: its columns, the class names of those that have some, and how to name a row."""

    split: str
    values: Dataset | dict[str, list[Any]]
    names: list[str]
    class_names: dict[str, list[str]]
    place: Callable[[int], str]


@dataclass
class _TaskRows:
    """What has been found of one task: `{split: (texts, labels as names)}`."""

    class_names: list[str] | None
    splits: dict[str, tuple[list[str], list[str]]] = field(default_factory=dict)


def _splits_of(source: Any, config_name: str | None) -> dict[str, Dataset | FileRows]:
    if isinstance(source, Dataset):
        return {"train": source}
    if isinstance(source, (str, Path)):
        source = _load(source, config_name)
    elif not isinstance(source, DatasetDict):
        hint = "; a stream has no length: take a part, Dataset.from_list(list(stream.take(10_000)))"
        raise TypeError(
            f"cannot read {type(source).__name__}: give a Dataset, a DatasetDict, a file, a folder or a name"
            f"{hint if 'Iterable' in type(source).__name__ else ''}"
        )
    splits = {_SPLIT_NAMES[name]: rows for name, rows in source.items() if name in _SPLIT_NAMES}
    if "train" not in splits:
        raise ValueError(f"the data have the splits {', '.join(source)}, but none is called train")
    return splits


def _load(source: str | Path, config_name: str | None) -> DatasetDict | dict[str, FileRows]:
    path = Path(source)
    if path.is_dir():
        return _load_folder(path)
    if path.is_file():
        return {"train": read_rows(path)}
    if path.suffix.lower() in FORMATS:
        raise FileNotFoundError(f"there is no file {path}")
    # Names on the Hub are "name" or "owner/name".
    if len(path.parts) > 2 or path.is_absolute() or str(source).startswith((".", "~")):
        raise FileNotFoundError(f"there is no file or folder {path}")
    return load_dataset(str(source), config_name)


def _load_folder(folder: Path) -> dict[str, FileRows]:
    splits: dict[str, FileRows] = {}
    for file in sorted(folder.iterdir()):
        if file.suffix.lower() not in FORMATS or file.stem not in _SPLIT_NAMES:
            continue
        split = _SPLIT_NAMES[file.stem]
        if split in splits:
            raise ValueError(f"{file} and {splits[split].path} are both the {split} split: leave one of them")
        splits[split] = read_rows(file)
    if not splits:
        raise FileNotFoundError(f"{folder} has no files such as train.csv or train.jsonl ({', '.join(FORMATS)})")
    return splits


def _columns(rows: Dataset | FileRows, split: str) -> _Columns:
    if isinstance(rows, FileRows):
        where, lines = rows.path, rows.lines
        return _Columns(split, rows.columns, list(rows.columns), {}, lambda row: f"{where}, line {lines[row]}")
    class_names = {name: feature.names for name, feature in rows.features.items() if isinstance(feature, ClassLabel)}
    plain = rows.with_format(None)
    return _Columns(split, plain, rows.column_names, class_names, lambda row: f"{split} split, row {row}")


def _collect(
    rows: _Columns,
    text_column: str,
    label_column: str,
    task_column: str | None,
    default_task: str,
    found: dict[str, _TaskRows],
) -> None:
    """Sorts the rows of one split by task."""
    for argument, column in (
        ("text_column", text_column),
        ("label_column", label_column),
        ("task_column", task_column),
    ):
        if column is not None and column not in rows.names:
            raise ValueError(
                f"{argument} is {column!r}, but the {rows.split} split has the columns {', '.join(rows.names)}"
            )
    texts, labels = list(rows.values[text_column]), list(rows.values[label_column])
    names = rows.class_names.get(label_column)
    if rows.split != "train" and labels and all(_is_missing(label, names) for label in labels):
        warnings.warn(f"the {rows.split} split has no labels: one is drawn from train instead", stacklevel=3)
        return
    tasks = list(rows.values[task_column]) if task_column is not None else [default_task] * len(texts)
    task_names = rows.class_names.get(task_column) if task_column is not None else None
    for row, (text, label, task) in enumerate(zip(texts, labels, tasks, strict=True)):
        if not isinstance(text, str):
            raise ValueError(f"{rows.place(row)}: column {text_column!r} holds {text!r}, expected a text")
        if _is_missing(label, names) or not isinstance(label, (str, int)) or not str(label).strip():
            raise ValueError(
                f"{rows.place(row)}: column {label_column!r} holds {label!r}, expected a class (a name or an integer)"
            )
        if _is_missing(task, task_names) or not str(task).strip():
            raise ValueError(f"{rows.place(row)}: column {task_column!r} holds {task!r}, expected a task's name")
        task = task_names[int(task)] if task_names is not None else task
        entry = found.setdefault(str(task), _TaskRows(names))
        entry.class_names = entry.class_names or names
        split_texts, split_labels = entry.splits.setdefault(rows.split, ([], []))
        split_texts.append(text)
        split_labels.append(names[int(label)] if names is not None else str(label))


def _is_missing(value: Any, class_names: list[str] | None) -> bool:
    return value is None or (class_names is not None and value < 0)


def _finish_task(task: str, rows: _TaskRows, fractions: Mapping[str, float], seed: int, source: str) -> DatasetDict:
    splits = dict(rows.splits)
    if "train" not in splits:
        raise ValueError(f"task {task!r} has no rows in the train split")
    present = set(splits["train"][1])
    # A task that shares a ClassLabel column with others has those of its names that it uses.
    names = [name for name in rows.class_names if name in present] if rows.class_names else _in_order(present)
    if len(names) < 2:
        raise ValueError(f"task {task!r} has one label only ({', '.join(names)}): there is nothing to classify")
    for split, (_, labels) in splits.items():
        for row, label in enumerate(labels):
            if label not in present:
                raise ValueError(
                    f"task {task!r}, {split} split, example {row}: label {label!r} does not occur in train "
                    f"({', '.join(names)})"
                )
    absent = {split: fraction for split, fraction in fractions.items() if split not in splits}
    if absent:
        splits.update(_draw(*splits["train"], absent, seed, f"task {task!r}"))
    index = {name: number for number, name in enumerate(names)}
    numbered = {split: (splits[split][0], [index[label] for label in splits[split][1]]) for split in SPLITS}
    return make_task(numbered, names, source)


def _in_order(labels: set[str]) -> list[str]:
    """Names by the alphabet; numbers by their size, so that class 10 does not come before class 2."""
    try:
        return sorted(labels, key=lambda label: (int(label), label))
    except ValueError:
        return sorted(labels)


def _draw(
    texts: list[str], labels: list[str], fractions: Mapping[str, float], seed: int, what: str
) -> dict[str, tuple[list[str], list[str]]]:
    """Draws parts of the rows, each label in proportion. A label's last row stays in train; rows keep their order."""
    rng = random.Random(seed)
    drawn: dict[str, list[int]] = {split: [] for split in fractions}
    kept: list[int] = []
    rows_of: dict[str, list[int]] = {}
    for row, label in enumerate(labels):
        rows_of.setdefault(label, []).append(row)
    for rows in rows_of.values():
        left = rng.sample(rows, len(rows))
        for split, fraction in fractions.items():
            count = min(len(left) - 1, max(1, round(fraction * len(rows))))
            drawn[split] += left[:count]
            left = left[count:]
        kept += left
    for split, rows in drawn.items():
        if not rows:
            raise ValueError(f"{what}: {len(labels)} rows are too few to draw a {split} split from")
    parts = {"train": kept, **drawn}
    return {
        split: ([texts[row] for row in sorted(rows)], [labels[row] for row in sorted(rows)])
        for split, rows in parts.items()
    }
