"""Generated reviews of several domains, in which the same words mean different things.

The texts are synthetic and say so (`MultiTaskData.source`). They are made so that what tasks share and what they do
not share both matter, and so that word counts do not give the answer:

* general praise and blame ("superb", "dreadful") mean the same everywhere, but a word that is common in one domain's
  training set is rare in another's;
* some words flip with the domain: an "unpredictable" plot is good, an "unpredictable" brake is bad;
* negation reverses ("the cable is hardly flimsy"), and its forms are the same in all domains;
* of two clauses one counts: the one after "but"; the one that "although" does not introduce; of two things named side
  by side, the one that a later sentence calls important;
* neutral sentences stand before and after, so the verdict must be remembered.

The label follows from the text by these rules without exception: label noise is 0 and classes are balanced.

Measured: logistic regression on the words of 400 reviews of a domain gets 64 % of its test reviews right, on words and
pairs of words 68 %; trained on all eight domains together, 66 % and 74 %.
"""

import difflib
import random
from collections.abc import Sequence

from .reviews import MultiTaskData, make_task

SOURCE = "synthetic reviews written by generate_reviews, no person's opinion"

PRAISE = (
    "great good excellent wonderful superb brilliant lovely impressive delightful outstanding solid terrific fantastic "
    "charming splendid remarkable pleasant admirable marvelous satisfying refreshing clever elegant flawless"
).split()
BLAME = (
    "bad poor terrible awful dreadful useless disappointing horrible mediocre flimsy annoying shoddy lousy pathetic "
    "dull clumsy miserable worthless tedious appalling frustrating sloppy inferior defective"
).split()

# What each domain's reviews are about: the thing itself, then its parts.
DOMAINS: dict[str, tuple[str, ...]] = {
    "books": ("novel", "plot", "ending", "chapter", "heroine", "prose", "dialogue", "cover"),
    "dvd": ("movie", "plot", "acting", "soundtrack", "opening", "villain", "dialogue", "picture"),
    "music": ("album", "voice", "drumming", "melody", "chorus", "guitar", "bass", "cover"),
    "electronics": ("camera", "battery", "screen", "cable", "manual", "speaker", "remote", "picture"),
    "kitchen": ("oven", "pan", "blender", "lid", "handle", "timer", "motor", "manual"),
    "cars": ("car", "brake", "engine", "seat", "steering", "mirror", "heater", "motor"),
    "hotels": ("hotel", "room", "bed", "breakfast", "staff", "pool", "heater", "lobby"),
    "games": ("game", "plot", "level", "boss", "interface", "animation", "tutorial", "soundtrack"),
}

# Words whose polarity depends on the domain: where they praise and where they blame. Elsewhere they do not occur.
FLIPPING: dict[str, tuple[str, str]] = {
    "unpredictable": ("books dvd games", "electronics cars kitchen hotels"),
    "predictable": ("electronics cars kitchen hotels", "books dvd games music"),
    "loud": ("music games", "kitchen cars hotels electronics"),
    "quiet": ("kitchen cars hotels electronics", "music games"),
    "hot": ("kitchen music", "electronics cars hotels"),
    "cold": ("hotels electronics", "kitchen music books"),
    "small": ("electronics kitchen", "hotels cars books"),
    "heavy": ("music kitchen cars", "electronics books"),
    "light": ("electronics hotels books", "kitchen music games"),
    "long": ("books games hotels", "electronics dvd cars"),
    "short": ("electronics cars", "books games hotels music"),
    "dark": ("books dvd games", "hotels electronics"),
    "bright": ("electronics hotels cars", "dvd games"),
    "scary": ("books dvd games", "cars hotels kitchen"),
    "sharp": ("electronics kitchen dvd", "hotels cars music"),
    "simple": ("electronics kitchen cars", "books dvd games music"),
    "hard": ("games music", "hotels kitchen electronics"),
    "soft": ("hotels cars", "music kitchen games"),
}

NEGATIONS = (
    "the {thing} is not {word}",
    "the {thing} is hardly {word}",
    "the {thing} is anything but {word}",
    "there is nothing {word} about the {thing}",
    "nobody would call the {thing} {word}",
)
STATEMENTS = (
    "the {thing} is {word}",
    "the {thing} seems {word}",
    "i find the {thing} {word}",
    "i call the {thing} {word}",
)
IMPORTANCE = ("what counts is the {thing}", "for me the {thing} decides", "i only care about the {thing}")
NEUTRAL = (
    "i got it last week",
    "it arrived on a tuesday",
    "my brother told me about it",
    "this was a present",
    "we had talked about it for months",
    "i paid the usual price",
    "there are several versions of it",
    "it came in a brown box",
    "i wrote this after a few days",
    "my sister has the same one",
    "they sell it in most shops",
    "here is what i think",
    "i had no expectations",
    "you asked me for my opinion",
    "the weather was normal that day",
    "i read other reviews before",
)


