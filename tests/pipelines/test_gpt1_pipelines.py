"""GPT-1 through transformers' pipelines, from saved folders, with the package and without."""

import json
import os
import subprocess
import sys

import pytest
import torch
from transformers import AutoTokenizer, pipeline

from hf_metalstm import (
    GPT1Config,
    GPT1DoubleHeadsModel,
    GPT1ForSequenceClassification,
    GPT1LMHeadModel,
    GPT1Tokenizer,
)

TEXTS = ["it rained all day", "he took an umbrella", "the sun was out", "she wore a hat"]
KINDS = {
    "text-generation": GPT1LMHeadModel,
    "text-classification": GPT1ForSequenceClassification,
    "multiple-choice": GPT1DoubleHeadsModel,
}
# Makes `import hf_metalstm` fail, as where it is not installed.
ABSENT = "import sys; sys.modules['hf_metalstm'] = None"


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict:
    made = {}
    for kind, model_class in KINDS.items():
        tokenizer = GPT1Tokenizer.train_from_iterator(TEXTS * 2, model_max_length=32)
        torch.manual_seed(1)
        labels = {"id2label": {0: "follows", 1: "does not"}} if kind == "text-classification" else {}
        config = GPT1Config(
            vocab_size=len(tokenizer) - 4,
            n_embd=16,
            n_layer=2,
            n_head=2,
            n_positions=32,
            initializer_range=0.5,
            **labels,
        )
        model = model_class(config).eval()
        tokenizer.add_task_tokens(model)
        if kind == "text-classification":
            tokenizer.set_task("classification")
        folder = tmp_path_factory.mktemp(kind)
        if kind == "multiple-choice":
            pipeline(kind, model=model, tokenizer=tokenizer).save_pretrained(folder)
        else:
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
        made[kind] = folder, model, tokenizer
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_auto_classes_find_the_tokenizer(folders, kind):
    assert type(AutoTokenizer.from_pretrained(folders[kind][0])) is GPT1Tokenizer


def test_generated_text_is_that_of_the_model(folders):
    folder, model, tokenizer = folders["text-generation"]
    write = pipeline("text-generation", model=str(folder))
    got = write(TEXTS[:2], max_new_tokens=6, do_sample=False, return_full_text=False, batch_size=2)
    for text, answer in zip(TEXTS[:2], got, strict=True):
        batch = tokenizer(text, return_tensors="pt")
        ids = model.generate(**batch, max_new_tokens=6, do_sample=False)[0, batch["input_ids"].shape[1] :]
        assert answer[0]["generated_text"].strip() == tokenizer.decode(ids, skip_special_tokens=True).strip()


def test_pairs_and_single_texts_are_classified_in_the_papers_form(folders):
    folder, model, tokenizer = folders["text-classification"]
    classify = pipeline("text-classification", model=str(folder))
    pair = {"text": TEXTS[0], "text_pair": TEXTS[1]}
    got = classify([pair, {"text": TEXTS[2], "text_pair": TEXTS[3]}], batch_size=2, top_k=None)
    ids = torch.tensor([tokenizer.build_entailment(TEXTS[0], TEXTS[1])["input_ids"]])
    wanted = model(ids).logits.softmax(-1)[0]
    scores = {answer["label"]: answer["score"] for answer in got[0]}
    assert scores == pytest.approx({"follows": wanted[0].item(), "does not": wanted[1].item()}, abs=1e-5)
    ids = torch.tensor([tokenizer.build_classification(TEXTS[0])["input_ids"]])
    assert classify(TEXTS[0])[0]["score"] == pytest.approx(model(ids).logits.softmax(-1).max().item(), abs=1e-5)


def test_choices_are_ranked_by_the_choice_head(folders):
    folder, model, tokenizer = folders["multiple-choice"]
    choose = pipeline("multiple-choice", model=str(folder), trust_remote_code=True)
    ranking = choose(context=TEXTS[0], answers=TEXTS[1:])
    scores = []
    for answer in TEXTS[1:]:
        row = tokenizer.build_multiple_choice(TEXTS[0], [answer, answer])["input_ids"][0]
        scores.append(model(torch.tensor([[row]])).mc_logits[0, 0])
    wanted = torch.stack(scores).softmax(0)
    assert [answer["index"] for answer in ranking] == wanted.argsort(descending=True).tolist()
    assert [answer["score"] for answer in ranking] == pytest.approx(wanted.sort(descending=True)[0].tolist(), abs=1e-5)


ASK = """
import json
from transformers import pipeline
options = OPTIONS
write = pipeline("text-generation", model=FOLDERS["text-generation"], **options)
classify = pipeline("text-classification", model=FOLDERS["text-classification"], **options)
# Saved as a pipeline, whose code transformers runs with consent only, also where the package is.
choose = pipeline("multiple-choice", model=FOLDERS["multiple-choice"], trust_remote_code=True)
print(json.dumps({
    "written": write(TEXTS[0], max_new_tokens=5, do_sample=False)[0]["generated_text"],
    "classified": classify({"text": TEXTS[0], "text_pair": TEXTS[1]}),
    "chosen": choose(context=TEXTS[0], answers=TEXTS[1:]),
    "home": type(write.model).__module__.split(".")[0],
}))
"""


def test_folders_with_their_code_need_no_package(folders, tmp_path):
    answers = []
    shared = {}
    for kind, (_, model, tokenizer) in folders.items():
        if kind == "multiple-choice":
            shared[kind] = str(folders[kind][0])
            continue
        shared[kind] = str(tmp_path / kind)
        model.save_pretrained(tmp_path / kind)
        tokenizer.save_pretrained(tmp_path / kind)
    for before, options in (("import hf_metalstm", {}), (ABSENT, {"trust_remote_code": True})):
        script = f"{before}\nFOLDERS = {shared!r}\nTEXTS = {TEXTS!r}\nOPTIONS = {options!r}\n{ASK}"
        done = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "HF_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"},
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        answers.append(json.loads(done.stdout.splitlines()[-1]))
    assert [answer.pop("home") for answer in answers] == ["hf_metalstm", "transformers_modules"]
    assert answers[0]["written"] == answers[1]["written"]
    for name in ("classified", "chosen"):
        with_package, without = (
            [answers[i][name]] if isinstance(answers[i][name], dict) else answers[i][name] for i in (0, 1)
        )
        for one, other in zip(with_package, without, strict=True):
            assert one["score"] == pytest.approx(other["score"], abs=1e-5)
