"""From words with tags to tokens with labels.

Each word's tag goes to its first token; all other tokens, special ones too, are labelled -100. A word that a tokenizer
turns into nothing, such as a lone zero-width blank, becomes the unknown token, so that every word keeps its tag.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal

from datasets import Dataset
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from ..modeling.character_features import CharacterVocabulary
from ..modeling.crf import IGNORED_LABEL

logger = logging.get_logger(__name__)

TooLong = Literal["raise", "cut"]


@dataclass(frozen=True)
class AlignedTags:
    """What `align_tags` made of some sentences: one list a sentence, one value a token.

    Args:
        input_ids, attention_mask: as the tokenizer gives them.
        labels: tag id at each word's first token, -100 elsewhere; None without tags.
        word_starts: 1 at each word's first token, 0 elsewhere: the `tagged` of a CRF where no labels are known.
        character_ids: of the word of each token, none for special tokens; None without a character vocabulary.
        cut_words: number of words of each sentence that were cut off.
    """

    input_ids: list[list[int]]
    attention_mask: list[list[int]]
    labels: list[list[int]] | None
    word_starts: list[list[int]]
    character_ids: list[list[list[int]]] | None
    cut_words: list[int]

    def columns(self) -> dict[str, list[Any]]:
        """`{name: values}`, without those that are None."""
        return {name: value for name, value in vars(self).items() if value is not None}


def align_tags(
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[Sequence[str]],
    tags: Sequence[Sequence[int]] | None = None,
    max_length: int | None = None,
    too_long: TooLong = "raise",
    characters: CharacterVocabulary | None = None,
    place: Callable[[int], str] = "sentence {}".format,
) -> AlignedTags:
    """Tokenizes words and gives their tags to the first tokens.

    Args:
        tokenizer: any that knows which word a token is of (all fast tokenizers do).
        sentences: the words of each sentence.
        tags: the tag ids of each sentence, one a word; None for text that is to be tagged.
        max_length: longest sentence in tokens, special ones included; None allows any.
        too_long: what to do with longer ones: an error, or cut them on the tokenizer's `truncation_side` and count the
            words lost.
        characters: also encode the characters of each token's word.
        place: names a sentence in messages.

    Raises:
        TypeError: a sentence is a string, tags are no integers, or the tokenizer does not know words.
        ValueError: other numbers of tags than of words, a sentence without words or that is too long, or a word that
            gives no token while the tokenizer has no unknown token.

    Example:
        >>> from hf_metalstm import WordTokenizer
        >>> tokenizer = WordTokenizer.train_from_iterator(["I don't know"])
        >>> aligned = align_tags(tokenizer, [["I", "don't", "know"]], [[1, 2, 3]])
        >>> tokenizer.convert_ids_to_tokens(aligned.input_ids[0]), aligned.labels
        (['i', 'do', "n't", 'know'], [[1, 2, -100, 3]])
    """
    if not tokenizer.is_fast:
        raise TypeError(f"{type(tokenizer).__name__} does not know which word a token is of: take its fast version")
    if too_long not in ("raise", "cut"):
        raise ValueError(f"too_long is {too_long!r}, but must be 'raise' or 'cut'")
    if max_length is not None and max_length < 1:
        raise ValueError(f"max_length is {max_length}, but must be at least 1")
    _check_sentences(sentences, tags, place)
    if not sentences:
        return AlignedTags([], [], None if tags is None else [], [], None if characters is None else [], [])
    known = _with_unknown(tokenizer, sentences, place)
    whole = encoded = tokenizer(known, is_split_into_words=True)
    long = [row for row, ids in enumerate(whole["input_ids"]) if max_length is not None and len(ids) > max_length]
    if long and too_long == "raise":
        raise ValueError(
            f"{place(long[0])} has {len(whole['input_ids'][long[0]])} tokens, but max_length is {max_length}: "
            "too_long='cut' cuts it and counts the words lost"
        )
    if long:
        encoded = tokenizer(known, is_split_into_words=True, truncation=True, max_length=max_length)
    labels: list[list[int]] = []
    starts: list[list[int]] = []
    cut_words: list[int] = []
    character_ids: list[list[list[int]]] = []
    for row, words in enumerate(sentences):
        token_words = encoded.word_ids(row)
        first_tokens = _first_tokens(token_words, whole.word_ids(row), tokenizer.truncation_side)
        starts.append([int(index in first_tokens) for index in range(len(token_words))])
        cut_words.append(len(words) - len(first_tokens))
        if not first_tokens:
            raise ValueError(f"{place(row)} keeps no word at all with max_length {max_length}")
        if tags is not None:
            row_labels = [IGNORED_LABEL] * len(token_words)
            for token, word in first_tokens.items():
                row_labels[token] = int(tags[row][word])
            labels.append(row_labels)
        if characters is not None:
            ids = [characters.encode(word) for word in words]
            character_ids.append([[] if word is None else ids[word] for word in token_words])
    return AlignedTags(
        input_ids=encoded["input_ids"],
        attention_mask=encoded["attention_mask"],
        labels=None if tags is None else labels,
        word_starts=starts,
        character_ids=None if characters is None else character_ids,
        cut_words=cut_words,
    )


def _check_sentences(
    sentences: Sequence[Sequence[str]], tags: Sequence[Sequence[int]] | None, place: Callable[[int], str]
) -> None:
    if tags is not None and len(tags) != len(sentences):
        raise ValueError(f"there are {len(sentences)} sentences, but tags of {len(tags)}")
    for row, words in enumerate(sentences):
        if isinstance(words, str):
            raise TypeError(f"{place(row)} is the text {words[:40]!r}, expected a list of words")
        if not len(words):
            raise ValueError(f"{place(row)} has no words")
        if tags is None:
            continue
        if len(tags[row]) != len(words):
            raise ValueError(f"{place(row)} has {len(words)} words, but {len(tags[row])} tags")
        for tag in tags[row]:
            if not isinstance(tag, Integral):
                raise TypeError(f"{place(row)} has the tag {tag!r}, expected ids: a ClassLabel's str2int makes them")


def _with_unknown(
    tokenizer: PreTrainedTokenizerBase, sentences: Sequence[Sequence[str]], place: Callable[[int], str]
) -> list[list[str]]:
    """The sentences, with the unknown token in place of words that give no token."""
    words = [list(sentence) for sentence in sentences]
    encoding = tokenizer(words, is_split_into_words=True)
    for row, sentence in enumerate(words):
        present = set(encoding.word_ids(row))
        for index, word in enumerate(sentence):
            if index in present:
                continue
            if tokenizer.unk_token is None:
                raise ValueError(
                    f"{place(row)}: word {index} ({word!r}) gives no token, and the tokenizer has no unknown token to "
                    "put in its place: drop it"
                )
            sentence[index] = str(tokenizer.unk_token)
    return words


def _first_tokens(words: Sequence[int | None], whole: Sequence[int | None], side: str) -> dict[int, int]:
    """`{token: word}` of the tokens that begin a word, given the word of each token that is left and of all of them."""
    found: dict[int, int] = {}
    seen: set[int] = set()
    for token, word in enumerate(words):
        if word is None or word in seen:
            continue
        seen.add(word)
        # Cut on the left, a word may have lost its beginning: then what is left of it carries no tag.
        if side == "left" and words.count(word) < whole.count(word):
            continue
        found[token] = word
    return found


def align_dataset(
    rows: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    tag_column: str | None,
    token_column: str = "tokens",
    max_length: int | None = None,
    too_long: TooLong = "raise",
    characters: CharacterVocabulary | None = None,
) -> Dataset:
    """`align_tags` for a dataset of sentences, such as the readers give.

    Args:
        rows: sentences, with words in `token_column` and, as a list of `ClassLabel`s or integers, tags in `tag_column`.
        tokenizer, max_length, too_long, characters: see `align_tags`. Words that were cut off are logged as a warning.
        tag_column: None for text that is to be tagged.
        token_column: where the words are.

    Returns:
        The columns of `AlignedTags`, one row a sentence, and `task_ids` if `rows` has them; other columns are left out.

    Raises:
        TypeError, ValueError: as `align_tags`, and for a column that does not exist. A sentence is named by its row,
            and by its line where `rows` has a column `line`.

    Example:
        >>> from datasets import Dataset
        >>> from hf_metalstm import WordTokenizer
        >>> rows = Dataset.from_dict({"tokens": [["Hello", "you"]], "tags": [[0, 1]]})
        >>> align_dataset(rows, WordTokenizer.train_from_iterator(["hello you"]), "tags")["labels"][:]
        [[0, 1]]
    """
    for column in (token_column, tag_column):
        if column is not None and column not in rows.column_names:
            raise ValueError(f"there is no column {column!r}; the columns are {', '.join(rows.column_names)}")
    with_lines = "line" in rows.column_names

    def align(batch: dict[str, list[Any]], indices: list[int]) -> dict[str, list[Any]]:
        def place(row: int) -> str:
            return f"sentence {indices[row]}" + (f" (line {batch['line'][row]})" if with_lines else "")

        tags = None if tag_column is None else batch[tag_column]
        return align_tags(tokenizer, batch[token_column], tags, max_length, too_long, characters, place).columns()

    dropped = [column for column in rows.column_names if column != "task_ids"]
    aligned = rows.map(align, batched=True, with_indices=True, remove_columns=dropped)
    cut = [number for number in aligned["cut_words"] if number]
    if cut:
        logger.warning(
            f"max_length {max_length} cut {sum(cut)} words off {len(cut)} of {len(aligned)} sentences; their tags are "
            "neither learnt nor scored"
        )
    return aligned
