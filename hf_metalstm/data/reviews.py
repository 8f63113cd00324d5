"""Labelled texts of several tasks: the sixteen-task review files, and any data set with text, label and task columns.

Everything ends up as `MultiTaskData`: for each task a `DatasetDict` with the splits train, validation and test and the
columns `text` (string), `label` (`ClassLabel`) and, in the test split, `duplicated` (the text also stands in train or
validation). Accuracy on duplicated texts measures memory, so it can be reported apart.
"""

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from datasets import ClassLabel, Dataset, DatasetDict, Features, IterableDatasetDict, Value, load_dataset

SPLITS = ("train", "validation", "test")
_SPLIT_NAMES = {
    "train": "train",
    "dev": "validation",
    "valid": "validation",
    "validation": "validation",
    "test": "test",
}
_FILE_FORMATS = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json"}


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
        return MultiTaskData({name: self[_known(name, list(self))] for name in tasks}, self.source)

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
        return (name, *sizes, f"{words:.0f}", str(empty), str(duplicated), ", ".join(self.label_names[name]))


def _known(name: str, names: Sequence[str]) -> str:
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"there is no task {name!r}; the tasks are {', '.join(names)}{hint}")
    return name


def make_task(splits: Mapping[str, tuple[list[str], list[int]]], names: Sequence[str]) -> DatasetDict:
    """Builds one task from texts and class indexes and marks the test texts that also stand in another split."""
    features = Features({"text": Value("string"), "label": ClassLabel(names=list(names))})
    task = DatasetDict(
        {
            split: Dataset.from_dict({"text": texts, "label": labels}, features=features)
            for split, (texts, labels) in splits.items()
        }
    )
    if "test" in splits:
        seen = {text for split, (texts, _) in splits.items() if split != "test" for text in texts}
        marks = [text in seen for text in splits["test"][0]]
        task["test"] = task["test"].add_column("duplicated", marks)
    return task


def drop_duplicates(data: MultiTaskData) -> MultiTaskData:
    """Leaves out the test texts that also stand in train or validation."""
    tasks = {}
    for name, splits in data.items():
        kept = DatasetDict(splits)
        if "test" in kept:
            kept["test"] = kept["test"].filter(lambda duplicated: not duplicated, input_columns="duplicated")
        tasks[name] = kept
    return MultiTaskData(tasks, data.source)


