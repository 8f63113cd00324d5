"""People who move, carry things and hand them over: tasks 1 to 3 and 5 to 8."""

from dataclasses import dataclass, field

from .scene import Candidate, Scene

MOVES = ("walked to", "ran to", "headed to", "hurried to", "strolled over to")
TAKES = ("took", "grabbed", "fetched", "collected")
DROPS = ("put down", "left", "set down")
GIVES = ("gave", "handed", "passed")
NUMBERS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@dataclass
class _Gift:
    giver: str
    thing: str
    receiver: str
    fact: int


@dataclass
class _Stop:
    """A place where an object was with its carrier: the move that led there and the fact by which it was taken."""

    place: str
    move: int
    take: int


@dataclass
class World:
    """Who is where and has what, with the facts that say so."""

    scene: Scene
    place: dict[str, str] = field(default_factory=dict)
    move: dict[str, int] = field(default_factory=dict)  # a person's last move
    holder: dict[str, str] = field(default_factory=dict)
    got: dict[str, int] = field(default_factory=dict)  # by which fact the holder has the object
    # Where objects lie that nobody has: the place, who put it there, by which fact, and that person's move before.
    lying: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    stops: dict[str, list[_Stop]] = field(default_factory=dict)
    lost: dict[str, tuple[int, int]] = field(default_factory=dict)  # a person's last loss: got by, lost by
    gifts: list[_Gift] = field(default_factory=list)

    def things_of(self, person: str) -> list[str]:
        """What a person has, in the order of getting it."""
        return sorted((thing for thing, holder in self.holder.items() if holder == person), key=self.got.__getitem__)

    def act(self, take: float = 0, drop: float = 0, give: float = 0) -> None:
        """Tells one fact: somebody moves, or with these chances takes, puts down or hands over something."""
        chance = self.scene.rng.random()
        if chance < take:
            done = self.somebody_takes()
        elif chance < take + drop:
            done = self.somebody_drops()
        elif chance < take + drop + give:
            done = self.somebody_gives()
        else:
            done = False
        if not done:
            person = self.scene.rng.choice(self.scene.people)
            self.go(person, self.scene.elsewhere(self.place.get(person)))

    def go(self, person: str, place: str) -> None:
        self.place[person] = place
        self.move[person] = self.scene.tell(f"{person} {self.scene.rng.choice(MOVES)} the {place}.")
        for thing in self.things_of(person):
            self.stops[thing].append(_Stop(place, self.move[person], self.got[thing]))

    def somebody_takes(self) -> bool:
        free = [
            (person, thing)
            for person in self.scene.people
            for thing in self.scene.vocabulary.objects
            if person in self.place
            and thing not in self.holder
            and (thing not in self.lying or self.lying[thing][0] == self.place[person])
        ]
        if not free:
            return False
        person, thing = self.scene.rng.choice(free)
        fact = self.scene.tell(f"{person} {self.scene.rng.choice(TAKES)} the {thing}.")
        self.lying.pop(thing, None)
        self._receive(person, thing, fact)
        return True

    def somebody_drops(self) -> bool:
        if not self.holder:
            return False
        thing = self.scene.rng.choice(sorted(self.holder))
        person = self.holder.pop(thing)
        fact = self.scene.tell(f"{person} {self.scene.rng.choice(DROPS)} the {thing}.")
        self.lying[thing] = (self.place[person], fact, self.move[person])
        self.lost[person] = (self.got.pop(thing), fact)
        return True

    def somebody_gives(self) -> bool:
        if not self.holder:
            return False
        thing = self.scene.rng.choice(sorted(self.holder))
        giver = self.holder[thing]
        others = [person for person in self.scene.people if person != giver]
        near = [person for person in others if self.place.get(person) == self.place[giver]]
        if not near:
            # Somebody comes, so that a later fact may hand it over.
            self.go(self.scene.rng.choice(others), self.place[giver])
            return True
        receiver = self.scene.rng.choice(near)
        fact = self.scene.tell(f"{giver} {self.scene.rng.choice(GIVES)} the {thing} to {receiver}.")
        self.gifts.append(_Gift(giver, thing, receiver, fact))
        self.lost[giver] = (self.got[thing], fact)
        self._receive(receiver, thing, fact)
        return True

    def _receive(self, person: str, thing: str, fact: int) -> None:
        self.holder[thing], self.got[thing] = person, fact
        self.stops.setdefault(thing, []).append(_Stop(self.place[person], self.move[person], fact))


