# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""Features of words from their characters, as taggers use them beside word embeddings.

* `CharacterCNN`: Ma and Hovy 2016, "End-to-end Sequence Labeling via Bi-directional LSTM-CNNs-CRF", section 2.1.
* `CharacterLSTM`: Lample et al. 2016, "Neural Architectures for Named Entity Recognition", section 4.1.

Both turn character ids (batch, words, characters) into features (batch, words, output_size). Padding characters and
padding words never matter; a word without characters has the feature zero.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init

from .checks import check_ids, check_is_tensor
from .padding import RealTokens
from .recurrent import lstm
from .recurrent_types import LSTMWeights

PADDING_ID = 0
UNKNOWN_ID = 1


class CharacterVocabulary:
    """Ids of characters: 0 is padding, 1 is unknown, the others follow.

    Args:
        characters: the known ones, in the order of their ids.
        max_word_length: of a longer word, only the first and the last characters count.

    Raises:
        ValueError: an entry is not one character, occurs twice, or `max_word_length` is below 2.

    Example:
        >>> vocabulary = CharacterVocabulary.train(["cable", "bat"])
        >>> vocabulary.encode("tax"), len(vocabulary)
        ([7, 2, 1], 8)
        >>> CharacterVocabulary(**vocabulary.to_dict()).encode("tax")
        [7, 2, 1]
    """

    def __init__(self, characters: Sequence[str], max_word_length: int = 50):
        if max_word_length < 2:
            raise ValueError(f"max_word_length is {max_word_length}, but must be at least 2")
        for index, character in enumerate(characters):
            if not isinstance(character, str) or len(character) != 1:
                raise ValueError(f"characters[{index}] is {character!r}, expected a single character")
        self.characters = list(characters)
        self.max_word_length = max_word_length
        self._ids = {character: index + UNKNOWN_ID + 1 for index, character in enumerate(characters)}
        if len(self._ids) < len(self.characters):
            (twice, _), *_ = Counter(self.characters).most_common(1)
            raise ValueError(f"characters hold {twice!r} twice")

    @classmethod
    def train(cls, words: Iterable[str], min_frequency: int = 1, max_word_length: int = 50) -> "CharacterVocabulary":
        """Collects the characters of words, the most frequent first; ties in the order of the characters.

        Args:
            words: of the training data.
            min_frequency: characters that occur less often stay unknown.
            max_word_length: see the class.

        Raises:
            TypeError: `words` is a single string.
            ValueError: no character occurs that often.
        """
        if isinstance(words, str):
            raise TypeError("words is one string: give a list or an iterator of words")
        counts = Counter(character for word in words for character in word)
        known = sorted((c for c in counts if counts[c] >= min_frequency), key=lambda c: (-counts[c], c))
        if not known:
            raise ValueError(f"no character occurs {min_frequency} times in the words")
        return cls(known, max_word_length)

    def __len__(self) -> int:
        """Number of ids, with padding and unknown."""
        return len(self.characters) + UNKNOWN_ID + 1

    def encode(self, word: str) -> list[int]:
        """Ids of a word's characters."""
        if len(word) > self.max_word_length:
            ending = self.max_word_length // 2
            word = word[: self.max_word_length - ending] + word[-ending:]
        return [self._ids.get(character, UNKNOWN_ID) for character in word]

    def encode_batch(self, sentences: Sequence[Sequence[str]]) -> Tensor:
        """(sentences, words, characters) int64 ids, padded with 0 on the right.

        Raises:
            ValueError: there is no word.

        Example:
            >>> CharacterVocabulary(["a", "b"]).encode_batch([["ab", "b"], ["a"]]).tolist()
            [[[2, 3], [3, 0]], [[2, 0], [0, 0]]]
        """
        encoded = [[self.encode(word) for word in words] for words in sentences]
        if not any(encoded):
            raise ValueError("empty batch: there is no word to encode")
        longest = max(len(ids) for words in encoded for ids in words)
        batch = torch.full((len(encoded), max(map(len, encoded)), max(longest, 1)), PADDING_ID)
        for row, words in enumerate(encoded):
            for place, ids in enumerate(words):
                batch[row, place, : len(ids)] = torch.tensor(ids, dtype=torch.int64)
        return batch

    def to_dict(self) -> dict[str, Any]:
        """`{"characters": [...], "max_word_length": n}`: what JSON and a config can hold, and the class takes."""
        return {"characters": list(self.characters), "max_word_length": self.max_word_length}


