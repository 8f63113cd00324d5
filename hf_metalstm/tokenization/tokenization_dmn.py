# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""The tokenizer of Dynamic Memory Networks: stories of facts, questions about them, and answers.

Words are those of `WordTokenizer`, whose rules stand in tokenizer.json. Each element of an answer is one token,
whatever characters it holds, so that "milk,football" can be one class; the end-of-text token ends every answer.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tokenizers.models import WordLevel

from .sentences import split_sentences
from .tokenization_word import WordTokenizer

UNKNOWN_WORDS = ("warn", "refuse", "allow")
_MOST_WORDS_SHOWN = 50
_TEXTS_AT_ONCE = 10_000


class DMNTokenizer(WordTokenizer):
    """Maps the words of facts, questions and answers to ids.

    Made by `train_from_dataset` (or `train_from_iterator`, from texts alone) or loaded by `from_pretrained`. Calling it
    on a text does what `WordTokenizer` does; `encode_stories` takes whole stories.

    Example:
        >>> from hf_metalstm import DMNTokenizer
        >>> from hf_metalstm.data.babi_generator import generate_babi
        >>> data = generate_babi(tasks=[1], train_size=50, validation_size=0, test_size=0)
        >>> tokenizer = DMNTokenizer.train_from_dataset(data)
        >>> story = {"context": "Ada ran to the attic. Otto ran to the market.", "question": "Where is Ada?"}
        >>> encoded = tokenizer.encode_stories([story])[0]
        >>> [tokenizer.decode(ids) for ids in [*encoded["input_ids"], encoded["question_ids"]]]
        ['ada ran to the attic .', 'otto ran to the market .', 'where is ada ?']
        >>> tokenizer.decode_answers([tokenizer.encode_answer(["attic"])])
        [['attic']]
    """

    @classmethod
    def train_from_dataset(
        cls,
        data: Any,
        *,
        lowercase: bool = True,
        split: str = "words",
        min_frequency: int = 1,
        max_size: int | None = None,
        pad_token: str = "<pad>",
        unk_token: str = "<unk>",
        bos_token: str = "<s>",
        eos_token: str = "</s>",
    ) -> "DMNTokenizer":
        """Learns the words of stories, as `read_babi`, `read_stories` and `generate_babi` give them.

        Args:
            data: a dataset with the columns facts, question and answer, or a dictionary of splits, of which train alone
                is read. Facts that one question shares with the next are counted once.
            lowercase: treat "Ada" and "ada" as one word.
            split: "words" for ordinary text, "whitespace" for text that is tokenized already.
            min_frequency: leave out words that occur less often. Answers always stay.
            max_size: largest number of ids, special tokens included; all answers and the most frequent words stay.
            pad_token, unk_token, bos_token, eos_token: special tokens, ids 0 to 3; the last ends every answer.

        Raises:
            ValueError: a bad setting, a missing column, no train split, or a `max_size` with no room for the answers.
        """
        if isinstance(data, Mapping):
            if "train" not in data:
                raise ValueError(f"there is no train split to learn from, but {', '.join(map(str, data)) or 'nothing'}")
            data = data["train"]
        missing = [name for name in ("facts", "question", "answer") if name not in data.column_names]
        if missing:
            raise ValueError(f"the dataset has no column {missing[0]!r}; it has {', '.join(data.column_names)}")
        tokenizer = cls.train_from_iterator(
            _story_texts(data),
            lowercase=lowercase,
            split=split,
            min_frequency=min_frequency,
            pad_token=pad_token,
            unk_token=unk_token,
            bos_token=bos_token,
            eos_token=eos_token,
        )
        assert isinstance(tokenizer, DMNTokenizer)
        learned = tokenizer.get_vocab()
        special = sorted(tokenizer.all_special_tokens, key=learned.__getitem__)
        answers = {tokenizer._answer_token(word) for words in data["answer"][:] for word in words} - set(special)
        words = [word for word in sorted(learned, key=learned.__getitem__) if word not in special]
        words += sorted(answers.difference(words))
        if max_size is not None:
            room = max_size - len(special) - len(answers)
            if room < 0:
                raise ValueError(
                    f"max_size is {max_size}, but {len(special)} special tokens and {len(answers)} answers need "
                    f"{len(special) + len(answers)}"
                )
            others = set([word for word in words if word not in answers][:room])
            words = [word for word in words if word in answers or word in others]
        vocabulary = {token: index for index, token in enumerate([*special, *words])}
        tokenizer.backend_tokenizer.model = WordLevel(vocabulary, unk_token=unk_token)
        return tokenizer

    def encode_stories(
        self,
        stories: Sequence[Mapping[str, Any]],
        unknown_words: str = "warn",
        names: Sequence[str] | None = None,
    ) -> list[dict[str, Any]]:
        """The ids of stories, as `DataCollatorForDMN` takes them.

        Args:
            stories: each with `facts` (a list of sentences) or `context` (a paragraph, which is split), with `question`
                and, for training, `answer` (a list of tokens, or a text whose words are the tokens).
            unknown_words: what to do about words of facts and questions that are not in the vocabulary: "warn" lists
                all of them in one warning, "refuse" in an error, "allow" says nothing.
            names: how messages call the stories; "story 0" and so on when None.

        Returns:
            For each story `input_ids` (a list of ids for each fact), `question_ids` and, with an answer, `labels`.

        Raises:
            TypeError: facts, a fact or a question is something else than text.
            ValueError: a story has no facts, an empty fact or question, an answer that is not in the vocabulary, or
                unknown words where they are refused.
        """
        _check_choice(unknown_words)
        if names is None:
            names = [f"story {number}" for number in range(len(stories))]
        parts = [
            (_facts_of(story, name), _question_of(story, name)) for story, name in zip(stories, names, strict=True)
        ]
        texts = list(dict.fromkeys(text for facts, question in parts for text in (*facts, question)))
        self.report_unknown_words(texts, unknown_words)
        ids: dict[str, list[int]] = {}
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            some = texts[start : start + _TEXTS_AT_ONCE]
            ids.update(zip(some, self(some, add_special_tokens=False)["input_ids"], strict=True))
        encoded = []
        for story, name, (facts, question) in zip(stories, names, parts, strict=True):
            row: dict[str, Any] = {"input_ids": [ids[fact] for fact in facts], "question_ids": ids[question]}
            if story.get("answer") is not None:
                try:
                    row["labels"] = self.encode_answer(story["answer"])
                except ValueError as error:
                    raise ValueError(f"{name}: {error}") from error
            encoded.append(row)
        return encoded

    @staticmethod
    def facts_of(story: Mapping[str, Any]) -> list[str]:
        """The sentences of a story, which are the facts that `encode_stories` gives ids of.

        Raises:
            TypeError, ValueError: see `encode_stories`.

        Example:
            >>> from hf_metalstm import DMNTokenizer
            >>> DMNTokenizer.facts_of({"context": "Ada ran to the attic. Otto did not."})
            ['Ada ran to the attic.', 'Otto did not.']
        """
        return _facts_of(story, "the story")

    def encode_answer(self, answer: str | Sequence[str]) -> list[int]:
        """The ids of an answer's tokens, and of the token that ends it.

        Raises:
            ValueError: the answer is empty, or a token of it is not in the vocabulary.
        """
        words = answer.split() if isinstance(answer, str) else answer
        if not words or not all(word.strip() for word in words):
            raise ValueError(f"the answer {answer!r} is empty, or has an empty token")
        ids = []
        for word in words:
            index = self.backend_tokenizer.token_to_id(self._answer_token(word))
            if index is None or index in self.all_special_ids:
                raise ValueError(
                    f"the answer {word!r} is not in the vocabulary of {len(self)} tokens, so that no model could give "
                    "it: train the tokenizer on data that has it"
                )
            ids.append(index)
        return [*ids, self.eos_token_id]

    def decode_answers(self, ids: Iterable[Iterable[int]]) -> list[list[str]]:
        """The tokens of generated answers, up to the end token; special tokens and ignored labels (-100) are left out.

        Args:
            ids: (answers, tokens), lists or a tensor.
        """
        answers = []
        for row in ids:
            answer: list[str] = []
            for index in map(int, row):
                if index == self.eos_token_id:
                    break
                if index >= 0 and index not in self.all_special_ids:
                    answer.append(str(self.convert_ids_to_tokens(index)))
            answers.append(answer)
        return answers

    def unknown_words(self, texts: Iterable[str]) -> list[str]:
        """The different words of texts that are not in the vocabulary, in the order in which they appear."""
        normalize = self.backend_tokenizer.normalizer.normalize_str
        unknown: dict[str, None] = {}
        for text, encoding in zip(*self._encodings(texts), strict=True):
            for index, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
                if index == self.unk_token_id and text[start:end] != self.unk_token:
                    unknown[normalize(text[start:end])] = None
        return list(unknown)

    def _encodings(self, texts: Iterable[str]) -> tuple[list[str], list[Any]]:
        different = list(dict.fromkeys(texts))
        return different, self.backend_tokenizer.encode_batch(different, add_special_tokens=False)

    def report_unknown_words(self, texts: Iterable[str], unknown_words: str = "warn") -> None:
        """Lists the words that are not in the vocabulary in one warning, or refuses them.

        Args:
            texts: facts and questions.
            unknown_words: "warn", "refuse" (ValueError) or "allow" (nothing is said).
        """
        _check_choice(unknown_words)
        words = [] if unknown_words == "allow" else self.unknown_words(texts)
        if not words:
            return
        listed = ", ".join(words[:_MOST_WORDS_SHOWN])
        if len(words) > _MOST_WORDS_SHOWN:
            listed += f" and {len(words) - _MOST_WORDS_SHOWN} more"
        which = "1 word is" if len(words) == 1 else f"{len(words)} words are"
        if unknown_words == "refuse":
            raise ValueError(f"{which} not in the vocabulary: {listed}")
        warnings.warn(f"{which} not in the vocabulary and read as {self.unk_token}: {listed}", stacklevel=3)

    def _answer_token(self, word: str) -> str:
        return self.backend_tokenizer.normalizer.normalize_str(word.strip())


