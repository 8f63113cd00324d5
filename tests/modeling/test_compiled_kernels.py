"""The compiled backend: instruction sets, threads, memory, kept layouts, compiled and exported graphs, processes."""

import copy
import io
import multiprocessing
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from recurrent_cases import (
    OPS,
    GRUState,
    assert_same,
    call,
    calls,
    random_state,
    random_weights,
    results_and_gradients,
    trained,
    with_gradients,
)
from torch import Tensor, nn

from hf_metalstm import MetaLSTMConfig, MetaLSTMForSequenceClassification
from hf_metalstm.modeling import compiled_kernels
from hf_metalstm.modeling.compiled_kernels import PaddedBatch, instruction_set, instruction_sets, run_kernel
from hf_metalstm.modeling.recurrent import GRUWeights, attention_gru, gru, lstm, use_backend

pytestmark = pytest.mark.skipif(not instruction_sets(), reason="the package was installed without compiled kernels")

EVERY_OP = pytest.mark.parametrize("op", list(OPS))
EVERY_SET = pytest.mark.parametrize("name", instruction_sets())


@contextmanager
def environment(**values: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setenv(name, value)
        yield


@contextmanager
def threads(number: int, least_work: int = 1) -> Iterator[None]:
    """Several threads, however small the work."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compiled_kernels, "_LEAST_WORK_OF_THREAD", least_work)
            yield
    finally:
        torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def compiled() -> Iterator[None]:
    compiled_kernels._layouts.clear()
    with use_backend("cpp"):
        yield


# ---- the same numbers ----


@EVERY_SET
@given(arguments=calls(largest=40))
def test_every_instruction_set_computes_the_reference(name: str, arguments: tuple[Any, ...]) -> None:
    with environment(HF_METALSTM_INSTRUCTION_SET=name):
        found = results_and_gradients("cpp", *arguments)
    assert_same(found, results_and_gradients("reference", *arguments))


@EVERY_SET
@EVERY_OP
@pytest.mark.parametrize("size", [1, 7, 16, 33, 48, 49, 65, 97])
def test_float32_stays_near_float64_at_every_width(name: str, op: str, size: int) -> None:
    lengths = torch.tensor([9, 1, 6, 9, 3, 8, 9, 2, 9])
    weights, inputs = random_weights(op, size, size, size, size), torch.randn(9, 9, size, dtype=torch.float64)
    results = {}
    with environment(HF_METALSTM_INSTRUCTION_SET=name):
        for dtype in (torch.float32, torch.float64):
            cast = type(weights)(*(part.detach().to(dtype).requires_grad_() for part in weights))
            leaf = inputs.to(dtype).requires_grad_()
            results[dtype] = results_and_gradients("cpp", op, leaf, cast, lengths, None, True)
    for part, right in results[torch.float64].items():
        relative = (results[torch.float32][part] - right).abs().max() / right.abs().max()
        assert relative < 2e-5, f"{part} is {relative:.1e} off"


@settings(max_examples=30)
@given(arguments=calls(), number=st.integers(2, 5))
def test_threads_change_nothing_but_the_order_of_sums(arguments: tuple[Any, ...], number: int) -> None:
    expected = results_and_gradients("cpp", *arguments)
    with threads(number):
        found, again = (results_and_gradients("cpp", *arguments) for _ in range(2))
    assert_same(found, expected, atol=1e-11)
    assert_same(again, found, atol=0)


@EVERY_OP
def test_more_rows_than_one_group_holds_agree_on_one_and_on_two_threads(op: str) -> None:
    lengths = torch.randint(1, 7, (75,))
    weights = trained(random_weights(op, 5, 6, 4, 3))
    inputs, state = torch.randn(75, 6, 5, dtype=torch.float64).requires_grad_(), trained(random_state(op, 75, 6, 4))
    arguments = (op, inputs, weights, lengths, state, False)
    expected = results_and_gradients("torch", *arguments)
    assert_same(results_and_gradients("cpp", *arguments), expected)
    with threads(2):
        assert_same(results_and_gradients("cpp", *arguments), expected)


def test_attention_gru_on_two_threads_is_that_on_one() -> None:
    weights, lengths = random_weights("gru", 5, 6, 0, 0), torch.randint(1, 9, (11,))
    leaves = {
        "inputs": torch.randn(11, 8, 5, dtype=torch.float64).requires_grad_(),
        "gates": torch.rand(11, 8, dtype=torch.float64).requires_grad_(),
        **trained(weights)._asdict(),
    }

    def attend() -> dict[str, Tensor]:
        inputs, gates, *rest = leaves.values()
        return with_gradients({"state": attention_gru(inputs, gates, GRUWeights(*rest), lengths)}, leaves)

    expected = attend()
    with threads(3):
        assert_same(attend(), expected, atol=1e-12)


@EVERY_SET
def test_saturated_gates_and_huge_inputs_give_no_nan(name: str) -> None:
    for scale in (1e2, 1e4, 1e30):
        weights = type(w := random_weights("lstm", 3, 5, 0, 0, torch.float32))(*(part * scale for part in w))
        inputs = torch.randn(2, 9, 3, requires_grad=True)
        with environment(HF_METALSTM_INSTRUCTION_SET=name):
            found = results_and_gradients("cpp", "lstm", inputs, weights, None, None, False)
        assert all(part.isfinite().all() for part in found.values())
        assert found["outputs"].abs().max() <= 1


@EVERY_SET
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sigmoid_and_tanh_are_right_from_end_to_end(name: str, dtype: torch.dtype) -> None:
    # One unit that only passes its input on: gates i, f, o open by bias, the candidate is the input.
    values = torch.cat([torch.linspace(-87, 87, 4001), torch.logspace(-30, 0, 200), -torch.logspace(-30, 0, 200)])
    inputs = values.to(dtype).view(-1, 1, 1)
    weights = [torch.zeros(4, 1), torch.zeros(4, 1), torch.tensor([200.0, -200.0, 0.0, 200.0])]
    weights[0][2] = 1.0
    with environment(HF_METALSTM_INSTRUCTION_SET=name):
        _, state = lstm(inputs, type(random_weights("lstm", 1, 1, 0, 0))(*(part.to(dtype) for part in weights)))
        opened = [part.clone() for part in weights]
        opened[0][2], opened[0][0], opened[2] = 0.0, 1.0, torch.tensor([0.0, -200.0, 200.0, 200.0])
        _, gate = lstm(inputs, type(random_weights("lstm", 1, 1, 0, 0))(*(part.to(dtype) for part in opened)))
    exact = inputs.double().flatten()
    for found, right in ((state.cell, exact.tanh()), (gate.cell, exact.sigmoid())):
        error = (found.double().flatten() - right).abs() / right.abs().clamp(min=1e-37)
        assert error.max() < 8 * torch.finfo(dtype).eps, f"{error.max():.1e} at {exact[error.argmax()]}"


@EVERY_OP
def test_nan_stays_where_it_came_from(op: str) -> None:
    inputs = torch.randn(3, 5, 4)
    inputs[1, 2, 0] = float("nan")
    outputs = call(op, inputs, random_weights(op, 4, 5, 3, 2, torch.float32))["outputs"]
    assert outputs[[0, 2]].isfinite().all() and outputs[1, :2].isfinite().all()
    assert outputs[1, 2:].isnan().all()


def test_an_unknown_instruction_set_is_refused_with_the_known_ones() -> None:
    with environment(HF_METALSTM_INSTRUCTION_SET="sse9"):
        with pytest.raises(ValueError, match=f"'sse9'; this processor has: {', '.join(instruction_sets())}"):
            instruction_set()
    assert instruction_set() in instruction_sets()


# ---- memory ----


@EVERY_OP
def test_tensors_may_start_anywhere(op: str) -> None:
    def shifted(tensor: Tensor) -> Tensor:
        memory = torch.empty(tensor.numel() + 1, dtype=tensor.dtype)
        memory[1:] = tensor.flatten()
        return memory[1:].view(tensor.shape)

    weights, inputs = random_weights(op, 5, 7, 3, 2), torch.randn(3, 4, 5, dtype=torch.float64)
    odd = type(weights)(*(shifted(part) for part in weights))
    assert_same(call(op, shifted(inputs), odd), call(op, inputs, weights), atol=0)


def test_other_tensors_than_contiguous_ones_of_one_precision_never_reach_raw_memory() -> None:
    good, batch = torch.zeros(1, 1, 3), PaddedBatch(1, 1, None, False)
    weights, state = [torch.zeros(8, 3), torch.zeros(8, 2)], torch.zeros(1, 2)

    def run(outputs: Tensor, inputs: Tensor = good) -> None:
        read = [inputs, torch.zeros(8), state, state]
        run_kernel(
            "LSTM_FORWARD", batch, (3, 2), weights, read, [outputs, torch.zeros(1, 2), torch.zeros(1, 2), None, None]
        )

    run(torch.zeros(1, 1, 2))
    with pytest.raises(TypeError, match=r"contiguous CPU tensors of one precision.*torch.float64"):
        run(torch.zeros(1, 1, 2, dtype=torch.float64))
    with pytest.raises(TypeError, match=r"strides \(4, 4, 2\)"):
        run(torch.zeros(1, 1, 4)[..., ::2])
    with pytest.raises(TypeError, match=r"torch.int64"):
        run(torch.zeros(1, 1, 2), torch.zeros(1, 1, 3, dtype=torch.int64))


def test_the_module_itself_refuses_nonsense() -> None:
    kernels = compiled_kernels._kernels
    name = instruction_set()
    with pytest.raises(ValueError, match="there is no op 99"):
        kernels.packed_bytes(name, 99, False, (3, 2))
    with pytest.raises(ValueError, match="no instruction set sse9"):
        kernels.packed_bytes("sse9", 0, False, (3, 2))
    with pytest.raises(TypeError, match="sizes must be a tuple of 2 integers"):
        kernels.packed_bytes(name, 0, False, (3, 2, 1))
    with pytest.raises(ValueError, match="sizes must not be negative"):
        kernels.packed_bytes(name, 0, False, (3, -2))
    with pytest.raises(ValueError, match="0 rows and 5 steps is empty"):
        kernels.run(name, 0, False, 1, 1, 0, 5, 0, False, (3, 2), (0,) * 9, 0)


# ---- weights kept laid out ----


@EVERY_OP
def test_inference_keeps_the_weights_laid_out_and_training_does_not(op: str) -> None:
    weights, inputs = random_weights(op, 3, 4, 3, 2), torch.randn(2, 5, 3, dtype=torch.float64)
    with torch.no_grad():
        for _ in range(3):
            call(op, inputs, weights)
    assert len(compiled_kernels._layouts) == 1
    call(op, inputs.requires_grad_(), weights)["outputs"].sum().backward()
    assert len(compiled_kernels._layouts) == 1


def _write_in_place(weight: Tensor) -> None:
    weight[-1, -1] += 0.5


def _write_through_data(weight: Tensor) -> None:
    weight.data[0, 0] += 0.5


def _write_through_numpy(weight: Tensor) -> None:
    weight.numpy()[1, 0] = 2.0


def _write_in_inference_mode(weight: Tensor) -> None:
    with torch.inference_mode():
        weight.mul_(1.5)


def _swap_two(weight: Tensor) -> None:
    weight[[0, 1]] = weight[[1, 0]].clone()


@EVERY_OP
@pytest.mark.parametrize(
    "change", [_write_in_place, _write_through_data, _write_through_numpy, _write_in_inference_mode, _swap_two]
)
def test_a_changed_weight_is_never_read_from_the_cache(op: str, change: Any) -> None:
    weights, inputs = random_weights(op, 3, 4, 3, 2), torch.randn(2, 5, 3, dtype=torch.float64)
    matrices = [part for part in weights if part.ndim == 2 and part.shape[1] > 1]
    with torch.no_grad():
        for matrix in matrices:
            call(op, inputs, weights)
            change(matrix)
            found = call(op, inputs, weights)
            compiled_kernels._layouts.clear()
            assert_same(found, call(op, inputs, weights), atol=0)


def test_the_cache_is_bounded() -> None:
    with torch.no_grad():
        for _ in range(compiled_kernels._MOST_LAYOUTS + 10):
            lstm(torch.zeros(1, 2, 3), random_weights("lstm", 3, 4, 0, 0, torch.float32))
    assert len(compiled_kernels._layouts) == compiled_kernels._MOST_LAYOUTS


def test_inference_mode_computes_the_same() -> None:
    weights, inputs = random_weights("lstm", 3, 4, 0, 0), torch.randn(2, 5, 3, dtype=torch.float64)
    expected = call("lstm", inputs, weights)
    with torch.inference_mode():
        assert_same(call("lstm", inputs.clone(), weights), expected, atol=0)


# ---- graphs, copies, processes ----


def small_model(**settings: Any) -> MetaLSTMForSequenceClassification:
    sizes = dict(vocab_size=30, embedding_size=6, hidden_size=7, meta_size=4, z_size=3)
    return MetaLSTMForSequenceClassification(MetaLSTMConfig(**sizes, bidirectional=True, **settings)).eval()


BATCH = {
    "input_ids": torch.tensor([[5, 9, 3, 7, 2], [8, 2, 6, 0, 0], [0, 0, 4, 4, 9]]),
    "attention_mask": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1]]),
}


@pytest.mark.parametrize("cell", ["lstm", "meta_lstm"])
def test_a_compiled_model_is_one_graph_and_gives_the_same_gradients(cell: str) -> None:
    model = small_model(cell=cell)
    graphs = []

    def keep(graph: torch.fx.GraphModule, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    compiled_model = torch.compile(copy.deepcopy(model), backend=keep, fullgraph=True)
    for part in (model, compiled_model):
        part(**BATCH).logits.square().sum().backward()
    assert len(graphs) == 1
    targets = [str(node.target) for node in graphs[0].graph.nodes]
    assert sum(f"hf_metalstm.{cell}" in target for target in targets) == 2  # one for each direction
    for ours, theirs in zip(model.parameters(), compiled_model.parameters(), strict=True):
        assert (ours.grad is None) == (theirs.grad is None)
        if ours.grad is not None:
            torch.testing.assert_close(theirs.grad, ours.grad)


@EVERY_OP
def test_the_backward_pass_can_be_compiled_too(op: str) -> None:
    weights = trained(random_weights(op, 3, 4, 3, 2))

    def loss(inputs: Tensor, lengths: Tensor) -> Tensor:
        return sum(part.square().sum() for part in call(op, inputs, weights, lengths).values())

    compiled_loss = torch.compile(loss, backend="aot_eager", fullgraph=True)
    for shape, lengths in (((2, 5, 3), [5, 2]), ((3, 4, 3), [1, 4, 3])):
        inputs = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        results = [
            torch.autograd.grad(function(inputs, torch.tensor(lengths)), [inputs, *weights])
            for function in (loss, compiled_loss)
        ]
        for ours, theirs in zip(*results, strict=True):
            torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-12)


def test_a_compiled_graph_still_refuses_bad_lengths() -> None:
    weights = random_weights("lstm", 3, 4, 0, 0)
    run = torch.compile(lambda inputs, lengths: lstm(inputs, weights, lengths)[0], backend="eager", fullgraph=True)
    run(torch.zeros(2, 5, 3, dtype=torch.float64), torch.tensor([5, 2]))
    with pytest.raises(ValueError, match=r"^lstm: lengths\[1\] is 0, but a row has 1\.\.5 steps"):
        run(torch.zeros(2, 5, 3, dtype=torch.float64), torch.tensor([5, 0]))


def test_an_exported_model_gives_the_same_and_survives_its_file() -> None:
    model = small_model()
    program = torch.export.export(model, (), BATCH, strict=False)
    assert sum("hf_metalstm.meta_lstm" in str(node.target) for node in program.graph.nodes) == 2
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    other = {name: part.flip(0) for name, part in BATCH.items()}
    with torch.no_grad():
        found = torch.export.load(file).module()(**other)
        torch.testing.assert_close(found.logits, model(**other).logits, rtol=0, atol=0)


@EVERY_OP
def test_the_operators_keep_torchs_rules_for_custom_operators(op: str) -> None:
    weights = trained(random_weights(op, 3, 4, 3, 2))
    inputs, state = torch.randn(2, 5, 3, dtype=torch.float64).requires_grad_(), trained(random_state(op, 2, 4, 3))
    from hf_metalstm.modeling import recurrent_cpp, recurrent_cpp_generated

    home = recurrent_cpp if op in ("lstm", "gru") else recurrent_cpp_generated
    seen = []
    operator = getattr(home, f"_{op}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(home, f"_{op}", lambda *arguments: (seen.append(arguments), operator(*arguments))[1])
        # Full rows: what a short row leaves unwritten in kept buffers may hold anything, which the check would compare.
        call(op, inputs, weights, torch.tensor([5, 5]), initial_state=state)
    tests = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_static")
    torch.library.opcheck(operator, seen[0], test_utils=tests)


def test_copied_and_pickled_models_compute_the_same() -> None:
    model = small_model()
    expected = model(**BATCH).logits
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(**BATCH).logits, expected)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpointing_gives_the_same_gradients(use_reentrant: bool) -> None:
    weights, inputs = trained(random_weights("lstm", 3, 4, 0, 0)), torch.randn(2, 5, 3, dtype=torch.float64)
    inputs.requires_grad_()

    def run(x: Tensor) -> Tensor:
        return lstm(x, weights, torch.tensor([5, 3]))[0]

    expected = torch.autograd.grad(run(inputs).square().sum(), [inputs, *weights])
    from torch.utils.checkpoint import checkpoint

    found = checkpoint(run, inputs, use_reentrant=use_reentrant).square().sum()
    found.backward()
    for leaf, gradient in zip([inputs, *weights], expected, strict=True):
        torch.testing.assert_close(leaf.grad, gradient, rtol=0, atol=0)


def _in_a_forked_process(queue: Any, weights: Any, inputs: Tensor) -> None:
    with threads(2):
        queue.put([part.tolist() for part in (gru(inputs, weights)[0], torch.tensor(torch.get_num_threads()))])


def test_a_forked_process_computes_after_its_parent_used_threads() -> None:
    weights, inputs = random_weights("gru", 3, 4, 0, 0), torch.randn(6, 5, 3, dtype=torch.float64)
    with threads(2):
        expected = gru(inputs, weights)[0]
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=_in_a_forked_process, args=(queue, weights, inputs))
    process.start()
    found, _ = queue.get(timeout=60)
    process.join(60)
    assert process.exitcode == 0
    torch.testing.assert_close(torch.tensor(found, dtype=torch.float64), expected, rtol=0, atol=1e-12)


class StatesOfRows(torch.utils.data.Dataset):
    """Computes in the process that loads the data, and tells how many threads it may use there."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        self.weights, self.rows = random_weights("gru", 3, 4, 0, 0), torch.randn(4, 6, 5, 3, dtype=torch.float64)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return gru(self.rows[index], self.weights)[1], torch.get_num_threads()


def test_workers_that_load_data_use_one_thread_each() -> None:
    with threads(2):
        data = StatesOfRows()
        expected = torch.stack([state for state, _ in data])
        states, used = next(iter(torch.utils.data.DataLoader(data, batch_size=4, num_workers=2)))
    assert used.tolist() == [1, 1, 1, 1]
    torch.testing.assert_close(states, expected, rtol=0, atol=1e-12)


def test_python_threads_can_compute_at_once() -> None:
    from concurrent.futures import ThreadPoolExecutor

    weights = random_weights("meta_lstm", 6, 8, 5, 4)
    batches = [torch.randn(4, 9, 6, dtype=torch.float64) for _ in range(8)]

    def run(inputs: Tensor) -> Tensor:
        with torch.no_grad():
            return call("meta_lstm", inputs, weights)["outputs"]

    expected = [run(inputs) for inputs in batches]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            for found, right in zip(pool.map(run, batches), expected, strict=True):
                assert torch.equal(found, right)


def test_unneeded_gradients_are_none_and_change_no_other() -> None:
    state = GRUState(torch.randn(2, 4, dtype=torch.float64).requires_grad_())
    weights = random_weights("gru", 3, 4, 0, 0)
    inputs, lengths = torch.randn(2, 5, 3, dtype=torch.float64), torch.tensor([2, 5])
    weights.hidden.requires_grad_()
    _, final = gru(inputs, weights, lengths, state.hidden)
    final.sum().backward()
    assert weights.input.grad is None and weights.hidden_bias.grad is None
    everything = trained(GRUWeights(*(part.detach().clone() for part in weights)))
    expected = torch.autograd.grad(gru(inputs, everything, lengths, state.hidden)[1].sum(), everything.hidden)[0]
    torch.testing.assert_close(weights.hidden.grad, expected, rtol=0, atol=0)


class Doubled(nn.Module):
    """One op twice in a module, with a state between."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ParameterList(random_weights("lstm", 4, 4, 0, 0, torch.float32))

    def forward(self, inputs: Tensor) -> Tensor:
        weights = type(random_weights("lstm", 1, 1, 0, 0))(*self.parts)
        outputs, state = lstm(inputs, weights)
        return lstm(outputs, weights, initial_state=state)[0]


def test_bfloat16_under_autocast_is_computed_in_float32() -> None:
    module, inputs = Doubled(), torch.randn(2, 6, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = module(inputs)
    torch.testing.assert_close(found, module(inputs), rtol=0, atol=0)
    half = module(inputs.bfloat16())
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), module(inputs.bfloat16().float()), rtol=0, atol=0.02)
