"""The multiple-choice pipeline: rankings, batches of unlike questions, bad questions."""

import json

import pytest
import torch
from transformers import OpenAIGPTConfig, OpenAIGPTDoubleHeadsModel, pipeline

from hf_metalstm import GPT1Tokenizer
from hf_metalstm.pipelines.multiple_choice import MultipleChoicePipeline

TEXTS = ["the cat sat on a mat", "a dog slept well in the house"]
QUESTIONS = [
    {"context": "the cat", "answers": ["sat on a mat", "slept"]},
    {"context": "a dog", "answers": ["slept well", "sat", "in the house"]},
]


@pytest.fixture(scope="module")
def choose() -> MultipleChoicePipeline:
    torch.manual_seed(0)
    tokenizer = GPT1Tokenizer.train_from_iterator(TEXTS)
    config = OpenAIGPTConfig(vocab_size=len(tokenizer), n_embd=16, n_layer=2, n_head=2, n_positions=24)
    return MultipleChoicePipeline(model=OpenAIGPTDoubleHeadsModel(config).eval(), tokenizer=tokenizer)


def expected_scores(choose: MultipleChoicePipeline, question: dict, limit: int = 24) -> list[float]:
    """Each answer alone through the model, then a softmax."""
    built = choose.tokenizer.build_multiple_choice(**question, max_length=limit)
    logits = []
    for ids, place in zip(built["input_ids"], built["mc_token_ids"], strict=True):
        with torch.no_grad():
            output = choose.model(torch.tensor([[ids]]), mc_token_ids=torch.tensor([[place]]))
        logits.append(output.mc_logits.flatten()[0])
    return torch.stack(logits).softmax(0).tolist()


def test_answers_are_ranked_by_the_softmax_of_their_single_scores(choose):
    for question, ranking in zip(QUESTIONS, choose(QUESTIONS), strict=True):
        expected = expected_scores(choose, question)
        assert [one["score"] for one in ranking] == pytest.approx(sorted(expected, reverse=True), abs=1e-6)
        for one in ranking:
            assert question["answers"][one["index"]] == one["answer"]
            assert one["score"] == pytest.approx(expected[one["index"]], abs=1e-6)


def test_it_is_registered_and_saves_its_code_with_the_model(choose, tmp_path):
    made = pipeline("multiple-choice", model=choose.model, tokenizer=choose.tokenizer)
    assert type(made) is MultipleChoicePipeline and made(QUESTIONS) == choose(QUESTIONS)
    made.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["custom_pipelines"] == {
        "multiple-choice": {
            "impl": "multiple_choice.MultipleChoicePipeline", "pt": ["AutoModelForMultipleChoice"], "type": "text"
        }
    }  # fmt: skip
    assert {"multiple_choice.py", "tokenization_gpt1.py", "gpt1_text_rules.py"} <= {p.name for p in tmp_path.iterdir()}


def test_all_ways_of_asking_give_the_same(choose):
    first, second = (choose(question) for question in QUESTIONS)
    assert choose(**QUESTIONS[0]) == first and choose(QUESTIONS) == [first, second]
    assert choose(QUESTIONS[1], top_k=2) == second[:2] and choose([]) == []


def test_a_long_context_is_cut_to_what_the_model_reads(choose):
    question = {"context": "the cat sat on a mat " * 20, "answers": ["slept", "sat"]}
    scores = {one["index"]: one["score"] for one in choose(question)}
    assert [scores[0], scores[1]] == pytest.approx(expected_scores(choose, question), abs=1e-6)
    shorter = {one["index"]: one["score"] for one in choose(question, max_length=9)}
    assert [shorter[0], shorter[1]] == pytest.approx(expected_scores(choose, question, 9), abs=1e-6)


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ("the cat", "the question is 'the cat', expected {'context': text, 'answers'"),
        ([QUESTIONS[0], {"context": "a"}], "question 1 is {'context': 'a'}, expected"),
        ({**QUESTIONS[0], "label": 1}, "the question has 'label', which is not known"),
        ({"context": "a", "answers": ["b"]}, "expected a list of two answers or more"),
        ({"context": " ", "answers": ["cat", "dog"]}, "context is empty after tokenization"),
    ],
)
def test_bad_questions_are_named(choose, question, message):
    with pytest.raises(ValueError, match=message):
        choose(question)


def test_bad_options_are_named(choose):
    with pytest.raises(ValueError, match="top_k is 0"):
        choose(QUESTIONS[0], top_k=0)
    with pytest.raises(ValueError, match="not both ways"):
        choose(QUESTIONS[0], context="a")
