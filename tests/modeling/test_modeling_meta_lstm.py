"""The Meta-LSTM encoder and classifier: padding, tasks, sizes, training, and what they refuse."""

import copy
import logging
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from hf_metalstm import MetaLSTMConfig, MetaLSTMForSequenceClassification, MetaLSTMModel
from hf_metalstm.modeling.modeling_meta_lstm import BasicLSTM, MetaNetwork
from hf_metalstm.modeling.recurrent import use_backend

SIZES = dict(vocab_size=40, embedding_size=6, hidden_size=5, meta_size=4, z_size=3)
TASKS = {"books": ["negative", "positive"], "questions": ["who", "where", "when"], "dvd": ["minus", "plus"]}
VARIANTS = {
    "meta": {},
    "lstm": {"cell": "lstm"},
    "tasks": {"tasks": TASKS},
    "bidirectional": {"bidirectional": True, "pooling": "concat"},
    "stacked": {"num_hidden_layers": 2, "bidirectional": True, "tasks": TASKS, "pooling": "mean"},
    "lstm-max": {"cell": "lstm", "num_hidden_layers": 2, "bidirectional": True, "pooling": "max"},
}


def make_model(**changes) -> MetaLSTMForSequenceClassification:
    torch.manual_seed(3)
    model = MetaLSTMForSequenceClassification(MetaLSTMConfig(**{**SIZES, **changes})).double().eval()
    with torch.no_grad():  # zero biases and a zero padding row would hide faults
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


MODELS = {name: make_model(**changes) for name, changes in VARIANTS.items()}


def pad(texts, masks_like=None):
    """Rows of (left padding, ids, right padding) with arbitrary ids in the padding."""
    width = max(left + len(ids) + right for left, ids, right in texts)
    ids, mask = torch.full((len(texts), width), 7), torch.zeros(len(texts), width, dtype=torch.long)
    for row, (left, text, _) in enumerate(texts):
        ids[row, left : left + len(text)] = torch.tensor(text)
        mask[row, left : left + len(text)] = 1
    return ids, mask


def alone(model, text, task):
    tasks = {} if model.config.tasks is None else {"task_ids": torch.tensor([task])}
    with torch.no_grad():
        return model(torch.tensor([text]), **tasks).logits[0]


TEXT = st.lists(st.integers(1, 39), min_size=1, max_size=8)
ROWS = st.lists(st.tuples(st.integers(0, 4), TEXT, st.integers(0, 4), st.integers(0, 2)), min_size=1, max_size=5)


@pytest.mark.parametrize("name", VARIANTS)
@settings(max_examples=15)
@given(rows=ROWS)
def test_padding_company_and_order_never_change_a_result(name, rows):
    model = MODELS[name]
    ids, mask = pad([row[:3] for row in rows])
    tasks = {} if model.config.tasks is None else {"task_ids": torch.tensor([row[3] for row in rows])}
    with torch.no_grad():
        logits = model(ids, attention_mask=mask, **tasks).logits
    for (_, text, _, task), row in zip(rows, logits, strict=True):
        torch.testing.assert_close(row, alone(model, text, task), rtol=0, atol=1e-12)


def test_ids_alone_and_padded_to_many_widths_agree_in_single_precision():
    for model in MODELS.values():
        single = copy.deepcopy(model).float()
        reference = alone(single, [5, 9, 3], 0)
        for width in (3, 7, 40):
            for left in (0, width - 3):
                ids, mask = pad([(left, [5, 9, 3], width - 3 - left), (0, list(range(1, 40)), 0)])
                tasks = {} if model.config.tasks is None else {"task_ids": torch.tensor([0, 1])}
                logits = single(ids, attention_mask=mask, **tasks).logits[0]
                torch.testing.assert_close(logits, reference, rtol=0, atol=1e-5)


CELLS = st.lists(st.tuples(st.integers(1, 39), st.booleans()), min_size=6, max_size=6)
HOLED = st.lists(CELLS.filter(lambda row: any(real for _, real in row)), min_size=1, max_size=4)


