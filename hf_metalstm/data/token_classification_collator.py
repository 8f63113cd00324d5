"""From aligned sentences to padded batches for taggers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ..modeling.character_features import PADDING_ID
from ..modeling.crf import IGNORED_LABEL
from .collators import as_integer

# What stands where there is padding.
_FILL = {"labels": IGNORED_LABEL, "word_starts": 0}


@dataclass
class DataCollatorForTagging:
    """Pads sentences to the longest of the batch, labels on the same side as tokens.

    Args:
        tokenizer: pads, on its own `padding_side`.
        pad_to_multiple_of: round the length up to a multiple.

    Returns of a call:
        `input_ids` and `attention_mask` (batch, tokens); where the examples have them `labels`, filled with -100, and
        `word_starts` (batch, tokens), `character_ids` (batch, tokens, characters), filled with 0, and `task_ids`
        (batch,), all int64. Other columns are left out.

    Raises of a call:
        TypeError: a task id is no integer, or a label.
        ValueError: an empty batch, an example without tokens, a column of another length than its tokens, or one that
            some examples only have.

    Example:
        >>> from hf_metalstm import WordTokenizer
        >>> from hf_metalstm.data.token_classification_collator import DataCollatorForTagging
        >>> tokenizer = WordTokenizer.train_from_iterator(["a good book"], padding_side="left")
        >>> collate = DataCollatorForTagging(tokenizer)
        >>> batch = collate([{"input_ids": [4, 6], "labels": [1, 0]}, {"input_ids": [5], "labels": [2]}])
        >>> batch["attention_mask"].tolist(), batch["labels"].tolist()
        ([[1, 1], [0, 1]], [[1, 0], [-100, 2]])
    """

    tokenizer: PreTrainedTokenizerBase
    pad_to_multiple_of: int | None = None

    def __call__(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        if not examples:
            raise ValueError("empty batch: there is no example to collate")
        sentences = []
        for index, example in enumerate(examples):
            if "input_ids" not in example:
                raise ValueError(
                    f"example {index} of the batch has no input_ids (it has {', '.join(example) or 'nothing'}): "
                    "tokenize the sentences first, as align_dataset does"
                )
            if len(example["input_ids"]) == 0:
                raise ValueError(f"sentence {index} has no tokens: drop it")
            sentences.append({name: example[name] for name in ("input_ids", "attention_mask") if name in example})
        batch = dict(self.tokenizer.pad(sentences, pad_to_multiple_of=self.pad_to_multiple_of, return_tensors="pt"))
        width = batch["input_ids"].shape[1]
        for column in ("labels", "word_starts", "character_ids", "task_ids"):
            values: list[Any] = [example.get(column) for example in examples]
            if all(value is None for value in values):
                continue
            lacking = next((index for index, value in enumerate(values) if value is None), None)
            if lacking is not None:
                raise ValueError(
                    f"example {lacking} of the batch has no {column}, but others have: give it to all or to none"
                )
            if column == "task_ids":
                batch[column] = torch.tensor([as_integer(value, column, index) for index, value in enumerate(values)])
                continue
            for index, (value, example) in enumerate(zip(values, examples, strict=True)):
                if len(value) != len(example["input_ids"]):
                    raise ValueError(
                        f"{column} of example {index} are {len(value)}, but it has {len(example['input_ids'])} tokens: "
                        "align_tags gives each token one"
                    )
            batch[column] = (
                self._characters(values, width) if column == "character_ids" else self._pad(values, width, column)
            )
        return batch

    def _places(self, length: int, width: int) -> slice:
        left = self.tokenizer.padding_side == "left"
        return slice(width - length, width) if left else slice(0, length)

    def _pad(self, values: Sequence[Any], width: int, column: str) -> Tensor:
        padded = torch.full((len(values), width), _FILL[column])
        for row, value in enumerate(values):
            numbers = [as_integer(number, column, row) for number in value]
            padded[row, self._places(len(numbers), width)] = torch.tensor(numbers)
        return padded

    def _characters(self, values: Sequence[Sequence[Sequence[int]]], width: int) -> Tensor:
        longest = max(1, max(len(word) for value in values for word in value))
        padded = torch.full((len(values), width, longest), PADDING_ID)
        for row, value in enumerate(values):
            filled = [[*word, *[PADDING_ID] * (longest - len(word))] for word in value]
            padded[row, self._places(len(value), width)] = torch.tensor(filled)
        return padded
