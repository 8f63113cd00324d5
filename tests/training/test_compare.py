"""Comparisons: what is trained, scored, kept, skipped and resumed."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import TrainerCallback

from hf_metalstm.data.collators import tokenize_tasks
from hf_metalstm.data.reviews import MultiTaskData, make_task
from hf_metalstm.modeling.modeling_meta_lstm import MetaLSTMForSequenceClassification
from hf_metalstm.tokenization.tokenization_word import WordTokenizer
from hf_metalstm.training.compare import Comparison, ComparisonArguments
from hf_metalstm.training.comparison_results import ModelResult, SystemResult, choose_systems
from hf_metalstm.training.comparison_table import as_markdown, as_text, cost_rows, score_rows
from hf_metalstm.training.word_vectors import WordVectors

SIZES = {"embedding_size": 4, "hidden_size": 3, "meta_size": 3, "z_size": 2}


@pytest.fixture(scope="module")
def data() -> MultiTaskData:
    def texts(task: str, start: int, count: int) -> tuple[list[str], list[int]]:
        labels = [index % 2 for index in range(count)]
        return [f"{task} {'good' if y else 'bad'} w{start + index}" for index, y in enumerate(labels)], labels

    tasks = {}
    for name in ("books", "dvd"):
        test = texts(name, 60, 10)
        # Three of the test texts are training texts, with the other label: a model that has learnt fails on these.
        test = (
            [*texts(name, 0, 3)[0], *test[0][3:]],
            [1 - label if row < 3 else label for row, label in enumerate(test[1])],
        )
        splits = {"train": texts(name, 0, 20), "validation": texts(name, 40, 6), "test": test}
        tasks[name] = make_task(splits, ["negative", "positive"])
    return MultiTaskData(tasks, "made up")


@pytest.fixture(scope="module")
def tokenizer(data: MultiTaskData) -> WordTokenizer:
    return WordTokenizer.train_from_iterator(text for rows in data.split("train").values() for text in rows["text"])


@pytest.fixture(scope="module")
def splits(data: MultiTaskData, tokenizer: WordTokenizer) -> dict[str, Any]:
    return tokenize_tasks(data, tokenizer)


@pytest.fixture
def compare(tmp_path: Path, data: MultiTaskData, tokenizer: WordTokenizer, splits: dict[str, Any]) -> Any:
    def make(folder: str = "out", options: dict[str, Any] | None = None, **arguments: Any) -> Comparison:
        given = {"num_train_epochs": 2, "per_device_train_batch_size": 4, "learning_rate": 0.01, "use_cpu": True}
        args = ComparisonArguments(str(tmp_path / folder), disable_tqdm=True, **{**given, **arguments})
        return Comparison(splits, data.label_names, tokenizer, SIZES, args, quiet=True, **(options or {}))

    return make


class Trained(TrainerCallback):
    """Notes which models are trained, and stops one like a power cut at a step."""

    def __init__(self, stop: tuple[str, int] | None = None):
        self.names: list[str] = []
        self.first_steps: list[int] = []
        self.stop = stop

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.names.append(args.run_name)
        self.first_steps.append(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.stop == (args.run_name, state.global_step):
            raise KeyboardInterrupt


def stored(result: ModelResult) -> dict[str, Any]:
    return {name: value for name, value in vars(result).items() if not name.startswith("seconds")}


def test_systems_train_one_model_a_task_or_one_for_all(compare: Any, tmp_path: Path) -> None:
    trained = Trained()
    comparison = compare(options={"callbacks": [trained]})
    results = {system: comparison.run(system) for system in choose_systems(["all"])}
    assert trained.names == [
        "lstm-single/books", "lstm-single/dvd", "meta-single/books", "meta-single/dvd", "meta-multi",
    ]  # fmt: skip
    for system, result in results.items():
        assert set(result.scores("dev")) == set(result.scores("test")) == {"books", "dvd"}
        assert len(result.losses) == 2 and result.total("seconds") > 0
        for model in result.models:
            folder = comparison.model_folder(system, model.tasks)
            loaded = MetaLSTMForSequenceClassification.from_pretrained(folder / "model")
            assert model.parameters == loaded.num_parameters()
            assert model.embedding_parameters == loaded.get_input_embeddings().weight.numel()
            assert list(loaded.config.tasks) == model.tasks
            assert not list(folder.glob("checkpoint-*"))
            assert model.epochs == 2 and model.best_epoch in (1, 2)
    cells = [results[system].models[0] for system in results]
    assert len({model.parameters for model in cells}) == 3
    json.dumps([result.to_dict() for result in results.values()], allow_nan=False)


def test_accuracies_are_those_of_the_saved_model(compare: Any, data: MultiTaskData, tokenizer: WordTokenizer) -> None:
    comparison = compare(options={"trainer_options": {"batching": "mixed"}}, num_train_epochs=10)
    (result,) = comparison.run("meta-multi").models
    model = MetaLSTMForSequenceClassification.from_pretrained(comparison.folder / "meta-multi" / "model")
    for task, rows in data.split("test").items():
        model.set_active_task(task)
        inputs = tokenizer(list(rows["text"]), padding=True, return_tensors="pt")
        with torch.no_grad():
            right = model(**inputs).logits.argmax(1) == torch.tensor(rows["label"])
        unique = ~torch.tensor(rows["duplicated"])
        assert int(unique.sum()) == 7 and result.test[task] != result.test_unique[task]
        assert result.test[task] == pytest.approx(right.double().mean().item())
        assert result.test_unique[task] == pytest.approx(right[unique].double().mean().item())


def test_finished_models_are_not_trained_again_and_the_result_is_the_same(compare: Any) -> None:
    first = [stored(model) for model in compare().run("lstm-single").models]
    trained = Trained()
    again = compare(options={"callbacks": [trained]})
    assert [stored(model) for model in again.run("lstm-single").models] == first
    assert trained.names == []


def test_interrupted_run_goes_on_and_ends_like_an_undisturbed_one(compare: Any, tmp_path: Path) -> None:
    wanted = compare("undisturbed", num_train_epochs=3).run("meta-single")
    cut = Trained(stop=("meta-single/dvd", 12))
    with pytest.raises(KeyboardInterrupt):
        compare(options={"callbacks": [cut]}, num_train_epochs=3).run("meta-single")
    # A checkpoint that was being written when the power went: without the file that is written last.
    (tmp_path / "out" / "meta-single" / "dvd" / "checkpoint-12").mkdir()
    trained = Trained()
    result = compare(options={"callbacks": [trained]}, num_train_epochs=3).run("meta-single")
    assert (trained.names, trained.first_steps) == (["meta-single/dvd"], [10])
    assert [stored(model) for model in result.models] == [stored(model) for model in wanted.models]
    for task in ("books", "dvd"):
        ours, theirs = (
            MetaLSTMForSequenceClassification.from_pretrained(tmp_path / folder / "meta-single" / task / "model")
            for folder in ("out", "undisturbed")
        )
        assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
    timed = result.models[1]
    assert timed.seconds == pytest.approx(3 * timed.seconds_an_epoch) and not list(tmp_path.rglob("checkpoint-*"))


def test_named_checkpoint_is_resumed_and_only_one_model_can_have_one(compare: Any, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        compare(options={"callbacks": [Trained(stop=("meta-multi", 12))]}).run("meta-multi")
    (checkpoint,) = (tmp_path / "out" / "meta-multi").glob("checkpoint-*")
    moved = checkpoint.rename(tmp_path / "moved")
    trained = Trained()
    comparison = compare(options={"callbacks": [trained]}, resume_from_checkpoint=str(moved))
    with pytest.raises(ValueError, match="resume_from_checkpoint is .*moved', which is for one model, but lstm-single"):
        comparison.run("lstm-single")
    comparison.run("meta-multi")
    assert trained.first_steps == [10]


def test_weights_of_tasks_are_for_the_multi_task_system(compare: Any) -> None:
    plain, weighted = compare("plain"), compare("w", {"trainer_options": {"task_weights": {"books": 5.0, "dvd": 0.0}}})
    single, multi = (
        [stored(m) for c in (plain, weighted) for m in c.run(s).models] for s in ("lstm-single", "meta-multi")
    )
    assert single[:2] == single[2:] and multi[0]["losses"] != multi[1]["losses"]
    with pytest.raises(ValueError, match="did you mean 'books'"):
        compare("other", {"trainer_options": {"task_weights": {"bokks": 2.0}}})


def test_other_settings_in_the_same_folder_are_refused_unless_overwritten(compare: Any) -> None:
    compare().run("lstm-single")
    with pytest.raises(ValueError, match=r"training_arguments.learning_rate was 0.01, now 0.1.*another\s+output_dir"):
        compare(learning_rate=0.1)
    with pytest.raises(ValueError, match="data was None, now 'other'"):
        compare(options={"settings": {"data": "other"}})
    trained = Trained()
    compare(options={"overwrite": True, "callbacks": [trained]}, learning_rate=0.1).run("lstm-single")
    assert trained.names == ["lstm-single/books", "lstm-single/dvd"]
    compare(learning_rate=0.1)


def test_settings_that_change_no_result_may_differ(compare: Any) -> None:
    compare()
    compare(report_to="none", save_total_limit=3, per_device_eval_batch_size=5)


def test_saved_models_are_scored_without_training(compare: Any) -> None:
    comparison = compare()
    trained = comparison.run("lstm-single", dev=True, test=False)
    assert trained.scores("test") == {} and len(trained.scores("dev")) == 2
    later = Trained()
    scored = compare(options={"callbacks": [later]}).run("lstm-single", train=False)
    assert later.names == [] and len(scored.scores("test")) == 2
    assert scored.losses == trained.losses
    with pytest.raises(FileNotFoundError, match="no trained model in .*train first"):
        comparison.run("meta-multi", train=False)


def test_models_are_prepared_before_training_with_vectors_read_once(
    compare: Any, tokenizer: WordTokenizer, tmp_path: Path
) -> None:
    file = tmp_path / "vectors.txt"
    file.write_text("good 1 2 3 4\nbad -1 -2 -3 -4\n")
    vectors = WordVectors(file, tokenizer)
    rows: list[list[float]] = []

    def prepare(model: MetaLSTMForSequenceClassification) -> None:
        vectors(model)
        rows.append(model.get_input_embeddings().weight[tokenizer.convert_tokens_to_ids("bad")].tolist())
        file.unlink(missing_ok=True)

    compare(options={"prepare_model": prepare}, num_train_epochs=1).run("lstm-single")
    assert rows == [[-1, -2, -3, -4]] * 2
    assert vectors.report is not None and vectors.report.found == 2


def test_unknown_system_is_refused_with_the_choices() -> None:
    assert choose_systems(["meta-multi", "lstm-single"]) == ["lstm-single", "meta-multi"]
    with pytest.raises(ValueError, match="no system 'lstm'; the systems are lstm-single, meta-single, meta-multi"):
        choose_systems(["lstm"])


# ---- results and tables, with numbers made by hand ----


@pytest.fixture
def results() -> list[SystemResult]:
    def model(tasks: list[str], **fields: Any) -> ModelResult:
        return ModelResult("lstm-single", tasks, 0, 1500, 1000, **fields)

    single = [
        model(["books"], test={"books": 0.75}, losses={"books": [0.5, 0.25]}, seconds=90.0, best_epoch=1.0),
        model(["dvd"], test={"dvd": 0.5}, losses={"dvd": [0.7, 0.75]}, seconds=60.0, best_epoch=2.0),
    ]
    both = ModelResult("meta-multi", ["books", "dvd"], 0, 2500, 1000, test={"books": 1.0, "dvd": 0.5}, seconds=20.0)
    return [SystemResult("lstm-single", single), SystemResult("meta-multi", [both])]


def test_results_of_a_system_are_sums_and_means_of_its_models(results: list[SystemResult]) -> None:
    single = results[0]
    assert (single.total("parameters"), single.total("seconds")) == (3000, 150)
    assert single.average("test") == 0.625
    assert single.losses == pytest.approx([0.6, 0.5])


def test_tables_show_scores_and_costs(results: list[SystemResult]) -> None:
    assert score_rows(results) == [
        ["task", "LSTM single-task", "Meta-LSTM multi-task"],
        ["books", "75.0", "100.0"],
        ["dvd", "50.0", "50.0"],
        ["average", "62.5", "75.0"],
    ]
    costs = {row[0].strip(): row[1:] for row in cost_rows(results)}
    assert costs["models"] == ["2", "1"]
    assert costs["parameters"] == ["3,000", "2,500"]
    assert costs["without embeddings"] == ["1,000", "1,500"]
    assert costs["training time"] == ["2 min 30 s", "20.0 s"]
    assert costs["best epoch"] == ["1 to 2", "0"]


def test_tables_are_aligned(results: list[SystemResult]) -> None:
    rows = score_rows(results)
    text, markdown = as_text(rows, rules=(1, 3)).splitlines(), as_markdown(rows).splitlines()
    assert len({len(line) for line in text}) == 1 and len({len(line) for line in markdown}) == 1
    assert text[1] == text[4] and set(text[1]) == {"-", " "}
    assert markdown[1].startswith("| ----") and markdown[1].endswith("-: |")
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in markdown]
    assert [cells[0], *cells[2:]] == rows