def _check_choice(unknown_words: str) -> None:
    if unknown_words not in UNKNOWN_WORDS:
        raise ValueError(f"unknown_words is {unknown_words!r}; allowed: {', '.join(map(repr, UNKNOWN_WORDS))}")


def _facts_of(story: Mapping[str, Any], name: str) -> list[str]:
    facts, context = story.get("facts"), story.get("context")
    if facts is not None and context is not None:
        raise ValueError(f"{name} has facts and a context: give one of them")
    if facts is None:
        if not isinstance(context, (str, type(None))):
            raise TypeError(f"the context of {name} is {context!r:.60}, expected a text")
        facts = split_sentences(context or "")
    if isinstance(facts, str) or not isinstance(facts, Sequence):
        raise TypeError(
            f"the facts of {name} are {facts!r:.60}, expected a list of sentences; a paragraph is a context"
        )
    if not facts:
        raise ValueError(f"{name} has no facts")
    for number, fact in enumerate(facts):
        if not isinstance(fact, str):
            raise TypeError(f"fact {number} of {name} is {fact!r:.60} ({type(fact).__name__}), expected a sentence")
        if not fact.strip():
            raise ValueError(f"fact {number} of {name} is empty")
    return list(facts)


def _question_of(story: Mapping[str, Any], name: str) -> str:
    question = story.get("question")
    if question is None or (isinstance(question, str) and not question.strip()):
        raise ValueError(f"the question of {name} is {'missing' if question is None else 'empty'}")
    if not isinstance(question, str):
        raise TypeError(f"the question of {name} is {question!r:.60}, expected a text")
    return question


def _story_texts(data: Any) -> Iterator[list[str]]:
    before: list[str] = []
    # A data set hands out many rows far faster than row by row.
    for rows in data.select_columns(["facts", "question"]).iter(batch_size=1000):
        for facts, question in zip(rows["facts"], rows["question"], strict=True):
            new = facts[len(before) :] if before == facts[: len(before)] else facts
            before = facts
            yield [*new, question]


# Saving writes this file and those it imports beside tokenizer.json.
DMNTokenizer.register_for_auto_class("AutoTokenizer")
