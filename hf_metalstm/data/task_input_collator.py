"""From the inputs of GPT-1's tasks to padded batches with the labels of both objectives."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..tokenization.tokenization_gpt1 import GPT1Tokenizer

_IGNORED = -100


@dataclass
class DataCollatorForTaskInputs:
    """Pads what the tokenizer's builders give, of any one task, and adds the labels of the language model.

    Works on the rows of `build_task_inputs` and in `Trainer` with its default `remove_unused_columns=True`.

    Args:
        tokenizer: pads, on its own `padding_side`.
        language_modeling: also make the labels of the auxiliary objective L1 (Radford et al. 2018, eq. 5).
        ignore_prompt: of pairs and multiple choices, score only what follows the delimiter.
        pad_to_multiple_of: round the length up to a multiple.

    Returns of a call:
        * classification and entailment: `input_ids`, `attention_mask` (batch, tokens), `labels` (batch,), `lm_labels`
          (batch, tokens);
        * similarity: the same with (batch, 2, tokens);
        * multiple choice: `input_ids`, `attention_mask` (batch, choices, tokens), `mc_token_ids` (batch, choices),
          `mc_labels` (batch,), and `labels` (batch, choices, tokens) for the language model.

        Labels of the language model are the ids themselves, which models shift; padding is -100. Those of classes are
        there if the examples have `label`.

    Raises of a call:
        ValueError: an empty batch, examples of different tasks or numbers of answers, or a label in some only.
        TypeError: a label is no integer.

    Example:
        >>> from hf_metalstm import GPT1Tokenizer
        >>> from hf_metalstm.data.task_input_collator import DataCollatorForTaskInputs
        >>> tokenizer = GPT1Tokenizer.train_from_iterator(["a cat"], min_frequency=1)
        >>> collate = DataCollatorForTaskInputs(tokenizer)
        >>> batch = collate([{**tokenizer.build_multiple_choice("a", ["cat", "a cat"]), "label": 1}])
        >>> tuple(batch["labels"].shape), batch["mc_token_ids"].tolist(), batch["mc_labels"].tolist()
        ((1, 2, 6), [[4, 5]], [1])
    """

    tokenizer: GPT1Tokenizer
    language_modeling: bool = True
    ignore_prompt: bool = False
    pad_to_multiple_of: int | None = None

    def __call__(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        if not examples:
            raise ValueError("empty batch: there is no example to collate")
        shapes = [self._rows(example, index) for index, example in enumerate(examples)]
        nested = shapes[0] is not None
        if any(rows != shapes[0] for rows in shapes):
            raise ValueError(
                f"the examples have {', '.join(str(rows or 'no') for rows in shapes)} rows: a batch holds one "
                "task, and choices must not be ragged"
            )
        choice = "mc_token_ids" in examples[0]
        flat = [
            {"input_ids": ids, "attention_mask": [1] * len(ids)}
            for example in examples
            for ids in (example["input_ids"] if nested else [example["input_ids"]])
        ]
        padded = self.tokenizer.pad(flat, pad_to_multiple_of=self.pad_to_multiple_of, return_tensors="pt")
        batch = {name: padded[name] for name in ("input_ids", "attention_mask")}
        if self.language_modeling:
            batch["labels" if choice else "lm_labels"] = self._targets(batch["input_ids"], batch["attention_mask"])
        if nested:
            batch = {name: value.view(len(examples), shapes[0], -1) for name, value in batch.items()}
        if choice:
            # The last token that is not padding, on either side.
            places = torch.arange(batch["attention_mask"].shape[-1])
            batch["mc_token_ids"] = (batch["attention_mask"] * places).argmax(-1)
        labels = self._labels(examples)
        if labels is not None:
            batch["mc_labels" if choice else "labels"] = labels
        return batch

    def _rows(self, example: Mapping[str, Any], index: int) -> int | None:
        ids = example.get("input_ids")
        if not ids:
            raise ValueError(f"example {index} of the batch has no input_ids: build them with the tokenizer's builders")
        if not isinstance(ids[0], (list, tuple)):
            return None
        if any(not row for row in ids):
            raise ValueError(f"example {index} of the batch has a row without a token")
        return len(ids)

    def _targets(self, ids: Tensor, mask: Tensor) -> Tensor:
        targets = ids.masked_fill(mask == 0, _IGNORED)
        if self.ignore_prompt:
            delimiter = self.tokenizer.sep_token_id
            # From the right: true for the tokens that have a delimiter at or behind them.
            before = (ids == delimiter).flip(-1).cumsum(-1).flip(-1) > 0
            targets = targets.masked_fill(before, _IGNORED)
        return targets

    def _labels(self, examples: Sequence[Mapping[str, Any]]) -> Tensor | None:
        values = [example.get("label") for example in examples]
        if all(value is None for value in values):
            return None
        for index, value in enumerate(values):
            if value is None:
                raise ValueError(f"example {index} of the batch has no label, but others have")
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"the label of example {index} is {value!r} ({type(value).__name__}), not an integer")
        return torch.tensor(values)