@pytest.mark.parametrize("name", VARIANTS)
@settings(max_examples=10)
@given(rows=HOLED)
def test_tokens_masked_out_anywhere_do_not_exist(name, rows):
    model = MODELS[name]
    ids, mask = torch.tensor(rows).unbind(-1)
    tasks = {} if model.config.tasks is None else {"task_ids": torch.arange(len(rows)) % 3}
    with torch.no_grad():
        logits = model(ids, attention_mask=mask, **tasks).logits
    for index, (row, cells) in enumerate(zip(logits, rows, strict=True)):
        expected = alone(model, [word for word, real in cells if real], index % 3)
        torch.testing.assert_close(row, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", VARIANTS)
def test_outputs_stand_at_the_places_of_their_tokens(name):
    model = MODELS[name]
    ids, mask = pad([(2, [5, 9, 3], 0), (0, [4, 6, 7, 8, 9], 0)])
    tasks = {} if model.config.tasks is None else {"task_ids": torch.tensor([1, 2])}
    wants = dict(output_hidden_states=True, return_dict=True)
    output = model.encoder(ids, attention_mask=mask, **tasks, **wants)
    tasks = {} if model.config.tasks is None else {"task_ids": torch.tensor([1])}
    single = model.encoder(torch.tensor([[5, 9, 3]]), **tasks, **wants)
    torch.testing.assert_close(output.last_hidden_state[0, 2:], single.last_hidden_state[0], rtol=0, atol=1e-12)
    assert (output.last_hidden_state[0, :2] == 0).all()
    torch.testing.assert_close(output.last_state[0], single.last_state[0], rtol=0, atol=1e-12)
    assert len(output.hidden_states) == 1 + model.config.num_hidden_layers
    for layer, expected in zip(output.hidden_states, single.hidden_states, strict=True):
        torch.testing.assert_close(layer[0, 2:], expected[0], rtol=0, atol=1e-12)


def test_the_last_state_of_each_direction_is_that_of_the_token_it_reads_last():
    output = MODELS["bidirectional"].encoder(torch.tensor([[5, 9, 3]]))
    h = SIZES["hidden_size"]
    expected = torch.cat([output.last_hidden_state[:, -1, :h], output.last_hidden_state[:, 0, h:]], 1)
    assert torch.equal(output.last_state, expected)


@pytest.mark.parametrize("name", ["meta", "stacked", "lstm-max"])
def test_the_reference_backend_gives_the_same_loss_and_gradients(name):
    ids, mask = pad([(1, [5, 9, 3], 0), (0, [4, 6, 7, 8, 9], 0)])
    gradients = []
    for backend in ("torch", "reference"):
        model = copy.deepcopy(MODELS[name])
        tasks = {} if model.config.tasks is None else {"task_ids": torch.tensor([0, 1])}
        with use_backend(backend):
            model(ids, attention_mask=mask, labels=torch.tensor([1, 0]), **tasks).loss.backward()
        gradients.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    assert gradients[0].keys() == gradients[1].keys()
    for parameter, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][parameter], rtol=0, atol=1e-11, msg=parameter)


# ---- tasks


def test_a_batch_of_several_tasks_gives_each_row_its_own_and_no_probability_beyond():
    model = MODELS["tasks"]
    ids = torch.randint(1, 40, (6, 5), generator=torch.Generator().manual_seed(0))
    task_ids = torch.tensor([2, 0, 1, 1, 0, 2])
    logits = model(ids, task_ids=task_ids).logits
    assert logits.shape == (6, 3)
    for row, task in enumerate(task_ids.tolist()):
        expected = alone(model, ids[row].tolist(), task)
        torch.testing.assert_close(logits[row], expected, rtol=0, atol=1e-12)
        classes = len(list(TASKS.values())[task])
        assert (logits[row, classes:] == torch.finfo(torch.float64).min).all()
        assert logits[row].softmax(0)[classes:].sum() == 0


def test_the_active_task_answers_with_its_own_width():
    model = copy.deepcopy(MODELS["tasks"])
    ids = torch.tensor([[5, 9, 3]])
    for index, (name, labels) in enumerate(TASKS.items()):
        model.set_active_task(name)
        logits = model(ids).logits
        assert logits.shape == (1, len(labels))
        torch.testing.assert_close(logits[0], model(ids, task_ids=torch.tensor([index])).logits[0, : len(labels)])
        assert list(model.config.id2label.values()) == labels


