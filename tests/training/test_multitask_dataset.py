"""Several datasets as one, each example with its task."""

import datasets
import pytest
import torch

from hf_metalstm.training.multitask_dataset import MultiTaskDataset

TASKS = ["books", "dvd", "toys"]


def rows(*labels):
    return [{"labels": label, "input_ids": [1] * (label + 1)} for label in labels]


class Plain(torch.utils.data.Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


@pytest.mark.parametrize("kind", [list, Plain, datasets.Dataset.from_list])
def test_examples_come_in_the_order_of_the_dict_with_the_models_task_ids(kind):
    data = MultiTaskDataset({"toys": kind(rows(0, 1)), "books": kind(rows(2))}, TASKS)
    assert data.task_ids.tolist() == [2, 2, 0] and len(data) == 3
    assert [(data[i]["labels"], data[i]["task_ids"]) for i in range(3)] == [(0, 2), (1, 2), (2, 0)]
    assert [row["labels"] for row in data.__getitems__([2, 0, 2, 1])] == [2, 0, 2, 1]
    assert data.lengths("length", "input_ids").tolist() == [1, 2, 3]
    with pytest.raises(IndexError):
        data[3]


@pytest.mark.parametrize("kind", [list, Plain, datasets.Dataset.from_list])
def test_one_dataset_keeps_its_order_and_its_task_ids(kind):
    items = [{**row, "task_ids": task} for row, task in zip(rows(0, 1, 2), [2, 0, 1], strict=True)]
    data = MultiTaskDataset(kind(items), TASKS)
    assert data.task_ids.tolist() == [2, 0, 1]
    assert [row["task_ids"] for row in data] == [2, 0, 1]


def test_a_selection_of_a_dataset_is_read_through_its_indices():
    whole = datasets.Dataset.from_list([{**row, "task_ids": row["labels"]} for row in rows(0, 1, 2)])
    data = MultiTaskDataset(whole.select([2, 1]).with_format("torch"), TASKS)
    assert data.task_ids.tolist() == [2, 1]
    assert data.lengths("length", "input_ids").tolist() == [3, 2]
    assert [int(row["labels"]) for row in data.__getitems__([1, 0])] == [1, 2]


def test_a_length_column_is_used_where_there_is_one():
    data = MultiTaskDataset({"books": [{"length": 7}], "dvd": rows(3)}, TASKS)
    assert data.lengths("length", "input_ids").tolist() == [7, 4]
    with pytest.raises(ValueError, match="needs a column 'size' or 'tokens'"):
        data.lengths("size", "tokens")


def test_a_label_column_becomes_labels():
    data = MultiTaskDataset(
        {"books": datasets.Dataset.from_dict({"label": [1]}), "dvd": [{"label": 9, "labels": 0}]}, TASKS
    )
    assert data[0] == {"labels": 1, "task_ids": 0}
    assert data[1] == {"label": 9, "labels": 0, "task_ids": 1}


def test_a_single_task_needs_no_task_ids():
    assert MultiTaskDataset(rows(0, 1), ["books"])[1]["task_ids"] == 0


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ({"bokks": rows(0)}, ValueError, r"no task 'bokks' \(did you mean 'books'\?\)"),
        ({"books": []}, ValueError, r"data\['books'\] is empty"),
        ([], ValueError, "data is empty"),
        (rows(0), ValueError, r"no column 'task_ids' \(it has labels, input_ids\), but the model has 3 tasks"),
        (
            [{"task_ids": 1}, {"task_ids": 3}],
            ValueError,
            r"task_ids 3 in row 1, but they must lie in 0..2 \(books, dvd",
        ),
        ({"dvd": [{"task_ids": 0}]}, ValueError, r"data\['dvd'\] has task_ids 0 in row 0, but 'dvd' is task 1"),
        ({"dvd": iter([])}, TypeError, r"data\['dvd'\] is a list_iterator, which has no length"),
    ],
)
def test_data_that_does_not_fit_is_named(data, error, message):
    with pytest.raises(error, match=message):
        MultiTaskDataset(data, TASKS)
