"""The example of GPT-1, in-process and tiny: all tasks, files of one's own, wrong arguments."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("hf_metalstm.modeling.modeling_gpt1", reason="the models of GPT-1 are not in this version")

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "run_gpt1.py"
TINY = (
    "--n_embd 16 --n_layer 1 --n_head 2 --n_positions 64 --bpe_size 300 --generated_texts 60 --max_steps 2 --use_cpu "
    "--generated_train_size 12 --disable_tqdm true --per_device_train_batch_size 4"
).split()


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run_gpt1", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pretrained(script, tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("gpt1")
    results = script.main(["--from_scratch", "generated", "--output_dir", str(folder), *TINY])
    assert results["pretraining_loss"] > 0 and json.loads((folder / "results.json").read_text()) == results
    return str(folder / "pretrained")


@pytest.mark.parametrize("task", ["multiple_choice", "entailment", "similarity", "classification"])
def test_each_task_is_fine_tuned_and_scored(script, pretrained, task, tmp_path):
    arguments = ["--model_name_or_path", pretrained, "--task", task, "--output_dir", str(tmp_path), *TINY]
    results = script.main(arguments)
    for split, size in (("validation", 200), ("test", 400)):
        assert results[f"{split}_accuracy"] * size == pytest.approx(round(results[f"{split}_accuracy"] * size))
    assert (tmp_path / "model.safetensors").is_file() and (tmp_path / "tokenizer.json").is_file()


def test_a_csv_file_of_ones_own_with_named_classes(script, pretrained, tmp_path):
    lines = ["body,label", *(f"{word} {index},{word}" for index in range(10) for word in ("tom", "anna"))]
    (tmp_path / "mine.csv").write_text("\n".join(lines))
    arguments = ["--model_name_or_path", pretrained, "--task", "classification", "--output_dir", str(tmp_path / "out")]
    results = script.main([*arguments, "--data", str(tmp_path / "mine.csv"), "--text_columns", "body", *TINY])
    assert set(results) == {"seed", "task", "test_accuracy"}
    assert json.loads((tmp_path / "out" / "config.json").read_text())["id2label"] == {"0": "anna", "1": "tom"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "exactly one of --from_scratch and --model_name_or_path"),
        (["--model_name_or_path", "x"], "give --task"),
        (["--model_name_or_path", "x", "--task", "qa"], "there is no task 'qa'"),
    ],
)
def test_wrong_arguments_are_refused(script, arguments, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        script.main([*arguments, "--output_dir", str(tmp_path)])
