"""The recurrent ops: the fast backends against the readable reference, and all against independent computations."""

import copy
import math
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given, settings
from recurrent_cases import (
    OPS,
    assert_same,
    call,
    calls,
    random_state,
    random_weights,
    results_and_gradients,
    trained,
)
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from hf_metalstm.modeling import recurrent
from hf_metalstm.modeling.recurrent import (
    LSTMState,
    LSTMWeights,
    available_backends,
    current_backend,
    lstm,
    meta_lstm,
    use_backend,
)

EVERY_OP = pytest.mark.parametrize("op", list(OPS))
EVERY_BACKEND = pytest.mark.parametrize("backend", available_backends())
FAST_BACKENDS = [name for name in available_backends() if name != "reference"]
EVERY_FAST_BACKEND = pytest.mark.parametrize("backend", FAST_BACKENDS)
ON_EVERY_FAST_BACKEND = pytest.mark.parametrize("on_backend", FAST_BACKENDS, indirect=True)


@pytest.fixture
def on_backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """Computes a whole test with the backend that the test is parametrised with."""
    with use_backend(request.param):
        yield request.param


@EVERY_FAST_BACKEND
@given(arguments=calls())
def test_a_fast_backend_computes_the_reference_and_its_gradients(backend: str, arguments: tuple[Any, ...]) -> None:
    assert_same(results_and_gradients(backend, *arguments), results_and_gradients("reference", *arguments))


@EVERY_FAST_BACKEND
@settings(max_examples=25)
@given(arguments=calls(largest=70))
def test_so_it_does_at_larger_sizes(backend: str, arguments: tuple[Any, ...]) -> None:
    assert_same(results_and_gradients(backend, *arguments), results_and_gradients("reference", *arguments))


@EVERY_FAST_BACKEND
@given(arguments=calls())
def test_without_gradients_the_results_are_the_same_and_the_arguments_stay(
    backend: str, arguments: tuple[Any, ...]
) -> None:
    op, inputs, weights, lengths, state, reverse = arguments
    given_tensors = [inputs, *weights, *(state or ())]
    copies = [tensor.detach().clone() for tensor in given_tensors]
    with torch.no_grad():
        with use_backend(backend):
            found = call(op, inputs, weights, lengths, initial_state=state, reverse=reverse)
        with use_backend("reference"):
            expected = call(op, inputs, weights, lengths, initial_state=state, reverse=reverse)
    assert_same(found, expected)
    for tensor, copied in zip(given_tensors, copies, strict=True):
        assert torch.equal(tensor, copied)