class _CharacterEncoder(nn.Module):
    """Runs `encode_words` on the words that have characters, at the front of their rows."""

    output_size: int

    def __init__(self, vocab_size: int, embedding_size: int, dropout: float):
        super().__init__()
        for value, name in ((vocab_size, "vocab_size"), (embedding_size, "embedding_size")):
            _check_size(value, name)
        # A parameter rather than nn.Embedding, so that the model around it leaves its initialisation alone.
        self.embeddings = nn.Parameter(torch.empty(vocab_size, embedding_size))
        self.dropout = nn.Dropout(dropout)

    def init_weights(self) -> None:
        """Draws the embeddings from U(-sqrt(3 / size), sqrt(3 / size)), as Ma and Hovy do."""
        limit = (3 / self.embeddings.shape[1]) ** 0.5
        init.uniform_(self.embeddings, -limit, limit)

    def forward(self, character_ids: Tensor, character_mask: Tensor | None = None) -> Tensor:
        """Features of words.

        Args:
            character_ids: (batch, words, characters) int64.
            character_mask: the same shape, non-zero for real characters, with padding on either side; None means that
                ids other than 0 are real.

        Returns:
            (batch, words, output_size), zero for words without characters.

        Raises:
            TypeError: ids that are no integers.
            ValueError: an id out of range, or shapes that do not fit.
        """
        check_is_tensor(character_ids, "character_ids")
        if character_ids.ndim != 3:
            raise ValueError(
                f"character_ids have shape {tuple(character_ids.shape)}, expected (batch, words, characters)"
            )
        check_ids(character_ids, self.embeddings.shape[0], "character_ids")
        if character_mask is None:
            character_mask = character_ids != PADDING_ID
        elif character_mask.shape != character_ids.shape:
            raise ValueError(
                f"character_mask has shape {tuple(character_mask.shape)}, but character_ids have "
                f"{tuple(character_ids.shape)}"
            )
        ids, mask = character_ids.flatten(0, 1), character_mask.flatten(0, 1) != 0  # (words of the batch, characters)
        words = mask.any(1).nonzero()[:, 0]
        features = self.embeddings.new_zeros(ids.shape[0], self.output_size)
        if len(words):
            tokens = RealTokens(mask[words])
            lengths = mask[words].sum(1)
            ids = tokens.to_front(ids[words])[:, : int(lengths.max())]
            embedded = self.dropout(F.embedding(ids, self.embeddings))  # (words, characters, embedding_size)
            features = features.index_copy(0, words, self.encode_words(embedded, lengths).to(features.dtype))
        return features.unflatten(0, character_ids.shape[:2])

    def encode_words(self, embedded: Tensor, lengths: Tensor) -> Tensor:
        """(words, characters, embedding_size) and (words,) lengths -> (words, output_size)"""
        raise NotImplementedError