def test_tasks_share_the_meta_network_and_nothing_else_of_the_cell():
    model = copy.deepcopy(MODELS["tasks"])
    model(torch.tensor([[5, 9, 3]]), task_ids=torch.tensor([1]), labels=torch.tensor([2])).loss.backward()
    touched = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert any(".meta." in name for name in touched)
    private = {name for name, _ in model.named_parameters() if ".basic." in name or "classifiers." in name}
    assert {name for name in private if ".basic.1." in name or "classifiers.1." in name} == private & touched


def test_a_new_task_changes_nothing_for_the_others_and_learns():
    model = copy.deepcopy(MODELS["stacked"])
    ids, task_ids = torch.tensor([[5, 9, 3], [4, 4, 8]]), torch.tensor([0, 1])
    before = model(ids, task_ids=task_ids).logits
    assert model.add_task("letters", ["a", "b", "c", "d"]) == 3
    after = model(ids, task_ids=task_ids).logits
    assert torch.equal(before, after[:, :3]) or torch.equal(before, after)
    assert model.config.tasks["letters"] == ["a", "b", "c", "d"]
    new = {n: p for n, p in model.named_parameters() if ".basic.3." in n or "classifiers.3." in n}
    assert len(new) == 4 * 4 + 2 and all(p.dtype == torch.float64 for p in new.values())
    output = model(ids, task_ids=torch.tensor([3, 3]), labels=torch.tensor([3, 2]))
    assert output.logits.shape == (2, 4)
    output.loss.backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in new.values())


def test_the_parts_of_a_new_task_start_like_those_of_a_new_model():
    sizes = dict(vocab_size=9, embedding_size=60, hidden_size=50, meta_size=9, z_size=40, tasks=TASKS)
    model = MetaLSTMForSequenceClassification(MetaLSTMConfig(**sizes))
    model.add_task("letters", ["a", "b", "c", "d"])
    basic = model.encoder.layers[0].cells[0].basic
    for (name, old), new in zip(basic[0].named_parameters(), basic[3].parameters(), strict=True):
        assert new.std().item() == pytest.approx(old.std().item(), rel=0.1), name
        assert not torch.equal(new, old)
    assert model.classifiers[3].weight.std() > 0.1 and not model.classifiers[3].bias.any()


def test_labels_are_those_of_the_active_task():
    model = copy.deepcopy(MODELS["tasks"])
    model.set_active_task("questions")
    assert model(IDS, labels=torch.tensor([2, 0])).loss.isfinite()
    model.set_active_task("dvd")
    with pytest.raises(ValueError, match=r"labels\[0\] is 2, but task 'dvd' has classes 0..1 \(minus, plus\)"):
        model(IDS, labels=torch.tensor([2, 0]))


def test_a_grown_model_is_saved_and_loaded_whole(tmp_path):
    model = copy.deepcopy(MODELS["tasks"])
    model.add_task("aardvarks", ["a", "b"])
    model.save_pretrained(tmp_path)
    again = MetaLSTMForSequenceClassification.from_pretrained(tmp_path, dtype=torch.float64).eval()
    ids, task_ids = torch.tensor([[5, 9, 3], [4, 4, 8]]), torch.tensor([3, 0])
    assert torch.equal(model(ids, task_ids=task_ids).logits, again(ids, task_ids=task_ids).logits)


def test_a_frozen_meta_network_stays_as_it_is_while_the_rest_learns():
    model = copy.deepcopy(MODELS["tasks"]).train()
    model.freeze_meta()
    meta = {n for n, _ in model.named_parameters() if ".meta." in n}
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.tensor([[5, 9]] * 3), task_ids=torch.arange(3), labels=torch.tensor([1, 2, 0])).loss.backward()
        optimizer.step()
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name]) == (name in meta), name
    model.freeze_meta(False)
    assert all(parameter.requires_grad for parameter in model.parameters())
    with pytest.raises(ValueError, match="cell='lstm' has no meta network"):
        MODELS["lstm"].freeze_meta()


# ---- sizes, options


def count(module: nn.Module, *names: str) -> int:
    return sum(p.numel() for n, p in module.named_parameters() if not names or n.split(".")[-1] in names)


