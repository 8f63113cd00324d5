"""Which examples of which task an epoch sees, and in which batches.

The probabilities of the tasks are stated (`task_probabilities`), the epoch is long enough to show every example of
every task at these probabilities (`examples_per_epoch`), and a `MultiTaskBatchSampler` turns that into batches that
depend on nothing but the seed and the epoch, so that a resumed run sees what the undisturbed one would have seen.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike
from torch.utils.data import Sampler

SAMPLINGS = ("proportional", "uniform", "temperature")
BATCHINGS = ("homogeneous", "mixed")
# Lengths are sorted within this many batches only, so that an epoch's batches differ from the last one's.
_BATCHES_SORTED_TOGETHER = 50


def task_probabilities(sizes: Sequence[int], sampling: str = "proportional", temperature: float = 2.0) -> list[float]:
    """Probability that an example drawn in training belongs to each task.

    Args:
        sizes: number of examples of each task.
        sampling: "proportional" to the size; "uniform"; or "temperature": proportional to size ** (1 / temperature),
            which lies between the two.
        temperature: 1 is proportional, infinity is uniform.

    Raises:
        ValueError: an unknown sampling, a temperature that is not positive, no task or an empty task.

    Example:
        >>> for sampling in ("proportional", "temperature", "uniform"):
        ...     print([round(p, 4) for p in task_probabilities([1400, 200], sampling)])
        [0.875, 0.125]
        [0.7257, 0.2743]
        [0.5, 0.5]
    """
    if sampling not in SAMPLINGS:
        raise ValueError(f"sampling is {sampling!r}; allowed: {', '.join(map(repr, SAMPLINGS))}")
    if not temperature > 0:
        raise ValueError(f"temperature is {temperature}, but must be positive")
    if not sizes or min(sizes) < 1:
        raise ValueError(f"sizes are {list(sizes)}, but every task needs at least one example")
    exponent = {"proportional": 1.0, "uniform": 0.0, "temperature": 1 / temperature}[sampling]
    weights = [(size / max(sizes)) ** exponent for size in sizes]
    return [weight / sum(weights) for weight in weights]


def examples_per_epoch(sizes: Sequence[int], probabilities: Sequence[float]) -> list[int]:
    """How many examples of each task one epoch shows.

    The epoch has n = max_k sizes[k] / probabilities[k] examples (rounded up): as few as the proportions allow while
    every example of every task appears at least once. Each task's share of n is rounded by largest remainder, so no
    count is off by one or more. Tasks that get more than their size are repeated.

    Example:
        >>> examples_per_epoch([1400, 200], [0.5, 0.5])
        [1400, 1400]
    """
    # Rounding: 1400 / 0.875 must not become 1601 examples because of the last bit of a division.
    total = math.ceil(round(max(size / p for size, p in zip(sizes, probabilities, strict=True)), 6))
    quotas = [round(p * total, 6) for p in probabilities]
    counts = [math.floor(quota) for quota in quotas]
    by_remainder = sorted(range(len(counts)), key=lambda task: counts[task] - quotas[task])
    for task in by_remainder[: total - sum(counts)]:
        counts[task] += 1
    return counts


class MultiTaskBatchSampler(Sampler[list[int]]):
    """Batches over a dataset whose examples belong to several tasks.

    An epoch draws `examples_per_epoch` examples of each task: the task's examples in a fresh random order, then again
    in another order until there are enough. The last, smaller batch is kept unless `drop_last`. Batches come in random
    order. Everything depends on (seed, epoch) alone.

    For several processes let `accelerate` deal the batches out: process r of n takes batches r, r + n, ..., and the
    first batches of the epoch are repeated at its end where the number is no multiple of n. (There is no `batch_size`
    attribute on purpose: with one, accelerate takes a smaller batch for the epoch's end.)

    Args:
        task_ids: (examples,) the task of each example.
        batch_size: examples in a batch.
        sampling, temperature: see `task_probabilities`.
        batching: "homogeneous" (each batch holds one task, as in Chen et al. 2018) or "mixed".
        lengths: (examples,) number of tokens; examples of similar length then share a batch. None: they need not.
        drop_last: leave out batches smaller than `batch_size`.
        seed: of the random order.

    Raises:
        ValueError: an argument is out of its range, or `drop_last` would leave a task without any batch.

    Example:
        >>> sampler = MultiTaskBatchSampler([0, 0, 0, 0, 1, 1], batch_size=2, sampling="uniform")
        >>> sampler.probabilities, sampler.num_examples, len(sampler)
        ({0: 0.5, 1: 0.5}, 8, 4)
    """

    def __init__(
        self,
        task_ids: ArrayLike,
        batch_size: int,
        *,
        sampling: str = "proportional",
        temperature: float = 2.0,
        batching: str = "homogeneous",
        lengths: ArrayLike | None = None,
        drop_last: bool = False,
        seed: int = 0,
    ):
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}, but must be at least 1")
        if batching not in BATCHINGS:
            raise ValueError(f"batching is {batching!r}; allowed: {', '.join(map(repr, BATCHINGS))}")
        tasks = np.asarray(task_ids)
        self._lengths = None if lengths is None else np.asarray(lengths)
        if self._lengths is not None and self._lengths.shape != tasks.shape:
            raise ValueError(f"lengths have shape {self._lengths.shape}, but task_ids have {tasks.shape}")
        self._rows = {int(task): np.flatnonzero(tasks == task) for task in np.unique(tasks)}
        sizes = [len(rows) for rows in self._rows.values()]
        probabilities = task_probabilities(sizes, sampling, temperature)
        counts = examples_per_epoch(sizes, probabilities)
        self.probabilities = dict(zip(self._rows, probabilities, strict=True))
        self.examples = dict(zip(self._rows, counts, strict=True))
        self.rows_per_batch = batch_size
        self.batching = batching
        self.drop_last = drop_last
        self.seed = seed
        self.epoch = 0
        for task, count in self.examples.items():
            if drop_last and count < batch_size and (batching == "homogeneous" or sum(counts) < batch_size):
                raise ValueError(
                    f"drop_last: task {task} has {count} examples an epoch, fewer than the batch size of {batch_size}, "
                    "and would never be trained; use a smaller batch or keep the last one"
                )

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch whose order the next iteration gives."""
        self.epoch = epoch

    @property
    def num_examples(self) -> int:
        """Examples in one epoch, before `drop_last`."""
        return sum(self.examples.values())

    def __len__(self) -> int:
        counts = list(self.examples.values()) if self.batching == "homogeneous" else [self.num_examples]
        if self.drop_last:
            return sum(count // self.rows_per_batch for count in counts)
        return sum(math.ceil(count / self.rows_per_batch) for count in counts)

    def __iter__(self) -> Iterator[list[int]]:
        random = np.random.default_rng([self.seed % 2**64, self.epoch])
        streams = [_repeat_in_new_orders(random, rows, self.examples[task]) for task, rows in self._rows.items()]
        if self.batching == "mixed":
            streams = [random.permutation(np.concatenate(streams))]
        batches = [batch for stream in streams for batch in self._cut(stream)]
        for index in random.permutation(len(batches)):
            yield batches[index].tolist()

    def _cut(self, stream: np.ndarray) -> list[np.ndarray]:
        size = self.rows_per_batch
        if self._lengths is not None:
            span = size * _BATCHES_SORTED_TOGETHER
            chunks = [stream[at : at + span] for at in range(0, len(stream), span)]
            stream = np.concatenate([chunk[np.argsort(self._lengths[chunk], kind="stable")] for chunk in chunks])
        batches = [stream[at : at + size] for at in range(0, len(stream), size)]
        return [batch for batch in batches if len(batch) == size or not self.drop_last]


def _repeat_in_new_orders(random: np.random.Generator, rows: np.ndarray, count: int) -> np.ndarray:
    """`count` of the rows: each equally often, up to one, with every pass in its own order."""
    passes = math.ceil(count / len(rows))
    return np.concatenate([random.permutation(rows) for _ in range(passes)])[:count]
