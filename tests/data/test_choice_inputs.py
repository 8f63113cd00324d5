"""Mappings from the columns of common data sets to the inputs of GPT-1's tasks."""

import pytest
from datasets import ClassLabel, Dataset, Features, Value

from hf_metalstm import GPT1Tokenizer
from hf_metalstm.data.choice_inputs import ChoiceColumns, build_task_inputs


@pytest.fixture(scope="module")
def tokenizer() -> GPT1Tokenizer:
    return GPT1Tokenizer.train_from_iterator(["the cat sat on a mat", "a dog slept well in the house"])


CHOICES = {
    "generated": ({"story": ["the cat"], "endings": [["sat", "slept"]], "label": [1]}, "the cat", 1),
    "answer as text": ({"story": ["the cat"], "endings": [["sat", "slept"]], "label": ["slept"]}, "the cat", 1),
    "answer as digits": ({"story": ["the cat"], "endings": [["sat", "slept"]], "label": ["1"]}, "the cat", 1),
    "Story Cloze": (
        {
            **{f"InputSentence{i}": [text] for i, text in enumerate(["the", "cat", "a", "dog"], start=1)},
            "RandomFifthSentenceQuiz1": ["sat"],
            "RandomFifthSentenceQuiz2": ["slept"],
            "AnswerRightEnding": [2],
        },
        "the cat a dog",
        1,
    ),
    "RACE": ({"article": ["the cat"], "question": ["a dog"], "options": [["sat", "slept"]], "answer": ["B"]},
             "the cat a dog", 1),
    "ARC": ({"question": ["the cat"], "choices": [{"text": ["sat", "slept"], "label": ["1", "2"]}], "answerKey": ["2"]},
            "the cat", 1),
    "question": ({"question": ["the cat"], "choices": [["sat", "slept"]], "label": [0]}, "the cat", 0),
}  # fmt: skip


@pytest.mark.parametrize("name", CHOICES)
def test_columns_of_common_multiple_choices_are_found(tokenizer, name):
    columns, context, label = CHOICES[name]
    (row,) = build_task_inputs(Dataset.from_dict(columns), tokenizer, "multiple_choice")
    assert row == {**tokenizer.build_multiple_choice(context, ["sat", "slept"]), "label": label}


def test_swag_has_a_column_for_each_ending(tokenizer):
    columns = {
        "sent1": ["the cat"],
        "sent2": ["a dog"],
        **{f"ending{i}": [t] for i, t in enumerate("abcd")},
        "label": [3],
    }
    (row,) = build_task_inputs(Dataset.from_dict(columns), tokenizer, "multiple_choice")
    assert row == {**tokenizer.build_multiple_choice("the cat a dog", list("abcd")), "label": 3}


def test_own_columns_can_be_named(tokenizer):
    rows = Dataset.from_dict({"t": ["the cat"], "one": ["sat"], "two": ["slept"], "right": [2], "pair": ["a mat"]})
    choice = build_task_inputs(
        rows, tokenizer, "multiple_choice", columns=ChoiceColumns(("t",), ("one", "two"), "right", 1)
    )
    assert choice[0]["label"] == 1 and len(choice[0]["input_ids"]) == 2
    pair = build_task_inputs(rows, tokenizer, "entailment", columns=["t", "pair"])
    assert pair.to_list() == [tokenizer.build_entailment("the cat", "a mat")]


def test_texts_and_pairs_with_labels_as_indexes_and_names(tokenizer):
    rows = {"premise": ["the cat"], "hypothesis": ["a mat"], "label": ["no"]}
    built = build_task_inputs(Dataset.from_dict(rows), tokenizer, "entailment", label_names=["yes", "no"])
    assert built.to_list() == [{**tokenizer.build_entailment("the cat", "a mat"), "label": 1}]
    rows = {"sentence1": ["the cat"], "sentence2": ["a mat"], "label": [0]}
    built = build_task_inputs(Dataset.from_dict(rows), tokenizer, "similarity", max_length=6)
    assert built.to_list() == [{**tokenizer.build_similarity("the cat", "a mat", 6), "label": 0}]
    features = Features({"text": Value("string"), "label": ClassLabel(names=["x", "y"])})
    built = build_task_inputs(Dataset.from_dict({"text": ["cat"], "label": [1]}, features), tokenizer, "classification")
    assert built.to_list() == [{**tokenizer.build_classification("cat"), "label": 1}]


@pytest.mark.parametrize(
    ("task", "columns", "message"),
    [
        ("qa", {"a": ["b"]}, "there is no task 'qa'; the tasks are multiple_choice"),
        ("multiple_choice", {"text": ["a"]}, "the columns are text, which is none of the known multiple choices"),
        ("multiple_choice", {"story": ["a", "a"], "endings": [["a", "b"], ["a", "b", "c"]], "label": [0, 0]},
         "row 1: 3 answers, but row 0 has 2: choices must not be ragged"),
        ("multiple_choice", {"story": ["a"], "endings": [["a", "b"]], "label": [2]},
         r"row 0: the label means answer 2, but there are answers 0\.\.1"),
        ("multiple_choice", {"question": ["a"], "choices": [["a", "b"]], "answerKey": ["C"]},
         "the label means answer 2"),
        ("multiple_choice", {"story": ["a"], "endings": [["a", "b"]], "label": ["both"]}, "neither an index nor"),
        ("multiple_choice", {"story": ["a"], "endings": [["a", " "]], "label": [0]}, r"row 0: answers\[1\] is empty"),
        ("multiple_choice", {"story": ["a"], "endings": ["ab"], "label": [0]}, "are no list of texts"),
        ("entailment", {"premise": ["a"], "label": [0]}, "entailment looks for premise \\+ hypothesis"),
        ("entailment", {"premise": ["a", "a"], "hypothesis": ["b", ""], "label": [0, 0]}, "row 1: hypothesis is empty"),
        ("entailment", {"premise": ["a"], "hypothesis": [None], "label": [0]}, "row 0: hypothesis is None"),
        ("classification", {"text": ["a"], "label": [-1]}, "row 0: the label is -1"),
        ("classification", {"text": ["a"], "label": ["good"]},
         "the label is 'good', but none are known: give label_names"),
        ("classification", {"text": ["a"], "label": [0.5]}, r"the label is 0.5 \(float\)"),
        ("classification", {"text": ["a", "a"], "label": [1, None]}, "row 1 has no label"),
        ("classification", {"text": [], "label": []}, "no rows"),
    ],
)  # fmt: skip
def test_rows_that_make_no_input_are_named(tokenizer, task, columns, message):
    with pytest.raises((ValueError, TypeError), match=message):
        build_task_inputs(Dataset.from_dict(columns), tokenizer, task)


def test_columns_and_classes_that_do_not_exist_are_named(tokenizer):
    rows = Dataset.from_dict({"text": ["a"], "label": [2]})
    with pytest.raises(ValueError, match="there is no column 'body'; the data set has text, label"):
        build_task_inputs(rows, tokenizer, "classification", columns=["body"])
    with pytest.raises(ValueError, match="has 2 texts"):
        build_task_inputs(rows, tokenizer, "entailment", columns=["text"])
    with pytest.raises(TypeError, match="needs ChoiceColumns"):
        build_task_inputs(rows, tokenizer, "multiple_choice", columns=["text"])
    with pytest.raises(ValueError, match=r"the label is 2, but classes are 0..1 \(x, y\)"):
        build_task_inputs(rows, tokenizer, "classification", label_names=["x", "y"])
