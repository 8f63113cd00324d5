"""One dataset made of the datasets of several tasks; each of its examples has a `task_ids` entry."""

import bisect
import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import datasets
import numpy as np
from torch.utils.data import Dataset

TASK_COLUMN = "task_ids"


class MultiTaskDataset(Dataset[dict[str, Any]]):
    """Examples of several tasks, one task after the other or in the order of a given dataset.

    Args:
        data: `{task name: dataset}`, or one dataset with a `task_ids` column (not needed when there is one task).
            A dataset is a `datasets.Dataset` or anything with a length and dicts as items. A column `label` is taken
            for `labels`.
        tasks: names of the model's tasks, in the order of their ids.
        argument: what error messages call `data`.

    Raises:
        TypeError: a dataset has no length.
        ValueError: an unknown task, an empty dataset, or a missing or wrong `task_ids` column.

    Example:
        >>> data = MultiTaskDataset({"dvd": [{"labels": 1}], "books": [{"labels": 0}]}, ["books", "dvd"])
        >>> data[0], data.task_ids.tolist()
        ({'labels': 1, 'task_ids': 1}, [1, 0])
    """

    def __init__(self, data: Any, tasks: Sequence[str], argument: str = "data"):
        self.tasks = list(tasks)
        if isinstance(data, Mapping):
            check_task_names(list(data), self.tasks, argument)
            self._parts = list(data.values())
            for name, part in data.items():
                _check_sized(part, f"{argument}[{name!r}]")
            ids = [self._ids_of_task(part, name, f"{argument}[{name!r}]") for name, part in data.items()]
        else:
            _check_sized(data, argument)
            self._parts = [data]
            ids = [self._ids_of_column(data, argument)]
        self.task_ids = np.concatenate(ids)  # (examples,)
        self._ends = np.cumsum([len(part) for part in self._parts]).tolist()

    def _ids_of_task(self, part: Any, name: str, argument: str) -> np.ndarray:
        task = self.tasks.index(name)
        if TASK_COLUMN in _column_names(part):
            for row, value in enumerate(_values(part, TASK_COLUMN)):
                if int(value) != task:
                    raise ValueError(
                        f"{argument} has task_ids {int(value)} in row {row}, but {name!r} is task {task} of the model"
                    )
        return np.full(len(part), task)

    def _ids_of_column(self, data: Any, argument: str) -> np.ndarray:
        if TASK_COLUMN not in _column_names(data):
            if len(self.tasks) == 1:
                return np.zeros(len(data), dtype=np.int64)
            raise ValueError(
                f"{argument} has no column 'task_ids' (it has {', '.join(_column_names(data))}), but the model has "
                f"{len(self.tasks)} tasks: add the column with values in 0..{len(self.tasks) - 1}, or give "
                "{task name: dataset}"
            )
        ids = np.array([int(value) for value in _values(data, TASK_COLUMN)])
        wrong = np.flatnonzero((ids < 0) | (ids >= len(self.tasks)))
        if len(wrong):
            raise ValueError(
                f"{argument} has task_ids {ids[wrong[0]]} in row {wrong[0]}, but they must lie in "
                f"0..{len(self.tasks) - 1} ({', '.join(self.tasks)})"
            )
        return ids

    def __len__(self) -> int:
        return len(self.task_ids)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Several examples at once: the loader of torch asks for a batch, which `datasets` reads much faster."""
        rows: list[dict[str, Any]] = [{}] * len(indices)
        places: dict[int, list[int]] = {}
        for place, index in enumerate(indices):
            if not 0 <= index < len(self):
                raise IndexError(f"index {index} is outside 0..{len(self) - 1}")
            places.setdefault(bisect.bisect_right(self._ends, index), []).append(place)
        for number, wanted in places.items():
            part = self._parts[number]
            start = self._ends[number] - len(part)
            within = [int(indices[place]) - start for place in wanted]
            found = part.__getitems__(within) if hasattr(part, "__getitems__") else [part[row] for row in within]
            for place, row in zip(wanted, found, strict=True):
                rows[place] = {**row, TASK_COLUMN: int(self.task_ids[indices[place]])}
                if "label" in row and "labels" not in row:
                    rows[place]["labels"] = rows[place].pop("label")
        return rows

    def lengths(self, length_column: str, token_column: str) -> np.ndarray:
        """Number of tokens of each example: (examples,).

        Args:
            length_column: holds the lengths, where it exists.
            token_column: holds the tokens.

        Raises:
            ValueError: a dataset has neither column.
        """
        lengths: list[int] = []
        for part in self._parts:
            names = _column_names(part)
            if length_column in names:
                lengths += [int(value) for value in _values(part, length_column)]
            elif token_column in names:
                lengths += [len(value) for value in _values(part, token_column)]
            else:
                raise ValueError(
                    f"grouping by length needs a column {length_column!r} or {token_column!r}, but there are "
                    f"{', '.join(names)}"
                )
        return np.array(lengths)


def check_task_names(
    given: Sequence[str], known: Sequence[str], argument: str, all_needed: bool = False, hint: str = ""
) -> None:
    """Checks the tasks that an argument names against those of the model.

    Args:
        given: the argument's names.
        known: the model's.
        argument: what the message calls it.
        all_needed: every task of the model must be there too.
        hint: said where one is missing.

    Raises:
        ValueError: a name that the model does not have, or one that is missing; the message lists both sides.
    """
    unknown = [name for name in given if name not in known]
    missing = [name for name in known if name not in given] if all_needed else []
    if not unknown and not missing:
        return
    problems = []
    for name in unknown:
        near = difflib.get_close_matches(str(name), known, n=1)
        problems.append(f"the model has no task {name!r}" + (f" (did you mean {near[0]!r}?)" if near else ""))
    if missing:
        problems.append(f"nothing is given for {', '.join(missing)}" + (f" ({hint})" if hint else ""))
    raise ValueError(
        f"{argument} has {len(given)} tasks, the model has {len(known)}: {'; '.join(problems)}.\n"
        f"  {argument}: {', '.join(map(str, given))}\n  model: {', '.join(known)}"
    )


def _check_sized(dataset: Any, argument: str) -> None:
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise TypeError(
            f"{argument} is a {type(dataset).__name__}, which has no length or index; multi-task training needs both "
            "to keep the proportions of the tasks"
        )
    if len(dataset) == 0:
        raise ValueError(f"{argument} is empty")


def _column_names(dataset: Any) -> list[str]:
    if isinstance(dataset, datasets.Dataset):
        return list(dataset.column_names)
    return list(dataset[0])


def _values(dataset: Any, column: str) -> Iterator[Any]:
    if not isinstance(dataset, datasets.Dataset):
        yield from (dataset[row][column] for row in range(len(dataset)))
        return
    plain = dataset.select_columns([column]).with_format(None)
    for batch in plain.iter(batch_size=1000):
        yield from batch[column]
