"""GRU, attention GRU and HyperLSTM: every backend against the reference and against independent computations."""

import math
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from recurrent_cases import GRUState, assert_same, call, random_state, random_weights, with_gradients
from torch import Tensor, nn

from hf_metalstm.modeling.recurrent import attention_gru, available_backends, gru, project_gru_inputs, use_backend

EVERY_BACKEND = pytest.mark.parametrize("backend", available_backends())
EVERY_FAST_BACKEND = pytest.mark.parametrize("backend", [name for name in available_backends() if name != "reference"])


@st.composite
def attention_calls(draw: st.DrawFn) -> dict[str, Any]:
    batch, steps, d, h = (draw(st.integers(1, largest)) for largest in (5, 9, 20, 20))
    torch.manual_seed(draw(st.integers(0, 1000)))
    leaves = {
        "inputs": torch.randn(batch, steps, d, dtype=torch.float64),
        "gates": torch.rand(batch, steps, dtype=torch.float64),
        **random_weights("gru", d, h, 0, 0)._asdict(),
        "initial": torch.randn(batch, h, dtype=torch.float64),
    }
    lengths = draw(st.none() | st.lists(st.integers(1, steps), min_size=batch, max_size=batch))
    return {
        "leaves": {name: part.requires_grad_(draw(st.booleans())) for name, part in leaves.items()},
        "lengths": None if lengths is None else torch.tensor(lengths),
        "projected": draw(st.booleans()),
    }


def attend(backend: str, leaves: dict[str, Tensor], lengths: Tensor | None, projected: bool) -> dict[str, Tensor]:
    inputs, gates, *weights, initial = leaves.values()
    weights = type(random_weights("gru", 1, 1, 0, 0))(*weights)
    with use_backend(backend):
        facts = project_gru_inputs(inputs, weights) if projected else inputs
        return with_gradients({"state": attention_gru(facts, gates, weights, lengths, initial)}, leaves)


@EVERY_FAST_BACKEND
@given(arguments=attention_calls())
def test_a_fast_attention_gru_computes_the_reference_and_its_gradients(backend: str, arguments: dict[str, Any]) -> None:
    assert_same(attend(backend, **arguments), attend("reference", **arguments))


