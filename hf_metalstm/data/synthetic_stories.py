"""Generated stories with two endings, entailment pairs, similar sentences and texts to classify.

All of them are synthetic and say so (`info.description`), the same for the same arguments. An answer can only be found
by reading both parts: each ending, hypothesis and sentence is drawn alike for every label, so that alone it tells
nothing, and labels are balanced. Label noise is 0, and no row stands in two splits.

* stories (Story Cloze): something happens to a person, in one of several wordings, among sentences of no importance.
  The right ending follows from it, the wrong one from something else that might have happened.
* entailment: what the hypothesis says of a thing is said of it in the premise (entailment), something else is said
  (contradiction), or the premise does not speak of it (neutral).
* similarity: two sentences that say the same in other words, or that differ in one thing.
* classification: did something good or something bad happen to the person?
"""

import random
from collections.abc import Callable
from typing import Any

from datasets import ClassLabel, Dataset, DatasetDict, DatasetInfo, Features, List, Value

SOURCE = "synthetic text written by hf_metalstm.data.synthetic_stories, nobody's experience"

NAMES = "tom anna ben clara dan emma finn greta hugo ida jack kate".split()
THINGS = "ball kite lamp book chair cup hat coat bag clock".split()
COLOURS = "red blue green yellow white black brown pink".split()
ASIDES = (
    "it was a normal day .",
    "the street was quiet .",
    "a dog barked somewhere .",
    "the clock on the wall ticked .",
    "some neighbours talked outside .",
    "the radio played an old song .",
    "a bus drove by .",
    "the sun was low .",
)
# What happened, and the endings that follow from it.
EVENTS = (
    (("{} had not eaten all day .", "{} had missed lunch ."), "{} cooked a big meal .", -1),
    (("{} was caught in the rain .", "{} fell into the lake ."), "{} looked for dry clothes .", -1),
    (("{} had not slept at night .", "{} had worked until morning ."), "{} went to bed early .", -1),
    (("{} lost the house key .", "{} could not open the door ."), "{} called a locksmith .", -1),
    (("{} broke a leg .", "{} had a bad cough ."), "{} went to the doctor .", -1),
    (("{} won the race .", "{} got the first prize ."), "{} put the medal on the wall .", 1),
    (("{} found a lost puppy .", "{} was given a young dog ."), "{} bought some dog food .", 1),
    (("{} had a birthday .", "{} turned ten ."), "{} blew out the candles .", 1),
    (("{} learned to swim .", "{} liked the new pool ."), "{} jumped into the water .", 1),
    (("{} got a letter from a friend .", "{} had news from an old friend ."), "{} wrote a long answer .", 1),
)
_SAME = (
    ("big", "large"),
    ("small", "little"),
    ("quick", "fast"),
    ("glad", "happy"),
    ("quiet", "silent"),
    ("clever", "smart"),
    ("strange", "odd"),
    ("sick", "ill"),
)

Row = dict[str, Any]


def _life(rng: random.Random, event: int) -> tuple[str, str]:
    """Sentences about one person, to whom something happens, and who it is."""
    person = rng.choice(NAMES)
    told = rng.sample(ASIDES, 2)
    told.insert(rng.randrange(3), rng.choice(EVENTS[event][0]).format(person))
    return " ".join(told), person


def _story(rng: random.Random, label: int) -> Row:
    right, wrong = rng.sample(range(len(EVENTS)), 2)
    story, person = _life(rng, right)
    endings = [EVENTS[event][1].format(person) for event in (right, wrong)]
    return {"story": story, "endings": endings if label == 0 else endings[::-1], "label": label}


def _entailment(rng: random.Random, label: int) -> Row:
    person = rng.choice(NAMES)
    (one, two, absent), (colour, other, third) = rng.sample(THINGS, 3), rng.sample(COLOURS, 3)
    parts = [f"a {colour} {one}", f"a {other} {two}"]
    rng.shuffle(parts)
    premise = f"{person} has {parts[0]} and {parts[1]} ."
    # A wrong colour is as often the other thing's as one that is not mentioned.
    said = {0: (one, colour), 1: (one, rng.choice((other, third))), 2: (absent, rng.choice((colour, third)))}[label]
    return {"premise": premise, "hypothesis": f"the {said[0]} is {said[1]} .", "label": label}


