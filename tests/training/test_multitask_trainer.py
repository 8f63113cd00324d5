"""MultiTaskTrainer on a small model: loss, accumulation, evaluation, learning curves, resuming, errors."""

import copy
import itertools
import logging

import datasets
import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import EarlyStoppingCallback

from hf_metalstm import MetaLSTMConfig, MetaLSTMForSequenceClassification, WordTokenizer

WEIGHTS = {"books": 0.8, "dvd": 0.2}


def loss_by_hand(model, rows, weights=None, extra=0.0):
    """The loss of one batch of (task, row) pairs in plain formulas, without padding or missing columns."""
    losses, squares = {"books": [], "dvd": []}, []
    for task, row in rows:
        pooled = model.embeddings.weight[row["input_ids"]].mean(0)
        squares.append(pooled.square().sum())
        if row["labels"] != -100:
            head = model.heads[["books", "dvd"].index(task)]
            losses[task].append(cross_entropy(head(pooled), torch.tensor(row["labels"])))
    every = losses["books"] + losses["dvd"]
    if weights is None:
        loss = sum(every) / len(every)
    else:
        loss = sum(weights[task] * sum(own) / len(own) for task, own in losses.items() if own)
    return loss + extra * sum(squares) / len(squares)


def gradients(model):
    return {name: torch.zeros_like(p) if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("extra", [0.0, 0.3])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("sizes", [[10], [4, 4, 2], [1, 7, 2]])
def test_accumulated_batches_have_the_gradient_of_the_large_batch(
    make_trainer, make_model, make_rows, weights, extra, sizes
):
    model = make_model(extra=extra)
    trainer = make_trainer(model=model, task_weights=weights, gradient_accumulation_steps=len(sizes))
    rows = [("books", row) for row in make_rows(6)] + [("dvd", row) for row in make_rows(4, "dvd")]
    rows[1][1]["labels"] = rows[7][1]["labels"] = -100
    items = [{**row, "task_ids": int(task == "dvd")} for task, row in rows]
    ends = list(itertools.accumulate(sizes))
    batches = [trainer.data_collator(items[end - size : end]) for size, end in zip(sizes, ends, strict=True)]
    batches, counts = trainer.get_batch_samples(iter(batches), len(sizes), torch.device("cpu"))
    loss = sum(trainer.training_step(model, batch, counts) for batch in batches)
    found = gradients(model)
    model.zero_grad()
    expected = loss_by_hand(model, rows, weights, extra)
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), abs=1e-12)
    for name, gradient in gradients(model).items():
        torch.testing.assert_close(found[name], gradient, rtol=0, atol=1e-12)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_a_run_with_accumulation_ends_with_the_weights_of_one_with_large_batches(make_trainer, make_model, weights):
    finals = []
    for size, steps in ((20, 1), (6, 4)):
        trainer = make_trainer(
            model=make_model(extra=0.3),
            task_weights=weights,
            batching="mixed",
            optim="sgd",
            num_train_epochs=3,
            logging_steps=1,
            per_device_train_batch_size=size,
            gradient_accumulation_steps=steps,
        )
        trainer.train()
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        finals.append((trainer.model.state_dict(), losses))
    assert len(finals[0][1]) == 3 and finals[0][1] == pytest.approx(finals[1][1], abs=1e-6)  # logged in float32
    for name, weight in finals[0][0].items():
        torch.testing.assert_close(weight, finals[1][0][name], rtol=0, atol=1e-12)


def test_loss_of_a_batch_alone_uses_the_weights(make_trainer, make_model, make_rows):
    model = make_model()
    trainer = make_trainer(model=model, task_weights={"dvd": 0.25})
    rows = [("books", row) for row in make_rows(3)] + [("dvd", row) for row in make_rows(2, "dvd")]
    batch = trainer.data_collator([{**row, "task_ids": int(task == "dvd")} for task, row in rows])
    expected = loss_by_hand(model, rows, {"books": 1.0, "dvd": 0.25}).item()
    assert trainer.compute_loss(model, batch).item() == pytest.approx(expected, abs=1e-12)