def test_parameter_counts_are_those_of_the_paper():
    config = MetaLSTMConfig(vocab_size=10, embedding_size=100, hidden_size=100, meta_size=20, z_size=20)
    cell = MetaLSTMModel(config).layers[0].cells[0]
    assert count(cell.meta) == 18_080
    assert count(cell.basic[0], "p", "q_input", "q_hidden") == 24_000  # 8hz + 4dz
    assert count(cell.basic[0], "b") == 8_000  # 4hz
    config.cell = "lstm"
    assert count(MetaLSTMModel(config).layers[0]) == 80_400


def test_the_meta_lstm_and_the_lstm_differ_in_names_and_outputs():
    torch.manual_seed(0)
    meta = MetaLSTMForSequenceClassification(MetaLSTMConfig(**SIZES))
    torch.manual_seed(0)
    plain = MetaLSTMForSequenceClassification(MetaLSTMConfig(**SIZES, cell="lstm"))
    assert {n for n, _ in meta.named_parameters()} != {n for n, _ in plain.named_parameters()}
    ids = torch.tensor([[5, 9, 3]])
    assert not torch.allclose(meta(ids).logits, plain(ids).logits)


def test_a_meta_network_that_always_says_one_leaves_the_lstm_it_modulates():
    """z_t = 1 for all t: W(z_t) = P Q and b(z_t) = B 1, so the model is an LSTM with these weights."""
    model, plain = make_model(), make_model(cell="lstm")
    with torch.no_grad():
        for parameter in model.encoder.layers[0].cells[0].meta.parameters():
            parameter.zero_()
        cell = model.encoder.layers[0].cells[0]
        m = SIZES["meta_size"]
        # Input and output gates open, forget gates shut, candidates 1: the meta state is tanh(1) at every step.
        cell.meta.bias.copy_(torch.tensor([50.0, -50.0, 50.0, 50.0]).repeat_interleave(m))
        cell.meta.z_weight.fill_(1 / (m * torch.tensor(1.0).double().tanh()))
        basic, lstm = cell.basic[0], plain.encoder.layers[0].cells[0]
        lstm.input_weight.copy_((basic.p @ basic.q_input).flatten(0, 1))
        lstm.hidden_weight.copy_((basic.p @ basic.q_hidden).flatten(0, 1))
        lstm.bias.copy_(basic.b.sum(2).flatten())
        plain.encoder.embeddings.weight.copy_(model.encoder.embeddings.weight)
        plain.classifiers[0].load_state_dict(model.classifiers[0].state_dict())
    ids, mask = pad([(1, [5, 9, 3], 0), (0, [4, 6, 7, 8, 9], 0)])
    meta_vectors = model(ids, attention_mask=mask, output_meta_vectors=True).meta_vectors
    torch.testing.assert_close(meta_vectors[mask.bool()], torch.ones(8, SIZES["z_size"]).double(), rtol=0, atol=1e-12)
    expected = plain(ids, attention_mask=mask).logits
    torch.testing.assert_close(model(ids, attention_mask=mask).logits, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "change",
    [{"pooling": "mean"}, {"pooling": "max"}, {"bidirectional": True}, {"num_hidden_layers": 2}, {"cell": "lstm"},
     {"initializer_range": 0.5}, {"z_size": 7}, {"meta_size": 9}],
    ids=str,
)  # fmt: skip
def test_every_option_of_the_architecture_changes_the_result(change):
    def logits(**changes):
        torch.manual_seed(0)
        return MetaLSTMForSequenceClassification(MetaLSTMConfig(**{**SIZES, **changes}))(ids).logits

    ids = torch.tensor([[5, 9, 3, 8]])
    assert not torch.allclose(logits(), logits(**change), atol=1e-6)


@pytest.mark.parametrize("name", ["embedding_dropout", "hidden_dropout", "classifier_dropout"])
def test_every_dropout_works_in_training_alone(name):
    model = make_model(num_hidden_layers=2, **{name: 0.5})
    ids = torch.tensor([[5, 9, 3, 8]])
    assert torch.equal(model(ids).logits, model(ids).logits)
    model.train()
    assert not torch.equal(model(ids).logits, model(ids).logits)
    assert torch.equal(make_model(num_hidden_layers=2).train()(ids).logits, make_model(num_hidden_layers=2)(ids).logits)


