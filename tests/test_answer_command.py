"""`hf-metalstm answer`: a conversation, on a given model and on one that it trains."""

import io

import pytest

from hf_metalstm import cli
from hf_metalstm.commands import answer
from hf_metalstm.commands.answer import converse


class Pipeline:
    """Answers "attic", and remembers what it was asked."""

    def __init__(self, gates):
        self.gates, self.asked = gates, []

    def __call__(self, facts, question, **settings):
        self.asked.append((list(facts), question, settings))
        return {"answer": "attic", "score": 0.5, "gates": self.gates and [[0.9] * len(facts)], "facts": facts}


def test_facts_gather_until_a_new_story_begins():
    ask = Pipeline(gates=True)
    lines = ["Ada ran.", "  ", "Otto ran.", ":undo", "Who ran?", ":facts", ":new", "Where?", ":undo", ":facts", ":what"]
    replies = list(converse([*lines, ":quit", "Who?"], ask, num_beams=2))
    assert ask.asked == [(["Ada ran."], "Who ran?", {"num_beams": 2})]
    assert replies[0] == "taken back: Otto ran."
    assert replies[1].splitlines()[0] == "attic  (50.0 %)" and "██ 0.90" in replies[1]
    assert replies[2] == "Ada ran." and replies[3] == "a new story"
    assert replies[4].startswith("there are no facts yet") and replies[5] == replies[6] == "there are no facts"
    assert replies[7].startswith(":what is no command") and len(replies) == 8


def test_an_answer_without_passes_is_shown_without_gates():
    assert list(converse(["Ada ran.", "Who?"], Pipeline(gates=None))) == ["attic  (50.0 %)"]


def test_a_model_is_trained_on_generated_stories_and_answers(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(answer, "_EPOCHS", 1)
    monkeypatch.setattr("sys.stdin", io.StringIO("Ada ran to the attic.\nWhere is Zoe?\n"))
    assert cli.main(["answer", "--output_dir", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "900 generated questions of task 1" in printed and "pass 1" in printed
    assert "not in the vocabulary and read as <unk>: zoe" in printed
    folder = tmp_path / "task_1_seed_0" / "model"
    monkeypatch.setattr("sys.stdin", io.StringIO("Ada ran to the attic.\nWhere is Ada?\n"))
    assert cli.main(["answer", "--model", str(folder)]) == 0
    assert "training" not in (again := capsys.readouterr().out) and "pass 1" in again


def test_a_folder_without_a_model_is_refused(tmp_path, capsys):
    assert cli.main(["answer", "--model", str(tmp_path)]) == 1
    assert "has no config.json" in capsys.readouterr().err


@pytest.mark.parametrize("task", ["0", "21"])
def test_an_unknown_kind_of_story_is_refused(task, tmp_path, capsys):
    assert cli.main(["answer", "--task", task, "--output_dir", str(tmp_path)]) == 1
    assert task in capsys.readouterr().err
