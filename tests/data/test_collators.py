"""Batches: padded on the right side, with labels and task ids, and refused when something is wrong."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import TokenizersBackend

from hf_metalstm import WordTokenizer
from hf_metalstm.data.collators import DataCollatorForMultiTask, tokenize_tasks
from hf_metalstm.data.reviews import MultiTaskData, make_task
from hf_metalstm.data.synthetic_reviews import generate_reviews

TOKENIZER = WordTokenizer.train_from_iterator(["a good book"])
ID_LISTS = st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=9), min_size=1, max_size=6)


@given(ID_LISTS, st.sampled_from(["left", "right"]), st.sampled_from([None, 4]))
def test_every_text_is_found_in_its_row_and_the_rest_is_padding(texts, side, multiple):
    tokenizer = WordTokenizer.train_from_iterator(["a good book"], padding_side=side)
    batch = DataCollatorForMultiTask(tokenizer, multiple)([{"input_ids": ids} for ids in texts])
    width = batch["input_ids"].shape[1]
    longest = max(map(len, texts))
    assert width == (longest if multiple is None else -(-longest // 4) * 4)
    for row, mask, ids in zip(batch["input_ids"], batch["attention_mask"], texts, strict=True):
        assert row[mask.bool()].tolist() == ids
        assert (row[~mask.bool()] == tokenizer.pad_token_id).all()
        assert mask[0 if side == "right" else -1] == 1


def test_labels_and_task_ids_are_kept_and_other_columns_left_out():
    examples = [
        {"input_ids": [4], "labels": 1, "task_ids": np.int64(0), "text": "x", "length": 1},
        {"input_ids": [5, 6], "labels": torch.tensor(0), "task_ids": 3, "text": "y", "length": 2},
    ]
    batch = DataCollatorForMultiTask(TOKENIZER)(examples)
    assert set(batch) == {"input_ids", "attention_mask", "labels", "task_ids"}
    assert batch["labels"].tolist() == [1, 0] and batch["task_ids"].tolist() == [0, 3]
    assert batch["labels"].dtype == batch["task_ids"].dtype == torch.int64
    batch = DataCollatorForMultiTask(TOKENIZER)([{"input_ids": [4], "label": 1}, {"input_ids": [4], "label": 0}])
    assert batch["labels"].tolist() == [1, 0] and "label" not in batch
    assert set(DataCollatorForMultiTask(TOKENIZER)([{"input_ids": [4]}])) == {"input_ids", "attention_mask"}


@pytest.mark.parametrize(
    ("examples", "error", "message"),
    [
        ([], ValueError, "empty batch"),
        ([{"input_ids": [4]}, {"text": "x"}], ValueError, r"example 1 of the batch has no input_ids \(it has text\)"),
        ([{"input_ids": [4], "labels": [0, 1]}], TypeError, r"labels of example 0 is \[0, 1\] \(list\)"),
        ([{"input_ids": [4]}, {"input_ids": []}], ValueError, "text 1 is empty after tokenization"),
        ([{"input_ids": [4], "labels": 0.5}], TypeError, r"labels of example 0 is 0.5 \(float\), expected an integer"),
        ([{"input_ids": [4], "labels": "good"}], TypeError, "labels of example 0 is 'good'"),
        ([{"input_ids": [4], "labels": 1}, {"input_ids": [4]}], ValueError, "example 1 of the batch has no labels"),
        ([{"input_ids": [4], "task_ids": None}, {"input_ids": [4], "task_ids": 1}], ValueError, "has no task_ids"),
    ],
)
def test_bad_examples_are_named(examples, error, message):
    with pytest.raises(error, match=message):
        DataCollatorForMultiTask(TOKENIZER)(examples)


def test_tokenized_tasks_hold_the_ids_of_their_texts():
    data = generate_reviews(["cars", "books"], train_size=6, dev_size=2, test_size=2)
    tokenizer = WordTokenizer.train_from_iterator(data["cars"]["train"]["text"])
    splits = tokenize_tasks(data, tokenizer, max_length=5)
    assert {split: list(tasks) for split, tasks in splits.items()} == {
        split: ["cars", "books"] for split in ("train", "validation", "test")
    }
    for task, rows in splits["test"].items():
        expected = [tokenizer(text).input_ids[:5] for text in data[task]["test"]["text"]]
        assert rows["input_ids"][:] == expected and rows["labels"][:] == data[task]["test"]["label"][:]
        assert "duplicated" in rows.column_names
    with pytest.raises(ValueError, match="max_length is 0"):
        tokenize_tasks(data, tokenizer, max_length=0)


def plain_tokenizer(**special_tokens):
    """Splits at blanks and, unlike WordTokenizer, has nothing to say about an empty text."""
    backend = Tokenizer(WordLevel({"<pad>": 0, "<unk>": 1, "fine": 2}, unk_token="<unk>"))
    backend.pre_tokenizer = Whitespace()
    return TokenizersBackend(tokenizer_object=backend, pad_token="<pad>", **special_tokens)


def test_a_text_without_a_token_becomes_the_unknown_token_or_is_named():
    splits = {"train": (["fine", "  "], [0, 1]), "test": (["", "fine fine"], [0, 1])}
    data = MultiTaskData({"shop": make_task(splits, ["good", "bad"])}, "made up")
    rows = tokenize_tasks(data, plain_tokenizer(unk_token="<unk>"))
    assert rows["train"]["shop"]["input_ids"][:] == [[2], [1]]
    assert rows["test"]["shop"]["input_ids"][:] == [[1], [2, 2]]
    assert rows["test"]["shop"]["attention_mask"][:] == [[1], [1, 1]]
    with pytest.raises(ValueError, match="task 'shop', train split, text 1 has no token after tokenization"):
        tokenize_tasks(data, plain_tokenizer())


@pytest.mark.parametrize("max_length", [None, 5])
def test_fingerprints_depend_on_texts_tokenizer_and_length_alone(max_length):
    def fingerprint(length=max_length, corpus="a good book", seed=0, used=False):
        data = generate_reviews(["cars", "books"], train_size=6, dev_size=2, test_size=2, seed=seed)
        tokenizer = WordTokenizer.train_from_iterator([corpus])
        if used:
            tokenizer(["a good book"], truncation=True, max_length=2, padding=True)
        return tokenize_tasks(data, tokenizer, length)["train"]["books"]._fingerprint

    # What a tokenizer did before leaves traces in it, which must not count.
    assert fingerprint() == fingerprint() == fingerprint(used=True)
    assert len({fingerprint(), fingerprint(length=7), fingerprint(corpus="a bad book"), fingerprint(seed=1)}) == 4