def test_embeddings_given_directly_equal_their_ids():
    model = MODELS["meta"]
    ids = torch.tensor([[5, 9, 3]])
    assert torch.equal(model(inputs_embeds=model.encoder.embeddings(ids)).logits, model(ids).logits)


def test_a_tuple_holds_what_the_output_holds():
    output = MODELS["meta"](torch.tensor([[5, 9, 3]]), labels=torch.tensor([1]))
    loss, task_loss, logits = MODELS["meta"](torch.tensor([[5, 9, 3]]), labels=torch.tensor([1]), return_dict=False)
    assert loss == output.loss and task_loss == output.task_loss and torch.equal(logits, output.logits)


def test_meta_vectors_of_both_directions_stand_side_by_side():
    output = MODELS["bidirectional"](torch.tensor([[5, 9, 3]]), output_meta_vectors=True)
    assert output.meta_vectors.shape == (1, 3, 2 * SIZES["z_size"])
    with pytest.raises(ValueError, match="cell='lstm' has no meta vectors"):
        MODELS["lstm"](torch.tensor([[5, 9, 3]]), output_meta_vectors=True)


# ---- training


def train(model, steps):
    ids = torch.randint(1, 40, (8, 6), generator=torch.Generator().manual_seed(1))
    labels = torch.arange(8) % 2
    tasks = {} if model.config.tasks is None else {"task_ids": torch.arange(8) % 3}
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(ids, labels=labels, **tasks).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", VARIANTS)
def test_it_learns_a_few_examples_by_heart(name):
    torch.manual_seed(0)
    model = MetaLSTMForSequenceClassification(MetaLSTMConfig(**{**SIZES, **VARIANTS[name]}))
    losses = train(model, steps=25)
    assert losses[-1] < 0.1 * losses[0]


@pytest.mark.parametrize("name", ["meta", "stacked", "lstm-max"])
def test_gradient_checkpointing_gives_the_same_gradients(name):
    gradients = []
    for checkpointing in (False, True):
        model = copy.deepcopy(MODELS[name]).train()
        if checkpointing:
            model.gradient_checkpointing_enable()
        tasks = {} if model.config.tasks is None else {"task_ids": torch.tensor([0, 1])}
        model(torch.tensor([[5, 9, 3], [4, 4, 8]]), labels=torch.tensor([1, 0]), **tasks).loss.backward()
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_saving_changes_nothing_and_the_saved_model_trains_on_alike(tmp_path):
    torch.manual_seed(0)
    model = MetaLSTMForSequenceClassification(MetaLSTMConfig(**SIZES, tasks=TASKS))
    train(model, steps=3)
    ids, tasks = torch.tensor([[5, 9, 3]] * 3), {"task_ids": torch.arange(3)}
    before = model(ids, **tasks).logits
    model.save_pretrained(tmp_path)
    assert torch.equal(before, model(ids, **tasks).logits)
    again = MetaLSTMForSequenceClassification.from_pretrained(tmp_path)
    assert torch.equal(before, again(ids, **tasks).logits)
    assert train(model, steps=3) == train(again.train(), steps=3)
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".safetensors", ".py"}


def test_it_can_be_copied_pickled_and_compiled():
    model = MODELS["tasks"]
    ids, tasks = torch.tensor([[5, 9, 3], [4, 4, 8]]), {"task_ids": torch.tensor([2, 1])}
    expected = model(ids, **tasks).logits
    assert torch.equal(copy.deepcopy(model)(ids, **tasks).logits, expected)
    assert torch.equal(pickle.loads(pickle.dumps(model))(ids, **tasks).logits, expected)
    torch.testing.assert_close(torch.compile(model, backend="eager")(ids, **tasks).logits, expected)


def test_embeddings_can_be_resized_without_changing_the_old_words():
    model = copy.deepcopy(MODELS["meta"])
    before = model(torch.tensor([[5, 9, 3]])).logits
    model.resize_token_embeddings(50)
    assert model.config.vocab_size == 50
    assert torch.equal(model(torch.tensor([[5, 9, 3]])).logits, before)
    model(torch.tensor([[49]]))


