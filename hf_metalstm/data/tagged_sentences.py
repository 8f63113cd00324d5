"""From sentences of words and tags, each with its line in a file, to typed datasets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from datasets import ClassLabel, Dataset, DatasetDict, DatasetInfo, Features, List, Value

from .tag_schemes import check_tags, convert_tags, detect_scheme

Files = str | Path | Mapping[str, str | Path]
Labels = Sequence[str] | Mapping[str, Sequence[str] | None]
_MOST_LABELS_SHOWN = 12


@dataclass
class TaggedFile:
    """The sentences of one file.

    Args:
        path: the file.
        lines: line of each word of each sentence.
        words: `{column: one value a word, in each sentence}`.
        sentences: `{column: one value a sentence}`.
    """

    path: Path
    lines: list[list[int]]
    words: dict[str, list[list[Any]]]
    sentences: dict[str, list[Any]]

    def place(self, sentence: int, word: int) -> str:
        """Where a word stands, for messages."""
        return f"{self.path}, line {self.lines[sentence][word]}"


def name_files(files: Files) -> dict[str, Path]:
    """`{split: path}`; a single file is the split "train".

    Raises:
        ValueError: there is no file.
        FileNotFoundError: a file does not exist.
    """
    named = {"train": Path(files)} if isinstance(files, (str, Path)) else {k: Path(v) for k, v in files.items()}
    if not named:
        raise ValueError("files is empty; give a file, or {split: file}")
    for path in named.values():
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {path}")
    return named


def name_labels(labels: Labels, columns: Sequence[str]) -> dict[str, list[str] | None]:
    """`{column: its labels, or None to collect them}`.

    Raises:
        TypeError: a single string.
        ValueError: there is no such column, or a label occurs twice.
    """
    if isinstance(labels, str):
        raise TypeError(f"labels is {labels!r}, expected a list of columns, such as [{labels!r}]")
    named: Mapping[str, Sequence[str] | None] = labels if isinstance(labels, Mapping) else dict.fromkeys(labels)
    for column, names in named.items():
        if column not in columns:
            raise ValueError(f"labels name the column {column!r}, but the columns are {', '.join(columns)}")
        if names is not None and len(set(names)) < len(names):
            raise ValueError(f"labels of {column!r} are {list(names)}, but each must be there once")
    return {column: None if names is None else list(names) for column, names in named.items()}


def apply_schemes(
    files: Mapping[str, TaggedFile], schemes: Mapping[str, str], target: str | None, faults: Literal["raise", "warn"]
) -> None:
    """Checks chunk tags against their scheme and converts them, in place.

    Args:
        files: the splits.
        schemes: `{column: scheme}`; "detect" takes the one scheme that the tags of all splits follow.
        target: scheme to convert all these columns to; None leaves them.
        faults: what to do about tags that break the scheme. They cannot be converted, so with `target` it is an error.

    Raises:
        ValueError: a tag that breaks its scheme, with file, line and the scheme detected.
    """
    if faults not in ("raise", "warn"):
        raise ValueError(f"faults is {faults!r}, but must be 'raise' or 'warn'")
    for column, scheme in schemes.items():
        if scheme == "detect":
            for file in files.values():  # names file and line of tags that belong to no scheme
                _check_each_tag(file, column)
            report = detect_scheme([tags for file in files.values() for tags in file.words[column]])
            # Where none fits, the check below says where the nearest one is broken.
            scheme = report.scheme or report.nearest
        for file in files.values():
            tags = file.words[column]
            check_tags(tags, scheme, file.place, warn_only=faults == "warn" and target is None)
            if target is not None:
                file.words[column] = [convert_tags(sentence, scheme, target) for sentence in tags]


def _check_each_tag(file: TaggedFile, column: str) -> None:
    for sentence, tags in enumerate(file.words[column]):
        for word, tag in enumerate(tags):
            # IOB1 and IOB2 share their tags: what matters here is whether it is a chunk tag at all.
            try:
                detect_scheme([[tag]])
            except ValueError as error:
                raise ValueError(f"{file.place(sentence, word)}: {str(error).partition(': ')[2]}") from error


def build_datasets(
    files: Mapping[str, TaggedFile],
    labels: Mapping[str, Sequence[str] | None],
    unseen_tags: Literal["raise", "add"],
    types: Mapping[str, Any],
) -> DatasetDict:
    """Makes one dataset of each file, with the same features.

    Args:
        files: the splits.
        labels: columns that become `ClassLabel`s, with their names; None collects them.
        unseen_tags: what to do where labels are collected and a tag occurs in another split than train only: an error,
            or a label for it as well. Without a split "train", the first one counts as such.
        types: features of the columns that are no labels; `List(Value("string"))` where none is given.

    Raises:
        ValueError: a tag without a label, with file and line.
    """
    if unseen_tags not in ("raise", "add"):
        raise ValueError(f"unseen_tags is {unseen_tags!r}, but must be 'raise' or 'add'")
    training = "train" if "train" in files else next(iter(files))
    ids: dict[str, dict[str, int]] = {}
    for column, names in labels.items():
        if names is None:
            from_files = files.values() if unseen_tags == "add" else [files[training]]
            names = sorted({tag for file in from_files for tags in file.words[column] for tag in tags})
            names.sort(key=lambda tag: tag != "O")  # O first, as taggers expect, the others in order
        ids[column] = {name: number for number, name in enumerate(names)}
    first = files[training]
    features = Features(
        {
            **{
                column: List(ClassLabel(names=list(ids[column])))
                if column in ids
                else types.get(column, List(Value("string")))
                for column in first.words
            },
            **{column: types.get(column, Value("string")) for column in first.sentences},
        }
    )
    data = DatasetDict()
    for split, file in files.items():
        columns: dict[str, list[Any]] = {**file.words, **file.sentences}
        for column, known in ids.items():
            columns[column] = [
                [_label_id(tag, known, column, file, sentence, word, labels[column] is None, training)
                 for word, tag in enumerate(tags)]
                for sentence, tags in enumerate(file.words[column])
            ]  # fmt: skip
        info = DatasetInfo(description=f"sentences of {file.path.name}", features=features)
        data[split] = Dataset.from_dict({name: columns[name] for name in features}, info=info)
    return data


def _label_id(
    tag: str,
    known: Mapping[str, int],
    column: str,
    file: TaggedFile,
    sentence: int,
    word: int,
    collected: bool,
    training: str,
) -> int:
    if tag in known:
        return known[tag]
    shown = ", ".join(list(known)[:_MOST_LABELS_SHOWN]) + (", ..." if len(known) > _MOST_LABELS_SHOWN else "")
    if collected:
        why = f"does not occur in the split {training!r}, whose tags are {shown}; unseen_tags='add' gives it a label"
    else:
        why = f"is none of the labels given: {shown}"
    raise ValueError(f"{file.place(sentence, word)}: tag {tag!r} of column {column!r} {why}")
