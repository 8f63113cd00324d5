"""Which examples an epoch holds, in which batches, and that it depends on seed and epoch alone."""

from collections import Counter
from fractions import Fraction

import pytest
from accelerate.data_loader import BatchSamplerShard
from hypothesis import given
from hypothesis import strategies as st

from hf_metalstm.data.samplers import MultiTaskBatchSampler, examples_per_epoch, task_probabilities

SIZES = [1400, 200]
TASK_IDS = [0] * 1400 + [1] * 200


def flat(batches):
    return [row for batch in batches for row in batch]


@pytest.mark.parametrize(
    ("sampling", "probability", "examples"),
    [("proportional", 0.125, [1400, 200]), ("temperature", 0.2743, [1401, 529]), ("uniform", 0.5, [1400, 1400])],
)
def test_the_epoch_shows_each_task_at_the_stated_probability(sampling, probability, examples):
    assert task_probabilities(SIZES, sampling)[1] == pytest.approx(probability, abs=5e-5)
    sampler = MultiTaskBatchSampler(TASK_IDS, 16, sampling=sampling)
    assert sampler.probabilities[1] == pytest.approx(probability, abs=5e-5)
    for batching in ("homogeneous", "mixed"):
        sampler = MultiTaskBatchSampler(TASK_IDS, 16, sampling=sampling, batching=batching)
        rows = Counter(TASK_IDS[row] for row in flat(sampler))
        assert [rows[0], rows[1]] == examples
        assert sampler.num_examples == sum(examples)


def test_temperature_one_is_proportional_and_infinity_is_uniform():
    assert task_probabilities(SIZES, "temperature", 1.0) == pytest.approx(task_probabilities(SIZES))
    assert task_probabilities(SIZES, "temperature", float("inf")) == pytest.approx([0.5, 0.5])


sizes_strategy = st.lists(st.integers(1, 400), min_size=1, max_size=6)


@given(sizes_strategy, st.sampled_from(["proportional", "uniform", "temperature"]), st.floats(1.0, 10.0))
def test_every_example_is_seen_and_no_count_is_off_by_one(sizes, sampling, temperature):
    probabilities = task_probabilities(sizes, sampling, temperature)
    counts = examples_per_epoch(sizes, probabilities)
    assert sum(probabilities) == pytest.approx(1)
    assert all(count >= size for count, size in zip(counts, sizes, strict=True))
    # As short as possible: the task that sets the length is not repeated.
    assert min(count - size for count, size in zip(counts, sizes, strict=True)) <= 1
    assert all(abs(count - p * sum(counts)) < 1 for count, p in zip(counts, probabilities, strict=True))


@given(sizes_strategy)
def test_proportional_sampling_shows_each_example_once(sizes):
    total = sum(sizes)
    exact = [float(Fraction(size, total)) for size in sizes]
    assert task_probabilities(sizes) == pytest.approx(exact)
    assert examples_per_epoch(sizes, task_probabilities(sizes)) == sizes


@given(
    sizes_strategy,
    st.integers(1, 20),
    st.sampled_from(["homogeneous", "mixed"]),
    st.booleans(),
    st.booleans(),
    st.integers(0, 5),
)
def test_batches_hold_every_row_evenly_whatever_the_options(sizes, batch_size, batching, by_length, drop_last, seed):
    task_ids = [task for task, size in enumerate(sizes) for _ in range(size)]
    lengths = [(row * 7919) % 50 for row in range(len(task_ids))] if by_length else None
    counts = examples_per_epoch(sizes, task_probabilities(sizes, "uniform"))
    if drop_last and batch_size > (min(counts) if batching == "homogeneous" else sum(counts)):
        with pytest.raises(ValueError, match="never be trained"):
            MultiTaskBatchSampler(
                task_ids, batch_size, sampling="uniform", batching=batching, lengths=lengths, drop_last=True
            )
        return
    sampler = MultiTaskBatchSampler(
        task_ids, batch_size, sampling="uniform", batching=batching, lengths=lengths, drop_last=drop_last, seed=seed
    )
    batches = list(sampler)
    assert len(batches) == len(sampler)
    assert all(1 <= len(batch) <= batch_size for batch in batches)
    if batching == "homogeneous":
        assert all(len({task_ids[row] for row in batch}) == 1 for batch in batches)
    if drop_last:
        assert all(len(batch) == batch_size for batch in batches)
        return
    seen = Counter(flat(batches))
    for task, count in enumerate(counts):
        times = [seen[row] for row in range(len(task_ids)) if task_ids[row] == task]
        assert sum(times) == count
        assert max(times) - min(times) <= 1 and min(times) >= 1


