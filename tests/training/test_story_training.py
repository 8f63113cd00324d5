"""Training on stories: what is right, which epoch is kept, gates first, resuming, tables."""

import json

import numpy as np
import pytest
import torch
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, TrainerCallback

from hf_metalstm import DataCollatorForDMN, DMNForQuestionAnswering, DMNTokenizer
from hf_metalstm.data.babi_generator import BabiVocabulary, generate_babi
from hf_metalstm.data.dmn_collator import prepare_stories
from hf_metalstm.training.gates_first import GatesFirst
from hf_metalstm.training.story_training import (
    MODEL_FOLDER,
    StoryArguments,
    StoryResult,
    as_markdown,
    right_answers,
    train_on_stories,
)

SMALL = {"embedding_size": 32, "hidden_size": 32, "num_passes": 2, "gate": "softmax", "fact_encoder": "position"}
SMALL |= {"fusion_layer": True, "use_end_of_passes": True, "initializer_range": 0.5}
WORDS = BabiVocabulary(
    people={"Ada": "she", "Otto": "he", "Nora": "she", "Igor": "he"},
    places=("attic", "cellar", "market", "museum", "meadow", "station"),
)


@pytest.fixture(scope="module")
def data():
    return generate_babi([1], train_size=600, validation_size=20, test_size=30, story_length=4, vocabulary=WORDS)


def arguments(folder, **options):
    settings = {"num_train_epochs": 2, "use_cpu": True, "learning_rate": 0.01, "disable_tqdm": True, **options}
    return StoryArguments(output_dir=str(folder), **settings)


def test_an_answer_is_right_when_all_its_tokens_are():
    labels = np.array([[5, 6, 3], [5, 3, -100], [5, 3, -100]])
    predictions = np.array([[5, 6, 7], [5, 3, 9], [4, 3, -100]])
    assert right_answers(predictions, labels).tolist() == [False, True, False]


def test_a_generated_task_is_learnt_and_the_result_is_that_of_the_saved_model(data, tmp_path):
    result = train_on_stories(
        "one", data, arguments(tmp_path, num_train_epochs=30, learning_rate=0.005), SMALL, gate_epochs=3, quiet=True
    )
    assert result.average > 0.8 and result.supervised and result.epochs == 30
    folder = tmp_path / MODEL_FOLDER
    tokenizer = DMNTokenizer.from_pretrained(folder)
    model = DMNForQuestionAnswering.from_pretrained(folder)
    rows = prepare_stories(data, tokenizer)["test"].to_list()
    answers = tokenizer.decode_answers(model.generate(**DataCollatorForDMN(tokenizer)(rows), max_new_tokens=5))
    right = [got == expected for got, expected in zip(answers, data["test"]["answer"][:], strict=True)]
    assert result.test == {"qa1_single-supporting-fact": pytest.approx(sum(right) / 30)}
    assert not list(tmp_path.glob("checkpoint-*"))
    record = json.loads((tmp_path / "result.json").read_text())
    assert StoryResult(**record["result"]) == result


def test_a_finished_run_is_not_repeated_and_other_settings_are_refused(data, tmp_path):
    first = train_on_stories("one", data, arguments(tmp_path), SMALL, quiet=True)
    assert train_on_stories("one", data, arguments(tmp_path), SMALL, quiet=True) == first
    with pytest.raises(ValueError, match="holds a run with seed 42, not 1"):
        train_on_stories("one", data, arguments(tmp_path, seed=1), SMALL, quiet=True)


class _Stop(TrainerCallback):
    def on_epoch_end(self, args, state, control, **kwargs):
        if state.epoch >= 2:
            raise KeyboardInterrupt


