"""The example of memory networks, in-process and tiny: generated tasks, joint, own stories, wrong arguments."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest
from transformers import pipeline

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "run_dmn_qa.py"
TINY = (
    "--hidden_size 8 --embedding_size 8 --train_size 24 --test_size 12 --num_train_epochs 1 --gate_epochs 0 --use_cpu "
    "--disable_tqdm true --use_end_of_passes false"
).split()


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run_dmn_qa", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tasks_in_turn_leave_a_model_each_a_table_and_pictures(script, tmp_path):
    results = script.main(["--tasks", "1", "6", "--output_dir", str(tmp_path), *TINY])
    assert [result.name for result in results] == ["task_1", "task_6"]
    record = json.loads((tmp_path / "results.json").read_text())
    assert [result["test"] for result in record["results"]] == [result.test for result in results]
    table = (tmp_path / "results.md").read_text()
    assert "qa1_" in table and "qa6_" in table and "| mean |" in table
    for name in ("task_1", "task_6"):
        assert (tmp_path / name / "gates.png").stat().st_size > 1000
    ask = pipeline("memory-question-answering", model=str(tmp_path / "task_1" / "model"))
    answer = ask(facts=["Mary moved to the hallway."], question="Where is Mary?")
    assert len(answer["gates"][0]) == 1


def test_all_tasks_in_one_model(script, tmp_path):
    results = script.main(["--tasks", "1", "2", "--joint", "--output_dir", str(tmp_path), *TINY])
    assert len(results) == 1 and len(results[0].test) == 2


def test_own_stories_and_a_second_start_trains_nothing_again(script, tmp_path):
    lines = [
        json.dumps(
            {
                "facts": [f"{name} went to the {place}.", "It rained."],
                "question": f"Where is {name}?",
                "answer": place,
                "supporting_facts": [1],
            }
        )
        for name in ("Ada", "Otto", "Nora")
        for place in ("attic", "cellar", "station", "garden")
    ]
    (tmp_path / "mine.jsonl").write_text("\n".join(lines) + "\n")
    arguments = ["--train_file", str(tmp_path / "mine.jsonl"), "--output_dir", str(tmp_path / "out"), *TINY]
    first = script.main(arguments)
    weights = tmp_path / "out" / "stories" / "model" / "model.safetensors"
    written = weights.stat().st_mtime_ns
    assert script.main(arguments) == first and weights.stat().st_mtime_ns == written
    with pytest.raises(ValueError, match="another output folder"):
        script.main([*arguments, "--learning_rate", "0.5"])


def test_contradicting_sources_are_refused(script, tmp_path):
    with pytest.raises(ValueError, match="either --babi_dir or --train_file"):
        script.main(["--babi_dir", "x", "--train_file", "y", "--output_dir", str(tmp_path), *TINY])
