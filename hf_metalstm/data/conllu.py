"""Reader of CoNLL-U, the format of Universal Dependencies (universaldependencies.org/format.html)."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from datasets import DatasetDict, List, Value

from .tagged_sentences import Files, Labels, TaggedFile, build_datasets, name_files, name_labels
from .text_files import decode_file

UPOS = (
    "ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X"  # the universal parts of speech
).split()
_FIELDS = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")
_WORD_COLUMNS = ("tokens", "lemmas", "upos", "xpos", "feats", "heads", "deprels", "space_after")
_TYPES: dict[str, Any] = {
    "heads": List(Value("int64")),
    "space_after": List(Value("bool")),
    "line": Value("int64"),
    "multiword_tokens": List({"form": Value("string"), "start": Value("int64"), "end": Value("int64")}),
}
_ID = re.compile(r"([0-9]+)(?:(-|\.)([0-9]+))?")


def parse_features(text: str) -> dict[str, str]:
    """`{name: value}` of a FEATS or MISC field.

    Raises:
        ValueError: a part is not name=value, or a name occurs twice.

    Example:
        >>> parse_features("Case=Nom|Number=Sing"), parse_features("_")
        ({'Case': 'Nom', 'Number': 'Sing'}, {})
    """
    features: dict[str, str] = {}
    for part in [] if text == "_" else text.split("|"):
        name, equals, value = part.partition("=")
        if not (name and equals and value):
            raise ValueError(f"feature {part!r} is not name=value")
        if name in features:
            raise ValueError(f"feature {name!r} is there twice")
        features[name] = value
    return features


def read_conllu(
    files: Files,
    labels: Labels = ("upos",),
    features: Sequence[str] = (),
    unseen_tags: Literal["raise", "add"] = "raise",
    encoding: str = "utf-8",
) -> DatasetDict:
    """Reads CoNLL-U files.

    The rows are sentences of syntactic words: what carries tags. Multiword tokens such as "don't" are described beside
    them; empty nodes (8.1) of enhanced dependencies are left out.

    Args:
        files: `{split: file}`; a single file is the split "train".
        labels: columns of tags, which become `ClassLabel`s; `{column: labels}` where they are known. Those of `upos`
            are the seventeen of Universal Dependencies, others are collected.
        features: morphological features that become columns of their own, such as "Number": `feats_Number` holds their
            values, "_" for words without it.
        unseen_tags: "add" gives tags that do not occur in train a label too.
        encoding: of the files.

    Returns:
        A dataset for each file with the columns `tokens`, `lemmas`, `upos`, `xpos`, `feats`, `heads` (0 is the root,
        None where there is none), `deprels`, `space_after`, one value a word, and `sent_id`, `text` (None where the
        comments lack them), `multiword_tokens` (`form`, and words `start` to `end`, exclusive) and `line` (of the first
        word).

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: what is wrong, with file and line: a line without ten fields, ids out of order, a feature that is
            not name=value, a tag without a label.

    Example:
        >>> import tempfile, pathlib
        >>> from hf_metalstm.data.conllu import read_conllu
        >>> path = pathlib.Path(tempfile.mkdtemp(), "train.conllu")
        >>> line = "\\t".join(["1", "Hi", "hi", "INTJ", "UH", "_", "0", "root", "_", "SpaceAfter=No"])
        >>> _ = path.write_text(f"# sent_id = a1\\n{line}\\n\\n")
        >>> row = read_conllu(path)["train"][0]
        >>> row["tokens"], row["upos"], row["sent_id"]
        (['Hi'], [6], 'a1')
    """
    if isinstance(features, str):
        raise TypeError(f"features is {features!r}, expected a list of names, such as [{features!r}]")
    named = [f"feats_{name}" for name in features]
    text_columns = [column for column in (*_WORD_COLUMNS, *named) if column not in _TYPES]
    chosen = name_labels(labels, text_columns)
    if "upos" in chosen and chosen["upos"] is None:
        chosen["upos"] = list(UPOS)
    read = {split: _FileReader(path, features).read(encoding) for split, path in name_files(files).items()}
    return build_datasets(read, chosen, unseen_tags, _TYPES)


class _FileReader:
    """Reads one file line by line."""

    def __init__(self, path: Path, features: Sequence[str]):
        self._features = features
        columns = (*_WORD_COLUMNS, *(f"feats_{name}" for name in features))
        sentences: dict[str, list[Any]] = {name: [] for name in ("sent_id", "text", "multiword_tokens", "line")}
        self._file = TaggedFile(path, [], {name: [] for name in columns}, sentences)
        self._comments: dict[str, str] = {}
        self._open = False
        self._range: tuple[int, bool] | None = None  # last word of a multiword token, and whether a space follows it
        self._range_line = 0

    def read(self, encoding: str) -> TaggedFile:
        path = self._file.path
        # Not splitlines(), which takes characters such as U+2028 for line ends.
        for number, raw in enumerate(decode_file(path, encoding).split("\n"), start=1):
            line = raw.rstrip("\r")
            try:
                self._read_line(number, line)
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from error
        self._close(self._range_line)
        if not self._file.lines:
            raise ValueError(f"{path} has no sentences")
        return self._file

    def _read_line(self, number: int, line: str) -> None:
        if not line.strip():
            self._close(number)
        elif line.startswith("#"):
            if self._open:
                raise ValueError("a comment within a sentence; a blank line ends each sentence")
            name, equals, value = line[1:].partition("=")
            if equals:
                self._comments[name.strip()] = value.strip()
        else:
            fields = line.split("\t")
            if len(fields) != len(_FIELDS):
                raise ValueError(f"{len(fields)} fields, but CoNLL-U has ten, with tabs between them: {line[:60]!r}")
            empty = [name for name, value in zip(_FIELDS, fields, strict=True) if not value]
            if empty:
                raise ValueError(f"{empty[0]} is empty; a missing value is written _")
            self._read_fields(number, fields)

    def _read_fields(self, number: int, fields: list[str]) -> None:
        match = _ID.fullmatch(fields[0])
        if match is None:
            raise ValueError(
                f"ID is {fields[0]!r}, expected a number, a range such as 3-4 or an empty node such as 8.1"
            )
        first, kind, second = int(match[1]), match[2], match[3]
        if not self._open:
            self._begin(number)
        count = len(self._file.words["tokens"][-1])
        if kind == ".":
            if first != count:
                raise ValueError(f"empty node {fields[0]} stands behind word {count}")
        elif kind == "-":
            last = int(second)
            if first != count + 1 or last < first or self._range is not None:
                raise ValueError(f"multiword token {fields[0]} stands behind word {count}")
            space = _parse_misc(fields[9]).get("SpaceAfter") != "No"
            self._range, self._range_line = (last, space), number
            self._file.sentences["multiword_tokens"][-1].append({"form": fields[1], "start": first - 1, "end": last})
        else:
            if first != count + 1:
                raise ValueError(f"word {first} stands behind word {count}")
            self._add_word(number, first, fields)

    def _begin(self, number: int) -> None:
        self._open = True
        self._file.lines.append([])
        for column in self._file.words.values():
            column.append([])
        sentences = self._file.sentences
        sentences["sent_id"].append(self._comments.get("sent_id"))
        sentences["text"].append(self._comments.get("text"))
        sentences["multiword_tokens"].append([])
        sentences["line"].append(number)
        self._comments = {}

    def _add_word(self, number: int, word: int, fields: list[str]) -> None:
        _, form, lemma, upos, xpos, feats, head, deprel, _, misc = fields
        if head != "_" and not head.isdecimal():
            raise ValueError(f"HEAD is {head!r}, expected a number")
        space = _parse_misc(misc).get("SpaceAfter") != "No"
        if self._range is not None:
            last, space_behind = self._range
            space = space_behind and word == last
            if word == last:
                self._range = None
        features = parse_features(feats)
        values: dict[str, Any] = {
            "tokens": form,
            "lemmas": lemma,
            "upos": upos,
            "xpos": xpos,
            "feats": feats,
            "heads": None if head == "_" else int(head),
            "deprels": deprel,
            "space_after": space,
            **{f"feats_{name}": features.get(name, "_") for name in self._features},
        }
        self._file.lines[-1].append(number)
        for name, value in values.items():
            self._file.words[name][-1].append(value)

    def _close(self, number: int) -> None:
        """Ends the sentence, if one is open."""
        if not self._open:
            return
        if self._range is not None:
            raise ValueError(f"the sentence ends within the multiword token of line {self._range_line}")
        if not self._file.lines[-1]:
            raise ValueError("the sentence has no words")
        words = len(self._file.lines[-1])
        for line, head in zip(self._file.lines[-1], self._file.words["heads"][-1], strict=True):
            if head is not None and head > words:
                raise ValueError(f"HEAD of line {line} is {head}, but the sentence has {words} words")
        self._open = False


def _parse_misc(text: str) -> dict[str, str]:
    """`{name: value}` of a MISC field, whose parts need not be name=value; those that are not are left out."""
    parts = [part.partition("=") for part in text.split("|")]
    return {name: value for name, equals, value in parts if equals}
