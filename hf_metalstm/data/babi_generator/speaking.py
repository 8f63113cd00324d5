"""Ways of saying where people are: negation, indefinite knowledge, pronouns, several people, times. Tasks 9 to 14."""

from collections.abc import Callable

from .moving import MOVES
from .scene import Candidate, Scene
from .vocabulary import BabiVocabulary

_NEXT = ("Then", "After that", "Later", "Afterwards")
TIMES = ("yesterday", "this morning", "this afternoon", "this evening")


def tell_simple_negation(scene: Scene) -> None:
    """Is Ada in the attic? A fact says where she is, or where she is not."""
    rng = scene.rng
    known: dict[str, tuple[str, bool, int]] = {}  # the place, whether the person is there, by which fact

    def act() -> None:
        who = rng.choice(scene.people)
        place, there, _ = known.get(who, (None, False, 0))
        if rng.random() < 0.4:
            if place is None or not there:
                place, text = scene.elsewhere(place), "is not in"
            else:
                text = "is no longer in"
            known[who] = (place, False, scene.tell(f"{who} {text} the {place}."))
        else:
            place = scene.elsewhere(place if there else None)
            text = rng.choice(("is in", rng.choice(MOVES)))
            known[who] = (place, True, scene.tell(f"{who} {text} the {place}."))

    def candidates() -> list[Candidate]:
        found = []
        for who, (place, there, fact) in known.items():
            found.append(Candidate(f"Is {who} in the {place}?", ("yes" if there else "no",), (fact,)))
            if there:
                found.append(Candidate(f"Is {who} in the {scene.decoy(place)}?", ("no",), (fact,)))
        return found

    scene.play(act, candidates)


def tell_indefinite_knowledge(scene: Scene) -> None:
    """Is Ada in the attic? Yes, no, or maybe, where a fact leaves two places open."""
    rng = scene.rng
    known: dict[str, tuple[tuple[str, ...], int]] = {}

    def act() -> None:
        who = rng.choice(scene.people)
        if rng.random() < 0.45:
            places = tuple(rng.sample(scene.vocabulary.places, 2))
            fact = scene.tell(f"{who} is either in the {places[0]} or in the {places[1]}.")
        else:
            places = (scene.elsewhere(*known.get(who, ((), 0))[0]),)
            fact = scene.tell(f"{who} {rng.choice(('is in', rng.choice(MOVES)))} the {places[0]}.")
        known[who] = (places, fact)

    def candidates() -> list[Candidate]:
        found = []
        for who, (places, fact) in known.items():
            answer = "yes" if len(places) == 1 else "maybe"
            found += [Candidate(f"Is {who} in the {place}?", (answer,), (fact,)) for place in places]
            found.append(Candidate(f"Is {who} in the {scene.decoy(*places)}?", ("no",), (fact,)))
        return found

    scene.play(act, candidates)


def tell_basic_coreference(scene: Scene) -> None:
    """Where is Ada? Her name and "she" say it."""
    _tell_references(scene, lambda: (scene.rng.choice(scene.people),))


def tell_compound_coreference(scene: Scene) -> None:
    """Where is Ada? "Ada and Otto", then "they", say it."""
    _tell_references(scene, lambda: tuple(scene.rng.sample(scene.people, 2)))


def _tell_references(scene: Scene, choose: Callable[[], tuple[str, ...]]) -> None:
    """Somebody, or two people, go somewhere and then elsewhere, called by a pronoun the second and third time."""
    known: dict[str, tuple[str, tuple[int, ...]]] = {}

    def act() -> None:
        who = choose()
        pronoun = scene.vocabulary.people[who[0]] if len(who) == 1 else "they"
        place = scene.elsewhere(*(known[one][0] for one in who if one in known))
        facts = [scene.tell(f"{' and '.join(who)} {scene.rng.choice(MOVES)} the {place}.")]
        for _ in range(scene.rng.choice((1, 1, 1, 2))):
            place = scene.elsewhere(place)
            move = f"{pronoun} {scene.rng.choice(MOVES)} the {place}."
            facts.append(scene.tell(f"{scene.rng.choice(_NEXT)} {move}"))
        known.update((one, (place, tuple(facts))) for one in who)

    def candidates() -> list[Candidate]:
        return [Candidate(f"Where is {who}?", (place,), facts) for who, (place, facts) in known.items()]

    scene.play(act, candidates)


def tell_conjunction(scene: Scene) -> None:
    """Where is Ada? A fact about two people says it."""
    known: dict[str, tuple[str, int]] = {}

    def act() -> None:
        who = scene.rng.sample(scene.people, 2)
        place = scene.elsewhere(*(known[one][0] for one in who if one in known))
        fact = scene.tell(f"{' and '.join(who)} {scene.rng.choice(MOVES)} the {place}.")
        known.update((one, (place, fact)) for one in who)

    def candidates() -> list[Candidate]:
        return [Candidate(f"Where is {who}?", (place,), (fact,)) for who, (place, fact) in known.items()]

    scene.play(act, candidates)


def longest_time_reasoning(vocabulary: BabiVocabulary) -> int:
    """Each person is somewhere once in each time."""
    return len(TIMES) * len(vocabulary.people)


def tell_time_reasoning(scene: Scene) -> None:
    """Where was Ada before the attic? Two facts, told in any order, say when she was where."""
    rng = scene.rng
    # So few people that most of them are in several places, and there is a before and an after.
    crowd = rng.sample(scene.people, min(len(scene.people), -(-scene.length // 3)))
    places = {who: rng.sample(scene.vocabulary.places, len(TIMES)) for who in crowd}
    visits = [(who, time, places[who][time]) for who in crowd for time in range(len(TIMES))]
    waiting = rng.sample(visits, len(visits))
    told: dict[tuple[str, int], tuple[str, int]] = {}

    def act() -> None:
        who, time, place = waiting.pop()
        move = f"{rng.choice(MOVES)} the {place}"
        when = TIMES[time]
        text = rng.choice((f"{who} {move} {when}.", f"{when.capitalize()} {who} {move}."))
        told[who, time] = (place, scene.tell(text))

    def candidates() -> list[Candidate]:
        found = []
        for who in crowd:
            visited = [told[who, time] for time in range(len(TIMES)) if (who, time) in told]
            for (early, first), (late, second) in zip(visited, visited[1:], strict=False):
                found.append(Candidate(f"Where was {who} before the {late}?", (early,), (second, first)))
                found.append(Candidate(f"Where did {who} go after the {early}?", (late,), (first, second)))
        return found

    scene.play(act, candidates)
