"""The command `hf-metalstm`: help, errors, info, and the demo from data to answers."""

import argparse
import json
import subprocess
import sys
import types
from pathlib import Path

import pytest

from hf_metalstm import __version__, cli
from hf_metalstm.commands import demo, info
from hf_metalstm.modeling import compiled_kernels
from hf_metalstm.modeling.compiled_kernels import instruction_sets
from hf_metalstm.modeling.recurrent import available_backends

PNG = b"\x89PNG\r\n\x1a\n"
TINY = ["--epochs", "1", "--embedding_size", "6", "--hidden_size", "5", "--meta_size", "4", "--z_size", "3"]


@pytest.fixture
def failing_command(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """Makes `info` raise whatever the test sets as `error`."""
    holder = types.SimpleNamespace(error=None)

    def run(args: argparse.Namespace) -> None:
        raise holder.error

    monkeypatch.setattr(info, "run", run)
    return holder


# ---- the command itself ----


def test_importing_the_command_and_its_help_loads_neither_torch_nor_transformers() -> None:
    program = (
        "import sys\n"
        "from hf_metalstm.cli import main\n"
        "try:\n    main(['demo', '--help'])\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "assert not {'torch', 'transformers', 'datasets', 'matplotlib'} & set(sys.modules)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "--data_dir" in result.stdout and "generated reviews" in result.stdout


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"hf-metalstm {__version__}\n"


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    listed = capsys.readouterr().out
    assert all(f"    {name} " in listed for name in cli.COMMANDS)


@pytest.mark.parametrize("arguments", [[], ["dmeo"], ["demo", "--epochs", "many"], ["demo", "--epochs", "0"]])
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(arguments)
    assert end.value.code == 2
    assert "usage: hf-metalstm" in capsys.readouterr().err


def test_error_is_one_line_on_stderr(
    failing_command: types.SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    failing_command.error = ValueError("train has 3 tasks:\n  books, dvd")
    assert cli.main(["info"]) == 1
    printed = capsys.readouterr()
    assert printed.err == "hf-metalstm info: error: train has 3 tasks: books, dvd\n"
    assert printed.out == ""


def test_unforeseen_error_names_its_class_and_the_way_to_its_traceback(
    failing_command: types.SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    failing_command.error = KeyError("books")
    assert cli.main(["info"]) == 1
    assert capsys.readouterr().err == "hf-metalstm info: error: KeyError: 'books' (--debug shows where)\n"


@pytest.mark.parametrize("arguments", [["--debug", "info"], ["info", "--debug"]])
def test_debug_shows_the_traceback(
    arguments: list[str], failing_command: types.SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    failing_command.error = ValueError("no such thing")
    assert cli.main(arguments) == 1
    shown = capsys.readouterr().err
    assert "Traceback (most recent call last)" in shown and "raise holder.error" in shown
    assert shown.endswith("hf-metalstm info: error: no such thing\n")


def test_interruption_exits_as_shells_expect(
    failing_command: types.SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    failing_command.error = KeyboardInterrupt()
    assert cli.main(["info"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


# ---- info ----


def test_info_names_versions_backend_extras_and_models(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setenv("HF_METALSTM_BACKEND", "reference")
    monkeypatch.setitem(info._EXTRAS, "plots", "a-library-that-is-not-there")
    assert cli.main(["info"]) == 0
    lines = capsys.readouterr().out.splitlines()
    start = len(max((line.split("  ")[0] for line in lines), key=len)) + 2
    facts = {line[:start].rstrip(): line[start:] for line in lines}
    assert facts["hf-metalstm"] == __version__
    assert facts["torch"] == torch.__version__
    others = [name for name in available_backends() if name != "reference"]
    assert facts["recurrent ops"] == f"reference (also available: {', '.join(others)})"
    assert facts["threads"] == f"{torch.get_num_threads()} of torch, shared by the compiled kernels"
    if instruction_sets():
        assert facts["compiled kernels"].startswith(f"{instruction_sets()[-1]} (this processor also has: ")
    monkeypatch.setattr(compiled_kernels, "_kernels", None)
    assert cli.main(["info"]) == 0
    assert "not built: install a C++17 compiler" in capsys.readouterr().out
    assert facts["extra plots"] == 'not installed: pip install "hf-metalstm[plots]"'
    assert "meta_lstm" in facts["model types"].split(", ")


def test_info_refuses_a_backend_that_does_not_exist(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_METALSTM_BACKEND", "cuda9")
    assert cli.main(["info"]) == 1
    known = ", ".join(available_backends())
    assert f"HF_METALSTM_BACKEND is 'cuda9'; available: {known}" in capsys.readouterr().err


# ---- demo ----


@pytest.mark.slow
def test_demo_trains_compares_draws_saves_and_asks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    tasks = ["dvd", "electronics"]
    arguments = ["demo", "--tasks", *tasks, "--train_size", "24", *TINY, "--output_dir", str(tmp_path / "out")]
    assert cli.main([*arguments, "--debug"]) == 0
    printed = capsys.readouterr()
    assert "synthetic" in printed.out.splitlines()[1]
    folder = tmp_path / "out"

    results = json.loads((folder / "results.json").read_text())
    assert [system["system"] for system in results["systems"]] == ["lstm-single", "meta-single", "meta-multi"]
    assert [len(system["models"]) for system in results["systems"]] == [2, 2, 1]
    assert "synthetic" in results["source"] and results["settings"]["epochs"] == 1

    lines = printed.out.splitlines()
    header = next(index for index, line in enumerate(lines) if line.startswith("  task") and "LSTM" in line)
    table = {line.split()[0]: line.split()[1:] for line in lines[header + 2 : header + 4]}
    for column, system in enumerate(results["systems"]):
        scores = {task: score for model in system["models"] for task, score in model["test"].items()}
        assert {task: table[task][column] for task in tasks} == {t: f"{100 * scores[t]:.1f}" for t in tasks}
    assert len({len(line) for line in lines[header : header + 6]}) == 1, "the table's columns are not aligned"

    for picture in ("learning_curves.png", "word_changes.png"):
        assert (folder / picture).read_bytes().startswith(PNG)
    assert sorted(path.name for path in folder.iterdir()) == [
        "ask.py", "learning_curves.png", "model", "results.json", "word_changes.png",
    ]  # fmt: skip

    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = AutoModelForSequenceClassification.from_pretrained(folder / "model")
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    assert type(model).__name__ == "MetaLSTMForSequenceClassification" and model.config.active_task == "dvd"
    inputs = tokenizer("the picture is unpredictable .", return_tensors="pt")
    answers = printed.out.partition("It prints\n\n")[2].splitlines()
    assert len(answers) == 3 and "'label': " in answers[0]
    for answer, task in zip(answers[1:], tasks, strict=True):
        model.set_active_task(task)
        with torch.no_grad():
            probabilities = model(**inputs).logits.softmax(-1)[0]
        label = model.config.id2label[int(probabilities.argmax())]
        assert answer.strip() == f"{task}: {label} ({probabilities.max().item():.4f})"


def test_question_of_the_demo_means_opposite_things_in_its_two_tasks() -> None:
    from hf_metalstm.commands.demo_steps import opposite_question
    from hf_metalstm.data.synthetic_reviews import word_polarity

    tasks, text = opposite_question(["books", "dvd", "electronics", "kitchen"])
    word = text.split()[-2]
    assert {word_polarity(word, task) for task in tasks} == {1, -1}
    assert opposite_question(["books"]) is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tasks", "bokks"], "did you mean 'books'"),
        (["--data_dir", "no/such/folder"], "no/such/folder has no <task>.task.train files"),
        (["--dataset", "missing.csv"], "there is no file missing.csv"),
    ],
)
def test_demo_says_what_is_wrong_with_its_data(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["demo", *arguments, "--output_dir", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert message in printed.err and printed.err.count("\n") == 1
    assert "Training" not in printed.out


def test_demo_asks_for_matplotlib_before_it_trains(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert cli.main(["demo", "--output_dir", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert 'pip install "hf-metalstm[plots]"' in printed.err
    assert printed.out == ""


def test_demo_leaves_the_loudness_of_the_libraries_as_it_was() -> None:
    import datasets
    from transformers.utils import logging

    from hf_metalstm.commands.demo_steps import quiet_libraries

    before = logging.get_verbosity(), logging.is_progress_bar_enabled(), datasets.are_progress_bars_disabled()
    with quiet_libraries():
        assert not logging.is_progress_bar_enabled() and datasets.are_progress_bars_disabled()
    after = logging.get_verbosity(), logging.is_progress_bar_enabled(), datasets.are_progress_bars_disabled()
    assert before == after


def test_defaults_of_the_help_are_those_that_are_used() -> None:
    from hf_metalstm.commands.demo_steps import GENERATED, OWN_DATA

    parser = argparse.ArgumentParser()
    demo.add_parser(parser.add_subparsers())
    actions = {action.dest: action for action in parser._subparsers._group_actions[0].choices["demo"]._actions}  # type: ignore[union-attr]
    for name, value in GENERATED.items():
        text = actions[name].help
        assert actions[name].default is None
        assert str(OWN_DATA[name]) in text and (value is None or f"(default: {value}, " in text), text
