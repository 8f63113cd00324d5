"""Deduction, induction and motives: tasks 15, 16 and 20."""

from dataclasses import dataclass

from .moving import MOVES, TAKES
from .scene import Candidate, Scene
from .vocabulary import BabiVocabulary

# Singular and plural.
SPECIES = {
    "bear": "bears",
    "dog": "dogs",
    "fox": "foxes",
    "goose": "geese",
    "hare": "hares",
    "owl": "owls",
    "rat": "rats",
    "snake": "snakes",
}
COLOURS = ("brown", "grey", "black", "white", "golden", "red")
# What people do about how they feel: where they go, and what they take there. This is never told in a story.
MOTIVES = {
    "hungry": ("kitchen", "sandwich"),
    "thirsty": ("well", "cup"),
    "tired": ("bedroom", "blanket"),
    "bored": ("garden", "ball"),
    "dirty": ("bathroom", "soap"),
}


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


def longest_basic_deduction(vocabulary: BabiVocabulary) -> int:
    """Each species is afraid of one other, and each name is told once."""
    return min(2 * len(SPECIES), 2 * len(vocabulary.people))


def tell_basic_deduction(scene: Scene) -> None:
    """What is Ada afraid of? Of which species she is, and what that species is afraid of, say it."""
    rng = scene.rng
    species = rng.sample(sorted(SPECIES), max(2, scene.length // 2))
    # Some may be afraid of a species of which nothing else is told.
    told = species[: scene.length // 2]
    names = rng.sample(scene.people, scene.length - len(told))
    afraid = {one: rng.choice([other for other in species if other != one]) for one in told}
    belongs = {name: rng.choice(told) for name in names}
    facts: dict[str, int] = {}
    for one in rng.sample([*told, *names], scene.length):
        if one in afraid:
            facts[one] = scene.tell(f"{SPECIES[one].capitalize()} are afraid of {SPECIES[afraid[one]]}.")
        else:
            facts[one] = scene.tell(f"{one} is {_article(belongs[one])} {belongs[one]}.")
    found = [
        Candidate(f"What is {name} afraid of?", (SPECIES[afraid[kind]],), (facts[name], facts[kind]))
        for name, kind in belongs.items()
    ]
    scene.ask_at_the_end(found)


def longest_basic_induction(vocabulary: BabiVocabulary) -> int:
    """Two facts about each person but one (or two), of whom one fact is told."""
    return 2 * len(vocabulary.people) - 1


def tell_basic_induction(scene: Scene) -> None:
    """What colour is Ada? That of another of her species: all of a species have one colour in a story."""
    rng = scene.rng
    unknown = 1 if scene.length % 2 else 2
    names = rng.sample(scene.people, (scene.length - unknown) // 2 + unknown)
    seen, asked = names[unknown:], names[:unknown]
    colour_of = {species: rng.choice(COLOURS) for species in sorted(SPECIES)}
    kind_of = {name: rng.choice(sorted(SPECIES)) for name in seen}
    kind_of.update({name: rng.choice([kind_of[one] for one in seen]) for name in asked})
    lines = [(name, "kind") for name in names] + [(name, "colour") for name in seen]
    facts: dict[tuple[str, str], int] = {}
    for name, what in rng.sample(lines, len(lines)):
        kind = kind_of[name]
        said = f"{_article(kind)} {kind}" if what == "kind" else colour_of[kind]
        facts[name, what] = scene.tell(f"{name} is {said}.")
    found = []
    for name in asked:
        kind = kind_of[name]
        # Of several examples the last one told.
        example = max((one for one in seen if kind_of[one] == kind), key=lambda one: facts[one, "colour"])
        supporting = (facts[name, "kind"], facts[example, "kind"], facts[example, "colour"])
        found.append(Candidate(f"What colour is {name}?", (colour_of[kind],), supporting))
    scene.ask_at_the_end(found)


def longest_motivations(vocabulary: BabiVocabulary) -> int:
    """Three facts about each person."""
    return 3 * len(vocabulary.people)


@dataclass
class _Motive:
    feeling: str
    fact: int
    steps: int  # of the two that follow: going somewhere, taking something there


def tell_motivations(scene: Scene) -> None:
    """Why did Ada go to the kitchen? Because she is hungry. Where will she go? People do the same about a feeling."""
    rng = scene.rng
    crowd = rng.sample(scene.people, min(len(scene.people), -(-scene.length // 3)))
    motives: dict[str, _Motive] = {}

    def act() -> None:
        under_way = [who for who in crowd if who in motives and motives[who].steps < 2]
        new = [who for who in crowd if who not in motives]
        who = rng.choice(new if not under_way or (new and rng.random() < 0.3) else under_way)
        if who not in motives:
            feeling = rng.choice(sorted(MOTIVES))
            motives[who] = _Motive(feeling, scene.tell(f"{who} is {feeling}."), 0)
            return
        motive = motives[who]
        place, thing = MOTIVES[motive.feeling]
        scene.tell(
            f"{who} {rng.choice(TAKES)} the {thing}." if motive.steps else f"{who} {rng.choice(MOVES)} the {place}."
        )
        motive.steps += 1

    def candidates() -> list[Candidate]:
        found = []
        for who, motive in motives.items():
            place, thing = MOTIVES[motive.feeling]
            forms = [(f"Where will {who} go?", place)] if not motive.steps else []
            if motive.steps:
                forms.append((f"Why did {who} go to the {place}?", motive.feeling))
            if motive.steps == 2:
                forms.append((f"Why did {who} take the {thing}?", motive.feeling))
            found += [Candidate(text, (answer,), (motive.fact,)) for text, answer in forms]
        return found

    scene.play(act, candidates)
