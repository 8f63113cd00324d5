"""The loss of a batch with several tasks and its shares under gradient accumulation, against numbers made by hand."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from hf_metalstm.training.multitask_loss import count_labels, element_losses, share_of_loss, sums_by_task

MISSING = torch.finfo(torch.float32).min


def test_weights_of_tasks_multiply_their_mean_losses():
    # Two labels of task 0 with mean loss 1.0, three of task 1 with mean loss 2.0.
    sums, counts = torch.tensor([2.0, 6.0], dtype=torch.float64), torch.tensor([2, 3, 5])
    assert share_of_loss(sums, counts, [0.8, 0.2]).item() == pytest.approx(1.2, abs=1e-12)
    assert share_of_loss(sums, counts).item() == pytest.approx(8 / 5, abs=1e-12)


def test_a_batch_without_labels_has_loss_zero():
    counts = count_labels(torch.tensor([-100, -100]), torch.tensor([0, 1]), 2)
    assert counts.tolist() == [0, 0, 2]
    for weights in (None, [0.8, 0.2]):
        assert share_of_loss(torch.zeros(2), counts, weights).item() == 0.0


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("minimum_of", [torch.float32, torch.bfloat16, torch.float16])
def test_columns_that_a_task_lacks_do_not_count(smoothing, minimum_of):
    logits = torch.randn(4, 2)
    wide = torch.cat([logits, torch.full((4, 1), torch.finfo(minimum_of).min)], dim=1)
    labels = torch.tensor([0, 1, -100, 1])
    expected = cross_entropy(logits, labels, reduction="none", label_smoothing=smoothing)
    torch.testing.assert_close(element_losses(wide, labels, smoothing), expected)


def test_missing_columns_leave_the_gradient_finite():
    logits = torch.tensor([[0.3, -0.2, MISSING], [0.3, -0.2, 0.1]], requires_grad=True)
    element_losses(logits, torch.tensor([1, 2]), 0.1).sum().backward()
    assert logits.grad.isfinite().all() and logits.grad[0, 2] == 0


def test_half_precision_logits_are_summed_in_single_precision():
    logits = torch.randn(3, 2).bfloat16()
    losses = element_losses(logits, torch.tensor([0, 1, 1]))
    assert losses.dtype == torch.float32
    torch.testing.assert_close(losses, cross_entropy(logits.float(), torch.tensor([0, 1, 1]), reduction="none"))
    assert element_losses(logits.double(), torch.tensor([0, 1, 1])).dtype == torch.float64


def test_labels_of_tokens_are_counted_by_the_task_of_their_row():
    labels = torch.tensor([[0, 1, -100], [2, 2, 2], [1, -100, -100]])
    task_ids = torch.tensor([1, 0, 1])
    assert count_labels(labels, task_ids, 3).tolist() == [3, 3, 0, 3]
    logits = torch.randn(3, 3, 3)
    losses = element_losses(logits, labels)
    assert losses.shape == (3, 3)
    by_task = sums_by_task(losses, task_ids, 3)
    own = [cross_entropy(logits[i], labels[i], reduction="sum") for i in range(3)]
    torch.testing.assert_close(by_task, torch.stack([own[1], own[0] + own[2], torch.tensor(0.0)]))