def word_polarity(word: str, domain: str) -> int | None:
    """1 for praise, -1 for blame in this domain, None for a word that judges nothing there."""
    if word in PRAISE or word in BLAME:
        return 1 if word in PRAISE else -1
    praised, blamed = FLIPPING.get(word, ("", ""))
    if domain in praised.split() or domain in blamed.split():
        return 1 if domain in praised.split() else -1
    return None


class _Writer:
    """Writes the reviews of one domain."""

    def __init__(self, domain: str, rng: random.Random):
        self.domain, self.rng = domain, rng
        self.flipping = {
            polarity: [word for word in FLIPPING if word_polarity(word, domain) == polarity] for polarity in (1, -1)
        }
        # Praise and blame are drawn by falling frequency, in an order of the domain's own: a word that is rare here is
        # common elsewhere, so that domains can learn from each other.
        order = random.Random(domain)
        self.general = {1: order.sample(PRAISE, len(PRAISE)), -1: order.sample(BLAME, len(BLAME))}
        self.weights = [1 / rank for rank in range(1, len(PRAISE) + 1)]

    def word(self, polarity: int) -> str:
        if self.rng.random() < 0.3:
            return self.rng.choice(self.flipping[polarity])
        return self.rng.choices(self.general[polarity], self.weights)[0]

    def clause(self, thing: str, polarity: int) -> str:
        negated = self.rng.random() < 0.25
        template = self.rng.choice(NEGATIONS if negated else STATEMENTS)
        return template.format(thing=thing, word=self.word(-polarity if negated else polarity))

    def opinion(self, polarity: int) -> list[str]:
        """One or two sentences that hold the verdict."""
        thing, other = self.rng.sample(DOMAINS[self.domain], 2)
        form = self.rng.choice(("plain", "plain", "plain", "plain", "but", "although", "reversed", "named"))
        # The clause that does not count says the opposite as often as not.
        aside = self.rng.choice((polarity, -polarity))
        if form == "plain":
            return [self.clause(thing, polarity)]
        if form == "but":
            return [f"{self.clause(other, aside)} but {self.clause(thing, polarity)}"]
        if form == "although":
            return [f"although {self.clause(other, aside)} , {self.clause(thing, polarity)}"]
        if form == "reversed":
            return [f"{self.clause(thing, polarity)} , although {self.clause(other, aside)}"]
        pair = [f"{self.word(polarity)} {thing}", f"{self.word(aside)} {other}"]
        self.rng.shuffle(pair)
        return [" , ".join(pair), self.rng.choice(IMPORTANCE).format(thing=thing)]

    def review(self, polarity: int) -> str:
        before, after = (self.rng.sample(NEUTRAL, self.rng.choice((0, 0, 1, 1, 2))) for _ in range(2))
        return " . ".join([*before, *self.opinion(polarity), *after]) + " ."


def generate_reviews(
    domains: Sequence[str] | None = None,
    train_size: int = 400,
    dev_size: int = 100,
    test_size: int = 200,
    seed: int = 0,
) -> MultiTaskData:
    """Writes reviews with known labels, the same ones for the same arguments.

    Args:
        domains: names of the tasks, of `DOMAINS`; None means all eight.
        train_size, dev_size, test_size: reviews of each domain; half of them are positive.
        seed: another seed gives other reviews.

    Returns:
        `MultiTaskData` with labels negative and positive. No text stands twice in a domain: no test text is in train.
        Each dataset's `info.description` says that it is synthetic.

    Raises:
        ValueError: an unknown domain (the message lists them) or a size below 2.

    Example:
        >>> from hf_metalstm.data.synthetic_reviews import generate_reviews
        >>> data = generate_reviews(["cars"], train_size=4, dev_size=2, test_size=2)
        >>> data["cars"]["train"].num_rows, data["cars"]["train"].features["label"].names
        (4, ['negative', 'positive'])
    """
    sizes = {"train": train_size, "validation": dev_size, "test": test_size}
    for name, size in sizes.items():
        if size < 2:
            raise ValueError(f"the {name} size is {size}, but must be at least 2, one review of each label")
    data = {}
    for domain in DOMAINS if domains is None else domains:
        if domain not in DOMAINS:
            near = difflib.get_close_matches(domain, DOMAINS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"there is no domain {domain!r}; the domains are {', '.join(DOMAINS)}{hint}")
        writer = _Writer(domain, random.Random(f"{domain} {seed}"))
        seen: set[str] = set()
        splits = {}
        for name, size in sizes.items():
            labels = [1, 0] * (size // 2) + [1] * (size % 2)
            writer.rng.shuffle(labels)
            texts = [_new_review(writer, 2 * label - 1, seen) for label in labels]
            splits[name] = (texts, labels)
        data[domain] = make_task(splits, ["negative", "positive"], SOURCE)
    return MultiTaskData(data, SOURCE)


def _new_review(writer: _Writer, polarity: int, seen: set[str]) -> str:
    text = writer.review(polarity)
    while text in seen:
        text = writer.review(polarity)
    seen.add(text)
    return text