def test_label_smoothing_is_that_of_the_tasks_own_classes(make_trainer, make_model, make_rows):
    model, rows = make_model(), make_rows(5)
    trainer = make_trainer(model=model, label_smoothing_factor=0.2)
    batch = trainer.data_collator([{**row, "task_ids": 0} for row in rows])
    logits = model(**batch).logits[:, :2]
    expected = cross_entropy(logits, batch["labels"], label_smoothing=0.2)
    torch.testing.assert_close(trainer.compute_loss(model, batch), expected)


def test_batches_without_any_label_train_nothing_and_warn_once(make_trainer, make_rows, tasks, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    monkeypatch.setattr(logging.getLogger("hf_metalstm"), "propagate", True)
    model = MetaLSTMForSequenceClassification(MetaLSTMConfig(20, 4, 4, 3, 3, tasks=tasks))
    before = copy.deepcopy(model.state_dict())
    unlabelled = {task: [{**row, "labels": -100} for row in make_rows(6, task)] for task in tasks}
    with caplog.at_level(logging.WARNING):
        trainer = make_trainer(
            model=model, train_dataset=unlabelled, optim="sgd", logging_steps=1, gradient_accumulation_steps=2
        )
        trainer.train()
    assert [entry["loss"] for entry in trainer.state.log_history if "loss" in entry] == [0.0, 0.0]
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    assert trainer.epoch_losses == []
    assert len([record for record in caplog.records if "-100" in record.message]) == 1


@pytest.mark.parametrize(("optim", "kind"), [("adagrad", "Adagrad"), ("adamw_torch", "AdamW"), ("rmsprop", "RMSprop")])
def test_any_optimizer_of_the_arguments_learns_both_tasks(make_trainer, optim, kind):
    trainer = make_trainer(optim=optim, num_train_epochs=8, learning_rate=0.1, sampling="uniform")
    trainer.train()
    assert type(trainer.optimizer.optimizer).__name__ == kind
    first, last = trainer.epoch_losses[0]["tasks"], trainer.epoch_losses[-1]["tasks"]
    assert all(last[task] < 0.9 * first[task] for task in ("books", "dvd"))


def test_the_data_loader_follows_the_sampling_options(make_trainer):
    def shares(**options):
        loader = make_trainer(**options).get_train_dataloader()
        batches = [batch["task_ids"].tolist() for batch in loader]
        mixed = any(len(set(batch)) == 2 for batch in batches)
        return sum(map(len, batches)), sum(map(sum, batches)), mixed

    assert shares() == (20, 7, False)
    assert shares(batching="mixed") == (20, 7, True)
    assert shares(sampling="uniform") == (26, 13, False)
    assert shares(sampling="temperature", temperature=2.0) == (23, 10, False)
    assert shares(batching="mixed", dataloader_drop_last=True, per_device_train_batch_size=8)[0] == 16
    trainer = make_trainer(sampling="uniform")
    assert trainer.num_examples(trainer.get_train_dataloader()) == 26


def test_the_order_of_the_batches_follows_data_seed_or_else_seed(make_trainer):
    def batches(**seeds):
        return [batch["input_ids"].tolist() for batch in make_trainer(**seeds).get_train_dataloader()]

    assert batches(seed=1) == batches(seed=2, data_seed=1) != batches(seed=2)


def test_group_by_length_puts_similar_lengths_together(make_trainer, make_rows):
    data = {"books": make_rows(40), "dvd": make_rows(40, "dvd", 1)}

    def padding(**options):
        loader = make_trainer(train_dataset=data, **options).get_train_dataloader()
        return sum(int((batch["attention_mask"] == 0).sum()) for batch in loader)

    assert padding(train_sampling_strategy="group_by_length") < 0.4 * padding()


def test_one_dataset_with_task_ids_does_the_same_as_one_dataset_a_task(make_trainer, make_rows):
    books, dvd = make_rows(13), make_rows(7, "dvd", 1)
    columns = [{**row, "task_ids": 0, "text": "x"} for row in books] + [
        {**row, "task_ids": 1, "text": "x"} for row in dvd
    ]
    runs = []
    for data in ({"books": books, "dvd": dvd}, datasets.Dataset.from_list(columns)):
        trainer = make_trainer(train_dataset=data, eval_dataset=data)
        trainer.train()
        runs.append((trainer.model.state_dict(), trainer.evaluate()))
    assert all(torch.equal(weight, runs[1][0][name]) for name, weight in runs[0][0].items())
    scores = [{name: value for name, value in run[1].items() if "second" not in name} for run in runs]
    assert {n: v for n, v in scores[0].items() if "time" not in n} == {
        n: v for n, v in scores[1].items() if "time" not in n
    }


# ---- evaluation ----


@pytest.mark.parametrize("strategy", ["random", "group_by_length"])
def test_predictions_come_in_input_order_and_equal_single_calls(make_trainer, make_model, make_rows, strategy):
    model = make_model().eval()
    trainer = make_trainer(model=model, train_sampling_strategy=strategy, per_device_eval_batch_size=2)
    rows = {"dvd": make_rows(2, "dvd", 5), "books": make_rows(5, seed=6)}
    for row, length in zip(rows["books"], [9, 1, 4, 2, 7], strict=True):
        row["input_ids"] = (row["input_ids"] * 3)[:length]
    output = trainer.predict(rows)
    flat = [("dvd", row) for row in rows["dvd"]] + [("books", row) for row in rows["books"]]
    for index, (task, row) in enumerate(flat):
        alone = model(torch.tensor([row["input_ids"]]), task_ids=torch.tensor([int(task == "dvd")])).logits[0]
        np.testing.assert_allclose(output.predictions[index], alone.detach().numpy(), atol=1e-12)
        assert output.label_ids[index] == row["labels"]


def test_metrics_are_those_of_each_task_and_their_mean(make_trainer, make_model, make_rows):
    model = make_model(extra=0.5).eval()
    data = {"books": make_rows(11, seed=7), "dvd": make_rows(6, "dvd", 8)}
    data["books"][2]["labels"] = -100
    trainer = make_trainer(model=model, eval_dataset=data, dataloader_drop_last=True)
    metrics = trainer.evaluate()
    expected = {}
    for task, rows in data.items():
        logits = [model.heads[int(task == "dvd")](model.embeddings.weight[row["input_ids"]].mean(0)) for row in rows]
        labelled = [(logit, row["labels"]) for logit, row in zip(logits, rows, strict=True) if row["labels"] != -100]
        expected[task] = (
            sum(int(logit.argmax()) == label for logit, label in labelled) / len(labelled),
            sum(cross_entropy(logit, torch.tensor(label)).item() for logit, label in labelled) / len(labelled),
        )
    for position, name in enumerate(("accuracy", "loss")):
        for task in data:
            assert metrics[f"eval_{task}_{name}"] == pytest.approx(expected[task][position], abs=1e-12)
        mean = sum(values[position] for values in expected.values()) / 2
        assert metrics[f"eval_average_{name}"] == pytest.approx(mean, abs=1e-12)
    assert 0 <= metrics["eval_average_macro_f1"] <= 1
    # eval_loss is the model's own, with what it adds to the task loss, averaged over the rows of the batches of 4.
    flat = [(task, row) for task, rows in data.items() for row in rows]
    batches = [flat[at : at + 4] for at in range(0, 17, 4)]
    total = sum(len(batch) * loss_by_hand(model, batch, extra=0.5).item() for batch in batches)
    assert metrics["eval_loss"] == pytest.approx(total / 17, abs=1e-12)


def test_predict_names_its_metrics_test_and_needs_no_labels(make_trainer, make_rows):
    trainer = make_trainer()
    assert "test_books_accuracy" in trainer.predict({"books": make_rows(3)}).metrics
    assert "held_out_dvd_loss" in trainer.predict({"dvd": make_rows(3, "dvd")}, metric_key_prefix="held_out").metrics
    output = trainer.predict({"books": [{"input_ids": row["input_ids"]} for row in make_rows(3)]})
    assert output.predictions.shape == (3, 3) and output.label_ids is None
    assert not any("accuracy" in name or "loss" in name for name in output.metrics)


def test_own_metrics_are_called_for_each_task(make_trainer, make_rows):
    shapes = []

    def metrics(prediction):
        shapes.append(prediction.predictions.shape)
        return {"rows": len(prediction.label_ids)}

    trainer = make_trainer(compute_metrics=metrics)
    found = trainer.evaluate({"books": make_rows(9), "dvd": make_rows(5, "dvd")})
    assert shapes == [(9, 2), (5, 3)]
    assert [found[f"eval_{name}_rows"] for name in ("books", "dvd", "average")] == [9, 5, 7]


def test_the_best_model_is_loaded_and_early_stopping_stops(make_trainer, make_rows):
    trainer = make_trainer(
        callbacks=[EarlyStoppingCallback(2)],
        train_dataset={"books": make_rows(13), "dvd": make_rows(7, "dvd", 1)},
        eval_dataset={"books": make_rows(8, seed=5), "dvd": make_rows(8, "dvd", 6)},
        num_train_epochs=30,
        learning_rate=0.3,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        metric_for_best_model="average_accuracy",
        load_best_model_at_end=True,
    )
    trainer.train()
    scores = [entry["eval_average_accuracy"] for entry in trainer.state.log_history if "eval_loss" in entry]
    assert 3 <= len(scores) < 30
    assert scores[-3] == max(scores) == trainer.state.best_metric
    assert trainer.evaluate()["eval_average_accuracy"] == max(scores)


# ---- learning curves and resuming ----


def test_epoch_losses_are_the_averages_over_the_epochs_examples(make_trainer, make_model, make_rows):
    data = {"books": make_rows(13), "dvd": make_rows(7, "dvd", 1)}
    trainer = make_trainer(
        model=make_model(extra=0.4),
        train_dataset=data,
        eval_dataset=data,
        learning_rate=0.0,
        num_train_epochs=2,
        logging_strategy="epoch",
        task_weights=WEIGHTS,
    )
    trainer.train()
    metrics = trainer.evaluate()
    assert [entry["epoch"] for entry in trainer.epoch_losses] == [1.0, 2.0]
    for entry in trainer.epoch_losses:
        assert entry["tasks"] == pytest.approx({task: metrics[f"eval_{task}_loss"] for task in data}, abs=1e-12)
        mean = (13 * entry["tasks"]["books"] + 7 * entry["tasks"]["dvd"]) / 20
        assert entry["loss"] == pytest.approx(mean, abs=1e-12)
    history = trainer.state.log_history
    assert [e["epoch_train_loss"] for e in history if "epoch_train_loss" in e] == [
        entry["loss"] for entry in trainer.epoch_losses
    ]
    assert [e["epoch_train_dvd_loss"] for e in history if "epoch_train_dvd_loss" in e] == [
        entry["tasks"]["dvd"] for entry in trainer.epoch_losses
    ]
    # Trainer's own entry for the epoch is still there.
    assert len([entry for entry in history if "grad_norm" in entry]) == 2
    trainer.train()
    assert [entry["epoch"] for entry in trainer.epoch_losses] == [1.0, 2.0]


def test_an_epoch_that_training_ends_within_is_kept_as_a_part(make_trainer):
    trainer = make_trainer(num_train_epochs=1.5)  # 6 batches an epoch
    trainer.train()
    assert [entry["epoch"] for entry in trainer.epoch_losses] == [1.0, 1.5]


def curves(trainer):
    return [entry for entry in trainer.state.log_history if "epoch_train_loss" in entry], trainer.epoch_losses


@pytest.mark.parametrize("restore_callbacks", [False, True])
@pytest.mark.parametrize("batching", ["homogeneous", "mixed"])
def test_a_resumed_run_ends_with_the_very_weights_of_an_undisturbed_one(
    make_trainer, make_model, batching, restore_callbacks
):
    options = {
        "batching": batching,
        "sampling": "uniform",  # the small task is seen nearly twice an epoch
        "num_train_epochs": 3,
        "gradient_accumulation_steps": 2,
        "save_strategy": "steps",
        "save_steps": 2,
        "logging_steps": 1,
        "restore_callback_states_from_checkpoint": restore_callbacks,
    }
    whole = make_trainer(model=make_model(dropout=0.4), **options)
    whole.train()
    steps = whole.state.max_steps // 3
    assert whole.state.max_steps == 12
    # Step 6 is inside the second epoch, step 8 is the end of it.
    for step in (6, 8):
        assert (step % steps == 0) == (step == 8)
        torch.manual_seed(99)
        resumed = make_trainer("resumed", model=make_model(dropout=0.4), **options)
        resumed.train(resume_from_checkpoint=f"{whole.args.output_dir}/checkpoint-{step}")
        for name, weight in whole.model.state_dict().items():
            assert torch.equal(weight, resumed.model.state_dict()[name]), (step, name)
        assert curves(resumed) == curves(whole)
        assert len(resumed.epoch_losses) == 3


def test_a_run_that_was_cut_within_an_epoch_has_whole_epochs_after_resuming(make_trainer):
    options = {"num_train_epochs": 2, "save_strategy": "epoch", "lr_scheduler_type": "constant"}
    whole = make_trainer("whole", **options)
    whole.train()
    part = make_trainer("part", **options, max_steps=9)  # one epoch and a half
    part.train()
    assert [entry["epoch"] for entry in part.epoch_losses] == [1.0, 1.5]
    resumed = make_trainer("part", **options)
    resumed.train(resume_from_checkpoint=True)
    for found, expected in zip(resumed.epoch_losses, whole.epoch_losses, strict=True):
        assert found["epoch"] == expected["epoch"]
        assert found["tasks"] == pytest.approx(expected["tasks"], abs=1e-12)


def test_workers_see_the_same_batches_as_the_main_process(make_trainer):
    def batches(**options):
        loader = make_trainer(**options).get_train_dataloader()
        return [[batch["input_ids"].tolist() for batch in loader] for _ in range(2)]

    assert batches(dataloader_num_workers=1) == batches()


# ---- errors ----


def test_sixteen_heads_and_fourteen_datasets_are_listed_on_both_sides(make_trainer, make_model, make_rows):
    names = [f"task{number}" for number in range(16)]
    model = make_model(tasks={name: ["no", "yes"] for name in names})
    with pytest.raises(ValueError) as error:
        make_trainer(model=model, train_dataset={name: make_rows(2) for name in names[:13] + ["tsak14"]})
    message = str(error.value)
    assert "train_dataset has 14 tasks, the model has 16" in message
    assert "no task 'tsak14' (did you mean 'task14'?)" in message
    with pytest.raises(ValueError) as error:
        make_trainer(model=model, train_dataset={name: make_rows(2) for name in names[:14]})
    message = str(error.value)
    assert "nothing is given for task14, task15" in message and "train_tasks=[...]" in message
    assert f"train_dataset: {', '.join(names[:14])}\n" in message and f"model: {', '.join(names)}" in message


def test_some_tasks_can_be_trained_by_naming_them(make_trainer, make_rows):
    data = {"dvd": make_rows(6, "dvd")}
    trainer = make_trainer(train_dataset=data, train_tasks=["dvd"], optim="sgd")
    before = copy.deepcopy(trainer.model.state_dict())
    trainer.train()
    after = trainer.model.state_dict()
    assert torch.equal(before["heads.0.weight"], after["heads.0.weight"])
    assert not torch.equal(before["heads.1.weight"], after["heads.1.weight"])
    with pytest.raises(ValueError, match="train_tasks is books, but train_dataset has dvd"):
        make_trainer(train_dataset=data, train_tasks=["books"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task_weights": {"bokks": 1.0}}, r"task_weights has 1 tasks.*no task 'bokks' \(did you mean 'books'\?\)"),
        ({"task_weights": {"books": -1.0}}, r"task_weights\['books'\] is -1.0"),
        ({"train_dataset": {"books": [], "dvd": []}}, r"train_dataset\['books'\] is empty"),
        ({"eval_dataset": {"bokks": [{}]}}, "eval_dataset has 1 tasks, the model has 2: the model has no task 'bokks'"),
        ({"train_dataset": [{"input_ids": [1], "labels": 0}]}, "train_dataset has no column 'task_ids'"),
        ({"sampling": "equal"}, "sampling is 'equal'"),
        ({"batching": "both"}, "batching is 'both'"),
        ({"train_sampling_strategy": "sequential"}, "train_sampling_strategy is 'sequential'"),
        ({"batch_eval_metrics": True}, "batch_eval_metrics=True does not go with"),
        ({"include_for_metrics": ["loss"]}, "include_for_metrics does not go with"),
        ({"accelerator_config": {"split_batches": True}}, "split_batches does not go with"),
    ],
)
def test_what_does_not_fit_together_is_refused_when_the_trainer_is_made(make_trainer, options, message):
    with pytest.raises(ValueError, match=message):
        make_trainer(**options)


def test_a_model_without_named_tasks_is_refused(make_trainer, make_model):
    with pytest.raises(ValueError, match="MetaLSTMForSequenceClassification has no named tasks"):
        make_trainer(model=MetaLSTMForSequenceClassification(MetaLSTMConfig(20, 4, 4, 3, 3)))
    with pytest.raises(ValueError, match="a task is named 'average'"):
        make_trainer(model=make_model(tasks={"average": ["no", "yes"]}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda batch: batch.pop("task_ids"),
            r"no 'task_ids' \(they have input_ids, attention_mask, labels\).*2 tasks",
        ),
        (lambda batch: batch.pop("labels"), "no 'labels'"),
        (
            lambda batch: batch.update(labels=batch["labels"][1:]),
            r"task_ids have shape \(4,\), but labels have \(3,\)",
        ),
    ],
)
def test_a_collator_that_loses_something_is_named(make_trainer, change, message):
    whole = make_trainer().data_collator

    def collate(rows):
        batch = whole(rows)
        change(batch)
        return batch

    with pytest.raises(ValueError, match=message):
        make_trainer(data_collator=collate, batching="mixed").train()