def _similarity(rng: random.Random, label: int) -> Row:
    (person, stranger), (thing, other) = rng.sample(NAMES, 2), rng.sample(THINGS, 2)
    word, synonym = rng.sample(rng.choice(_SAME), 2)
    if label == 0:
        changed = rng.randrange(3)
        person_2 = stranger if changed == 0 else person
        thing_2 = other if changed == 1 else thing
        if changed == 2:
            synonym = rng.choice([pair for pair in _SAME if word not in pair])[rng.randrange(2)]
    else:
        person_2, thing_2 = person, thing
    first = f"{person} was {word} when the {thing} was found ."
    second = f"when they found the {thing_2} , {person_2} was {synonym} ."
    return {"sentence1": first, "sentence2": second, "label": label}


def _text(rng: random.Random, label: int) -> Row:
    event = rng.choice([index for index, (*_, value) in enumerate(EVENTS) if value == (1 if label else -1)])
    return {"text": _life(rng, event)[0], "label": label}


_TEXT = Value("string")
KINDS: dict[str, tuple[Callable[[random.Random, int], Row], dict[str, Any], list[str]]] = {
    "multiple_choice": (_story, {"story": _TEXT, "endings": List(_TEXT)}, ["first", "second"]),
    "entailment": (
        _entailment,
        {"premise": _TEXT, "hypothesis": _TEXT},
        ["entailment", "contradiction", "neutral"],
    ),
    "similarity": (_similarity, {"sentence1": _TEXT, "sentence2": _TEXT}, ["different", "similar"]),
    "classification": (_text, {"text": _TEXT}, ["sorry", "glad"]),
}


def generate_task(
    kind: str, train_size: int = 1000, dev_size: int = 200, test_size: int = 400, seed: int = 0
) -> DatasetDict:
    """Writes one task's splits.

    Args:
        kind: "multiple_choice" (columns story, endings, label), "entailment" (premise, hypothesis, label),
            "similarity" (sentence1, sentence2, label) or "classification" (text, label).
        train_size, dev_size, test_size: rows of each split; labels are balanced in each.
        seed: another seed gives other rows.

    Returns:
        Splits train, validation and test, without a row that stands twice.

    Raises:
        ValueError: an unknown kind, a size below the number of labels, or more rows than there are different ones.

    Example:
        >>> from hf_metalstm.data.synthetic_stories import generate_task
        >>> row = generate_task("entailment", 3, 3, 3)["train"][0]
        >>> sorted(row)
        ['hypothesis', 'label', 'premise']
    """
    if kind not in KINDS:
        raise ValueError(f"there is no kind {kind!r}; the kinds are {', '.join(KINDS)}")
    write, columns, names = KINDS[kind]
    rng = random.Random(f"{kind} {seed}")
    features = Features({**columns, "label": ClassLabel(names=names)})
    seen: set[str] = set()
    splits = DatasetDict()
    for split, size in {"train": train_size, "validation": dev_size, "test": test_size}.items():
        if size < len(names):
            raise ValueError(f"the {split} size is {size}, but must be at least {len(names)}, a row of each label")
        labels = [row % len(names) for row in range(size)]
        rng.shuffle(labels)
        rows = [_new_row(write, rng, label, seen, split) for label in labels]
        data = {name: [row[name] for row in rows] for name in features}
        splits[split] = Dataset.from_dict(data, info=DatasetInfo(description=SOURCE, features=features))
    return splits


def generate_texts(size: int, seed: int = 0) -> list[str]:
    """Plain text for language modelling: stories with their right endings, and things said twice.

    Half of the texts are stories. The others say what they say again: a premise with what follows from it, and two
    sentences of one meaning, so that a language model has reason to look back, as the tasks ask of it.

    Example:
        >>> from hf_metalstm.data.synthetic_stories import generate_texts
        >>> len(generate_texts(2))
        2
    """
    rng = random.Random(f"texts {seed}")
    return [_plain_text(rng, index) for index in range(size)]


def _plain_text(rng: random.Random, index: int) -> str:
    if index % 2 == 0:
        row = _story(rng, 0)
        return f"{row['story']} {row['endings'][0]}"
    row = _entailment(rng, 0) if index % 4 == 1 else _similarity(rng, 1)
    first, second, _ = row.values()
    return f"{first} {second}"


def _new_row(
    write: Callable[[random.Random, int], Row], rng: random.Random, label: int, seen: set[str], split: str
) -> Row:
    for _ in range(1000):
        row = write(rng, label)
        key = repr(sorted((name, sorted(value) if isinstance(value, list) else value) for name, value in row.items()))
        # Two orders of the same endings are the same story.
        key = key.replace(f"('label', {label})", "") if "endings" in row else key
        if key not in seen:
            seen.add(key)
            return row
    raise ValueError(f"there are not enough different rows for the {split} split: make the sizes smaller")
