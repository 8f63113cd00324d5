# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""A word-level tokenizer that learns its vocabulary from a corpus.

All its rules stand in tokenizer.json, so a shared folder tokenizes alike in a process that knows nothing of this class.
"""

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers, trainers
from tokenizers.models import WordLevel
from transformers import BatchEncoding, TokenizersBackend

SPLITS = ("words", "whitespace")

# The habits of the Penn Treebank, which tokenized corpora and public word vectors follow. The first that fits is taken.
# Repeats are possessive (++, *+) so that no text, however odd, makes the engine try again and again, up to its limit.
# Letters are found by \w alone, wherever possible: a character class in its place takes twice the time.
_WORDS = "|".join(
    [
        "(?i:(?:https?://|www\\.)\\w++(?:[^\\s\\w\\p{Cc}\u200b]++\\w++)*+/?",  # addresses, without the full stop behind
        r"(?>(?:\p{L}\.){2,})",  # u.s., e.g.
        r"\d++(?:[.,:/]\d++)++",  # 2.25, 1,000, 9:30, 1/2
        r"-[lr][rcs]b-",  # -LRB-: a bracket in a treebank
        r"(?=\w++'t\b)\w+?(?=n't\b)",  # do|n't
        r"n't\b",
        r"'(?:s|re|ve|ll|d|m)\b",  # it|'s
        r"[:;=]['-]?[()\[\]|/\\dp](?!\w))",  # :-)
        "\\w++(?:[-\u200c\u200d]\\w++)*+",  # well-known; joiners are part of Persian and Indic words
        r"\.{2,}|-{2,}|``|''",
        "[🇦-🇿]{2}",  # a flag; \X would count all the letters of flags before it
        "(?=[^\\s\\p{Cc}\u200b])\\X",  # one symbol, with what Unicode attaches to it
    ]
)
_CHUNKS = "[^\\s\\p{Cc}\u200b]+"
# Soft hyphens, byte order marks and marks of direction do not show, and would make two words of one.
_INVISIBLE = "[\u00ad\u061c\u180e\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff]"


class WordTokenizer(TokenizersBackend):
    """Splits text into words and maps each to an id; unknown words become `unk_token`.

    Made by `train_from_iterator` or loaded by `from_pretrained`. Text is brought to Unicode's composed form (NFC),
    invisible characters are dropped and, by default, letters lower-cased. Then it is split, either as ordinary text:
    contractions and punctuation come apart as in the Penn Treebank ("do n't", "it 's"), hyphenated words, numbers,
    abbreviations such as "u.s.", smileys and addresses stay whole; or at white space and control characters alone, for
    text that is tokenized already. Languages written without spaces need the latter and a segmenter of their own.

    Offsets refer to the original text. Decoding gives the words, separated by blanks.

    A text without a word ("", blanks) gives one `unk_token`, so that every text has a state to classify, and so does an
    empty word of a list (`is_split_into_words=True`), so that every word has a token; their offsets are (0, 0).

    A saved folder carries this class for `AutoTokenizer.from_pretrained(folder, trust_remote_code=True)`. Where it
    shall not run, `transformers.TokenizersBackend.from_pretrained(folder)` gives the same ids, with two differences:
    a text without a word gives no token at all, which the models refuse by name, and an accent that stands as a
    character of its own at the end of a word lies outside of the word's offsets.

    Example:
        >>> from hf_metalstm import WordTokenizer
        >>> tokenizer = WordTokenizer.train_from_iterator(["Great cable, useless manual.", "Don't buy the manual!"])
        >>> tokenizer.tokenize("A great cable, don't you think?")
        ['<unk>', 'great', 'cable', ',', 'do', "n't", '<unk>', '<unk>', '<unk>']
    """

    model_input_names = ["input_ids", "attention_mask"]

    @classmethod
    def train_from_iterator(
        cls,
        texts: Iterable[str | Sequence[str] | Mapping[str, str]],
        column: str | None = None,
        *,
        lowercase: bool = True,
        split: str = "words",
        min_frequency: int = 1,
        max_size: int | None = None,
        pad_token: str = "<pad>",
        unk_token: str = "<unk>",
        bos_token: str | None = "<s>",
        eos_token: str | None = "</s>",
        extra_special_tokens: Sequence[str] = (),
        padding_side: str = "right",
        truncation_side: str = "right",
        model_max_length: int | None = None,
        show_progress: bool = False,
    ) -> "WordTokenizer":
        """Learns the vocabulary of a corpus, which is read once; only its different words are held in memory.

        Args:
            texts: texts, lists of texts, or a `datasets.Dataset` or `IterableDataset` together with `column`.
            column: name of the column with the texts, when `texts` yields rows.
            lowercase: treat "Great" and "great" as one word.
            split: "words" for ordinary text, "whitespace" for text that is tokenized already.
            min_frequency: leave out words that occur less often.
            max_size: largest number of ids, special tokens included; the most frequent words stay.
            pad_token, unk_token, bos_token, eos_token: special tokens, ids 0 to 3. None is added to a text by itself.
                The last two may be None.
            extra_special_tokens: further ones, with the next ids.
            padding_side, truncation_side: "right" or "left".
            model_max_length: longest text in tokens when truncation is asked for without `max_length`.
            show_progress: show a bar.

        Returns:
            The tokenizer. Ids are 0..n-1: special tokens, then words by falling frequency, ties in the order of their
            characters. The same corpus in any order gives the same ids.

        Raises:
            TypeError: something in the corpus is not a text.
            ValueError: a bad setting, or a corpus without a single word.
        """
        special = [token for token in (pad_token, unk_token, bos_token, eos_token) if token is not None]
        special += extra_special_tokens
        _check_settings(split, min_frequency, max_size, special)
        backend = _untrained(lowercase, split, unk_token)
        # Special tokens are put in front afterwards: the trainer would give one that the corpus holds a second id.
        trainer = trainers.WordLevelTrainer(
            vocab_size=2**31 - 1 if max_size is None else max_size,
            min_frequency=min_frequency,
            show_progress=show_progress,
        )
        backend.train_from_iterator(_texts(texts, column), trainer)
        learned = backend.get_vocab()
        words = [word for word in sorted(learned, key=learned.__getitem__) if word not in special]
        if not words:
            raise ValueError(f"the corpus has no word that occurs {min_frequency} times: nothing to learn from")
        tokens = (special + words)[:max_size]
        backend.model = WordLevel({token: index for index, token in enumerate(tokens)}, unk_token=unk_token)
        return cls(
            tokenizer_object=backend,
            pad_token=pad_token,
            unk_token=unk_token,
            bos_token=bos_token,
            eos_token=eos_token,
            extra_special_tokens=list(extra_special_tokens),
            padding_side=padding_side,
            truncation_side=truncation_side,
            model_max_length=model_max_length,
            clean_up_tokenization_spaces=False,
        )

    def _encode_plus(self, text: Any, text_pair: Any = None, *args: Any, **kwargs: Any) -> BatchEncoding:
        split = kwargs.get("is_split_into_words", False)
        if isinstance(text, (list, tuple)) and not text and not split:
            empty: dict[str, list[Any]] = {name: [] for name in self.model_input_names}
            return BatchEncoding(empty, tensor_type=kwargs.get("return_tensors"))
        encoded = super()._encode_plus(self._fill_blanks(text, split), text_pair, *args, **kwargs)
        if kwargs.get("return_offsets_mapping"):
            self._mend_offsets(encoded, _pairs(text, text_pair, split), split)
        return encoded

    def _fill_blanks(self, text: Any, split: bool) -> Any:
        """Puts `unk_token` in place of texts, or words of lists, that would give no token."""
        if isinstance(text, str):
            return str(self.unk_token) if self._is_blank(text) else text
        if split and not text:
            return [str(self.unk_token)]
        if isinstance(text, (list, tuple)):
            # What is no string is a list of words of a batch, or else a pair of texts, which is left alone.
            return [self._fill_blanks(one, split) if split or isinstance(one, str) else one for one in text]
        return text

    def _is_blank(self, text: str) -> bool:
        # A letter or digit always makes a token; only what is left, and rare, is worth asking the backend.
        if any(map(str.isalnum, text)):
            return False
        return not any(self.backend_tokenizer.encode(text, add_special_tokens=False).attention_mask)

    def _mend_offsets(self, encoded: BatchEncoding, pairs: list[tuple[Any, Any]], split: bool) -> None:
        """Corrects the offsets of filled-in words, and of accents that NFC merged into the letter before them.

        The backend gives a merged letter the place of its first character alone.
        """
        rows = encoded["offset_mapping"]
        if len(rows) and isinstance(rows[0], tuple):
            rows = [rows]
        samples = encoded.get("overflow_to_sample_mapping", range(len(rows)))
        for row, encoding, sample in zip(rows, encoded.encodings or (), samples, strict=True):
            if not any(map(self._needs_mending, _strings(pairs[sample]))):
                continue
            places = list(zip(encoding.sequence_ids, encoding.word_ids, encoding.offsets, strict=True))
            for index, (sequence, word, (start, end)) in enumerate(places):
                if sequence is None:
                    continue
                source = pairs[sample][sequence]
                if split:
                    source = source[word] if source else ""
                if self._is_blank(source):
                    end = 0
                else:
                    ahead = places[index + 1] if index + 1 < len(places) else (None, None, (0, 0))
                    same = ahead[0] == sequence and (not split or ahead[1] == word)
                    end = _over_marks(source, end, ahead[2][0] if same else len(source))
                if isinstance(row, list):
                    row[index] = (start, end)
                else:
                    row[index][1] = end

    def _needs_mending(self, text: str) -> bool:
        return not unicodedata.is_normalized("NFC", text) or self._is_blank(text)


def _check_settings(split: str, min_frequency: int, max_size: int | None, special: list[str]) -> None:
    if split not in SPLITS:
        raise ValueError(f"split is {split!r}; allowed: {', '.join(map(repr, SPLITS))}")
    if min_frequency < 1:
        raise ValueError(f"min_frequency is {min_frequency}, but must be at least 1")
    if max_size is not None and max_size <= len(special):
        raise ValueError(f"max_size is {max_size}, but the special tokens alone are {len(special)}")
    twice = [token for index, token in enumerate(special) if token in special[:index]]
    if twice:
        raise ValueError(f"the special token {twice[0]!r} is given twice; each needs a spelling of its own")


def _untrained(lowercase: bool, split: str, unk_token: str) -> Tokenizer:
    """All rules, no words."""
    backend = Tokenizer(WordLevel({}, unk_token=unk_token))
    steps = [normalizers.Replace(Regex(_INVISIBLE), ""), normalizers.NFC()]
    if split == "words":
        steps.insert(1, normalizers.Replace(Regex("[‘’]"), "'"))
    if lowercase:
        steps.append(normalizers.Lowercase())
    backend.normalizer = normalizers.Sequence(steps)
    pattern = _WORDS if split == "words" else _CHUNKS
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), behavior="removed", invert=True)
    return backend


def _texts(source: Any, column: str | None) -> Iterator[str | list[str]]:
    """The texts of a corpus, one or many at a time, after a look at what they are."""
    if isinstance(source, str):
        raise TypeError("texts is one string: give a list or an iterator of texts, e.g. open(path)")
    if isinstance(source, Mapping):
        raise TypeError(f"texts is a mapping with {', '.join(map(str, source))}: choose one of them")
    names = getattr(source, "column_names", None)
    if names is not None and column not in names:
        wrong = "column is missing" if column is None else f"there is no column {column!r}"
        raise ValueError(f"{wrong}: the data set has {', '.join(names)}")
    if column is not None and hasattr(source, "select_columns"):
        # A data set hands out many rows of one column far faster than row by row.
        rows: Iterable[Any] = (batch[column] for batch in source.select_columns([column]).iter(batch_size=1000))
    elif column is not None:
        rows = (row[column] for row in source)
    else:
        rows = source
    for number, item in enumerate(rows):
        batch = item if isinstance(item, (list, tuple)) else [item]
        for text in batch:
            if not isinstance(text, str):
                hint = ": name the column with the texts by column=" if isinstance(text, Mapping) else ""
                raise TypeError(f"item {number} of texts holds {text!r:.60} ({type(text).__name__}), not a text{hint}")
        yield list(batch)


def _pairs(text: Any, text_pair: Any, split: bool) -> list[tuple[Any, Any]]:
    """Text and second text (or the words of both) of each example, whichever way they were given."""
    if isinstance(text, str) or (split and not (text and isinstance(text[0], (list, tuple)))):
        return [(text, text_pair)]
    if text_pair is not None:
        return list(zip(text, text_pair, strict=True))
    return [(one, None) if _is_single(one, split) else (one[0], one[1]) for one in text]


def _is_single(example: Any, split: bool) -> bool:
    return not (example and isinstance(example[0], (list, tuple))) if split else isinstance(example, str)


def _strings(nested: Any) -> Iterator[str]:
    if isinstance(nested, str):
        yield nested
    elif nested is not None:
        for one in nested:
            yield from _strings(one)
    if nested == []:
        yield ""  # a text of no words: one was filled in


def _over_marks(text: str, end: int, limit: int) -> int:
    """The end of a word, moved behind the accents (and vowels and finals of Hangul) that follow it."""
    while end < limit and (unicodedata.category(text[end]).startswith("M") or "\u1160" <= text[end] <= "\u11ff"):
        end += 1
    return end


# Saving writes this file beside tokenizer.json, also from a copy that was itself loaded from such a folder.
WordTokenizer.register_for_auto_class("AutoTokenizer")
