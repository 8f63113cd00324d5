"""Preparing stories and padding them into batches."""

import re
import warnings

import pytest
import torch
from datasets import Dataset, DatasetDict
from hypothesis import given
from hypothesis import strategies as st
from transformers import Trainer, TrainingArguments

from hf_metalstm import DataCollatorForDMN, DMNTokenizer
from hf_metalstm.data.babi_generator import generate_babi
from hf_metalstm.data.dmn_collator import prepare_stories
from hf_metalstm.data.stories import read_stories

IDS = st.lists(st.integers(4, 20), min_size=1, max_size=5)


@pytest.fixture(scope="module")
def tokenizer() -> DMNTokenizer:
    return DMNTokenizer.train_from_iterator(["a b c d e f g h"])


@st.composite
def example(draw) -> dict:
    facts = draw(st.lists(IDS, min_size=1, max_size=5))
    supporting = draw(st.lists(st.integers(0, len(facts) - 1), unique=True))
    return {
        "input_ids": facts,
        "question_ids": draw(IDS),
        "labels": draw(IDS),
        "supporting_facts": supporting,
        "task": "unused",
    }


COLLATE = DataCollatorForDMN(DMNTokenizer.train_from_iterator(["a"]))


@given(st.lists(example(), min_size=1, max_size=5))
def test_what_is_real_can_be_read_back_and_the_rest_is_padding(examples):
    batch = COLLATE(examples)
    assert set(batch) == {
        "input_ids",
        "attention_mask",
        "question_ids",
        "question_mask",
        "labels",
        "supporting_facts",
    }
    assert all(tensor.dtype == torch.long for tensor in batch.values())
    facts = max(len(one["input_ids"]) for one in examples)
    tokens = max(len(fact) for one in examples for fact in one["input_ids"])
    assert batch["input_ids"].shape == batch["attention_mask"].shape == (len(examples), facts, tokens)
    assert batch["supporting_facts"].shape == (len(examples), facts)
    for row, one in enumerate(examples):
        for number in range(facts):
            fact = one["input_ids"][number] if number < len(one["input_ids"]) else []
            assert batch["input_ids"][row, number].tolist() == fact + [0] * (tokens - len(fact))
            assert batch["attention_mask"][row, number].tolist() == [1] * len(fact) + [0] * (tokens - len(fact))
            assert batch["supporting_facts"][row, number] == (number in one["supporting_facts"])
        for name, values, filler in (("question_ids", one["question_ids"], 0), ("labels", one["labels"], -100)):
            width = max(len(other[name]) for other in examples)
            assert batch[name][row].tolist() == values + [filler] * (width - len(values))
        assert batch["question_mask"][row].sum() == len(one["question_ids"])


@given(st.lists(example(), min_size=1, max_size=4), st.integers(1, 4))
def test_passes_find_the_supporting_facts_in_their_order(examples, passes):
    batch = DataCollatorForDMN(COLLATE.tokenizer, num_passes=passes)(examples)
    facts = batch["input_ids"].shape[1]
    assert batch["supporting_facts"].shape == (len(examples), passes, facts)
    for row, one in enumerate(examples):
        for number in range(passes):
            indexes = one["supporting_facts"]
            wanted = indexes[number:] if number == passes - 1 else indexes[number : number + 1]
            assert batch["supporting_facts"][row, number].nonzero().flatten().tolist() == sorted(wanted)


GOOD = {"input_ids": [[4], [5, 6]], "question_ids": [7], "labels": [5, 3], "supporting_facts": [1]}


def test_answers_and_supporting_facts_may_be_left_out(tokenizer):
    collate = DataCollatorForDMN(tokenizer)
    plain = {name: GOOD[name] for name in ("input_ids", "question_ids")}
    assert set(collate([plain, plain])) == {"input_ids", "attention_mask", "question_ids", "question_mask"}
    assert "supporting_facts" not in collate([{**GOOD, "supporting_facts": None}])
    assert collate([{**GOOD, "supporting_facts": []}])["supporting_facts"].tolist() == [[0, 0]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input_ids": []}, "story 1 has no facts"),
        ({"input_ids": [[4], []]}, "fact 1 of story 1 is empty"),
        ({"question_ids": []}, "the question of story 1 is empty"),
        ({"labels": []}, "the answer of story 1 is empty"),
        ({"supporting_facts": [2]}, r"supporting fact 2 of the question of story 1 is beyond .* 0\.\.1"),
        ({"supporting_facts": [-1]}, "supporting fact -1 of the question of story 1 is beyond"),
        ({"supporting_facts": None}, "example 1 of the batch has no supporting_facts, but others have"),
        ({"labels": None}, "example 1 of the batch has no labels, but others have"),
        ({"input_ids": None}, "example 1 of the batch has no input_ids"),
        ({"question_ids": None}, "example 1 of the batch has no question_ids .*: tokenize the stories first"),
    ],
)
def test_what_is_missing_or_wrong_is_named(tokenizer, change, message):
    with pytest.raises(ValueError, match=message):
        DataCollatorForDMN(tokenizer)([GOOD, {**GOOD, **change}])


