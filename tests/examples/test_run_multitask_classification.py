"""The example script, in-process on small files in the format of the sixteen tasks."""

import importlib.util
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import datasets
import pytest
import transformers

from hf_metalstm.data.synthetic_reviews import generate_reviews

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "run_multitask_classification.py"
SIZES = "--embedding_size 4 --hidden_size 3 --meta_size 3 --z_size 2 --num_train_epochs 1 --dev_size 6".split()


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run_multitask_classification", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def loudness() -> Iterator[None]:
    """The script sets the loudness of whole libraries, as a script may; other tests shall not notice."""
    verbosity = transformers.utils.logging.get_verbosity()
    yield
    transformers.utils.logging.set_verbosity(verbosity)
    transformers.utils.logging.enable_progress_bar()
    datasets.enable_progress_bars()
    for name in ("run_multitask_classification", "hf_metalstm"):
        logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tasks; two test texts of books are training texts, and one line is Latin-1."""
    path = tmp_path_factory.mktemp("tasks")
    for name, splits in generate_reviews(["books", "dvd"], train_size=16, dev_size=6, test_size=10).items():
        lines = {
            split: [f"{label}\t{text}" for label, text in zip(rows["label"], rows["text"], strict=True)]
            for split, rows in splits.items()
        }
        test = [*lines["train"][:2], *lines["test"][2:]] if name == "books" else lines["test"]
        train = b"\n".join(line.encode() for line in [*lines["train"], *lines["validation"]])
        (path / f"{name}.task.train").write_bytes(train + b" caf\xe9\n")
        (path / f"{name}.task.test").write_text("\n".join(test) + "\n")
    return path


def run(script: ModuleType, folder: Path, output: Path, *arguments: str) -> list:
    common = ["--data_dir", str(folder), "--output_dir", str(output), *SIZES, "--disable_tqdm", "true", "--use_cpu"]
    return script.main([*common, *arguments])


def test_all_systems_are_reported_with_and_without_duplicated_texts(
    script: ModuleType, folder: Path, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    run(script, folder, tmp_path, "--plot", "--seed", "5")
    record = json.loads((tmp_path / "results.json").read_text())
    assert record["seed"] == 5 and record["source"].startswith("review files in")
    assert [system["system"] for system in record["systems"]] == ["lstm-single", "meta-single", "meta-multi"]
    for system in record["systems"]:
        scores = {task: score for model in system["models"] for task, score in model["test"].items()}
        unique = {task: score for model in system["models"] for task, score in model["test_unique"].items()}
        assert all((10 * score) == pytest.approx(round(10 * score)) for score in scores.values())
        # Eight texts of books are left without the two duplicated ones.
        assert 8 * unique["books"] == pytest.approx(round(8 * unique["books"])) and unique["dvd"] == scores["dvd"]
        assert system["average_test"] == pytest.approx(sum(scores.values()) / 2)
        assert len(system["losses"]) == 1 and system["parameters"] > 0 and system["seconds_an_epoch"] > 0
    tables = (tmp_path / "results.md").read_text()
    assert "Seed: 5." in tables and "without the texts that are also in train or dev" in tables
    assert "| average |" in tables.replace("  ", "") and "seconds an epoch" in tables
    assert (tmp_path / "learning_curves.png").stat().st_size > 1000
    log = (tmp_path / "train.log").read_text()
    assert "lstm-single/books: epoch 1 of 1, dev accuracy" in log and "meta-multi: epoch 1 of 1" in log


def test_started_again_it_skips_what_is_finished_and_adds_what_is_not(
    script: ModuleType, folder: Path, tmp_path: Path
) -> None:
    first = run(script, folder, tmp_path, "--system", "lstm-single")
    again = run(script, folder, tmp_path, "--system", "lstm-single", "meta-multi")
    assert again[0] == first[0] and [result.system for result in again] == ["lstm-single", "meta-multi"]
    log = (tmp_path / "train.log").read_text()
    assert log.count("lstm-single/dvd: epoch 1 of 1") == 1
    assert log.count("lstm-single/dvd: finished in an earlier run") == 1


def test_facts_about_the_vectors_outlive_a_run_that_trains_nothing(
    script: ModuleType, folder: Path, tmp_path: Path
) -> None:
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("plot 1 2 3 4\nthe 1 1 1 1\n")
    for _ in range(2):
        run(script, folder, tmp_path / "out", "--system", "lstm-single", "--vectors", str(vectors))
        assert json.loads((tmp_path / "out" / "results.json").read_text())["vectors"].startswith("2 of ")


def test_steps_can_be_run_apart(script: ModuleType, folder: Path, tmp_path: Path) -> None:
    (trained,) = run(script, folder, tmp_path, "--system", "meta-multi", "--do_train")
    assert trained.scores("test") == {} and trained.losses
    (scored,) = run(script, folder, tmp_path, "--system", "meta-multi", "--do_predict")
    assert set(scored.scores("test")) == {"books", "dvd"} and scored.losses == trained.losses


def test_options_of_training_tokens_and_tasks_reach_their_places(
    script: ModuleType, folder: Path, tmp_path: Path
) -> None:
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("plot 1 2 3 4\nthe 1 1 1 1\n")
    output = tmp_path / "out"
    arguments = (
        "--system meta-multi --tasks dvd books --max_length 7 --vocab_size 20 --min_frequency 1 --sampling temperature "
        "--temperature 3 --batching mixed --task_weights books=2 dvd=0.5 --optim adagrad --learning_rate 0.05 "
        "--gradient_accumulation_steps 2 --per_device_train_batch_size 2 --pooling mean"
    )
    (result,) = run(script, folder, output, *arguments.split(), "--vectors", str(vectors))
    record = json.loads((output / "results.json").read_text())
    settings = record["settings"]
    assert list(settings["tasks"]) == result.models[0].tasks == ["dvd", "books"]
    assert settings["vocabulary"] == 20 and settings["data"]["max_length"] == 7
    assert settings["trainer"] == {
        "sampling": "temperature", "temperature": 3.0, "batching": "mixed", "task_weights": {"books": 2.0, "dvd": 0.5},
    }  # fmt: skip
    assert settings["training_arguments"]["optim"] == "adagrad"
    assert settings["model"]["pooling"] == "mean"
    assert record["vectors"].startswith("2 of 16 words found")


def test_data_set_in_a_file_with_a_task_column_is_read(script: ModuleType, tmp_path: Path) -> None:
    rows = [
        {"review": f"{word} {task} {index}", "stars": stars, "shop": task}
        for index in range(20)
        for task in ("a", "b")
        for word, stars in (("good", "five"), ("bad", "one"))
    ]
    file = tmp_path / "reviews.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    arguments = f"--dataset {file} --text_column review --label_column stars --task_column shop --system lstm-single"
    (result,) = script.main([*arguments.split(), "--output_dir", str(tmp_path / "out"), *SIZES, "--use_cpu"])
    assert set(result.scores("test")) == {"a", "b"}
    assert json.loads((tmp_path / "out" / "settings.json").read_text())["tasks"]["a"] == ["five", "one"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--system", "lstm"], "there is no system 'lstm'"),
        (["--tasks", "bokks"], "did you mean 'books'"),
        (["--dataset", "imdb"], "exactly one of --data_dir and --dataset"),
        (["--task_weights", "books"], "task_weights has 'books', expected task=number"),
        (["--task_weights", "bokks=2", "--system", "meta-multi"], "did you mean 'books'"),
        (["--system", "lstm-single", "--resume_from_checkpoint", "c"], "for one model, but lstm-single has 2"),
    ],
)
def test_wrong_arguments_are_refused_and_logged(
    script: ModuleType, folder: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        run(script, folder, tmp_path, *arguments)
    assert message in (tmp_path / "train.log").read_text()