@EVERY_BACKEND
def test_open_gates_make_a_gru_and_closed_ones_keep_the_state(backend: str) -> None:
    weights, lengths = random_weights("gru", 3, 4, 0, 0), torch.tensor([5, 2])
    facts, initial = torch.randn(2, 5, 3, dtype=torch.float64), torch.randn(2, 4, dtype=torch.float64)
    with use_backend(backend):
        opened = attention_gru(facts, torch.ones(2, 5, dtype=torch.float64), weights, lengths, initial)
        closed = attention_gru(facts, torch.zeros(2, 5, dtype=torch.float64), weights, lengths, initial)
        _, expected = gru(facts, weights, lengths, initial)
    torch.testing.assert_close(opened, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(closed, initial, rtol=0, atol=1e-12)


@EVERY_BACKEND
def test_attention_gru_follows_its_equation(backend: str) -> None:
    weights = random_weights("gru", 3, 4, 0, 0)
    facts, gates = torch.randn(2, 6, 3, dtype=torch.float64), torch.rand(2, 6, dtype=torch.float64)
    cell = nn.GRUCell(3, 4).double()
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    cell.load_state_dict(dict(zip(names, weights, strict=True)))
    state = torch.zeros(2, 4, dtype=torch.float64)
    for t in range(6):
        gate = gates[:, t, None]
        state = gate * cell(facts[:, t], state) + (1 - gate) * state
    with use_backend(backend):
        found = attention_gru(facts, gates, weights)
    torch.testing.assert_close(found, state, rtol=0, atol=1e-12)


@EVERY_BACKEND
def test_padded_facts_and_gates_reach_no_result_and_no_gradient(backend: str) -> None:
    lengths = torch.tensor([2, 4])
    padding = torch.arange(4) >= lengths[:, None]
    weights, gates = random_weights("gru", 3, 4, 0, 0), torch.rand(2, 4, dtype=torch.float64)
    facts = torch.randn(2, 4, 3, dtype=torch.float64)
    leaves = {"inputs": facts, "gates": gates, **weights._asdict(), "initial": torch.zeros(2, 4, dtype=torch.float64)}
    clean = {name: part.clone().requires_grad_() for name, part in leaves.items()}
    dirty = dict(clean, inputs=facts.masked_fill(padding[..., None], math.nan).requires_grad_())
    dirty["gates"] = gates.masked_fill(padding, math.nan).requires_grad_()
    found, expected = (attend(backend, part, lengths, False) for part in (dirty, clean))
    assert_same(found, expected, atol=0)
    assert not found["gradient of inputs"][padding].any() and not found["gradient of gates"][padding].any()


def test_bad_attention_is_named() -> None:
    weights, facts = random_weights("gru", 3, 4, 0, 0, torch.float32), torch.zeros(2, 5, 3)
    with pytest.raises(ValueError, match=r"^attention_gru: gates have shape \(2, 4\), expected \(2, 5\)"):
        attention_gru(facts, torch.zeros(2, 4), weights)
    with pytest.raises(ValueError, match=r"^attention_gru: inputs have shape \(2, 5, 4\)"):
        attention_gru(torch.zeros(2, 5, 4), torch.zeros(2, 5), weights)
    with pytest.raises(ValueError, match=r"^attention_gru: initial_state has shape \(2, 3\), expected \(2, 4\)"):
        attention_gru(facts, torch.zeros(2, 5), weights, initial_state=torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"^gru: initial_state has shape \(1, 4\), expected \(2, 4\)"):
        gru(facts, weights, initial_state=torch.zeros(1, 4))


@EVERY_BACKEND
@pytest.mark.parametrize("reverse", [False, True])
def test_gru_gives_the_numbers_of_torch(backend: str, reverse: bool) -> None:
    theirs = nn.GRU(3, 4, batch_first=True).double()
    inputs, initial = torch.randn(2, 6, 3, dtype=torch.float64), torch.randn(1, 2, 4, dtype=torch.float64)
    weights = type(random_weights("gru", 1, 1, 0, 0))(*theirs.parameters())
    expected, final = theirs(inputs.flip(1) if reverse else inputs, initial)
    with use_backend(backend):
        found = call("gru", inputs, weights, initial_state=GRUState(initial[0]), reverse=reverse)
    assert_same(found, {"outputs": expected.flip(1) if reverse else expected, "hidden": final[0]}, atol=1e-12)


def numpy_hyper_lstm(inputs: numpy.ndarray, w: dict[str, numpy.ndarray], state: dict[str, numpy.ndarray]) -> Any:
    """One row by the paper's equations, gate by gate."""

    def sigmoid(values: numpy.ndarray) -> numpy.ndarray:
        return 1 / (1 + numpy.exp(-values))

    h, c, hyper_h, hyper_c = (state[name] for name in ("hidden", "cell", "hyper_hidden", "hyper_cell"))
    outputs = []
    for x in inputs:
        matrix = numpy.hstack([w["hyper_input"], w["hyper_hyper"], w["hyper_hidden"]])
        i, f, g, o = numpy.split(matrix @ numpy.concatenate([x, hyper_h, h]) + w["hyper_bias"], 4)
        hyper_c = sigmoid(f) * hyper_c + sigmoid(i) * numpy.tanh(g)
        hyper_h = sigmoid(o) * numpy.tanh(hyper_c)
        y = []
        for gate in range(4):
            rows = slice(gate * len(h), (gate + 1) * len(h))
            z_h = w["z_hidden"][gate] @ hyper_h + w["z_hidden_bias"][gate]
            z_x = w["z_input"][gate] @ hyper_h + w["z_input_bias"][gate]
            shift = w["scale_bias"][gate] @ w["z_bias"][gate] @ hyper_h + w["bias"][rows]
            scaled_rows = numpy.diag(w["scale_hidden"][gate] @ z_h) @ w["hidden"][rows]
            y.append(scaled_rows @ h + numpy.diag(w["scale_input"][gate] @ z_x) @ w["input"][rows] @ x + shift)
        c = sigmoid(y[1]) * c + sigmoid(y[0]) * numpy.tanh(y[2])
        h = sigmoid(y[3]) * numpy.tanh(c)
        outputs.append(h)
    return numpy.stack(outputs), {"hidden": h, "cell": c, "hyper_hidden": hyper_h, "hyper_cell": hyper_c}


@EVERY_BACKEND
def test_hyper_lstm_follows_its_equations(backend: str) -> None:
    weights, lengths = random_weights("hyper_lstm", 4, 5, 3, 2), torch.tensor([7, 3])
    inputs, state = torch.randn(2, 7, 4, dtype=torch.float64), random_state("hyper_lstm", 2, 5, 3)
    with use_backend(backend):
        found = call("hyper_lstm", inputs, weights, lengths, initial_state=state)
    for row, length in enumerate(lengths.tolist()):
        outputs, final = numpy_hyper_lstm(
            inputs[row, :length].numpy(),
            {name: part.numpy() for name, part in weights._asdict().items()},
            {name: part[row].numpy() for name, part in state._asdict().items()},
        )
        numpy.testing.assert_allclose(found["outputs"][row, :length].numpy(), outputs, rtol=0, atol=1e-12)
        for name, part in final.items():
            numpy.testing.assert_allclose(found[name][row].numpy(), part, rtol=0, atol=1e-12)
