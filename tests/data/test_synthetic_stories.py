"""Generated stories and pairs: the same each time, balanced, and without an answer in one part alone."""

from collections import Counter

import pytest

from hf_metalstm.data.synthetic_stories import EVENTS, KINDS, generate_task, generate_texts


@pytest.mark.parametrize("kind", KINDS)
def test_splits_are_the_same_each_time_balanced_and_disjoint(kind):
    data = generate_task(kind, 60, 30, 30, seed=3)
    assert {split: rows.to_list() for split, rows in data.items()} == {
        split: rows.to_list() for split, rows in generate_task(kind, 60, 30, 30, seed=3).items()
    }
    assert data["train"].to_list() != generate_task(kind, 60, 30, 30, seed=4)["train"].to_list()
    assert {split: rows.num_rows for split, rows in data.items()} == {"train": 60, "validation": 30, "test": 30}
    for rows in data.values():
        assert len(set(Counter(rows["label"]).values())) == 1 and "synthetic" in rows.info.description
    keys = [
        str([sorted(value) if isinstance(value, list) else value for name, value in row.items() if name != "label"])
        for rows in data.values()
        for row in rows
    ]
    assert len(set(keys)) == len(keys)


def test_the_right_ending_follows_from_what_happened():
    ending_of = {template: ending for templates, ending, _ in EVENTS for template in templates}
    for row in generate_task("multiple_choice", 200, 2, 2)["train"]:
        sentences = [sentence + " ." for sentence in row["story"].removesuffix(" .").split(" . ")]
        right = row["endings"][row["label"]]
        person = right.split()[0]
        found = [ending_of[s.replace(person, "{}")] for s in sentences if s.replace(person, "{}") in ending_of]
        assert [ending.format(person) for ending in found] == [right]


def share_of_the_majority(pairs: list[tuple[str, int]]) -> float:
    """Accuracy, on the pairs themselves, of always naming the most frequent label of each key."""
    labels: dict[str, Counter] = {}
    for key, label in pairs:
        labels.setdefault(key, Counter())[label] += 1
    return sum(max(counts.values()) for counts in labels.values()) / len(pairs)


@pytest.mark.parametrize(
    ("kind", "part", "chance"),
    [("entailment", "hypothesis", 1 / 3), ("similarity", "sentence2", 1 / 2)],
)
def test_one_part_alone_tells_little(kind, part, chance):
    rows = generate_task(kind, 3000, 3, 3)["train"]
    # The last word is what could give the answer away; hundreds of rows share each.
    assert share_of_the_majority([(row[part].split()[-2], row["label"]) for row in rows]) < chance + 0.08


def test_endings_alone_tell_nothing():
    rows = generate_task("multiple_choice", 3000, 2, 2)["train"]
    pairs = []
    for row in rows:
        for index, ending in enumerate(row["endings"]):
            pairs.append((ending.split(" ", 1)[1], int(index == row["label"])))
    assert share_of_the_majority(pairs) < 0.55


def test_entailment_labels_follow_from_the_premise():
    for row in generate_task("entailment", 300, 3, 3)["train"]:
        _, thing, _, colour, _ = row["hypothesis"].split()
        said = f"a {colour} {thing}" in row["premise"]
        expected = 0 if said else (1 if f" {thing} " in row["premise"] else 2)
        assert row["label"] == expected


def test_texts_are_stories_with_their_right_endings_and_things_said_twice():
    texts = generate_texts(50, seed=1)
    assert texts == generate_texts(50, seed=1) != generate_texts(50, seed=2) and len(texts) == 50
    endings = {ending.removeprefix("{} ") for _, ending, _ in EVENTS}
    assert all(any(text.endswith(ending) for ending in endings) for text in texts[::2])
    for text in texts[1::4]:
        premise, _, hypothesis = text.partition(" . ")
        _, thing, _, colour, _ = hypothesis.split()
        assert f"a {colour} {thing}" in premise
    for text in texts[3::4]:
        first, second = (part.split() for part in text.removesuffix(" .").split(" . "))
        assert first[0] == second[second.index(",") + 1] and first[first.index("the") + 1] == second[4]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("stories",), "there is no kind 'stories'; the kinds are multiple_choice, entailment"),
        (("entailment", 9, 2, 9), "the validation size is 2, but must be at least 3"),
        (("similarity", 10**6, 2, 2), "not enough different rows for the train split"),
    ],
)
def test_what_cannot_be_written_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        generate_task(*arguments)
