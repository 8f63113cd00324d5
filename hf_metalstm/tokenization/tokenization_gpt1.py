# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""The tokenizer of GPT-1 (Radford et al. 2018), with the inputs that its tasks need.

Text is repaired, split into words and lower-cased as in `gpt1_text_rules`, then each word is split by byte-pair
encoding (BPE), where the last piece of a word ends in `</w>`. All rules stand in tokenizer.json, so a shared
folder tokenizes alike in a process that knows nothing of this class.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from tokenizers import Regex, Tokenizer, decoders, processors, trainers
from tokenizers.models import BPE
from torch import Tensor
from transformers import BatchEncoding, PreTrainedModel, TokenizersBackend

from .gpt1_text_rules import FRAME, authors_splitter, text_normalizer, word_splitter

TEXT_RULES = ("tokenizers", "authors")
TASKS = ("language-modeling", "classification")
_POSITIONS = 512
_WORD_END = "</w>"


class GPT1Tokenizer(TokenizersBackend):
    """GPT-1's byte-pair encoding with start, delimiter and extract tokens, and builders of each task's input.

    Made by `from_bpe_files` from the authors' files, by `train_from_iterator` from a corpus, or by `from_pretrained`.
    After the tokens of the vocabulary come, as in the authors' code, `_start_`, `_delimiter_` and `_classify_`, known
    to transformers as `bos_token`, `sep_token` and `cls_token`, then a `pad_token` of its own.

    `tokenizer(text)` gives the text alone, for language modelling; a pair gives `start text delimiter pair extract`.
    After `set_task("classification")` a single text gives `start text extract`, also where the saved folder is loaded
    without this class.

    `text_rules` is "tokenizers" (rules of tokenizer.json, with offsets) or "authors" (ftfy and spaCy, exactly as in the
    paper's code, without offsets, needs both libraries). They agree on more than 99 % of the tokens of English text.

    Example:
        >>> from hf_metalstm import GPT1Tokenizer
        >>> tokenizer = GPT1Tokenizer.train_from_iterator(["the cat can't sleep"] * 2)
        >>> tokenizer.tokenize("The cat can't sleep")
        ['the</w>', 'cat</w>', 'ca</w>', "n't</w>", 'sleep</w>']
        >>> choices = tokenizer.build_multiple_choice("the cat", ["can't sleep", "sleep"])
        >>> [tokenizer.decode(row) for row in choices["input_ids"]]
        ["_start_ the cat _delimiter_ can't sleep _classify_", '_start_ the cat _delimiter_ sleep _classify_']
        >>> choices["mc_token_ids"]
        [7, 5]
    """

    model_input_names = ["input_ids", "attention_mask"]

    @classmethod
    def from_bpe_files(
        cls, encoder_file: str | Path, merges_file: str | Path, *, text_rules: str = "tokenizers", **settings: Any
    ) -> "GPT1Tokenizer":
        """Builds the tokenizer from `encoder_bpe_40000.json` and `vocab_40000.bpe`, or files of the same form.

        Args:
            encoder_file: JSON object `{token: id}`.
            merges_file: a line of version, then two pieces a line, the most frequent pair first.
            text_rules: "tokenizers" or "authors".
            settings: of the tokenizer: special tokens by name, `padding_side`, `truncation_side`, `model_max_length`.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: a file is not of this form; the message has its line where there is one.
        """
        vocab = _read_encoder(Path(encoder_file))
        return cls._assemble(vocab, _read_merges(Path(merges_file), vocab), text_rules, settings)

    @classmethod
    def train_from_iterator(
        cls,
        texts: Iterable[str | Sequence[str]],
        vocab_size: int = 40478,
        *,
        min_frequency: int = 2,
        text_rules: str = "tokenizers",
        show_progress: bool = False,
        **settings: Any,
    ) -> "GPT1Tokenizer":
        """Learns the pieces of words from a corpus, which is held in memory. The same corpus gives the same ids.

        Args:
            texts: texts or lists of texts.
            vocab_size: at most so many tokens, the unknown token included, special tokens not.
            min_frequency: pairs that occur less often are not merged.
            text_rules: "tokenizers" or "authors", also used for reading the corpus.
            show_progress: show a bar.
            settings: as in `from_bpe_files`.

        Raises:
            TypeError: something in the corpus is not a text.
            ValueError: a bad setting, or a corpus without a word.
        """
        if vocab_size < 2:
            raise ValueError(f"vocab_size is {vocab_size}, but must be at least 2: the unknown token and one piece")
        unk = str(settings.get("unk_token", "<unk>"))
        backend = _untrained({unk: 0}, [], unk)
        split = authors_splitter() if _checked_rules(text_rules) == "authors" else None
        corpus = [_framed(text, split) for text in _texts(texts)]
        # The trainer numbers the ends of words at random, and ties between pairs follow the numbers: given as special
        # tokens, they have fixed ones.
        endings = {piece for text in corpus for piece in _word_ends(backend, text)}
        if not endings:
            raise ValueError("the corpus has no word: nothing to learn from")
        if vocab_size < 1 + len(endings):
            raise ValueError(f"vocab_size is {vocab_size}, but the ends of words alone are {len(endings)} pieces")
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            min_frequency=min_frequency,
            special_tokens=[unk, *sorted(endings - {unk})],
            end_of_word_suffix=_WORD_END,
            show_progress=show_progress,
        )
        backend.train_from_iterator(corpus, trainer)
        state = json.loads(backend.to_str())["model"]
        return cls._assemble(state["vocab"], [tuple(pair) for pair in state["merges"]], text_rules, settings)

    @classmethod
    def _assemble(
        cls, vocab: Mapping[str, int], merges: list[tuple[str, str]], text_rules: str, settings: dict[str, Any]
    ) -> "GPT1Tokenizer":
        names = {
            "unk_token": "<unk>",
            "bos_token": "_start_",
            "sep_token": "_delimiter_",
            "cls_token": "_classify_",
            "pad_token": "<pad>",
        }
        special = {name: settings.pop(name, default) for name, default in names.items()}
        if len(set(special.values())) < len(special):
            raise ValueError(f"special tokens need spellings of their own, but they are {', '.join(special.values())}")
        if special["unk_token"] not in vocab:
            raise ValueError(f"the vocabulary has no {special['unk_token']!r}: name its unknown token by unk_token=")
        if _checked_rules(text_rules) == "authors":
            authors_splitter()  # that it is installed shows now, not at the first text
        backend = _untrained(dict(vocab), merges, special["unk_token"])
        backend.decoder = _decoder([str(token) for token in special.values()])
        # Before the base class adds what is missing, in the order of its own.
        backend.add_special_tokens([special[name] for name in names])
        tokenizer = cls(
            tokenizer_object=backend,
            **special,
            model_max_length=settings.pop("model_max_length", _POSITIONS),
            clean_up_tokenization_spaces=False,
            text_rules=text_rules,
            **settings,
        )
        tokenizer.set_task("language-modeling")
        return tokenizer

    @property
    def text_rules(self) -> str:
        """Which form of the text rules is used: "tokenizers" or "authors"."""
        return _checked_rules(self.init_kwargs.get("text_rules", "tokenizers"))

    def set_task(self, task: str) -> None:
        """Chooses what a single text becomes: itself ("language-modeling") or `start text extract` ("classification").

        The choice is saved with the tokenizer. Pairs become `start text delimiter pair extract` in any case.
        """
        if task not in TASKS:
            raise ValueError(f"task is {task!r}; allowed: {', '.join(map(repr, TASKS))}")
        start, delimiter, extract = (self._special(name) for name in ("bos_token", "sep_token", "cls_token"))
        self.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single="$A" if task == "language-modeling" else f"{start} $A {extract}",
            pair=f"{start} $A {delimiter} $B:0 {extract}",
            special_tokens=[(token, self.convert_tokens_to_ids(token)) for token in (start, delimiter, extract)],
        )

    def add_task_tokens(self, model: PreTrainedModel) -> int:
        """Gives a model a row for every token, and its config the size and the ids of the special tokens.

        The rows that were there stay as they are; new ones are drawn from N(0, 0.02) (Radford et al. 2018). A tied
        output layer stays tied.

        Returns:
            How many rows are new.

        Raises:
            ValueError: the model has more rows than the tokenizer has tokens, so they do not belong together.
        """
        rows = cast(Tensor, model.get_input_embeddings().weight).shape[0]
        if rows > len(self):
            raise ValueError(
                f"the model has {rows} token embeddings, the tokenizer {len(self)} tokens: they do not belong together"
            )
        if rows < len(self):
            model.resize_token_embeddings(len(self), mean_resizing=False)
            layers = [model.get_input_embeddings(), model.get_output_embeddings()]
            # The output layer is another matrix only where the two are not tied.
            for weight in {id(layer.weight): layer.weight for layer in layers if layer is not None}.values():
                with torch.no_grad():
                    weight[rows:].normal_(std=0.02)
        configs: list[Any] = [model.config, getattr(model, "generation_config", None)]
        for config in filter(None, configs):
            config.pad_token_id, config.bos_token_id = self.pad_token_id, self.bos_token_id
        return len(self) - rows

    def build_classification(self, text: str, max_length: int | None = None) -> dict[str, list[int]]:
        """`start text extract`.

        Args:
            text: what is classified.
            max_length: tokens at most, special ones included; None means `model_max_length`. The text is cut.

        Returns:
            `input_ids` and `attention_mask`.

        Raises:
            TypeError: text is no string.
            ValueError: it has no token, or `max_length` leaves no room for one.
        """
        ids = self._cut(self._ids(text, "text"), self._room(max_length, 2), "text")
        return _with_mask([self._special_id("bos_token"), *ids, self._special_id("cls_token")])

    def build_entailment(self, premise: str, hypothesis: str, max_length: int | None = None) -> dict[str, list[int]]:
        """`start premise delimiter hypothesis extract`; the premise is cut first. See `build_classification`."""
        first, second = self._ids(premise, "premise"), self._ids(hypothesis, "hypothesis")
        room = self._room(max_length, 3)
        second = self._cut(second, room - 1, "hypothesis")
        return _with_mask(self._joined(self._cut(first, room - len(second), "premise"), second))

    def build_similarity(self, first: str, second: str, max_length: int | None = None) -> dict[str, list[Any]]:
        """Both orders, `start first delimiter second extract` and `start second delimiter first extract`.

        Both texts are cut alike, the longer one first, so that the order makes no difference.

        Returns:
            `input_ids` and `attention_mask`, each with two rows.
        """
        ids = [self._ids(first, "first"), self._ids(second, "second")]
        room = self._room(max_length, 3)
        shorter = min(len(ids[0]), len(ids[1]))
        # What the shorter text leaves of its half goes to the longer one.
        limit = max(room // 2, room - shorter)
        one, two = (self._cut(part, limit, "text") for part in ids)
        rows = [_with_mask(self._joined(*pair)) for pair in ((one, two), (two, one))]
        return {name: [row[name] for row in rows] for name in rows[0]}

    def build_multiple_choice(
        self, context: str, answers: Sequence[str], max_length: int | None = None
    ) -> dict[str, list[Any]]:
        """`start context delimiter answer extract` for each answer.

        The context is cut to what the longest answer leaves, for all answers alike, so that they are compared on the
        same words; an answer is cut only where it would leave no token of the context.

        Args:
            context: a story, or a passage and a question.
            answers: two or more.
            max_length: tokens of a row at most; None means `model_max_length`.

        Returns:
            `input_ids` and `attention_mask`, a row for each answer, and `mc_token_ids`, the places of the
            extract tokens.

        Raises:
            TypeError: something is no string.
            ValueError: fewer than two answers, a text without a token, or no room.
        """
        if isinstance(answers, str) or len(answers) < 2:
            raise ValueError(f"answers is {answers!r:.80}, expected a list of two answers or more")
        room = self._room(max_length, 3)
        parts = [self._cut(self._ids(text, f"answers[{i}]"), room - 1, "answer") for i, text in enumerate(answers)]
        ids = self._cut(self._ids(context, "context"), room - max(map(len, parts)), "context")
        rows = [_with_mask(self._joined(ids, part)) for part in parts]
        built: dict[str, list[Any]] = {name: [row[name] for row in rows] for name in rows[0]}
        built["mc_token_ids"] = [len(row["input_ids"]) - 1 for row in rows]
        return built

    def _joined(self, first: list[int], second: list[int]) -> list[int]:
        start, delimiter, extract = (self._special_id(name) for name in ("bos_token", "sep_token", "cls_token"))
        return [start, *first, delimiter, *second, extract]

    def _ids(self, text: Any, name: str) -> list[int]:
        if not isinstance(text, str):
            raise TypeError(f"{name} is {text!r:.60} ({type(text).__name__}), expected a text")
        ids = self(text, add_special_tokens=False, truncation=False, verbose=False).input_ids
        if not ids:
            raise ValueError(f"{name} is empty after tokenization: {text!r:.60}")
        return list(ids)

    def _room(self, max_length: int | None, special: int) -> int:
        limit = self.model_max_length if max_length is None else max_length
        # One token of each text: of the one of a classification, or of the two of the other tasks.
        least = special + special - 1
        if limit < least:
            raise ValueError(
                f"max_length is {limit}, but {special} special tokens and a token of each text need {least}"
            )
        return limit - special

    def _cut(self, ids: list[int], room: int, name: str) -> list[int]:
        if room >= len(ids):
            return ids
        return ids[-room:] if self.truncation_side == "left" else ids[:room]

    def _special(self, name: str) -> str:
        token = getattr(self, name)
        if token is None:
            raise ValueError(f"the tokenizer has no {name}, which this input needs: make it by from_bpe_files")
        return str(token)

    def _special_id(self, name: str) -> int:
        return cast(int, self.convert_tokens_to_ids(self._special(name)))

    def _encode_plus(self, text: Any, text_pair: Any = None, *args: Any, **kwargs: Any) -> BatchEncoding:
        if self.text_rules == "authors" and not kwargs.get("is_split_into_words", False):
            if kwargs.get("return_offsets_mapping"):
                raise ValueError(
                    "text_rules='authors' rewrites the text before it is split, so there are no offsets: load the "
                    "tokenizer with text_rules='tokenizers'"
                )
            text, text_pair = self._split_as_authors(text), self._split_as_authors(text_pair)
        return super()._encode_plus(text, text_pair, *args, **kwargs)

    def _split_as_authors(self, text: Any) -> Any:
        if text is None:
            return None
        if not isinstance(text, str):
            return type(text)(self._split_as_authors(one) for one in text)
        if not hasattr(self, "_splitter"):
            self._splitter = authors_splitter()
        special = sorted(map(str, self.all_special_tokens), key=len, reverse=True)
        parts = re.split(f"({'|'.join(map(re.escape, special))})", text)
        return "".join(part if part in special else _framed(part, self._splitter) for part in parts)

    def __getstate__(self) -> dict[str, Any]:
        # spaCy's language is large, and made again when it is needed.
        return {name: value for name, value in self.__dict__.items() if name != "_splitter"}


def _checked_rules(text_rules: str) -> str:
    if text_rules not in TEXT_RULES:
        raise ValueError(f"text_rules is {text_rules!r}; allowed: {', '.join(map(repr, TEXT_RULES))}")
    return text_rules


def _untrained(vocab: dict[str, int], merges: list[tuple[str, str]], unk_token: str) -> Tokenizer:
    backend = Tokenizer(BPE(vocab, merges, unk_token=unk_token, end_of_word_suffix=_WORD_END))
    backend.normalizer, backend.pre_tokenizer = text_normalizer(), word_splitter()
    return backend


def _decoder(special: list[str]) -> decoders.Decoder:
    """Words with blanks in between, except where English has none."""
    return decoders.Sequence(
        [
            *(decoders.Replace(Regex(f"^{re.escape(token)}$"), f"{token} ") for token in special),
            decoders.Replace(_WORD_END, " "),
            decoders.Fuse(),
            decoders.Replace(Regex(r" ?\n ?"), "\n"),
            decoders.Replace(Regex(r" (?=(?:n't|'(?:s|re|ve|ll|d|m)|[.,!?;:%)\]}]+|\.{2,})(?:\s|[.,!?;:]|$))"), ""),
            decoders.Replace(Regex(r"(?<=[(\[{$]) "), ""),
            decoders.Strip(" ", 0, 1),
        ]
    )


def _framed(text: str, split: Any) -> str:
    """The words of a text between frames, which `word_splitter` takes as they are; without `split` the text itself."""
    if split is None:
        return text
    words = split(text.replace(FRAME, " "))
    return f"{FRAME}{FRAME.join(words)}{FRAME}" if words else ""


def _word_ends(backend: Tokenizer, text: str) -> set[str]:
    """The last characters of the words of a text, as pieces."""
    assert backend.normalizer is not None and backend.pre_tokenizer is not None
    words = backend.pre_tokenizer.pre_tokenize_str(backend.normalizer.normalize_str(text))
    return {word[-1] + _WORD_END for word, _ in words}


def _with_mask(ids: list[int]) -> dict[str, list[int]]:
    return {"input_ids": ids, "attention_mask": [1] * len(ids)}


def _texts(source: Any) -> Iterable[str]:
    if isinstance(source, (str, Mapping)):
        raise TypeError(f"texts is one {type(source).__name__}: give a list or an iterator of texts, e.g. open(path)")
    for number, item in enumerate(source):
        for text in item if isinstance(item, (list, tuple)) else [item]:
            if not isinstance(text, str):
                raise TypeError(f"item {number} of texts holds {text!r:.60} ({type(text).__name__}), not a text")
            yield text


def _read_encoder(path: Path) -> dict[str, int]:
    try:
        vocab = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(vocab, dict) or sorted(map(str, vocab.values())) != sorted(map(str, range(len(vocab)))):
        raise ValueError(f"{path} must hold one object {{token: id}} whose ids are 0..n-1, each once")
    return vocab


def _read_merges(path: Path, vocab: Mapping[str, int]) -> list[tuple[str, str]]:
    merges = []
    # By "\n" alone: a piece may hold other characters that count as line ends.
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        if not line or (number == 1 and line.startswith("#version")):
            continue
        pieces = line.split(" ")
        if len(pieces) != 2:
            raise ValueError(f"{path}, line {number}: expected two pieces with a blank between them, found {line!r}")
        for piece in (*pieces, "".join(pieces)):
            if piece not in vocab:
                raise ValueError(f"{path}, line {number}: {piece!r} is not in the vocabulary; are the files a pair?")
        merges.append((pieces[0], pieces[1]))
    return merges


# Saving writes this file beside tokenizer.json, also from a copy that was itself loaded from such a folder.
GPT1Tokenizer.register_for_auto_class("AutoTokenizer")