def test_an_interrupted_run_ends_as_if_it_had_not_been(data, tmp_path):
    settings = dict(gate_epochs=1, quiet=True)
    plain = train_on_stories("one", data, arguments(tmp_path / "a", num_train_epochs=3), SMALL, **settings)
    with pytest.raises(KeyboardInterrupt):
        train_on_stories(
            "one", data, arguments(tmp_path / "b", num_train_epochs=3), SMALL, callbacks=[_Stop()], **settings
        )
    resumed = train_on_stories("one", data, arguments(tmp_path / "b", num_train_epochs=3), SMALL, **settings)
    assert (resumed.test, resumed.validation, resumed.epochs) == (plain.test, plain.validation, plain.epochs)
    states = [DMNForQuestionAnswering.from_pretrained(tmp_path / run / MODEL_FOLDER).state_dict() for run in ("a", "b")]
    assert all(torch.equal(part, states[1][name]) for name, part in states[0].items())


class _Watch(TrainerCallback):
    def __init__(self):
        self.seen = []

    def on_step_end(self, args, state, control, **kwargs):
        model = kwargs["model"]
        self.seen.append((int(state.epoch - 1e-6), model.train_gates_only))


def test_the_gates_come_first_for_as_many_epochs_as_are_asked_for(data, tmp_path):
    watch = _Watch()
    train_on_stories(
        "one", data, arguments(tmp_path, num_train_epochs=3), SMALL, gate_epochs=2, callbacks=[watch], quiet=True
    )
    assert set(watch.seen) == {(0, True), (1, True), (2, False)}
    with pytest.raises(ValueError, match="epochs is -1"):
        GatesFirst(-1)


def test_without_supporting_facts_no_gate_is_taught(data, tmp_path):
    watch = _Watch()
    result = train_on_stories(
        "one", data, arguments(tmp_path), SMALL, supervise_gates=False, callbacks=[watch], quiet=True
    )
    assert not result.supervised and not any(first for _, first in watch.seen)
    config = DMNForQuestionAnswering.from_pretrained(tmp_path / MODEL_FOLDER).config
    assert not config.use_end_of_passes


def test_a_missing_split_is_named(data, tmp_path):
    del (short := type(data)(data))["test"]
    with pytest.raises(ValueError, match="there is no test split, but train, validation"):
        train_on_stories("one", short, arguments(tmp_path), SMALL)


def test_transformers_own_trainer_predicts_answers_with_generate(data, tmp_path):
    tokenizer = DMNTokenizer.train_from_dataset(data)
    prepared = prepare_stories(data, tokenizer)
    from hf_metalstm import DMNConfig

    model = DMNForQuestionAnswering(DMNConfig(vocab_size=len(tokenizer), **SMALL))
    trainer = Seq2SeqTrainer(
        model=model,
        args=Seq2SeqTrainingArguments(
            output_dir=str(tmp_path),
            predict_with_generate=True,
            generation_max_length=4,
            use_cpu=True,
            report_to="none",
        ),
        data_collator=DataCollatorForDMN(tokenizer, num_passes=2),
    )
    predicted = trainer.predict(prepared["test"].to_list())
    batch = DataCollatorForDMN(tokenizer)(prepared["test"].to_list())
    expected = model.eval().generate(**batch, max_length=4)
    assert tokenizer.decode_answers(predicted.predictions) == tokenizer.decode_answers(expected)
    assert predicted.metrics["test_loss"] > 0


def result(name, task, test, validation):
    return StoryResult(name, {task: test}, validation, 0, 1, 1, 1, True)


def test_the_table_takes_the_seed_that_is_best_on_validation():
    runs = [result("a", "qa10_x", 0.5, 0.9), result("a", "qa10_x", 0.7, 0.8), result("b", "qa2_y", 1.0, 1.0)]
    lines = as_markdown({"ours": runs, "other": runs[2:]}, {"qa2_y": 98.2, "qa10_x": 97.5}).splitlines()
    assert lines == [
        "| task | ours | other | published |",
        "|:--|--:|--:|--:|",
        "| qa2_y | 100.0 | 100.0 | 98.2 |",
        "| qa10_x | 50.0 | - | 97.5 |",
        "| mean | 75.0 | 100.0 | 97.8 |",
    ]
