"""What stands around the recurrence: pooling of states, padding on any side, checks of inputs."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from hf_metalstm.modeling.checks import (
    check_class_labels,
    check_float_labels,
    check_ids,
    check_sequence_input,
    values_are_known,
)
from hf_metalstm.modeling.padding import RealTokens
from hf_metalstm.modeling.pooling import pool, pooled_size

POOLINGS = ["last", "mean", "max", "concat"]
GARBAGE = [0.0, math.nan, math.inf, -math.inf]


@st.composite
def masks(draw: st.DrawFn) -> Tensor:
    """Attention masks with at least one real token a row, padding anywhere, of any type that users pass."""
    batch, tokens = draw(st.integers(1, 4)), draw(st.integers(1, 7))
    row = st.lists(st.integers(0, 1), min_size=tokens, max_size=tokens).filter(any)
    dtype = draw(st.sampled_from([torch.int64, torch.bool, torch.float32]))
    return torch.tensor(draw(st.lists(row, min_size=batch, max_size=batch))).to(dtype)


@given(masks(), st.sampled_from(POOLINGS), st.sampled_from(GARBAGE), st.integers(1, 3))
def test_pooling_sees_the_real_tokens_of_each_row_and_no_others(
    mask: Tensor, pooling: str, garbage: float, size: int
) -> None:
    torch.manual_seed(mask.numel())
    real = mask != 0
    states = torch.randn(*mask.shape, size, dtype=torch.float64).masked_fill(~real.unsqueeze(-1), garbage)
    states.requires_grad_()
    last = torch.randn(mask.shape[0], size, dtype=torch.float64)
    pooled = pool(states, last, mask, pooling)
    assert pooled.shape == (mask.shape[0], pooled_size(size, pooling))
    for row in range(mask.shape[0]):
        columns = states[row, real[row]].detach().t().tolist()
        highest, mean = [max(column) for column in columns], [sum(column) / len(column) for column in columns]
        parts = {"last": last[row].tolist(), "max": highest, "mean": mean}
        expected = parts["last"] + parts["max"] + parts["mean"] if pooling == "concat" else parts[pooling]
        assert pooled[row].tolist() == pytest.approx(expected, abs=1e-12)
    if pooling != "last":
        (gradient,) = torch.autograd.grad(pooled.sum(), states)
        assert gradient.isfinite().all() and not gradient[~real].any()


@pytest.mark.parametrize("pooling", POOLINGS)
def test_no_mask_pools_like_a_mask_of_ones(pooling: str) -> None:
    states, last = torch.randn(2, 5, 3), torch.randn(2, 3)
    without, ones = pool(states, last, None, pooling), pool(states, last, torch.ones(2, 5), pooling)
    torch.testing.assert_close(without, ones)


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_half_precision_states_pool_in_their_type(pooling: str) -> None:
    states = torch.full((1, 600, 1), -0.75, dtype=torch.bfloat16)
    mask = torch.ones(1, 600, dtype=torch.int64)
    mask[0, 500:] = 0
    pooled = pool(states, states[:, 0], mask, pooling)
    assert pooled.dtype == torch.bfloat16 and pooled.item() == pytest.approx(-0.75, rel=1e-2)


@given(masks())
def test_real_tokens_go_to_the_front_in_order_and_come_back(mask: Tensor) -> None:
    real = RealTokens(mask)
    places = torch.arange(1, mask.numel() + 1).view(mask.shape).unsqueeze(-1).float()
    front = real.to_front(places)
    counts = (mask != 0).sum(1).tolist()
    assert (real.lengths is None) == (sum(counts) == mask.numel())
    if real.lengths is not None:
        assert real.lengths.tolist() == counts
    for row, count in enumerate(counts):
        assert front[row, :count, 0].tolist() == places[row, mask[row] != 0, 0].tolist()
    assert torch.equal(real.to_places(front), places)


def test_the_order_of_a_long_text_is_kept() -> None:
    mask = torch.rand(2, 500) < 0.5
    front = RealTokens(mask).to_front(torch.arange(500.0).expand(2, -1).unsqueeze(-1)).squeeze(-1)
    for row, count in enumerate(mask.sum(1).tolist()):
        assert front[row, :count].tolist() == mask[row].nonzero().squeeze(1).tolist()


@pytest.mark.parametrize("mask", [None, torch.ones(2, 3, dtype=torch.int64), torch.ones(2, 3, dtype=torch.bool)])
def test_without_padding_nothing_is_moved_or_copied(mask: Tensor | None) -> None:
    real, values = RealTokens(mask), torch.randn(2, 3, 4)
    assert real.lengths is None
    assert real.to_front(values) is values and real.to_places(values) is values


def test_gradients_return_to_where_the_tokens_stood() -> None:
    mask = torch.tensor([[0, 1, 1], [1, 0, 1]])
    values = torch.randn(2, 3, 1, requires_grad=True)
    real = RealTokens(mask)
    weights = torch.tensor([1.0, 10.0, 100.0])[None, :, None]
    (gradient,) = torch.autograd.grad((real.to_front(values) * weights).sum(), values)
    assert gradient[mask != 0].tolist() == [[1], [10], [1], [10]]


@pytest.mark.filterwarnings("ignore:`torch.jit.trace` is deprecated:DeprecationWarning")
def test_values_are_unknown_while_a_model_is_traced_or_compiled() -> None:
    seen: list[bool] = []

    def note(tensor: Tensor) -> Tensor:
        seen.append(values_are_known())
        return tensor + 1

    torch.jit.trace(note, torch.zeros(1), check_trace=False)
    assert not any(seen) and seen
    assert values_are_known()
    compiled = torch.compile(lambda tensor: tensor + (1 if values_are_known() else 2), backend="eager", fullgraph=True)
    assert compiled(torch.zeros(1)).item() == 2


IDS = torch.tensor([[1, 2], [3, 4]])


@pytest.mark.parametrize(
    "arguments",
    [
        {"input_ids": IDS},
        {"input_ids": IDS.int(), "attention_mask": torch.tensor([[1, 0], [0, 1]])},
        {"input_ids": torch.tensor([[0, 9]])},
        {"inputs_embeds": torch.zeros(2, 3, 5), "attention_mask": torch.ones(2, 3, dtype=torch.bool)},
    ],
)
def test_good_sequence_inputs_pass(arguments: dict[str, Any]) -> None:
    given_arguments = {"input_ids": None, "attention_mask": None, "inputs_embeds": None} | arguments
    check_sequence_input(**given_arguments, vocab_size=10)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ValueError, "give exactly one of input_ids and inputs_embeds"),
        ({"input_ids": IDS, "inputs_embeds": torch.zeros(2, 2, 5)}, ValueError, "give exactly one of"),
        ({"input_ids": IDS[0]}, ValueError, r"input_ids has shape \(2,\), expected 2 dimensions"),
        ({"inputs_embeds": torch.zeros(2, 5)}, ValueError, r"inputs_embeds has shape \(2, 5\), expected 3 dimensions"),
        ({"input_ids": IDS[:0]}, ValueError, r"empty batch: input_ids has shape \(0, 2\)"),
        ({"input_ids": IDS[:, :0]}, ValueError, r"row 0 is empty: input_ids has shape \(2, 0\)"),
        ({"input_ids": IDS.float()}, TypeError, "input_ids must hold integers, got torch.float32"),
        ({"input_ids": torch.tensor([[1, 2], [3, 10]])}, ValueError, r"input_ids\[1, 1\] is 10, but .* in 0\.\.9"),
        ({"input_ids": torch.tensor([[1, -5], [3, 4]])}, ValueError, r"input_ids\[0, 1\] is -5, but .* in 0\.\.9"),
        (
            {"input_ids": IDS, "attention_mask": torch.ones(2, 3)},
            ValueError,
            r"attention_mask has shape \(2, 3\), but input_ids has \(2, 2\)",
        ),
        (
            {"input_ids": IDS, "attention_mask": torch.tensor([[0, 1], [0, 0]])},
            ValueError,
            "row 1 is empty: its attention_mask is all 0",
        ),
    ],
)
def test_bad_sequence_inputs_are_named(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    given_arguments = {"input_ids": None, "attention_mask": None, "inputs_embeds": None} | arguments
    with pytest.raises(error, match=message):
        check_sequence_input(**given_arguments, vocab_size=10)


def test_ids_of_nothing_pass_and_one_dimensional_ids_are_named_by_their_place() -> None:
    check_ids(torch.empty(0, dtype=torch.int64), 3, "task_ids")
    check_ids(torch.tensor([0, 2]), 3, "task_ids")
    with pytest.raises(ValueError, match=r"^task_ids\[1\] is 3, but ids must lie in 0\.\.2$"):
        check_ids(torch.tensor([0, 3]), 3, "task_ids")
    with pytest.raises(TypeError, match="task_ids must hold integers, got torch.bool"):
        check_ids(torch.tensor([True]), 3, "task_ids")


NAMES = [["negative", "positive"], ["who", "where", "when"]]
TASKS = torch.tensor([0, 1, 0])


@pytest.mark.parametrize(
    ("labels", "tasks"),
    [([0, 2, 1], TASKS), ([-100, -100, -100], TASKS), ([0, 1, -100], None)],
)
def test_labels_that_their_task_has_pass(labels: list[int], tasks: Tensor | None) -> None:
    check_class_labels(torch.tensor(labels), 3, NAMES, tasks)


@pytest.mark.parametrize(
    ("labels", "tasks", "message"),
    [
        ([0, 2, 2], TASKS, r"labels\[2\] is 2, but task 'books' has classes 0\.\.1 \(negative, positive\)"),
        ([0, 3, 1], TASKS, r"labels\[1\] is 3, but task 'questions' has classes 0\.\.2 \(who, where, when\)"),
        ([-1, 0, 1], TASKS, r"labels\[0\] is -1, but task 'books' has classes 0\.\.1"),
        ([0, 1, 2], None, r"labels\[2\] is 2, but the model has classes 0\.\.1 \(negative, positive\)"),
        ([0, 1], TASKS, r"labels have shape \(2,\), but the logits are for \(3,\) rows"),
    ],
)
def test_labels_that_their_task_lacks_are_named(labels: list[int], tasks: Tensor | None, message: str) -> None:
    task_names = None if tasks is None else ["books", "questions"]
    with pytest.raises(ValueError, match=message):
        check_class_labels(torch.tensor(labels), 3, NAMES, tasks, task_names)


def test_labels_of_another_type_are_refused() -> None:
    with pytest.raises(TypeError, match="labels must be a tensor of class indexes, got list"):
        check_class_labels([0, 1], 2, NAMES, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"labels must be integers \(class indexes\), got torch.float32"):
        check_class_labels(torch.tensor([0.0, 1.0]), 2, NAMES, None)


def test_many_class_names_are_cut_in_the_message() -> None:
    with pytest.raises(ValueError, match=r"classes 0\.\.19 \(c0, c1, c2, c3, c4, c5, c6, c7, \.\.\.\)"):
        check_class_labels(torch.tensor([20]), 1, [[f"c{index}" for index in range(20)]], None)


def test_float_labels_need_the_shape_of_the_logits() -> None:
    check_float_labels(torch.zeros(3, 2), (3, 2), "multi_label_classification")
    with pytest.raises(ValueError, match=r"labels have shape \(3, 1\), but regression logits have \(3,\)"):
        check_float_labels(torch.zeros(3, 1), (3,), "regression")
    with pytest.raises(TypeError, match="labels must be a tensor, got list"):
        check_float_labels([0.5], (1,), "regression")  # type: ignore[arg-type]