@EVERY_OP
@EVERY_FAST_BACKEND
def test_a_long_batch_of_many_rows_agrees_too(op: str, backend: str) -> None:
    weights = trained(random_weights(op, 6, 7, 4, 5))
    inputs = torch.randn(12, 40, 6, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([40, 1, 39, 17, 17, 2, 40, 5, 30, 1, 21, 8])
    arguments = (op, inputs, weights, lengths, None, True)
    assert_same(results_and_gradients(backend, *arguments), results_and_gradients("reference", *arguments))


def numpy_meta_lstm(inputs: numpy.ndarray, w: dict[str, numpy.ndarray], state: dict[str, numpy.ndarray]) -> Any:
    """One row by the paper's equations 8 to 16, in its own gate order and with its own matrices."""

    def sigmoid(values: numpy.ndarray) -> numpy.ndarray:
        return 1 / (1 + numpy.exp(-values))

    def rows(name: str, gate: str) -> numpy.ndarray:
        return numpy.split(w[name], 4)["ifgo".index(gate)]

    h, c, meta_h, meta_c = (state[name] for name in ("hidden", "cell", "meta_hidden", "meta_cell"))
    outputs, vectors = [], []
    for x in inputs:
        seen = numpy.concatenate([x, meta_h, h])
        before = {}
        for gate in "goif":
            w_m = numpy.hstack([rows("meta_input", gate), rows("meta_meta", gate), rows("meta_hidden", gate)])
            before[gate] = w_m @ seen + rows("meta_bias", gate)
        meta_c = numpy.tanh(before["g"]) * sigmoid(before["i"]) + meta_c * sigmoid(before["f"])
        meta_h = sigmoid(before["o"]) * numpy.tanh(meta_c)
        z = w["z"] @ meta_h
        for gate in "goif":
            p, b = rows("p", gate)[0], rows("b", gate)[0]
            q = numpy.hstack([rows("q_input", gate)[0], rows("q_hidden", gate)[0]])
            before[gate] = (p @ numpy.diag(z) @ q) @ numpy.concatenate([x, h]) + b @ z
        c = numpy.tanh(before["g"]) * sigmoid(before["i"]) + c * sigmoid(before["f"])
        h = sigmoid(before["o"]) * numpy.tanh(c)
        outputs.append(h)
        vectors.append(z)
    return (
        numpy.stack(outputs),
        numpy.stack(vectors),
        {"hidden": h, "cell": c, "meta_hidden": meta_h, "meta_cell": meta_c},
    )


@EVERY_BACKEND
@pytest.mark.parametrize("reverse", [False, True])
def test_meta_lstm_follows_the_equations_of_the_paper(backend: str, reverse: bool) -> None:
    d, h, m, z, steps, lengths = 4, 5, 3, 2, 7, [7, 3, 1]
    weights = random_weights("meta_lstm", d, h, m, z)
    inputs, state = torch.randn(3, steps, d, dtype=torch.float64), random_state("meta_lstm", 3, h, m)
    with use_backend(backend):
        found = call("meta_lstm", inputs, weights, torch.tensor(lengths), initial_state=state, reverse=reverse)
    for row, length in enumerate(lengths):
        order = slice(length - 1, None, -1) if reverse else slice(length)
        read = inputs[row, :length].flip(0) if reverse else inputs[row, :length]
        outputs, vectors, final = numpy_meta_lstm(
            read.numpy(),
            {name: part.numpy() for name, part in weights._asdict().items()},
            {name: part[row].numpy() for name, part in state._asdict().items()},
        )
        numpy.testing.assert_allclose(found["outputs"][row].numpy()[order], outputs, rtol=0, atol=1e-12)
        numpy.testing.assert_allclose(found["vectors"][row].numpy()[order], vectors, rtol=0, atol=1e-12)
        for name, part in final.items():
            numpy.testing.assert_allclose(found[name][row].numpy(), part, rtol=0, atol=1e-12)


@EVERY_BACKEND
@pytest.mark.parametrize("packed", [False, True])
def test_lstm_gives_the_numbers_of_torch(backend: str, packed: bool) -> None:
    h, lengths = 5, torch.tensor([6, 2, 4, 1])
    inputs = torch.randn(4, 6, 3, dtype=torch.float64, requires_grad=True)
    theirs = nn.LSTM(3, h, batch_first=True, bidirectional=True, dtype=torch.float64)
    state = random_state("lstm", 8, h, 0)
    initial = tuple(part.view(2, 4, h) for part in state)
    if packed:
        sequence = nn.utils.rnn.pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
        packed_outputs, (hidden, cell) = theirs(sequence, initial)
        expected, _ = nn.utils.rnn.pad_packed_sequence(packed_outputs, batch_first=True)
    else:
        expected, (hidden, cell) = theirs(inputs, initial)
    for direction, suffix in enumerate(("", "_reverse")):
        parts = dict(theirs.named_parameters())
        weights = LSTMWeights(
            parts[f"weight_ih_l0{suffix}"],
            parts[f"weight_hh_l0{suffix}"],
            parts[f"bias_ih_l0{suffix}"] + parts[f"bias_hh_l0{suffix}"],
        )
        with use_backend(backend):
            found = call(
                "lstm",
                inputs,
                weights,
                lengths if packed else None,
                initial_state=LSTMState(*(part[direction] for part in initial)),
                reverse=bool(direction),
            )
        columns = slice(direction * h, (direction + 1) * h)
        assert_same(found, {"outputs": expected[..., columns], "hidden": hidden[direction], "cell": cell[direction]})
        leaves = [inputs, *(parts[name + suffix] for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0"))]
        ours = torch.autograd.grad((found["outputs"] ** 2).sum(), leaves)
        correct = torch.autograd.grad((expected[..., columns] ** 2).sum(), leaves, retain_graph=True)
        for gradient, right in zip(ours, correct, strict=True):
            torch.testing.assert_close(gradient, right, rtol=0, atol=1e-10)


@EVERY_OP
@ON_EVERY_FAST_BACKEND
def test_gradients_are_those_of_finite_differences(op: str, on_backend: str) -> None:
    weights, state = random_weights(op, 2, 3, 2, 2), random_state(op, 3, 3, 2)
    inputs, lengths = torch.randn(3, 3, 2, dtype=torch.float64), torch.tensor([2, 3, 1])

    def compute(*leaves: Tensor) -> tuple[Tensor, ...]:
        parts = iter(leaves)
        given_inputs = next(parts)
        given_weights = type(weights)(*(next(parts) for _ in weights))
        results = call(op, given_inputs, given_weights, lengths, initial_state=type(state)(*parts), reverse=True)
        return tuple(results.values())

    leaves = [tensor.clone().requires_grad_() for tensor in (inputs, *weights, *state)]
    assert torch.autograd.gradcheck(compute, leaves)


@EVERY_OP
def test_second_derivatives_of_the_reference_are_those_of_finite_differences(op: str) -> None:
    weights, inputs = random_weights(op, 2, 2, 2, 2), torch.randn(1, 2, 2, dtype=torch.float64)

    def compute(*leaves: Tensor) -> Tensor:
        return call(op, leaves[0], type(weights)(*leaves[1:]))["outputs"]

    with use_backend("reference"):
        assert torch.autograd.gradgradcheck(compute, [leaf.clone().requires_grad_() for leaf in (inputs, *weights)])


@EVERY_OP
@ON_EVERY_FAST_BACKEND
def test_a_second_derivative_is_refused_even_of_a_plain_sum(op: str, on_backend: str) -> None:
    weights = random_weights(op, 2, 3, 2, 2)
    inputs = torch.randn(2, 4, 2, dtype=torch.float64, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"no second derivatives.*use_backend\('reference'\)"):
        torch.autograd.grad(call(op, inputs, weights)["outputs"].sum(), inputs, create_graph=True)
    with use_backend("reference"):
        (first,) = torch.autograd.grad(call(op, inputs, weights)["outputs"].sum(), inputs, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), inputs)
    assert second.abs().sum() > 0


@EVERY_OP
@ON_EVERY_FAST_BACKEND
def test_a_graph_can_be_walked_twice_and_leaves_its_arguments_alone(op: str, on_backend: str) -> None:
    weights = trained(random_weights(op, 3, 4, 3, 2))
    inputs = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)
    state = random_state(op, 2, 4, 3)
    leaves = [inputs, *weights]
    copies = [tensor.detach().clone() for tensor in (*leaves, *state)]
    results = call(op, inputs, weights, torch.tensor([3, 5]), initial_state=state)
    loss = sum(part.square().sum() for part in results.values())
    first = torch.autograd.grad(loss, leaves, retain_graph=True)
    second = torch.autograd.grad(loss, leaves)
    for left, right in zip(first, second, strict=True):
        assert torch.equal(left, right)
    for tensor, copied in zip((*leaves, *state), copies, strict=True):
        assert torch.equal(tensor, copied)


@EVERY_OP
@ON_EVERY_FAST_BACKEND
def test_one_direction_is_the_other_on_flipped_rows(op: str, on_backend: str) -> None:
    weights, inputs = random_weights(op, 3, 4, 3, 2), torch.randn(2, 5, 3, dtype=torch.float64)
    backwards, forwards = call(op, inputs, weights, reverse=True), call(op, inputs.flip(1), weights)
    for name in backwards:
        expected = forwards[name].flip(1) if name in ("outputs", "vectors") else forwards[name]
        torch.testing.assert_close(backwards[name], expected, rtol=0, atol=1e-12)


@EVERY_OP
@ON_EVERY_FAST_BACKEND
def test_a_sequence_can_be_read_in_two_pieces(op: str, on_backend: str) -> None:
    weights, inputs = random_weights(op, 3, 4, 3, 2), torch.randn(2, 9, 3, dtype=torch.float64)
    *_, middle = OPS[op](inputs[:, :4], weights)
    rest, whole = call(op, inputs[:, 4:], weights, initial_state=middle), call(op, inputs, weights)
    torch.testing.assert_close(rest["outputs"], whole["outputs"][:, 4:], rtol=0, atol=1e-12)
    for name in rest.keys() - {"outputs", "vectors"}:
        torch.testing.assert_close(rest[name], whole[name], rtol=0, atol=1e-12)


@EVERY_OP
@EVERY_BACKEND
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("garbage", [math.nan, math.inf])
def test_what_stands_in_padding_reaches_no_result_and_no_gradient(
    op: str, backend: str, reverse: bool, garbage: float
) -> None:
    lengths = torch.tensor([4, 1, 6])
    padding = torch.arange(6) >= lengths[:, None]
    weights = trained(random_weights(op, 3, 4, 3, 2))
    clean = torch.randn(3, 6, 3, dtype=torch.float64).masked_fill(padding.unsqueeze(-1), 0).requires_grad_()
    dirty = clean.detach().masked_fill(padding.unsqueeze(-1), garbage).requires_grad_()
    found = results_and_gradients(backend, op, dirty, weights, lengths, None, reverse)
    assert_same(found, results_and_gradients(backend, op, clean, weights, lengths, None, reverse), atol=0)
    assert not found["outputs"][padding].any()
    assert not found["gradient of inputs"][padding].any()


@EVERY_OP
@ON_EVERY_FAST_BACKEND
def test_float32_stays_within_rounding_of_float64(op: str, on_backend: str) -> None:
    inputs, lengths = torch.randn(4, 60, 20), torch.tensor([60, 13, 44, 31])
    weights = random_weights(op, 20, 24, 10, 10, torch.float32)
    found, exact = (
        results_and_gradients(
            on_backend,
            op,
            inputs.to(dtype).requires_grad_(),
            type(weights)(*(part.to(dtype).requires_grad_() for part in weights)),
            lengths,
            None,
            False,
        )
        for dtype in (torch.float32, torch.float64)
    )
    for name, right in exact.items():
        assert found[name].dtype == torch.float32
        relative = (found[name] - right).abs().max() / right.abs().max()
        assert relative < 2e-5, f"{name} is {relative:.1e} off"


@EVERY_OP
@EVERY_BACKEND
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32_and_rounded_once(op: str, backend: str, dtype: torch.dtype) -> None:
    inputs, lengths = torch.randn(2, 12, 3).to(dtype).requires_grad_(), torch.tensor([12, 7])
    weights = random_weights(op, 3, 4, 3, 2, dtype)
    with use_backend(backend):
        found = call(op, inputs, weights, lengths)
        exact = call(op, inputs.float(), type(weights)(*(part.float() for part in weights)), lengths)
        mixed = call(op, inputs, type(weights)(*(part.float() for part in weights)), lengths)
    for name, right in exact.items():
        assert found[name].dtype == mixed[name].dtype == dtype
        assert torch.equal(found[name], right.to(dtype)), name
        assert torch.equal(mixed[name], right.to(dtype)), name
    (gradient,) = torch.autograd.grad(found["outputs"].sum(), inputs)
    assert gradient.dtype == dtype and gradient.isfinite().all()


@EVERY_OP
@EVERY_BACKEND
def test_autocast_does_not_change_the_numbers(op: str, backend: str) -> None:
    weights = trained(random_weights(op, 3, 4, 3, 2, torch.float32))
    inputs = torch.randn(2, 12, 3, requires_grad=True)
    arguments = (backend, op, inputs, weights, torch.tensor([12, 7]), None, False)
    found = results_and_gradients(*arguments, autocast=True)
    assert_same(found, results_and_gradients(*arguments), atol=0)


@EVERY_BACKEND
def test_a_constant_meta_vector_of_ones_makes_a_plain_lstm_of_p_times_q(backend: str) -> None:
    # Open input and output gates, closed forget gate and a saturated candidate: h^ = tanh(1) whatever is read, and
    # W_z = 1 / (m tanh 1) turns it into ones.
    d, h, m, z = 4, 5, 3, 6
    weights = random_weights("meta_lstm", d, h, m, z)
    bias = torch.tensor([60.0, -60.0, 60.0, 60.0], dtype=torch.float64).repeat_interleave(m)
    weights = weights._replace(
        meta_input=torch.zeros(4 * m, d, dtype=torch.float64),
        meta_meta=torch.zeros(4 * m, m, dtype=torch.float64),
        meta_hidden=torch.zeros(4 * m, h, dtype=torch.float64),
        meta_bias=bias,
        z=torch.full((z, m), 1 / (m * math.tanh(1)), dtype=torch.float64),
    )
    plain = LSTMWeights(
        (weights.p @ weights.q_input).flatten(0, 1),
        (weights.p @ weights.q_hidden).flatten(0, 1),
        weights.b.sum(2).flatten(),
    )
    inputs = torch.randn(3, 7, d, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([7, 2, 5])
    with use_backend(backend):
        found, expected = call("meta_lstm", inputs, weights, lengths), call("lstm", inputs, plain, lengths)
    real = torch.arange(7) < lengths[:, None]
    torch.testing.assert_close(found["vectors"], real.unsqueeze(-1).expand(-1, -1, z).double(), rtol=0, atol=1e-12)
    for name in ("outputs", "hidden", "cell"):
        torch.testing.assert_close(found[name], expected[name], rtol=0, atol=1e-12)
    ours, theirs = (torch.autograd.grad(part["outputs"].sum(), inputs)[0] for part in (found, expected))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_the_weights_have_the_papers_number_of_parameters() -> None:
    d, h, m, z = 100, 100, 20, 20
    weights = random_weights("meta_lstm", d, h, m, z, torch.float32)
    meta_lstm(torch.randn(1, 1, d), weights)  # the op takes these shapes
    count = {name: part.numel() for name, part in weights._asdict().items()}
    p_and_q = count["p"] + count["q_input"] + count["q_hidden"]
    theta_m = sum(count[name] for name in ("meta_input", "meta_meta", "meta_hidden", "meta_bias", "z"))
    assert p_and_q == 8 * h * z + 4 * d * z == 24_000
    assert theta_m == 4 * m * (d + h + m + 1) + m * z == 18_080
    assert count["b"] == 4 * h * z == 8_000
    plain = random_weights("lstm", d, h, 0, 0, torch.float32)
    lstm(torch.randn(1, 1, d), plain)
    assert sum(part.numel() for part in plain) == 4 * h * h + 4 * h * d + 4 * h == 80_400


@EVERY_OP
@ON_EVERY_FAST_BACKEND
@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.int8, torch.uint8])
def test_lengths_may_be_any_integers(op: str, on_backend: str, dtype: torch.dtype) -> None:
    weights, inputs = random_weights(op, 3, 4, 3, 2), torch.randn(2, 5, 3, dtype=torch.float64)
    lengths = torch.tensor([2, 5])
    assert_same(call(op, inputs, weights, lengths.to(dtype)), call(op, inputs, weights, lengths), atol=0)


