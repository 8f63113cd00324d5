"""Reader of column files: one word a line with its tags, a blank line behind each sentence (CoNLL-2000, CoNLL-2003)."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from datasets import DatasetDict, Value

from .tagged_sentences import Files, Labels, TaggedFile, apply_schemes, build_datasets, name_files, name_labels
from .text_files import decode_file

_DOCUMENT = "-DOCSTART-"
_BLANKS = re.compile("[ \t]+")
_SENTENCE_TYPES = {"document": Value("int64"), "line": Value("int64")}


def read_conll(
    files: Files,
    columns: Sequence[str | None] | Mapping[str, int],
    labels: Labels | None = None,
    schemes: Mapping[str, str] | None = None,
    target_scheme: str | None = None,
    faults: Literal["raise", "warn"] = "raise",
    unseen_tags: Literal["raise", "add"] = "raise",
    separator: str | None = None,
    comment_prefix: str | None = None,
    encoding: str = "utf-8",
) -> DatasetDict:
    """Reads column files.

    A line that begins with -DOCSTART- begins a document and is no word. All other lines have the same number of fields.

    Args:
        files: `{split: file}`; a single file is the split "train".
        columns: names of the columns from the left, None for one to leave out; or `{name: index}`, where -1 is the
            last.
        labels: columns of tags, which become `ClassLabel`s; `{column: labels}` where they are known, else they are
            collected. None means every column but the first of `columns`; the others stay strings.
        schemes: `{column: scheme}` of chunk tags, "IOB1", "IOB2", "IOBES" or "detect".
        target_scheme: convert the chunk tags to this scheme.
        faults: "warn" accepts tags that break their scheme, unless they are to be converted.
        unseen_tags: "add" gives tags that do not occur in train a label too.
        separator: between fields; None means blanks and tabs. With a tab, fields may hold blanks.
        comment_prefix: lines that begin with it are left out. None keeps them all: # is a word in news texts.
        encoding: of the files.

    Returns:
        A dataset for each file: one row a sentence, with the columns, `document` (index of its document in the file)
        and `line` (of its first word).

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: what is wrong, with file and line: a line with another number of fields, bytes that are not of this
            encoding, a tag that is not in train, not in the labels or not in the scheme.

    Example:
        >>> import tempfile, pathlib
        >>> from hf_metalstm.data.conll import read_conll
        >>> path = pathlib.Path(tempfile.mkdtemp(), "train.txt")
        >>> _ = path.write_text("Rockwell NNP B-NP\\nsaid VBD B-VP\\n\\n")
        >>> data = read_conll(path, ["tokens", None, "chunk_tags"], schemes={"chunk_tags": "IOB2"})["train"]
        >>> data[0]["tokens"], data.features["chunk_tags"].feature.names
        (['Rockwell', 'said'], ['B-NP', 'B-VP'])
    """
    places = _column_places(columns)
    chosen = name_labels(list(places)[1:] if labels is None else labels, list(places))
    for column in schemes or {}:
        if column not in chosen:
            raise ValueError(f"schemes name the column {column!r}, but the columns of tags are {', '.join(chosen)}")
    if target_scheme is not None and not schemes:
        raise ValueError("target_scheme is given, but no column in schemes: say which tags it is for")
    if separator == "" or comment_prefix == "":
        raise ValueError("separator and comment_prefix must not be empty; None does without")
    read = {
        split: _read_file(path, places, separator, comment_prefix, encoding)
        for split, path in name_files(files).items()
    }
    apply_schemes(read, schemes or {}, target_scheme, faults)
    return build_datasets(read, chosen, unseen_tags, _SENTENCE_TYPES)


def _column_places(columns: Sequence[str | None] | Mapping[str, int]) -> dict[str, int]:
    """`{name: index}`"""
    if isinstance(columns, str):
        raise TypeError(f"columns is {columns!r}, expected a list of names or {{name: index}}")
    if isinstance(columns, Mapping):
        places = dict(columns)
    else:
        names = [name for name in columns if name is not None]
        if len(set(names)) < len(names):
            raise ValueError(f"columns are {list(columns)}, but each name must be there once")
        places = {name: index for index, name in enumerate(columns) if name is not None}
    if not places:
        raise ValueError("columns name no column")
    for name in _SENTENCE_TYPES:
        if name in places:
            raise ValueError(f"columns name {name!r}, which is a column that the reader adds: choose another name")
    return places


def _read_file(
    path: Path, places: Mapping[str, int], separator: str | None, comment_prefix: str | None, encoding: str
) -> TaggedFile:
    words: dict[str, list[list[Any]]] = {name: [] for name in places}
    file = TaggedFile(path, [], words, {"document": [], "line": []})
    document, width, first_line = 0, 0, 0
    in_sentence, seen_any = False, False
    # Not splitlines(), which takes characters such as U+2028 for line ends.
    for number, raw in enumerate(decode_file(path, encoding).split("\n"), start=1):
        line = raw.rstrip("\r")
        if not line.strip(" \t"):
            in_sentence = False
            continue
        if comment_prefix is not None and line.startswith(comment_prefix):
            continue
        fields = _BLANKS.split(line.strip(" \t")) if separator is None else line.split(separator)
        if fields[0] == _DOCUMENT:
            document += seen_any
            in_sentence = False
            continue
        if not width:
            width, first_line = len(fields), number
            _check_places(path, number, places, width)
        if len(fields) != width:
            raise ValueError(
                f"{path}, line {number}: {len(fields)} fields, but line {first_line} has {width}: {line[:60]!r}"
            )
        if not in_sentence:
            file.lines.append([])
            for column in words.values():
                column.append([])
            file.sentences["document"].append(document)
            file.sentences["line"].append(number)
            in_sentence, seen_any = True, True
        file.lines[-1].append(number)
        for name, place in places.items():
            if not fields[place]:
                raise ValueError(f"{path}, line {number}: column {name!r} is empty: {line[:60]!r}")
            words[name][-1].append(fields[place])
    if not file.lines:
        raise ValueError(f"{path} has no sentences")
    return file


def _check_places(path: Path, number: int, places: Mapping[str, int], width: int) -> None:
    for name, place in places.items():
        if not -width <= place < width:
            raise ValueError(
                f"{path}, line {number}: there are {width} fields, so column {name!r} cannot be number {place} "
                f"(0..{width - 1}, or -1 for the last)"
            )
