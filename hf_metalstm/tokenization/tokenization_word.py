# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""A word-level tokenizer that learns its vocabulary from a corpus.

All its rules stand in tokenizer.json, so a shared folder tokenizes alike in a process that knows nothing of this class.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers, trainers
from tokenizers.models import WordLevel
from transformers import TokenizersBackend

SPLITS = ("words", "whitespace")

# Penn Treebank's habits, which tokenized corpora and word vectors follow: contractions come apart ("do n't", "it 's"),
# hyphenated words stay whole, runs of dots and doubled quotes are one token.
_WORDS = Regex(r"(?i:\w+?(?=n['’]t\b)|n['’]t\b|['’](?:s|re|ve|ll|d|m)\b)|\w+(?:-\w+)*|\.{2,}|``|''|[^\w\s]")


class WordTokenizer(TokenizersBackend):
    """Splits text into words and maps each to an id; unknown words become `unk_token`.

    Made by `train_from_iterator` or loaded by `from_pretrained`. Offsets refer to the original text, whatever the case.
    A blank text gives one `unk_token`, so that every text has a state to classify; the plain `TokenizersBackend` that
    transformers falls back to where this class is unknown gives no token there, which the models refuse by name.

    Example:
        >>> from hf_metalstm import WordTokenizer
        >>> tokenizer = WordTokenizer.train_from_iterator(["Great cable , useless manual .", "Great manual !"])
        >>> tokenizer.tokenize("A great, great manual")
        ['<unk>', 'great', ',', 'great', 'manual']
    """

    model_input_names = ["input_ids", "attention_mask"]

    @classmethod
    def train_from_iterator(
        cls,
        texts: Iterable[str | list[str]],
        column: str | None = None,
        lowercase: bool = True,
        split: str = "words",
        min_frequency: int = 1,
        max_size: int | None = None,
        pad_token: str = "<pad>",
        unk_token: str = "<unk>",
        bos_token: str = "<s>",
        eos_token: str = "</s>",
        show_progress: bool = False,
        **kwargs: Any,
    ) -> "WordTokenizer":
        """Learns the vocabulary of a corpus, which is read once and never held.

        Args:
            texts: texts, lists of texts, or a `datasets.Dataset` together with `column`.
            column: name of the column with the texts, when `texts` yields rows.
            lowercase: treat "Great" and "great" as one word.
            split: "words" for ordinary text (contractions and punctuation come apart), "whitespace" for text that is
                tokenized already.
            min_frequency: leave out words that occur less often.
            max_size: largest number of ids, special tokens included; the most frequent words stay.
            pad_token, unk_token, bos_token, eos_token: special tokens, ids 0 to 3. None is added to a text by itself.
            show_progress: show a bar.
            kwargs: further settings of the tokenizer, such as `padding_side` or `model_max_length`.

        Returns:
            The tokenizer. Ids follow the special tokens by falling frequency, ties in alphabetical order.

        Raises:
            ValueError: a bad setting, or a corpus without a single word.
        """
        special = [pad_token, unk_token, bos_token, eos_token]
        if split not in SPLITS:
            raise ValueError(f"split is {split!r}; allowed: {', '.join(map(repr, SPLITS))}")
        if min_frequency < 1:
            raise ValueError(f"min_frequency is {min_frequency}, but must be at least 1")
        if max_size is not None and max_size <= len(special):
            raise ValueError(f"max_size is {max_size}, but the special tokens alone are {len(special)}")
        backend = Tokenizer(WordLevel({}, unk_token=unk_token))
        # No Unicode composition: it would cut a combining accent off the offsets of its word.
        if lowercase:
            backend.normalizer = normalizers.Lowercase()
        if split == "words":
            backend.pre_tokenizer = pre_tokenizers.Split(_WORDS, behavior="removed", invert=True)
        else:
            backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        trainer = trainers.WordLevelTrainer(
            vocab_size=max_size or 2**31 - 1,
            min_frequency=min_frequency,
            special_tokens=special,
            show_progress=show_progress,
        )
        backend.train_from_iterator(_texts(texts, column), trainer)
        if backend.get_vocab_size() == len(special):
            raise ValueError(f"the corpus has no word that occurs {min_frequency} times: nothing to learn from")
        return cls(
            tokenizer_object=backend,
            pad_token=pad_token,
            unk_token=unk_token,
            bos_token=bos_token,
            eos_token=eos_token,
            clean_up_tokenization_spaces=False,
            **kwargs,
        )

    def _encode_plus(self, text: Any, text_pair: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not kwargs.get("is_split_into_words", False):
            unk = str(self.unk_token)
            if isinstance(text, str):
                text = text if text.strip() else unk
            elif isinstance(text, (list, tuple)):
                text = [unk if isinstance(one, str) and not one.strip() else one for one in text]
        return super()._encode_plus(text, text_pair, *args, **kwargs)


def _texts(source: Iterable[Any], column: str | None) -> Iterator[str | list[str]]:
    names = getattr(source, "column_names", None)
    if names is not None and column is None:
        raise ValueError(f"column is missing: the data set has columns {', '.join(names)}")
    for item in source:
        yield item if column is None else item[column]


WordTokenizer.register_for_auto_class("AutoTokenizer")