@EVERY_OP
@ON_EVERY_FAST_BACKEND
@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([3, 0], r"lengths\[1\] is 0, but a row has 1\.\.5 steps"),
        ([6, 1], r"lengths\[0\] is 6, but a row has 1\.\.5 steps"),
        ([3, -1], r"lengths\[1\] is -1"),
        ([3, 3, 3], r"lengths must be integers of shape \(2,\), got torch\.int64 \(3,\)"),
        ([3.0, 3.0], r"lengths must be integers of shape \(2,\), got torch\.float32 \(2,\)"),
        ([True, True], r"lengths must be integers of shape \(2,\), got torch\.bool \(2,\)"),
    ],
)
def test_bad_lengths_are_named(op: str, on_backend: str, lengths: list[Any], message: str) -> None:
    weights, inputs = random_weights(op, 3, 4, 3, 2), torch.randn(2, 5, 3, dtype=torch.float64)
    with pytest.raises(ValueError, match=f"^{op}: {message}"):
        call(op, inputs, weights, torch.tensor(lengths))


@EVERY_OP
@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 5, 4), r"inputs have shape \(2, 5, 4\), expected \(batch, steps, 3\)"),
        ((5, 3), r"inputs have shape \(5, 3\), expected \(batch, steps, 3\)"),
        ((0, 5, 3), r"inputs have shape \(0, 5, 3\): an empty batch has no states"),
        ((2, 0, 3), r"inputs have shape \(2, 0, 3\): an empty batch has no states"),
    ],
)
def test_bad_inputs_are_named(op: str, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{op}: {message}"):
        call(op, torch.zeros(shape), random_weights(op, 3, 4, 3, 2, torch.float32))


@EVERY_OP
def test_integer_inputs_are_refused(op: str) -> None:
    with pytest.raises(TypeError, match=f"^{op}: inputs must be floating-point vectors, got torch.int64"):
        call(op, torch.ones(2, 5, 3, dtype=torch.int64), random_weights(op, 3, 4, 3, 2, torch.float32))


@pytest.mark.parametrize(
    ("op", "name", "part", "message"),
    [
        ("lstm", "hidden", torch.zeros(15, 4), r"weights.hidden has shape \(15, 4\), expected \(16, 4\)"),
        ("lstm", "bias", torch.zeros(4), r"weights.bias has shape \(4,\), expected \(16,\)"),
        ("meta_lstm", "meta_meta", torch.zeros(12, 4), r"weights.meta_meta has shape \(12, 4\), expected \(12, 3\)"),
        ("meta_lstm", "p", torch.zeros(4, 2, 4), r"weights.p has shape \(4, 2, 4\), expected \(4, 4, 2\)"),
        ("meta_lstm", "q_input", torch.zeros(4, 2, 7), r"weights.q_input .* expected \(4, 2, 3\)"),
    ],
)
def test_weights_that_do_not_fit_are_named(op: str, name: str, part: Tensor, message: str) -> None:
    weights = random_weights(op, 3, 4, 3, 2, torch.float32)._replace(**{name: part})
    with pytest.raises(ValueError, match=f"^{op}: {message}"):
        call(op, torch.zeros(2, 5, 3), weights)


def test_an_initial_state_that_does_not_fit_is_named() -> None:
    state = random_state("meta_lstm", 2, 4, 3)._replace(meta_cell=torch.zeros(2, 4, dtype=torch.float64))
    weights = random_weights("meta_lstm", 3, 4, 3, 2)
    with pytest.raises(ValueError, match=r"initial_state.meta_cell has shape \(2, 4\), expected \(2, 3\)"):
        meta_lstm(torch.zeros(2, 5, 3, dtype=torch.float64), weights, initial_state=state)


def test_the_compiled_backend_is_the_default_where_it_was_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_METALSTM_BACKEND", raising=False)
    for built, names in ((True, ["cpp", "torch", "reference"]), (False, ["torch", "reference"])):
        monkeypatch.setattr(recurrent, "kernels_available", lambda built=built: built)
        assert available_backends() == names
        assert current_backend() == names[0]


def test_the_environment_variable_chooses_what_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    used = []
    for name, backend in recurrent._BACKENDS.items():
        run = backend.lstm
        monkeypatch.setattr(
            backend, "lstm", lambda *args, n=name, op=run, **options: (used.append(n), op(*args, **options))[1]
        )
    weights = random_weights("lstm", 3, 4, 3, 2)
    for choice in ("reference", "torch", ""):
        monkeypatch.setenv("HF_METALSTM_BACKEND", choice)
        lstm(torch.zeros(1, 2, 3, dtype=torch.float64), weights)
        with use_backend("reference"):
            lstm(torch.zeros(1, 2, 3, dtype=torch.float64), weights)
    assert used == ["reference", "reference", "torch", "reference", available_backends()[0], "reference"]


def test_an_unknown_backend_is_refused_with_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    known = ", ".join(available_backends())
    with pytest.raises(ValueError, match=f"^backend is 'cudnn'; available: {known}$"):
        with use_backend("cudnn"):
            pass
    monkeypatch.setenv("HF_METALSTM_BACKEND", "fast")
    with pytest.raises(ValueError, match=f"^HF_METALSTM_BACKEND is 'fast'; available: {known}$"):
        lstm(torch.zeros(1, 2, 3), random_weights("lstm", 3, 4, 3, 2, torch.float32))


def test_the_compiled_backend_where_it_was_not_built_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrent, "kernels_available", lambda: False)
    monkeypatch.setenv("HF_METALSTM_BACKEND", "cpp")
    with pytest.raises(
        ValueError, match=r"available: torch, reference. To have them, install a C\+\+17 compiler.*pip install"
    ):
        lstm(torch.zeros(1, 2, 3), random_weights("lstm", 3, 4, 3, 2, torch.float32))