def tell_single_supporting_fact(scene: Scene) -> None:
    """Where is Ada? One move says it."""
    world = World(scene)

    def candidates() -> list[Candidate]:
        return [Candidate(f"Where is {who}?", (place,), (world.move[who],)) for who, place in world.place.items()]

    scene.play(world.act, candidates)


def tell_two_supporting_facts(scene: Scene) -> None:
    """Where is the lantern? Who has it, or put it down, and where that person is, or was then."""
    world = World(scene)

    def candidates() -> list[Candidate]:
        held = [(thing, world.place[who], (world.got[thing], world.move[who])) for thing, who in world.holder.items()]
        lying = [(thing, place, (drop, move)) for thing, (place, drop, move) in world.lying.items()]
        return [Candidate(f"Where is the {thing}?", (place,), facts) for thing, place, facts in held + lying]

    scene.play(lambda: world.act(take=0.25, drop=0.12), candidates)


def tell_three_supporting_facts(scene: Scene) -> None:
    """Where was the lantern before the attic? Who carried it, from where, and to the attic."""
    world = World(scene)

    def candidates() -> list[Candidate]:
        found = []
        for thing, stops in world.stops.items():
            for index in range(1, len(stops)):
                before, after = stops[index - 1 : index + 1]
                # The object must have been there a single time. So no new carrier took it there or brought it there:
                # that one starts where the last one left it, which makes two stops at the same place.
                if [stop.place for stop in stops].count(after.place) == 1:
                    text = f"Where was the {thing} before the {after.place}?"
                    found.append(Candidate(text, (before.place,), (after.take, after.move, before.move)))
        return found

    scene.play(lambda: world.act(take=0.25, drop=0.12), candidates)


def tell_three_argument_relations(scene: Scene) -> None:
    """Who gave what to whom? One fact says it."""
    world = World(scene)

    def candidates() -> list[Candidate]:
        found = []
        for gift in world.gifts:
            forms = [
                (f"What did {gift.giver} give to {gift.receiver}?", gift.thing, ("giver", "receiver")),
                (f"Who gave the {gift.thing} to {gift.receiver}?", gift.giver, ("thing", "receiver")),
                (f"Who did {gift.giver} give the {gift.thing} to?", gift.receiver, ("giver", "thing")),
                (f"Who received the {gift.thing}?", gift.receiver, ("thing",)),
                (f"Who gave the {gift.thing}?", gift.giver, ("thing",)),
            ]
            for text, answer, named in forms:
                # A question that fits two gifts has no one answer.
                fitting = [other for other in world.gifts if all(getattr(other, n) == getattr(gift, n) for n in named)]
                if len(fitting) == 1:
                    found.append(Candidate(text, (answer,), (gift.fact,)))
        return found

    scene.play(lambda: world.act(take=0.2, drop=0.05, give=0.45), candidates)


def tell_yes_no_questions(scene: Scene) -> None:
    """Is Ada in the attic? One move says it."""
    world = World(scene)

    def candidates() -> list[Candidate]:
        return [
            Candidate(f"Is {who} in the {asked}?", ("yes" if asked == place else "no",), (world.move[who],))
            for who, place in world.place.items()
            for asked in (place, scene.decoy(place))
        ]

    scene.play(world.act, candidates)


def tell_counting(scene: Scene) -> None:
    """How many things does Ada carry?"""
    world = World(scene)

    def candidates() -> list[Candidate]:
        return [
            Candidate(f"How many things is {who} carrying?", (NUMBERS[len(things)],), facts)
            for who, things, facts in _loads(world)
        ]

    scene.play(lambda: world.act(take=0.4, drop=0.12, give=0.12), candidates)


def tell_lists(scene: Scene) -> None:
    """What does Ada carry? A list in the order of getting the things."""
    world = World(scene)

    def candidates() -> list[Candidate]:
        return [
            Candidate(
                f"What is {who} carrying?", tuple(things) or ("nothing",), facts, balance=len(things) or "nothing"
            )
            for who, things, facts in _loads(world)
        ]

    scene.play(lambda: world.act(take=0.4, drop=0.12, give=0.12), candidates)


def _loads(world: World) -> list[tuple[str, list[str], tuple[int, ...]]]:
    """What each person carries who ever carried something, and the facts that say so."""
    loads = []
    for who in world.scene.people:
        things = world.things_of(who)
        if things:
            loads.append((who, things, tuple(world.got[thing] for thing in things)))
        elif who in world.lost:
            loads.append((who, things, world.lost[who]))
    return loads