@pytest.mark.parametrize("batching", ["homogeneous", "mixed"])
def test_batches_depend_on_seed_and_epoch_alone(batching):
    def batches(seed, epoch):
        sampler = MultiTaskBatchSampler([0] * 30 + [1] * 7, 4, sampling="uniform", batching=batching, seed=seed)
        sampler.set_epoch(epoch)
        return list(sampler)

    assert batches(3, 2) == batches(3, 2)
    assert batches(3, 2) != batches(3, 1)
    assert batches(3, 2) != batches(4, 2)
    # A repeated task comes in another order the second time.
    rows = [row for row in flat(batches(3, 2)) if row >= 30]
    assert len(rows) == 30 and rows[:7] != rows[7:14]


def test_homogeneous_batches_of_the_tasks_come_in_random_order():
    tasks = [TASK_IDS[batch[0]] for batch in MultiTaskBatchSampler(TASK_IDS, 16, sampling="uniform")]
    changes = sum(a != b for a, b in zip(tasks, tasks[1:], strict=False))
    # 176 batches, half of each task: about 88 changes in random order, 1 if one task came after the other.
    assert 60 < changes < 115


def test_rows_of_a_dataset_may_be_in_any_order():
    task_ids = [1, 0, 1, 1, 0, 1]
    batches = list(MultiTaskBatchSampler(task_ids, 2))
    assert sorted(flat(batches)) == list(range(6))
    assert all(task_ids[a] == task_ids[b] for a, b in batches)


@pytest.mark.parametrize("batching", ["homogeneous", "mixed"])
def test_grouping_by_length_saves_most_of_the_padding(batching):
    task_ids = [0] * 400 + [1] * 400
    lengths = [1 + (row * 7919) % 97 for row in range(800)]

    def padding(**options):
        batches = list(MultiTaskBatchSampler(task_ids, 16, batching=batching, **options))
        assert sorted(flat(batches)) == list(range(800))
        return sum(max(lengths[row] for row in batch) * len(batch) for batch in batches) - sum(lengths)

    assert padding(lengths=lengths) < 0.15 * padding()


@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("batching", ["homogeneous", "mixed"])
def test_processes_get_equally_many_batches_and_all_examples(processes, batching):
    task_ids = [0] * 35 + [1] * 18 + [2] * 5
    sampler = MultiTaskBatchSampler(task_ids, 4, batching=batching)
    shards = [BatchSamplerShard(sampler, processes, index) for index in range(processes)]
    dealt = [list(shard) for shard in shards]
    assert len({len(batches) for batches in dealt}) == 1
    assert [len(batches) for batches in dealt] == [len(shard) for shard in shards]
    seen = Counter(row for batches in dealt for row in flat(batches))
    assert sorted(seen) == list(range(58))
    repeated = -len(sampler) % processes
    assert sum(seen.values()) - 58 <= 4 * repeated


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampling": "equal"}, "sampling is 'equal'; allowed: 'proportional', 'uniform', 'temperature'"),
        ({"sampling": "temperature", "temperature": 0.0}, "temperature is 0.0"),
        ({"batching": "both"}, "batching is 'both'; allowed: 'homogeneous', 'mixed'"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"lengths": [1, 2]}, r"lengths have shape \(2,\), but task_ids have \(1600,\)"),
        ({"drop_last": True, "batch_size": 300}, "task 1 has 200 examples an epoch, fewer than the batch size of 300"),
    ],
)
def test_wrong_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        MultiTaskBatchSampler(**{"task_ids": TASK_IDS, "batch_size": 16, **options})