def test_an_empty_batch_and_bad_settings_are_refused(tokenizer):
    with pytest.raises(ValueError, match="empty batch"):
        DataCollatorForDMN(tokenizer)([])
    with pytest.raises(ValueError, match="num_passes is 0"):
        DataCollatorForDMN(tokenizer, num_passes=0)


# ----------------------------------------------------------------------------------------------------------------------


def test_stories_become_ids_that_read_as_the_stories():
    data = generate_babi([2, 8, 19], train_size=30, validation_size=6, test_size=9)
    tokenizer = DMNTokenizer.train_from_dataset(data)
    prepared = prepare_stories(data, tokenizer)
    assert {split: rows.num_rows for split, rows in prepared.items()} == {"train": 90, "validation": 18, "test": 27}
    for split, rows in prepared.items():
        for row, story in zip(rows, data[split], strict=True):
            said = [re.findall(r"\w+|[.?]", text.lower()) for text in [*story["facts"], story["question"]]]
            ids = [*row["input_ids"], row["question_ids"]]
            assert [tokenizer.convert_ids_to_tokens(sentence) for sentence in ids] == said
            assert tokenizer.convert_ids_to_tokens(row["labels"]) == [*map(str.lower, story["answer"]), "</s>"]
            assert row["supporting_facts"] == story["supporting_facts"] and row["task"] == story["task"]


def stories(**changes) -> DatasetDict:
    rows = {"facts": [["a b"], ["c d", "a"]], "question": ["e", "f"], "answer": [["a"], ["b"]]}
    return DatasetDict(train=Dataset.from_dict({**rows, "supporting_facts": [[0], [1]], **changes}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"answer": [["a"], ["zebra"]]}, "train split, row 1: the answer 'zebra' is not in the vocabulary"),
        ({"facts": [["a"], []]}, "train split, row 1 has no facts"),
        ({"question": ["", "a"]}, "the question of train split, row 0 is empty"),
        ({"supporting_facts": [[0], [2]]}, r"train split, row 1: supporting fact 2 of the question 'f' .* 0\.\.1"),
    ],
)
def test_wrong_rows_are_named_by_split_and_row(tokenizer, changes, message):
    with pytest.raises(ValueError, match=message):
        prepare_stories(stories(**changes), tokenizer)


def test_wrong_rows_of_files_are_named_by_file_and_line(tokenizer, tmp_path):
    path = tmp_path / "own.jsonl"
    path.write_text(
        '{"facts": ["a"], "question": "b", "answer": "a"}\n\n{"context": "a", "question": "b", "answer": "x"}\n'
    )
    data = read_stories({"test": path})
    with pytest.raises(ValueError, match=re.escape(f"{path}, line 3: the answer 'x' is not in the vocabulary")):
        prepare_stories(data, tokenizer)


def test_unknown_words_of_all_splits_are_listed_once(tokenizer):
    data = stories(question=["e", "Odd"])
    data["test"] = Dataset.from_dict({"facts": [["a new", "word"]], "question": ["New b?"], "answer": [["a"]]})
    with pytest.warns(UserWarning) as caught:
        prepared = prepare_stories(data, tokenizer)
    assert [str(one.message) for one in caught] == [
        "4 words are not in the vocabulary and read as <unk>: odd, new, word, ?"
    ]
    assert prepared["test"]["supporting_facts"][0] is None
    with pytest.raises(ValueError, match="4 words are not in the vocabulary: odd, new, word"):
        prepare_stories(data, tokenizer, unknown_words="refuse")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prepare_stories(data, tokenizer, unknown_words="allow")
    with pytest.raises(TypeError, match="data is Dataset, expected splits"):
        prepare_stories(data["test"], tokenizer)


class BagOfFacts(torch.nn.Module):
    """The smallest model with the inputs of a memory network."""

    def __init__(self, size: int):
        super().__init__()
        self.embed, self.out = torch.nn.Embedding(size, 8), torch.nn.Linear(8, size)
        self.seen: set[str] = set()

    def forward(self, input_ids, attention_mask, question_ids, question_mask, labels=None, supporting_facts=None):
        self.seen |= {name for name, value in locals().items() if isinstance(value, torch.Tensor)}
        facts = (self.embed(input_ids) * attention_mask[..., None] * supporting_facts[..., None, None]).sum((1, 2))
        logits = self.out(facts + (self.embed(question_ids) * question_mask[..., None]).sum(1))
        return {"loss": torch.nn.functional.cross_entropy(logits, labels[:, 0]), "logits": logits}


def test_trainer_learns_from_prepared_stories(tmp_path):
    data = generate_babi([1], train_size=300, validation_size=20, test_size=0)
    tokenizer = DMNTokenizer.train_from_dataset(data)
    prepared = prepare_stories(data, tokenizer)
    model = BagOfFacts(len(tokenizer))
    arguments = TrainingArguments(
        str(tmp_path),
        num_train_epochs=12,
        per_device_train_batch_size=16,
        learning_rate=0.03,
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = Trainer(
        model,
        arguments,
        data_collator=DataCollatorForDMN(tokenizer),
        train_dataset=prepared["train"],
        eval_dataset=prepared["validation"],
    )
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < 0.2 * before
    assert model.seen == {
        "input_ids",
        "attention_mask",
        "question_ids",
        "question_mask",
        "labels",
        "supporting_facts",
    }