def test_half_precision_works(tmp_path):
    MODELS["meta"].save_pretrained(tmp_path)
    model = MetaLSTMForSequenceClassification.from_pretrained(tmp_path, dtype=torch.bfloat16)
    output = model(torch.tensor([[5, 9, 3]]), labels=torch.tensor([1]))
    assert output.logits.dtype == torch.bfloat16 and output.loss.isfinite()
    torch.testing.assert_close(
        output.logits.double(), MODELS["meta"](torch.tensor([[5, 9, 3]])).logits, rtol=0.05, atol=0.05
    )


# ---- labels and losses


def test_the_loss_is_the_mean_over_the_rows_with_a_label():
    model = MODELS["tasks"]
    ids, task_ids = torch.randint(1, 40, (4, 5)), torch.tensor([0, 1, 2, 1])
    labels = torch.tensor([1, 2, -100, 0])
    output = model(ids, task_ids=task_ids, labels=labels)
    rows = [0, 1, 3]
    expected = -torch.stack([output.logits[row].log_softmax(0)[labels[row]] for row in rows]).mean()
    torch.testing.assert_close(output.loss.double(), expected, rtol=1e-6, atol=1e-6)
    assert output.loss == output.task_loss


def test_a_batch_without_a_label_has_loss_and_gradient_zero_and_one_warning(caplog):
    model = copy.deepcopy(MODELS["tasks"])
    logging.Logger.warning_once.cache_clear()  # another test may have been warned already
    for _ in range(2):
        loss = model(torch.tensor([[5, 9]] * 2), task_ids=torch.tensor([0, 1]), labels=torch.tensor([-100, -100])).loss
        loss.backward()
        assert loss.item() == 0
    assert all(p.grad is None or (p.grad == 0).all() for p in model.parameters())
    assert sum("all labels of a batch are -100" in record.getMessage() for record in caplog.records) == 1


def test_regression_and_several_labels_at_once_work_without_tasks():
    ids = torch.tensor([[5, 9, 3], [4, 4, 8]])
    regression = make_model(num_labels=1)
    output = regression(ids, labels=torch.tensor([0.5, 2.0]))
    expected = ((output.logits[:, 0] - torch.tensor([0.5, 2.0])) ** 2).mean()
    torch.testing.assert_close(output.loss.double(), expected, rtol=1e-6, atol=1e-6)
    several = make_model(num_labels=3, problem_type="multi_label_classification")
    labels = torch.tensor([[1.0, 0, 1], [0, 0, 1]])
    output = several(ids, labels=labels)
    chances = output.logits.sigmoid()
    expected = -(labels * chances.log() + (1 - labels) * (1 - chances).log()).mean()
    torch.testing.assert_close(output.loss.double(), expected, rtol=1e-6, atol=1e-6)
    with pytest.raises(
        ValueError, match=r"labels have shape \(2,\), but multi_label_classification logits have \(2, 3\)"
    ):
        several(ids, labels=torch.tensor([1.0, 0.0]))


# ---- what is refused