def test_use_backend_nests_and_ends_with_an_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_METALSTM_BACKEND", "torch")
    with pytest.raises(KeyError):
        with use_backend("reference"):
            with use_backend("torch"):
                assert current_backend() == "torch"
            assert current_backend() == "reference"
            raise KeyError
    assert current_backend() == "torch"


class _HostReads(TorchDispatchMode):
    """Counts the tensor operators that wait for a device: reading a number, finding what is true."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func.overloadpacket in (
            torch.ops.aten._local_scalar_dense,
            torch.ops.aten.item,
            torch.ops.aten.nonzero,
            torch.ops.aten.is_nonzero,
            torch.ops.aten.equal,
            torch.ops.aten.masked_select,
        )
        return func(*args, **(kwargs or {}))


@EVERY_OP
@pytest.mark.parametrize("ragged", [False, True])
def test_the_loop_never_reads_back_from_the_device(op: str, ragged: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = trained(random_weights(op, 3, 4, 3, 2))
    reads: list[str] = []
    for name in ("item", "tolist", "numpy", "cpu", "__bool__", "__int__", "__float__"):
        original = getattr(Tensor, name)
        monkeypatch.setattr(Tensor, name, lambda self, *args, n=name, o=original: (reads.append(n), o(self, *args))[1])

    def count(steps: int) -> int:
        reads.clear()
        lengths = torch.arange(1, steps + 1) if ragged else None
        inputs = torch.randn(steps, steps, 3, dtype=torch.float64)
        with _HostReads() as dispatched:
            call(op, inputs, weights, lengths)["outputs"].sum().backward()
        return len(reads) + dispatched.count

    few = count(3)
    assert count(30) == few <= 3


@EVERY_OP
@ON_EVERY_FAST_BACKEND
def test_a_copied_or_compiled_module_gives_the_same_numbers_and_gradients(op: str, on_backend: str) -> None:
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            weights = random_weights(op, 3, 4, 3, 2, torch.float32)
            self.kind = type(weights)
            self.parts = nn.ParameterList(nn.Parameter(part) for part in weights)

        def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
            return call(op, inputs * 2, self.kind(*self.parts), lengths)["outputs"].tanh()

    encoder = Encoder()
    inputs, lengths = torch.randn(2, 5, 3), torch.tensor([5, 3])
    encoder(inputs, lengths)
    copied = copy.deepcopy(encoder)
    traced: list[Any] = []

    def run_as_it_is(graph: torch.fx.GraphModule, _: Any) -> Any:
        traced.extend(node.target for node in graph.graph.nodes if node.op.startswith("call"))
        return graph.forward

    compiled = torch.compile(copy.deepcopy(encoder), backend=run_as_it_is, fullgraph=on_backend == "cpp")
    results = {}
    for name, module in {"plain": encoder, "copied": copied, "compiled": compiled}.items():
        outputs = module(inputs, lengths)
        outputs.sum().backward()
        results[name] = [outputs, *(part.grad for part in module.parameters())]
    for name in ("copied", "compiled"):
        for found, expected in zip(results[name], results["plain"], strict=True):
            assert torch.equal(found, expected)
    assert copied.parts[0] is not encoder.parts[0]
    of_op = [target for target in traced if f"hf_metalstm.{op}" in str(target)]
    assert len(of_op) == (1 if on_backend == "cpp" else 0), f"one node, or none in the graphs around it: {traced}"
    assert len(traced) < 80, f"only what stands around the op is traced, not its loop: {traced}"


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@EVERY_OP
@pytest.mark.parametrize("lengths_on_host", [False, True])
def test_cuda_agrees_with_the_cpu(op: str, lengths_on_host: bool) -> None:
    weights = random_weights(op, 6, 7, 4, 5)
    inputs, lengths = torch.randn(5, 20, 6, dtype=torch.float64), torch.tensor([20, 1, 7, 7, 13])
    results = []
    for device in ("cpu", "cuda"):
        results.append(
            results_and_gradients(
                "torch",
                op,
                inputs.to(device).requires_grad_(),
                type(weights)(*(part.to(device).requires_grad_() for part in weights)),
                lengths if lengths_on_host else lengths.to(device),
                None,
                True,
            )
        )
    assert_same({name: part.cpu() for name, part in results[1].items()}, results[0])
