"""Answers about stories: their scores, their gates, batches, unknown words, refused input."""

import json
import os
import subprocess
import sys
import warnings

import pytest
import torch
from transformers import PreTrainedTokenizerFast, pipeline

from hf_metalstm import DataCollatorForDMN, DMNConfig, DMNForQuestionAnswering, DMNTokenizer

STORIES = [
    {"facts": ["Ada ran to the attic.", "Otto ran to the cellar."], "question": "Where is Ada?"},
    {"context": "Otto took the milk. Otto ran to the attic. Ada ran.", "question": "Where is the milk?"},
    {"facts": ["Ada took the milk."], "question": "Who took the milk?"},
]


def make_parts(**options):
    torch.manual_seed(0)
    texts = ["Ada ran to the attic.", "Otto took the milk to the cellar.", "Where is Who is Ada ?"]
    tokenizer = DMNTokenizer.train_from_iterator(texts)
    config = DMNConfig(vocab_size=len(tokenizer), embedding_size=8, hidden_size=8, num_passes=2, **options)
    model = DMNForQuestionAnswering(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model, tokenizer


@pytest.fixture
def ask():
    model, tokenizer = make_parts()
    return pipeline("memory-question-answering", model=model, tokenizer=tokenizer)


def test_answer_score_and_gates_are_the_models(ask):
    (answer,) = ask([STORIES[0]])
    batch = DataCollatorForDMN(ask.tokenizer)(ask.tokenizer.encode_stories(STORIES[:1]))
    written = ask.model.generate(**batch, max_new_tokens=20, do_sample=False)[0, 1:].tolist()
    assert answer["answer"].split() == ask.tokenizer.decode_answers([written])[0]
    assert answer["gates"] == ask.model.encoder(**batch).gates[0].tolist()
    assert answer["facts"] == STORIES[0]["facts"]
    log_probability, read = 0.0, [2]
    for token in written:
        logits = ask.model(**batch, decoder_input_ids=torch.tensor([read])).logits[0, -1]
        log_probability += float(logits.log_softmax(0)[token].detach())
        read.append(token)
    assert answer["score"] == pytest.approx(torch.tensor(log_probability).exp().item(), rel=1e-4)


def test_the_score_of_an_answer_that_ends_early_counts_its_end_and_no_more(ask):
    with torch.no_grad():
        ask.model.lm_head.bias[3] += 3.0
    together, alone = ask(STORIES), [ask(story) for story in STORIES]
    assert len({len(answer["answer"].split()) for answer in together}) >= 1
    for one, other in zip(together, alone, strict=True):
        assert one["answer"] == other["answer"]
        assert one["score"] == pytest.approx(other["score"], rel=1e-4)


def test_stories_of_a_batch_do_not_change_each_other(ask):
    alone = [ask(story) for story in STORIES]
    for batch_size in (1, 2, 32):
        for one, other in zip(ask(STORIES, batch_size=batch_size), alone, strict=True):
            assert one["answer"] == other["answer"] and one["facts"] == other["facts"]
            torch.testing.assert_close(torch.tensor(one["gates"]), torch.tensor(other["gates"]))
    assert [len(answer["gates"][0]) for answer in alone] == [2, 3, 1]


def test_a_paragraph_is_its_sentences_and_names_are_a_story(ask):
    story = STORIES[1]
    by_name = ask(context=story["context"], question=story["question"])
    facts = ["Otto took the milk.", "Otto ran to the attic.", "Ada ran."]
    assert by_name == ask(story) == ask(facts=facts, question=story["question"])
    assert by_name["facts"] == facts


def test_generators_are_answered_one_batch_at_a_time(ask):
    taken = []

    def stories():
        for story in STORIES:
            taken.append(story)
            yield story

    answers = ask(stories(), batch_size=1)
    first = next(answers)
    assert len(taken) == 1 and first["answer"] == ask(STORIES[0])["answer"]
    assert len(list(answers)) == 2


def test_no_stories_have_no_answers(ask):
    assert ask([]) == []


def test_more_beams_find_an_answer_that_is_at_least_as_likely():
    model, tokenizer = make_parts()
    with torch.no_grad():
        model.lm_head.weight.mul_(3)
    ask = pipeline("memory-question-answering", model=model, tokenizer=tokenizer)
    greedy, beams = (ask(STORIES, num_beams=number, max_new_tokens=3) for number in (1, 8))
    assert any(one["score"] < other["score"] for one, other in zip(greedy, beams, strict=True))


def test_a_pass_that_was_not_made_has_no_gates():
    model, tokenizer = make_parts(use_end_of_passes=True)
    batch = DataCollatorForDMN(tokenizer)(tokenizer.encode_stories(STORIES))
    ask = pipeline("memory-question-answering", model=model, tokenizer=tokenizer)
    expected = model.encoder(**batch).passes.tolist()
    assert [len(answer["gates"]) for answer in ask(STORIES)] == expected


def test_unknown_words_are_listed_in_a_warning_refused_or_allowed(ask):
    story = {"facts": ["Zoe ran to the pier."], "question": "Where is Zoe?"}
    with pytest.warns(UserWarning, match="2 words are not in the vocabulary.*: zoe, pier"):
        ask(story)
    with pytest.raises(ValueError, match="zoe, pier"):
        ask(story, unknown_words="refuse")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert ask(story, unknown_words="allow")["score"] > 0


@pytest.mark.parametrize(
    "story, error, message",
    [
        ({"facts": [], "question": "Where?"}, ValueError, "has no facts"),
        ({"facts": ["Ada ran."], "question": " "}, ValueError, "the question of .* is empty"),
        ({"facts": ["Ada ran."]}, ValueError, "the question of .* is missing"),
        ({"facts": "Ada ran.", "question": "Who?"}, TypeError, "a paragraph is a context"),
        ({"facts": ["Ada ran."], "context": "Ada.", "question": "Who?"}, ValueError, "give one of them"),
        ({"facts": ["Ada ran."], "questions": "Who?"}, ValueError, "'questions', which is not known"),
        ("Ada ran.", TypeError, "expected {'facts'"),
    ],
)
def test_stories_that_cannot_be_answered_are_named(ask, story, error, message):
    with pytest.raises(error, match=message):
        ask(story)
    with pytest.raises(error, match="story 2"):
        ask([*STORIES[:2], story], batch_size=2)


def test_settings_that_make_no_sense_are_refused(ask):
    for name in ("num_beams", "max_new_tokens", "batch_size"):
        with pytest.raises(ValueError, match=f"{name} is 0"):
            ask(STORIES[0], **{name: 0})
    with pytest.raises(ValueError, match="not both ways"):
        ask(STORIES[0], question="Who?")
    plain = PreTrainedTokenizerFast(tokenizer_object=ask.tokenizer.backend_tokenizer)
    with pytest.raises(TypeError, match="give a DMNTokenizer"):
        pipeline("memory-question-answering", model=ask.model, tokenizer=plain)


ABSENT = """
import sys
class Absent:
    def find_spec(self, name, *_):
        if name.split(".")[0] == "hf_metalstm":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
"""

ASK = """
import json
from transformers import AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer, pipeline
ask = pipeline("memory-question-answering", model=FOLDER, **options)
base = AutoModel.from_pretrained(FOLDER, **options)
same = all(bool((base.state_dict()[name] == part).all()) for name, part in ask.model.encoder.state_dict().items())
print(json.dumps([ask(STORIES), type(base).__name__, same, type(ask.tokenizer).__name__]))
"""


@pytest.mark.parametrize("before, options", [("import hf_metalstm", {}), (ABSENT, {"trust_remote_code": True})])
def test_a_saved_model_answers_alike_in_another_process(ask, tmp_path, before, options):
    folder = tmp_path / "shared"
    if options:
        ask.save_pretrained(folder)
    else:
        ask.model.save_pretrained(folder)
        ask.tokenizer.save_pretrained(folder)
    script = f"{before}\nFOLDER, options, STORIES = {str(folder)!r}, {options!r}, {STORIES!r}\n{ASK}"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "HF_HOME": str(tmp_path / "cache")},
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    answers, base, same, tokenizer = json.loads(done.stdout.splitlines()[-1])
    for got, expected in zip(answers, ask(STORIES), strict=True):
        assert (got["answer"], got["facts"]) == (expected["answer"], expected["facts"])
        assert got["score"] == pytest.approx(expected["score"], rel=1e-4)
        torch.testing.assert_close(torch.tensor(got["gates"]), torch.tensor(expected["gates"]))
    assert base == "DMNModel" and same and tokenizer == "DMNTokenizer"
