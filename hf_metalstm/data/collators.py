"""From tokenized examples of several tasks to padded batches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from .reviews import MultiTaskData

_WITHOUT_TOKENS = "has no token after tokenization, and the tokenizer has no unknown token to put in its place: drop it"


@dataclass
class DataCollatorForMultiTask:
    """Pads texts to the longest of the batch and stacks their labels and task ids.

    Args:
        tokenizer: pads, on its own `padding_side`.
        pad_to_multiple_of: round the length up to a multiple.

    Returns of a call:
        `input_ids` and `attention_mask` (batch, tokens), `labels` and `task_ids` (batch,) int64 where the examples have
        them; a column `label` is taken for `labels`. Other columns are left out.

    Raises of a call:
        TypeError: a label or task id is no integer.
        ValueError: an empty batch, an example without `input_ids` or without a token, or labels in some examples only.

    Example:
        >>> from hf_metalstm import WordTokenizer
        >>> from hf_metalstm.data.collators import DataCollatorForMultiTask
        >>> tokenizer = WordTokenizer.train_from_iterator(["a good book"])
        >>> collate = DataCollatorForMultiTask(tokenizer)
        >>> batch = collate([{"input_ids": [4, 6], "labels": 1}, {"input_ids": [5], "labels": 0}])
        >>> batch["input_ids"].tolist(), batch["labels"].tolist()
        ([[4, 6], [5, 0]], [1, 0])
    """

    tokenizer: PreTrainedTokenizerBase
    pad_to_multiple_of: int | None = None

    def __call__(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        if not examples:
            raise ValueError("empty batch: there is no example to collate")
        texts = []
        for index, example in enumerate(examples):
            if "input_ids" not in example:
                raise ValueError(
                    f"example {index} of the batch has no input_ids (it has {', '.join(example) or 'nothing'}): "
                    "tokenize the texts first, as tokenize_tasks does"
                )
            if len(example["input_ids"]) == 0:
                raise ValueError(f"text {index} is empty after tokenization: drop it or give it an unknown token")
            texts.append({name: example[name] for name in ("input_ids", "attention_mask") if name in example})
        # By way of numpy, which reads lists of lists several times as fast as torch does.
        padded = self.tokenizer.pad(texts, pad_to_multiple_of=self.pad_to_multiple_of, return_tensors="np")
        batch = {name: torch.from_numpy(values) for name, values in padded.items()}
        for column in ("labels", "task_ids"):
            values = [example.get(column, example.get("label") if column == "labels" else None) for example in examples]
            if all(value is None for value in values):
                continue
            batch[column] = torch.tensor([as_integer(value, column, index) for index, value in enumerate(values)])
        return batch


def as_integer(value: Any, column: str, index: int) -> int:
    """A label or task id as an int.

    Raises:
        TypeError: it is no integer.
        ValueError: it is None.
    """
    if value is None:
        raise ValueError(f"example {index} of the batch has no {column}, but others have: give it to all or to none")
    if isinstance(value, Tensor) and value.ndim == 0 and not value.is_floating_point():
        return int(value)
    if not isinstance(value, Integral):
        raise TypeError(f"{column} of example {index} is {value!r} ({type(value).__name__}), expected an integer")
    return int(value)


def tokenize_tasks(
    data: MultiTaskData, tokenizer: PreTrainedTokenizerBase, max_length: int | None = None
) -> dict[str, dict[str, Dataset]]:
    """Turns texts into token ids, for `MultiTaskTrainer`.

    A text without a token, such as an empty one, becomes the tokenizer's unknown token, so that it can be classified.

    Args:
        data: texts and labels of each task.
        tokenizer: makes the ids.
        max_length: longest text in tokens; what follows is cut off. None keeps all.

    Returns:
        `{split: {task: dataset}}` with columns `input_ids`, `attention_mask`, `labels` and `duplicated`. The same
        texts, tokenizer and length give datasets with the same fingerprint, in any process.

    Raises:
        ValueError: `max_length` is below 1, or a text has no token and the tokenizer no unknown token.
    """
    if max_length is not None and max_length < 1:
        raise ValueError(f"max_length is {max_length}, but must be at least 1")

    unknown = [] if tokenizer.unk_token_id is None else [tokenizer.unk_token_id]

    def tokenize(texts: list[str]) -> dict[str, Any]:
        encoded = tokenizer(texts, truncation=max_length is not None, max_length=max_length)
        return {
            "input_ids": [ids or unknown for ids in encoded["input_ids"]],
            "attention_mask": [mask or [1] * len(unknown) for mask in encoded["attention_mask"]],
        }

    splits: dict[str, dict[str, Dataset]] = {}
    for task, parts in data.items():
        for split, rows in parts.items():
            tokenized = rows.map(tokenize, input_columns="text", batched=True, remove_columns="text")
            for row, ids in enumerate(tokenized["input_ids"] if not unknown else []):
                if not ids:
                    raise ValueError(f"task {task!r}, {split} split, text {row} {_WITHOUT_TOKENS}")
            splits.setdefault(str(split), {})[task] = tokenized.rename_column("label", "labels")
    return splits