def test_the_model_card_lists_the_scores_by_task(make_trainer, make_rows, tmp_path):
    data = {"books": make_rows(4), "dvd": make_rows(4, "dvd")}
    trainer = make_trainer(train_dataset=data, eval_dataset=data, eval_strategy="epoch", num_train_epochs=2)
    trainer.train()
    trainer.create_model_card()
    assert "Average Accuracy" in (tmp_path / "out" / "README.md").read_text()


WORDS = ["a good book", "a bad book", "a dull disc", "a fair disc", "a fine disc with a very long review of it"]


def test_texts_train_with_the_default_collator_for_the_tokenizer(make_trainer, tasks):
    tokenizer = WordTokenizer.train_from_iterator(WORDS)
    model = MetaLSTMForSequenceClassification(MetaLSTMConfig(len(tokenizer), 4, 4, 3, 3, tasks=tasks))
    rows = datasets.Dataset.from_dict({"text": WORDS, "label": [1, 0, 0, 1, 2]})
    rows = rows.map(lambda row: dict(tokenizer(row["text"])))
    data = {"books": rows.select([0, 1]), "dvd": rows.select([2, 3, 4])}
    trainer = make_trainer(
        model=model, train_dataset=data, eval_dataset=data, processing_class=tokenizer, data_collator=None
    )
    batches = [batch["input_ids"] for batch in trainer.get_train_dataloader()]
    assert sorted(batch.shape for batch in batches) == [(2, 3), (3, 10)]
    trainer.train()
    assert "eval_average_accuracy" in trainer.evaluate()


