"""Rows of local text files: CSV, TSV, JSON and JSON lines.

Values stay as they stand in the file: a text "NA", a label "01" and a task "null" are read as such, where readers that
guess types make missing values and numbers of them. Every row knows its line, so that an error can name it.
"""

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SEPARATORS = {".csv": ",", ".tsv": "\t"}
FORMATS = (*SEPARATORS, ".json", ".jsonl")
_LONGEST_FIELD = 2**31 - 1


@dataclass(frozen=True)
class FileRows:
    """The columns of one file.

    Args:
        path: the file.
        columns: `{name: values}`; text from CSV and TSV, any JSON value else. None where a JSON row lacks the name.
        lines: line on which each row starts.
    """

    path: Path
    columns: dict[str, list[Any]]
    lines: list[int]


def read_rows(path: Path) -> FileRows:
    """Reads a CSV, TSV, JSON or JSON lines file in UTF-8.

    CSV and TSV begin with a line of column names. A field that starts with a quotation mark ends with one, holds line
    ends and separators as they are, and its own quotation marks doubled. A JSON file holds a list of objects or, like
    JSON lines, one object a line. Blank lines are skipped.

    Raises:
        ValueError: an unknown format, or a file that breaks these rules; the message has its name and line.
    """
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise ValueError(f"{path} is of no known format; these can be read: {', '.join(FORMATS)}")
    text = decode_file(path)
    if not text.strip():
        raise ValueError(f"{path} is empty")
    if suffix in SEPARATORS:
        return _from_table(path, text, SEPARATORS[suffix])
    return _from_objects(path, list(_json_objects(path, text)))


def decode_file(path: Path, encoding: str = "utf-8") -> str:
    """The text of a file; a byte order mark of UTF-8 is left out.

    Raises:
        ValueError: there is no such encoding, or the file is in another one; the message has the line.
    """
    content = path.read_bytes()
    name = "utf-8-sig" if encoding.lower().replace("_", "-") in ("utf-8", "utf8") else encoding
    try:
        return content.decode(name)
    except LookupError as error:
        raise ValueError(f"encoding is {encoding!r}, which Python does not know") from error
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{path}, line {line}: not {encoding.upper()} ({error.reason}); convert the file first"
        ) from error


def _from_table(path: Path, text: str, separator: str) -> FileRows:
    limit = csv.field_size_limit(_LONGEST_FIELD)
    try:
        (_, header), *rows = _fields(path, text, separator)
    finally:
        csv.field_size_limit(limit)
    header = [name.strip() for name in header]
    if len(set(header)) < len(header):
        raise ValueError(f"{path}: two columns have the same name ({', '.join(header)})")
    for line, fields in rows:
        if len(fields) != len(header):
            raise ValueError(
                f"{path}, line {line}: {len(fields)} fields, but {len(header)} columns ({', '.join(header)}): a field "
                f"with {separator!r} or a line end in it must stand in quotation marks"
            )
    columns = {name: [fields[column] for _, fields in rows] for column, name in enumerate(header)}
    return FileRows(path, columns, [line for line, _ in rows])


def _fields(path: Path, text: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    line = 1
    try:
        for fields in reader:
            if fields:
                yield line, fields
            line = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(
            f"{path}, line {line}: {error}; a field that starts with a quotation mark must end with one, and those "
            "inside must be doubled"
        ) from error


def _json_objects(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    try:
        if path.suffix.lower() == ".json" and text.lstrip().startswith("["):
            # Lines are not known once a list is read whole: its items are counted instead.
            yield from enumerate(json.loads(text), start=1)
            return
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}, line {error.lineno}: not JSON ({error.msg})") from error
    for line, record in enumerate(text.split("\n"), start=1):
        if record.strip():
            try:
                yield line, json.loads(record)
            except json.JSONDecodeError as error:
                raise ValueError(f"{path}, line {line}: not JSON ({error.msg}): {record[:60]!r}") from error


def _from_objects(path: Path, objects: list[tuple[int, Any]]) -> FileRows:
    for line, record in objects:
        if not isinstance(record, dict):
            raise ValueError(f"{path}, line {line}: expected an object with named values, found {str(record)[:60]!r}")
    names = dict.fromkeys(name for _, record in objects for name in record)
    columns = {name: [record.get(name) for _, record in objects] for name in names}
    return FileRows(path, columns, [line for line, _ in objects])
