"""A saved folder gives the same answers in another process, with this package and without it."""

import json
import os
import subprocess
import sys

import pytest
import torch

from hf_metalstm import (
    MetaLSTMConfig,
    MetaLSTMForSequenceClassification,
    MultiTaskTextClassificationPipeline,
    WordTokenizer,
)

TASKS = {"toys": ["negative", "positive"], "books": ["bad", "middling", "good"]}
TEXTS = ["A GOOD book, isn't it?", "bad", "an unknown word"]

ABSENT = """
import sys
class Absent:
    def find_spec(self, name, *_):
        if name.split(".")[0] == "hf_metalstm":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
"""

ASK = """
import json, torch
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer, pipeline
config = AutoConfig.from_pretrained(FOLDER, **options)
model = AutoModelForSequenceClassification.from_pretrained(FOLDER, **options)
tokenizer = AutoTokenizer.from_pretrained(FOLDER, **options)
def logits(model, tokenizer):
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        return model(**batch, task_ids=torch.tensor([0, 1, 1])).logits.tolist()
result = {"logits": logits(model, tokenizer), "tasks": config.tasks, "order": list(config.tasks)}
result["labels"] = model.config.id2label
encoder = AutoModel.from_pretrained(FOLDER, **options)
result["encoder"] = type(encoder).__name__
state = model.encoder.state_dict()
result["same encoder"] = all(torch.equal(state[key], value) for key, value in encoder.state_dict().items())
classify = pipeline("text-classification", model=FOLDER, **options)
result["answers"] = [answer["label"] for answer in classify(texts)]
model.save_pretrained("again"); tokenizer.save_pretrained("again")
again = AutoModelForSequenceClassification.from_pretrained("again", **options)
result["again"] = logits(again, AutoTokenizer.from_pretrained("again", **options))
result["classes"] = [type(model).__module__.split(".")[0], type(tokenizer).__name__]
result["files"] = sorted(__import__("os").listdir("again"))
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shared")
    torch.manual_seed(0)
    tokenizer = WordTokenizer.train_from_iterator(["a good book", "it is n't bad ?"])
    sizes = dict(embedding_size=6, hidden_size=5, meta_size=4, z_size=3, bidirectional=True, pooling="concat")
    config = MetaLSTMConfig(vocab_size=len(tokenizer), **sizes, tasks=TASKS, active_task="books")
    model = MetaLSTMForSequenceClassification(config).eval()
    MultiTaskTextClassificationPipeline(model=model, tokenizer=tokenizer).save_pretrained(folder)
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = model(**batch, task_ids=torch.tensor([0, 1, 1])).logits
        best = model(**batch).logits.argmax(1)
    return folder, logits.tolist(), [TASKS["books"][index] for index in best]


def ask(folder, tmp_path, before: str, options: dict, after: str = "") -> dict:
    script = f"{before}\nFOLDER = {str(folder)!r}\noptions = {options!r}\ntexts = {TEXTS!r}\n{ASK}\n{after}\n"
    script += "print(json.dumps(result))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "HF_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"},
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    assert "not supported" not in done.stderr and "newly initialized" not in done.stderr, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def check(result: dict, logits: list, answers: list, *, same_backend: bool) -> None:
    # Where the package is, its compiled kernels are too: they round in another order.
    tolerance = 0.0 if same_backend else 1e-6
    torch.testing.assert_close(torch.tensor(result["logits"]), torch.tensor(logits), rtol=tolerance, atol=tolerance)
    assert result["again"] == result["logits"]
    assert result["encoder"] == "MetaLSTMModel" and result["same encoder"]
    assert result["tasks"] == TASKS and result["order"] == list(TASKS)
    assert result["labels"] == {str(index): label for index, label in enumerate(TASKS["books"])}
    assert result["answers"] == answers
    assert {name.rsplit(".", 1)[1] for name in result["files"]} == {"json", "py", "safetensors"}


def test_a_process_with_the_package_needs_no_trust_and_chooses_tasks(shared, tmp_path):
    folder, logits, answers = shared
    after = 'result["toys"] = [answer["label"] for answer in classify(texts, task_name="toys")]'
    result = ask(folder, tmp_path, "import hf_metalstm", {}, after)
    check(result, logits, answers, same_backend=True)
    assert result["classes"] == ["hf_metalstm", "WordTokenizer"]
    assert result["toys"][0] == TASKS["toys"][int(torch.tensor(logits[0]).argmax())]


def test_a_process_without_the_package_runs_the_code_in_the_folder(shared, tmp_path):
    folder, logits, answers = shared
    after = """
try:
    import hf_metalstm
except ModuleNotFoundError:
    result["absent"] = True
classify = pipeline("multi-task-text-classification", model=FOLDER, **options)
result["chosen"] = [answer["label"] for answer in classify(texts, task_name="toys")]
model.set_active_task("toys")
result["toys"] = model.config.id2label
"""
    result = ask(folder, tmp_path, ABSENT, {"trust_remote_code": True}, after)
    check(result, logits, answers, same_backend=False)
    assert result["absent"] and result["classes"] == ["transformers_modules", "WordTokenizer"]
    assert result["chosen"][0] == TASKS["toys"][int(torch.tensor(logits[0]).argmax())]
    assert result["toys"] == {"0": "negative", "1": "positive"}