def read_review_tasks(folder: str | Path, tasks: Sequence[str] | None = None, dev_size: int = 200) -> MultiTaskData:
    """Reads the sixteen-task review files of Liu et al. 2017: `<task>.task.train` and `<task>.task.test`.

    Each line is `label<TAB>text` with label 0 (negative) or 1 (positive). The last `dev_size` lines of train are the
    validation split, as in the papers. Some files mix encodings, so each line is read as UTF-8 or else as Latin-1.
    Empty texts are kept: the tokenizer gives them an unknown word.

    Args:
        folder: where the files are.
        tasks: names of the tasks wanted, in the order of their ids; None means all, in alphabetical order.
        dev_size: lines of train that become the validation split.

    Raises:
        FileNotFoundError: the folder has no such files.
        ValueError: an unknown task, a line that is not label<TAB>text (with file and line number), or too few lines.
    """
    folder = Path(folder)
    if dev_size < 1:
        raise ValueError(f"dev_size is {dev_size}, but must be at least 1")
    names = sorted(path.name.removesuffix(".task.train") for path in folder.glob("*.task.train"))
    if not names:
        raise FileNotFoundError(f"{folder} has no <task>.task.train files")
    data = {}
    for name in names if tasks is None else [_known(task, names) for task in tasks]:
        texts, labels = _read_labelled_lines(folder / f"{name}.task.train")
        if len(texts) <= dev_size:
            raise ValueError(f"{name}.task.train has {len(texts)} lines, too few for dev_size={dev_size}")
        data[name] = make_task(
            {
                "train": (texts[:-dev_size], labels[:-dev_size]),
                "validation": (texts[-dev_size:], labels[-dev_size:]),
                "test": _read_labelled_lines(folder / f"{name}.task.test"),
            },
            ["negative", "positive"],
        )
    return MultiTaskData(data, f"review files in {folder}")


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
) -> MultiTaskData:
    """Brings any labelled texts into the shape of `MultiTaskData`.

    Args:
        source: a `Dataset` or `DatasetDict`; `{task: Dataset or DatasetDict}`; a CSV, TSV, JSON or JSONL file; a folder
            of such files named by split (train, dev or validation, test); or the name of a data set on the Hub.
        text_column, label_column: where text and label stand. Labels are names, integers or `ClassLabel`s.
        task_column: column with the task's name, for data of several tasks; None means one task, called "default".
        tasks: the tasks wanted, in the order of their ids; None means all, in alphabetical order.
        dev_fraction, test_fraction: parts of train that become validation and test where the source has none, drawn by
            `seed`, each label in proportion.
        seed: of the split.

    Returns:
        `MultiTaskData`; each task's labels are those of its train split, sorted (or in `ClassLabel` order).

    Raises:
        FileNotFoundError, TypeError, ValueError: what is missing or wrong, with split and row.
    """
    for name, fraction in (("dev_fraction", dev_fraction), ("test_fraction", test_fraction)):
        if not 0 < fraction < 1:
            raise ValueError(f"{name} is {fraction}, but must lie between 0 and 1")
    found: dict[str, dict[str, Any]] = {}
    if isinstance(source, Mapping) and not isinstance(source, DatasetDict):
        for task, part in source.items():
            found[str(task)] = {"names": None, "splits": {}}
            for split, rows in _splits_of(part).items():
                _collect(rows, split, text_column, label_column, None, str(task), found)
    else:
        for split, rows in _splits_of(source).items():
            _collect(rows, split, text_column, label_column, task_column, "default", found)
    names = sorted(found) if not isinstance(source, Mapping) or isinstance(source, DatasetDict) else list(found)
    wanted = names if tasks is None else [_known(task, names) for task in tasks]
    data = {task: _finish_task(task, found[task], dev_fraction, test_fraction, seed) for task in wanted}
    where = source if isinstance(source, (str, Path)) else type(source).__name__
    return MultiTaskData(data, str(where))


def _splits_of(source: Any) -> dict[str, Dataset]:
    if isinstance(source, Dataset):
        return {"train": source}
    if isinstance(source, (str, Path)):
        source = _load(source)
    if isinstance(source, IterableDatasetDict) or not isinstance(source, DatasetDict):
        raise TypeError(
            f"cannot read {type(source).__name__}: give a Dataset, a DatasetDict, a file, a folder or a name"
        )
    splits = {_SPLIT_NAMES[name]: rows for name, rows in source.items() if name in _SPLIT_NAMES}
    if "train" not in splits:
        raise ValueError(f"the data have the splits {', '.join(source)}, but none is called train")
    return splits


def _load(source: str | Path) -> DatasetDict:
    path = Path(source)
    if path.is_dir():
        files = {_SPLIT_NAMES[file.stem]: file for file in sorted(path.iterdir()) if _is_split_file(file)}
        if not files:
            raise FileNotFoundError(
                f"{path} has no files such as train.csv or train.jsonl ({', '.join(_FILE_FORMATS)})"
            )
    elif path.suffix in _FILE_FORMATS:
        if not path.exists():
            raise FileNotFoundError(f"there is no file {path}")
        files = {"train": path}
    else:
        return load_dataset(str(source))
    suffixes = {file.suffix for file in files.values()}
    if len(suffixes) > 1:
        raise ValueError(f"{path} mixes formats ({', '.join(sorted(suffixes))}): give one format for all splits")
    suffix = suffixes.pop()
    options = {"sep": "\t"} if suffix == ".tsv" else {}
    return load_dataset(_FILE_FORMATS[suffix], data_files={k: str(v) for k, v in files.items()}, **options)


def _is_split_file(file: Path) -> bool:
    return file.suffix in _FILE_FORMATS and file.stem in _SPLIT_NAMES


