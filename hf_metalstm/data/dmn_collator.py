"""From stories with questions to padded batches for a Dynamic Memory Network."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from datasets import Dataset, DatasetDict, Features, Value
from datasets import Sequence as ListOf
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ..tokenization.tokenization_dmn import DMNTokenizer

_IGNORED_LABEL = -100
_PREPARED = Features(
    {
        "input_ids": ListOf(ListOf(Value("int64"))),
        "question_ids": ListOf(Value("int64")),
        "labels": ListOf(Value("int64")),
        "supporting_facts": ListOf(Value("int64")),
        "task": Value("string"),
    }
)


@dataclass
class DataCollatorForDMN:
    """Pads facts, the tokens in them, questions and answers, and marks supporting facts.

    Args:
        tokenizer: gives the padding id. Padding always follows.
        num_passes: None marks all supporting facts of a question alike. A number tells which pass should find which:
            pass i the i-th supporting fact, and the last pass all that are left. Passes after the last supporting fact
            have none: their rows are 0.

    Returns of a call:
        `input_ids` and `attention_mask` (batch, facts, tokens); `question_ids` and `question_mask` (batch, tokens);
        where the examples have them `labels` (batch, answer_tokens), padded by -100, and `supporting_facts`, 0 or 1,
        (batch, facts) or (batch, passes, facts). The mask of a fact that is padding is all 0. Other columns are left
        out.

    Raises of a call:
        ValueError: an empty batch, a story without facts, an empty fact or question, a supporting fact beyond the
            story, or answers or supporting facts in some examples only.

    Example:
        >>> from hf_metalstm import DMNTokenizer
        >>> from hf_metalstm.data.dmn_collator import DataCollatorForDMN
        >>> tokenizer = DMNTokenizer.train_from_iterator(["a b c d"])
        >>> collate = DataCollatorForDMN(tokenizer)
        >>> batch = collate([
        ...     {"input_ids": [[4, 5], [6]], "question_ids": [7], "supporting_facts": [1]},
        ...     {"input_ids": [[4]], "question_ids": [7, 5], "supporting_facts": [0]},
        ... ])
        >>> batch["input_ids"].tolist()
        [[[4, 5], [6, 0]], [[4, 0], [0, 0]]]
        >>> batch["question_ids"].tolist(), batch["supporting_facts"].tolist()
        ([[7, 0], [7, 5]], [[0, 1], [1, 0]])
    """

    tokenizer: PreTrainedTokenizerBase
    num_passes: int | None = None

    def __post_init__(self) -> None:
        if self.num_passes is not None and self.num_passes < 1:
            raise ValueError(f"num_passes is {self.num_passes}, but must be at least 1, or None")
        if self.tokenizer.pad_token_id is None:
            raise ValueError("the tokenizer has no pad_token, which fills up facts and questions")

    def __call__(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        if not examples:
            raise ValueError("empty batch: there is no example to collate")
        for index, example in enumerate(examples):
            _check_example(example, index)
        stories = [[list(fact) for fact in example["input_ids"]] for example in examples]
        pad = self.tokenizer.pad_token_id
        facts, tokens = max(map(len, stories)), max(len(fact) for story in stories for fact in story)
        input_ids = torch.full((len(stories), facts, tokens), pad)
        mask = torch.zeros_like(input_ids)
        for row, story in enumerate(stories):
            for number, fact in enumerate(story):
                input_ids[row, number, : len(fact)] = torch.tensor(fact)
                mask[row, number, : len(fact)] = 1
        question_ids, question_mask = _pad([list(example["question_ids"]) for example in examples], pad)
        batch = {
            "input_ids": input_ids,
            "attention_mask": mask,
            "question_ids": question_ids,
            "question_mask": question_mask,
        }
        if _all_have("labels", examples):
            batch["labels"], _ = _pad([list(example["labels"]) for example in examples], _IGNORED_LABEL)
        if _all_have("supporting_facts", examples):
            batch["supporting_facts"] = self._mark([list(example["supporting_facts"]) for example in examples], stories)
        return batch

    def _mark(self, supporting: list[list[int]], stories: list[list[list[int]]]) -> Tensor:
        passes = self.num_passes or 1
        marks = torch.zeros(len(stories), passes, max(map(len, stories)), dtype=torch.long)
        for row, (indexes, story) in enumerate(zip(supporting, stories, strict=True)):
            for order, index in enumerate(indexes):
                if not 0 <= index < len(story):
                    raise ValueError(
                        f"supporting fact {index} of the question of story {row} is beyond its story, whose facts are "
                        f"0..{len(story) - 1}"
                    )
                marks[row, min(order, passes - 1), index] = 1
        return marks if self.num_passes is not None else marks[:, 0]


def _check_example(example: Mapping[str, Any], index: int) -> None:
    for name in ("input_ids", "question_ids"):
        if example.get(name) is None:
            raise ValueError(
                f"example {index} of the batch has no {name} (it has {', '.join(example) or 'nothing'}): tokenize the "
                "stories first, as prepare_stories does"
            )
    if len(example["input_ids"]) == 0:
        raise ValueError(f"story {index} has no facts")
    for number, fact in enumerate(example["input_ids"]):
        if len(fact) == 0:
            raise ValueError(f"fact {number} of story {index} is empty")
    if len(example["question_ids"]) == 0:
        raise ValueError(f"the question of story {index} is empty")
    if example.get("labels") is not None and len(example["labels"]) == 0:
        raise ValueError(f"the answer of story {index} is empty: not even the token that ends it is there")


def _all_have(name: str, examples: Sequence[Mapping[str, Any]]) -> bool:
    missing = [index for index, example in enumerate(examples) if example.get(name) is None]
    if missing and len(missing) < len(examples):
        raise ValueError(f"example {missing[0]} of the batch has no {name}, but others have: give it to all or to none")
    return not missing


def _pad(rows: list[list[int]], filler: int) -> tuple[Tensor, Tensor]:
    """(rows, longest) ids, and 1 where they are real."""
    ids = torch.full((len(rows), max(map(len, rows))), filler)
    mask = torch.zeros_like(ids)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = torch.tensor(row)
        mask[number, : len(row)] = 1
    return ids, mask


def prepare_stories(data: DatasetDict, tokenizer: DMNTokenizer, unknown_words: str = "warn") -> DatasetDict:
    """Turns stories, questions and answers into ids, for `Trainer` with `DataCollatorForDMN`.

    Args:
        data: the splits, as `read_babi`, `read_stories` and `generate_babi` give them.
        tokenizer: makes the ids.
        unknown_words: "warn" lists the words of facts and questions that it does not know in one warning for all
            splits, "refuse" in an error, "allow" says nothing.

    Returns:
        The splits with the columns `input_ids` (a list of ids for each fact), `question_ids`, `labels` (the answer and
        its end token), `supporting_facts` (indexes, or None) and `task`, which `Trainer` drops.

    Raises:
        ValueError: an answer that is not in the vocabulary, a story without facts, an empty question, or a supporting
            fact beyond the story; the message names file and line, or split and row.

    Example:
        >>> from hf_metalstm import DMNTokenizer
        >>> from hf_metalstm.data.babi_generator import generate_babi
        >>> from hf_metalstm.data.dmn_collator import prepare_stories
        >>> data = generate_babi(tasks=[1], train_size=20, validation_size=5, test_size=0)
        >>> prepared = prepare_stories(data, DMNTokenizer.train_from_dataset(data))
        >>> prepared["train"].num_rows, prepared["train"].column_names
        (20, ['input_ids', 'question_ids', 'labels', 'supporting_facts', 'task'])
    """
    if not isinstance(data, Mapping):
        raise TypeError(f"data is {type(data).__name__}, expected splits: DatasetDict(train=...)")
    texts: dict[str, None] = {}
    prepared = DatasetDict()
    for split, rows in data.items():
        columns = {name: rows[name][:] for name in rows.column_names}
        names = [
            source if source not in (None, "generated") else f"{split} split, row {row}"
            for row, source in enumerate(columns.get("source", [None] * rows.num_rows))
        ]
        stories = [
            {"facts": facts, "question": question, "answer": answer}
            for facts, question, answer in zip(columns["facts"], columns["question"], columns["answer"], strict=True)
        ]
        encoded = tokenizer.encode_stories(stories, unknown_words="allow", names=names)
        texts.update(dict.fromkeys(text for story in stories for text in (*story["facts"], story["question"])))
        supporting = columns.get("supporting_facts", [None] * rows.num_rows)
        for name, indexes, story in zip(names, supporting, stories, strict=True):
            for index in indexes or ():
                if not 0 <= index < len(story["facts"]):
                    raise ValueError(
                        f"{name}: supporting fact {index} of the question {story['question']!r:.60} is beyond its "
                        f"story, whose facts are 0..{len(story['facts']) - 1}"
                    )
        prepared[str(split)] = _dataset(encoded, supporting, columns.get("task", [""] * rows.num_rows))
    tokenizer.report_unknown_words(texts, unknown_words)
    return prepared


def _dataset(encoded: list[dict[str, Any]], supporting: Sequence[Any], tasks: Sequence[str]) -> Dataset:
    columns: dict[str, Any] = {name: [row[name] for row in encoded] for name in ("input_ids", "question_ids", "labels")}
    return Dataset.from_dict({**columns, "supporting_facts": list(supporting), "task": list(tasks)}, features=_PREPARED)