IDS = torch.tensor([[5, 9, 3], [4, 4, 8]])
BAD_CALLS = [
    ("tasks", dict(input_ids=IDS), ValueError, r"task_ids is missing: .* has 3 tasks .* 0..2 \(books, questions"),
    ("tasks", dict(input_ids=IDS, task_ids=torch.tensor([0, 3])), ValueError, r"task_ids\[1\] is 3, .* 0..2"),
    ("tasks", dict(input_ids=IDS, task_ids=torch.tensor([-1, 0])), ValueError, r"task_ids\[0\] is -1"),
    ("tasks", dict(input_ids=IDS, task_ids=torch.tensor([0])), ValueError, r"task_ids have shape \(1,\).*\(2,\) rows"),
    ("tasks", dict(input_ids=IDS, task_ids=torch.tensor([0.0, 1.0])), TypeError, "task_ids must hold integers"),
    ("tasks", dict(input_ids=IDS, task_ids=torch.tensor([0, 1]), labels=torch.tensor([1, 5])), ValueError,
     r"labels\[1\] is 5, but task 'questions' has classes 0..2 \(who, where, when\)"),
    ("tasks", dict(input_ids=IDS, task_ids=torch.tensor([0, 1]), labels=torch.tensor([2, 1])), ValueError,
     r"labels\[0\] is 2, but task 'books' has classes 0..1 \(negative, positive\)"),
    ("meta", dict(input_ids=IDS, labels=torch.tensor([1, -1])), ValueError,
     r"labels\[1\] is -1, but the model has classes 0..1 \(LABEL_0, LABEL_1\)"),
    ("tasks", dict(input_ids=IDS, task_ids=[0, 1]), TypeError, "task_ids must be a tensor, got list: use torch.tensor"),
    ("meta", dict(input_ids=[[5, 9]]), TypeError, "input_ids must be a tensor, got list.*return_tensors='pt'"),
    ("meta", dict(input_ids=IDS, attention_mask=[[1, 1, 1]] * 2), TypeError, "attention_mask must be a tensor"),
    ("meta", dict(inputs_embeds=torch.zeros(2, 3, 7).double()), ValueError, r"\(2, 3, 7\), expected .*, 6\)"),
    ("meta", dict(input_ids=IDS, labels=torch.tensor([0.0, 1.0])), TypeError, "labels must be integers"),
    ("meta", dict(input_ids=IDS, labels=["a", "b"]), TypeError, "labels must be a tensor of class indexes, got list"),
    ("meta", dict(input_ids=IDS, labels=torch.tensor([1])), ValueError, r"labels have shape \(1,\).*\(2,\) rows"),
    ("meta", dict(input_ids=torch.tensor([[5, 9], [4, 40]])), ValueError, r"input_ids\[1, 1\] is 40, .* 0..39"),
    ("meta", dict(input_ids=torch.tensor([[5, -2]])), ValueError, r"input_ids\[0, 1\] is -2"),
    ("meta", dict(input_ids=torch.tensor([[0.5]])), TypeError, "input_ids must hold integers"),
    ("meta", dict(input_ids=IDS, attention_mask=torch.tensor([[1, 1, 1], [0, 0, 0]])), ValueError, "row 1 is empty"),
    ("meta", dict(input_ids=IDS, attention_mask=torch.ones(2, 4)), ValueError, r"attention_mask has shape \(2, 4\)"),
    ("meta", dict(input_ids=torch.zeros(0, 3, dtype=torch.long)), ValueError, "empty batch"),
    ("meta", dict(input_ids=torch.zeros(2, 0, dtype=torch.long)), ValueError, "row 0 is empty"),
    ("meta", dict(input_ids=torch.tensor([5])), ValueError, "expected 2 dimensions"),
    ("meta", dict(), ValueError, "exactly one of input_ids and inputs_embeds"),
    ("meta", dict(input_ids=IDS, inputs_embeds=torch.zeros(2, 3, 6)), ValueError, "exactly one of"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "error", "message"), BAD_CALLS)
def test_a_bad_call_is_refused_with_place_value_and_what_is_allowed(name, arguments, error, message):
    with pytest.raises(error, match=message):
        MODELS[name](**arguments)


def test_ids_labels_and_masks_of_other_types_are_as_good():
    model = MODELS["tasks"]
    ids, mask, tasks, labels = IDS, torch.tensor([[1, 1, 1], [1, 1, 0]]), torch.tensor([0, 1]), torch.tensor([1, 2])
    expected = model(ids, attention_mask=mask, task_ids=tasks, labels=labels)
    for kind in (torch.bool, torch.float32):
        assert torch.equal(model(ids, attention_mask=mask.to(kind), task_ids=tasks).logits, expected.logits)
    output = model(ids.int(), attention_mask=mask.int(), task_ids=tasks.int(), labels=labels.int())
    assert torch.equal(output.logits, expected.logits) and output.loss == expected.loss


def test_task_ids_are_not_needed_with_one_task():
    model = make_model(tasks={"books": ["negative", "positive"]})
    assert torch.equal(model(IDS).logits, model(IDS, task_ids=torch.tensor([0, 0])).logits)
    assert torch.equal(MODELS["meta"](IDS, task_ids=torch.tensor([0, 0])).logits, MODELS["meta"](IDS).logits)


def test_private_parts_are_what_the_names_say():
    model = MODELS["stacked"]
    assert sum(isinstance(module, MetaNetwork) for module in model.modules()) == 4
    assert sum(isinstance(module, BasicLSTM) for module in model.modules()) == 4 * len(TASKS)