def _collect(
    rows: Dataset,
    split: str,
    text_column: str,
    label_column: str,
    task_column: str | None,
    default_task: str,
    found: dict[str, dict[str, Any]],
) -> None:
    """Sorts the rows of one split by task."""
    for argument, column in (
        ("text_column", text_column),
        ("label_column", label_column),
        ("task_column", task_column),
    ):
        if column is not None and column not in rows.column_names:
            raise ValueError(
                f"{argument} is {column!r}, but the {split} split has the columns {', '.join(rows.column_names)}"
            )
    feature = rows.features[label_column]
    names = feature.names if isinstance(feature, ClassLabel) else None
    task_feature = rows.features[task_column] if task_column is not None else None
    tasks = rows[task_column] if task_column is not None else [default_task] * rows.num_rows
    for row, (text, label, task) in enumerate(zip(rows[text_column], rows[label_column], tasks, strict=True)):
        if not isinstance(text, str):
            raise ValueError(f"{split} split, row {row}: column {text_column!r} holds {text!r}, expected a text")
        if label is None or isinstance(label, float) or (names is not None and label < 0):
            raise ValueError(f"{split} split, row {row}: column {label_column!r} holds {label!r}, expected a class")
        if task is None:
            raise ValueError(f"{split} split, row {row}: column {task_column!r} is empty, expected a task's name")
        if isinstance(task_feature, ClassLabel):
            task = task_feature.names[task]
        entry = found.setdefault(str(task), {"names": names, "splits": {}})
        entry["names"] = entry["names"] or names
        texts, labels = entry["splits"].setdefault(split, ([], []))
        texts.append(text)
        labels.append(names[label] if names is not None else str(label))


def _finish_task(task: str, entry: dict[str, Any], dev_fraction: float, test_fraction: float, seed: int) -> DatasetDict:
    splits = entry["splits"]
    if "train" not in splits:
        raise ValueError(f"task {task!r} has no rows in the train split")
    present = set(splits["train"][1])
    # A task that shares a ClassLabel column with others has those of its names that it uses.
    names = [name for name in entry["names"] if name in present] if entry["names"] else sorted(present)
    if len(names) < 2:
        raise ValueError(f"task {task!r} has one label only ({', '.join(names)}): there is nothing to classify")
    index = {name: number for number, name in enumerate(names)}
    for split, (_, labels) in splits.items():
        for row, label in enumerate(labels):
            if label not in index:
                raise ValueError(
                    f"task {task!r}, {split} split, example {row}: label {label!r} does not occur in train "
                    f"({', '.join(names)})"
                )
    numbered = {split: (texts, [index[label] for label in labels]) for split, (texts, labels) in splits.items()}
    for split, fraction in (("test", test_fraction), ("validation", dev_fraction)):
        if split not in numbered:
            numbered["train"], numbered[split] = _split_off(numbered["train"], fraction, seed, f"task {task!r}")
    return make_task({split: numbered[split] for split in SPLITS}, names)


def _split_off(
    rows: tuple[list[str], list[int]], fraction: float, seed: int, what: str
) -> tuple[tuple[list[str], list[int]], tuple[list[str], list[int]]]:
    """Draws a part of the rows, each label in proportion, and returns (the rest, the part) in their old order."""
    features = Features({"row": Value("int64"), "label": ClassLabel(num_classes=max(rows[1]) + 1)})
    numbered = Dataset.from_dict({"row": list(range(len(rows[1]))), "label": rows[1]}, features=features)
    try:
        parts = numbered.train_test_split(test_size=fraction, seed=seed, stratify_by_column="label")
    except ValueError as error:
        raise ValueError(f"{what}: cannot draw {fraction:.0%} of {len(rows[1])} rows: {error}") from error
    kept, drawn = (sorted(parts[name]["row"]) for name in ("train", "test"))
    return tuple(([rows[0][i] for i in part], [rows[1][i] for i in part]) for part in (kept, drawn))  # type: ignore[return-value]