class CharacterCNN(_CharacterEncoder):
    """A convolution over a word's characters, the maximum over their positions, tanh.

    The word is padded with `kernel_size - 1` zeros on both sides, so that prefixes and suffixes are seen as such.

    Args:
        vocab_size: number of character ids, `len(vocabulary)`.
        embedding_size: of a character.
        num_filters: size of the features.
        kernel_size: characters that a filter sees.
        dropout: on the embeddings, as in the paper.

    Example:
        >>> import torch
        >>> from hf_metalstm.modeling.character_features import CharacterCNN, CharacterVocabulary
        >>> vocabulary = CharacterVocabulary.train(["a", "cat", "sat"])
        >>> CharacterCNN(len(vocabulary))(vocabulary.encode_batch([["a", "cat"], ["sat"]])).shape
        torch.Size([2, 2, 30])
    """

    def __init__(
        self,
        vocab_size: int,
        embedding_size: int = 30,
        num_filters: int = 30,
        kernel_size: int = 3,
        dropout: float = 0.5,
    ):
        super().__init__(vocab_size, embedding_size, dropout)
        _check_size(num_filters, "num_filters")
        _check_size(kernel_size, "kernel_size")
        self.output_size = num_filters
        self.filters = nn.Parameter(torch.empty(num_filters, embedding_size, kernel_size))
        self.bias = nn.Parameter(torch.empty(num_filters))
        self.init_weights()

    def init_weights(self) -> None:
        """Filters from Glorot's uniform distribution, bias zero."""
        super().init_weights()
        init.xavier_uniform_(self.filters)
        init.zeros_(self.bias)

    def encode_words(self, embedded: Tensor, lengths: Tensor) -> Tensor:
        kernel_size = self.filters.shape[2]
        places = torch.arange(embedded.shape[1] + kernel_size - 1, device=embedded.device)
        known = embedded.masked_fill((places[: embedded.shape[1]] >= lengths[:, None])[..., None], 0)
        found = F.conv1d(known.transpose(1, 2), self.filters, self.bias, padding=kernel_size - 1)
        # (words, filters, places); those that see no character of the word say nothing about it.
        beyond = places >= lengths[:, None] + kernel_size - 1
        return found.masked_fill(beyond[:, None], -torch.inf).amax(2).tanh()


class CharacterLSTM(_CharacterEncoder):
    """A bidirectional LSTM over a word's characters: the last state of each direction.

    Args:
        vocab_size: number of character ids, `len(vocabulary)`.
        embedding_size: of a character.
        hidden_size: of each direction; the features have twice that size.
        dropout: on the embeddings.

    Example:
        >>> import torch
        >>> from hf_metalstm.modeling.character_features import CharacterLSTM
        >>> CharacterLSTM(vocab_size=80)(torch.tensor([[[5, 7, 0], [9, 0, 0]]])).shape
        torch.Size([1, 2, 50])
    """

    def __init__(self, vocab_size: int, embedding_size: int = 25, hidden_size: int = 25, dropout: float = 0.0):
        super().__init__(vocab_size, embedding_size, dropout)
        _check_size(hidden_size, "hidden_size")
        self.output_size = 2 * hidden_size
        # The two directions side by side.
        self.input_weights = nn.Parameter(torch.empty(2, 4 * hidden_size, embedding_size))
        self.hidden_weights = nn.Parameter(torch.empty(2, 4 * hidden_size, hidden_size))
        self.biases = nn.Parameter(torch.empty(2, 4 * hidden_size))
        self.init_weights()

    def init_weights(self) -> None:
        """Uniform in +-1/sqrt(hidden_size), forget gates open."""
        super().init_weights()
        h = self.hidden_weights.shape[2]
        init.uniform_(self.input_weights, -(h**-0.5), h**-0.5)
        init.uniform_(self.hidden_weights, -(h**-0.5), h**-0.5)
        init.copy_(self.biases, torch.arange(4).eq(1).repeat_interleave(h).expand(2, -1).to(self.biases))

    def encode_words(self, embedded: Tensor, lengths: Tensor) -> Tensor:
        states = []
        for direction in range(2):
            weights = LSTMWeights(self.input_weights[direction], self.hidden_weights[direction], self.biases[direction])
            _, state = lstm(embedded, weights, lengths, reverse=bool(direction))
            states.append(state.hidden)
        return torch.cat(states, dim=1)


CHARACTER_ENCODERS = {"cnn": CharacterCNN, "lstm": CharacterLSTM}


def _check_size(value: int, name: str) -> None:
    if value < 1:
        raise ValueError(f"{name} is {value}, but must be at least 1")
