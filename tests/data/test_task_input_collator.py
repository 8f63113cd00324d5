"""Batches of GPT-1's tasks: padding, labels of both objectives, places of the extract tokens."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_metalstm import GPT1Tokenizer
from hf_metalstm.data.task_input_collator import DataCollatorForTaskInputs


@pytest.fixture(scope="module", params=["right", "left"])
def tokenizer(request) -> GPT1Tokenizer:
    texts = ["the cat sat on a mat", "a dog slept well in the house"]
    return GPT1Tokenizer.train_from_iterator(texts, padding_side=request.param)


WORDS = st.lists(st.sampled_from("cat dog sat slept well the house".split()), min_size=1, max_size=6).map(" ".join)


def check_padding(tokenizer, ids, mask, targets, expected, prompt=0):
    """One row of a batch, against the list it was made from."""
    width = ids.shape[-1]
    missing = width - len(expected)
    left = missing if tokenizer.padding_side == "left" else 0
    real = slice(left, left + len(expected))
    assert ids[real].tolist() == expected and mask.sum() == len(expected) and mask[real].all()
    assert (ids[mask == 0] == tokenizer.pad_token_id).all()
    assert targets[real].tolist() == [-100] * prompt + expected[prompt:]
    assert (targets[mask == 0] == -100).all()


@given(
    st.lists(st.tuples(WORDS, st.tuples(WORDS, WORDS, WORDS), st.integers(0, 2)), min_size=1, max_size=3), st.booleans()
)
def test_choices_are_padded_and_labelled(tokenizer, examples, ignore):
    rows = [{**tokenizer.build_multiple_choice(text, answers), "label": label} for text, answers, label in examples]
    batch = DataCollatorForTaskInputs(tokenizer, ignore_prompt=ignore)(rows)
    assert set(batch) == {"input_ids", "attention_mask", "labels", "mc_token_ids", "mc_labels"}
    assert batch["mc_labels"].tolist() == [label for *_, label in examples]
    for index, row in enumerate(rows):
        for choice, ids in enumerate(row["input_ids"]):
            prompt = ids.index(tokenizer.sep_token_id) + 1 if ignore else 0
            parts = (batch[name][index, choice] for name in ("input_ids", "attention_mask", "labels"))
            check_padding(tokenizer, *parts, ids, prompt)
            place = batch["mc_token_ids"][index, choice]
            assert batch["input_ids"][index, choice, place] == tokenizer.cls_token_id


@given(st.lists(st.tuples(WORDS, WORDS, st.integers(0, 1)), min_size=1, max_size=4), st.booleans())
def test_pairs_and_texts_are_padded_and_labelled(tokenizer, examples, ignore):
    collate = DataCollatorForTaskInputs(tokenizer, ignore_prompt=ignore)
    pairs = [{**tokenizer.build_entailment(one, two), "label": label} for one, two, label in examples]
    batch = collate(pairs)
    assert set(batch) == {"input_ids", "attention_mask", "lm_labels", "labels"}
    for index, row in enumerate(pairs):
        prompt = row["input_ids"].index(tokenizer.sep_token_id) + 1 if ignore else 0
        parts = (batch[name][index] for name in ("input_ids", "attention_mask", "lm_labels"))
        check_padding(tokenizer, *parts, row["input_ids"], prompt)
    assert batch["labels"].tolist() == [label for *_, label in examples]
    # A text without a delimiter has no prompt.
    texts = [tokenizer.build_classification(one) for one, *_ in examples]
    batch = collate(texts)
    assert set(batch) == {"input_ids", "attention_mask", "lm_labels"}
    for index, row in enumerate(texts):
        parts = (batch[name][index] for name in ("input_ids", "attention_mask", "lm_labels"))
        check_padding(tokenizer, *parts, row["input_ids"])


def test_similarity_has_two_rows_an_example_and_the_language_model_may_be_left_out(tokenizer):
    rows = [{**tokenizer.build_similarity(*texts), "label": 1} for texts in (("cat", "a dog"), ("the cat sat", "well"))]
    batch = DataCollatorForTaskInputs(tokenizer, language_modeling=False, pad_to_multiple_of=16)(rows)
    assert {name: tuple(value.shape) for name, value in batch.items()} == {
        "input_ids": (2, 2, 16), "attention_mask": (2, 2, 16), "labels": (2,),
    }  # fmt: skip
    assert batch["attention_mask"].sum(-1).tolist() == [[len(ids) for ids in row["input_ids"]] for row in rows]


def test_examples_that_make_no_batch_are_refused(tokenizer):
    collate = DataCollatorForTaskInputs(tokenizer)
    two = tokenizer.build_multiple_choice("cat", ["sat", "slept"])
    three = tokenizer.build_multiple_choice("cat", ["sat", "slept", "well"])
    text = tokenizer.build_classification("cat")
    for examples, error, message in [
        ([], ValueError, "empty batch"),
        ([two, three], ValueError, "the examples have 2, 3 rows: a batch holds one task"),
        ([two, text], ValueError, "the examples have 2, no rows"),
        ([{"text": "cat"}], ValueError, "example 0 of the batch has no input_ids"),
        ([{"input_ids": [[5], []]}], ValueError, "example 0 of the batch has a row without a token"),
        ([{**text, "label": 1}, text], ValueError, "example 1 of the batch has no label"),
        ([{**text, "label": 1.0}], TypeError, r"the label of example 0 is 1.0 \(float\)"),
    ]:
        with pytest.raises(error, match=message):
            collate(examples)


def test_pads_are_not_scored_even_where_the_pad_token_stands_in_a_text(tokenizer):
    ids = tokenizer.build_classification(f"cat {tokenizer.pad_token} sat")["input_ids"]
    batch = DataCollatorForTaskInputs(tokenizer)([{"input_ids": ids}])
    assert torch.equal(batch["lm_labels"], torch.tensor([ids])) and tokenizer.pad_token_id in ids