def test_a_tokenizer_larger_than_the_embeddings_is_refused(make_trainer, tasks):
    tokenizer = WordTokenizer.train_from_iterator(WORDS)
    model = MetaLSTMForSequenceClassification(MetaLSTMConfig(len(tokenizer) - 1, 4, 4, 3, 3, tasks=tasks))
    with pytest.raises(ValueError, match=f"{len(tokenizer)} ids.*{len(tokenizer) - 1}.*remap_vocabulary"):
        make_trainer(model=model, processing_class=tokenizer)


def test_the_real_model_learns_its_tasks(make_trainer, make_rows, tasks):
    model = MetaLSTMForSequenceClassification(MetaLSTMConfig(20, 8, 8, 4, 4, tasks=tasks, pooling="max"))

    data = {"books": make_rows(24), "dvd": make_rows(24, "dvd", 1)}
    trainer = make_trainer(
        model=model,
        train_dataset=data,
        eval_dataset=data,
        optim="adagrad",
        learning_rate=0.1,
        num_train_epochs=12,
    )
    before = trainer.evaluate()
    trainer.train()
    after = trainer.evaluate()
    assert after["eval_books_loss"] < 0.6 * before["eval_books_loss"]
    assert after["eval_dvd_loss"] < 0.6 * before["eval_dvd_loss"]
