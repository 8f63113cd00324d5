"""Relations in space and size: tasks 4, 17, 18 and 19."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from .scene import Candidate, Scene
from .vocabulary import BabiVocabulary

# Where the first thing of a fact lies, seen from the second: steps to the right (east) and up (north).
Step = tuple[int, int]
COMPASS: dict[str, Step] = {"north": (0, 1), "south": (0, -1), "east": (1, 0), "west": (-1, 0)}
SIDES: dict[str, Step] = {
    "above": (0, 1),
    "below": (0, -1),
    "to the right of": (1, 0),
    "to the left of": (-1, 0),
}
SHAPES = tuple(
    f"{colour} {shape}"
    for colour in ("orange", "purple", "silver", "black")
    for shape in ("circle", "star", "hexagon", "cross")
)
CONTAINERS = ("bag", "barrel", "bin", "bucket", "case", "crate", "hamper", "jar", "parcel", "sack")


@dataclass(frozen=True)
class _Edge:
    """A fact about two neighbours: `first` lies a step from `second`."""

    first: str
    second: str
    step: Step
    fact: int


def _opposite(step: Step) -> Step:
    return -step[0], -step[1]


def _name_of(step: Step, names: Mapping[str, Step]) -> str:
    return next(name for name, value in names.items() if value == step)


def _tell_map(scene: Scene, things: Sequence[str], names: Mapping[str, Step], template: str) -> list[_Edge]:
    """Lays `length + 1` things on a grid, each beside one that lies there already, and tells where in any order."""
    rng = scene.rng
    cells: dict[Step, str] = {(0, 0): things[0]}
    pairs: list[tuple[str, str, Step]] = []
    while len(pairs) < scene.length:
        cell = rng.choice(list(cells))
        step = rng.choice(list(names.values()))
        beside = (cell[0] + step[0], cell[1] + step[1])
        if beside in cells:
            continue
        cells[beside] = things[len(cells)]
        pair = (cells[beside], cells[cell], step)
        pairs.append(pair if rng.random() < 0.5 else (pair[1], pair[0], _opposite(step)))
    rng.shuffle(pairs)
    edges = []
    for first, second, step in pairs:
        fact = scene.tell(template.format(first=first, relation=_name_of(step, names), second=second))
        edges.append(_Edge(first, second, step, fact))
    return edges


def _shortest_path(
    neighbours: Mapping[str, Sequence[tuple[str, int]]], start: str, end: str
) -> list[tuple[str, int]] | None:
    """The things passed from `start` (left out) to `end`, each with the fact that leads there; None without a path."""
    came: dict[str, tuple[str, int] | None] = {start: None}
    queue = deque([start])
    while queue and end not in came:
        here = queue.popleft()
        for there, fact in neighbours.get(here, ()):
            if there not in came:
                came[there] = (here, fact)
                queue.append(there)
    if end not in came:
        return None
    path = []
    here = end
    while (back := came[here]) is not None:
        path.append((here, back[1]))
        here = back[0]
    return path[::-1]


def _paths(edges: Sequence[_Edge]) -> Iterator[tuple[str, str, list[Step], tuple[int, ...]]]:
    """For each ordered pair of things: the steps that lead from the first to the second, and the facts that say so."""
    neighbours: dict[str, list[tuple[str, int]]] = {}
    steps: dict[tuple[str, str], Step] = {}
    for edge in edges:
        neighbours.setdefault(edge.first, []).append((edge.second, edge.fact))
        neighbours.setdefault(edge.second, []).append((edge.first, edge.fact))
        steps[edge.second, edge.first], steps[edge.first, edge.second] = edge.step, _opposite(edge.step)
    for start, end in permutations(sorted(neighbours), 2):
        path = _shortest_path(neighbours, start, end)
        assert path is not None
        stations = [start, *(thing for thing, _ in path)]
        yield start, end, [steps[pair] for pair in zip(stations, stations[1:], strict=False)], tuple(f for _, f in path)


def longest_map(vocabulary: BabiVocabulary) -> int:
    """Each fact of a map brings in one more place."""
    return len(vocabulary.places) - 1


def longest_positional_reasoning(_: BabiVocabulary) -> int:
    """Each fact of a picture brings in one more shape."""
    return len(SHAPES) - 1


def _places(scene: Scene) -> list[str]:
    return scene.rng.sample(scene.vocabulary.places, scene.length + 1)


def tell_two_argument_relations(scene: Scene) -> None:
    """What is north of the attic? What is the attic north of? One fact about neighbours says it."""
    edges = _tell_map(scene, _places(scene), COMPASS, "The {first} is {relation} of the {second}.")
    found = []
    for edge in edges:
        there, back = _name_of(edge.step, COMPASS), _name_of(_opposite(edge.step), COMPASS)
        forms = [
            (f"What is {there} of the {edge.second}?", edge.first),
            (f"What is the {edge.first} {there} of?", edge.second),
            (f"What is {back} of the {edge.first}?", edge.second),
            (f"What is the {edge.second} {back} of?", edge.first),
        ]
        found += [Candidate(text, (answer,), (edge.fact,)) for text, answer in forms]
    scene.ask_at_the_end(found)


def tell_positional_reasoning(scene: Scene) -> None:
    """Is the red star above the black circle? Two facts or more, about shapes between them, say it.

    How far apart shapes are is not told. So nothing is asked whose answer depends on it: steps to the left and to the
    right on the way between two shapes leave open which of them is further left.
    """
    shapes = scene.rng.sample(SHAPES, scene.length + 1)
    edges = _tell_map(scene, shapes, SIDES, "The {first} is {relation} the {second}.")
    found = []
    for start, end, steps, facts in _paths(edges):
        if len(facts) < 2:
            continue
        for relation, wanted in SIDES.items():
            axis = 0 if wanted[0] else 1
            signs = {step[axis] for step in steps} - {0}
            if len(signs) < 2:
                answer = "yes" if signs == {wanted[axis]} else "no"
                found.append(Candidate(f"Is the {end} {relation} the {start}?", (answer,), facts))
    scene.ask_at_the_end(found)


def tell_size_reasoning(scene: Scene) -> None:
    """Does the jar fit inside the crate? Two facts or more, about things of sizes in between, say it."""
    rng = scene.rng
    # By rising size. The facts about neighbours make the chains; facts about others, told besides, make shortcuts.
    things = rng.sample(CONTAINERS, min(len(CONTAINERS), scene.length + 1, 3 + scene.length // 3))
    pairs = list(zip(things, things[1:], strict=False))
    while len(pairs) < scene.length:
        lower, higher = sorted(rng.sample(range(len(things)), 2))
        pairs.append((things[lower], things[higher]))
    rng.shuffle(pairs)
    larger: dict[str, list[tuple[str, int]]] = {}
    for small, large in pairs:
        text = rng.choice((f"The {small} fits inside the {large}.", f"The {large} is bigger than the {small}."))
        larger.setdefault(small, []).append((large, scene.tell(text)))
    found = []
    for small, large in permutations(things, 2):
        path = _shortest_path(larger, small, large)
        if path is None or len(path) < 2:
            continue
        facts = tuple(fact for _, fact in path)
        forms = [
            (f"Does the {small} fit inside the {large}?", "yes"),
            (f"Does the {large} fit inside the {small}?", "no"),
            (f"Is the {large} bigger than the {small}?", "yes"),
            (f"Is the {small} bigger than the {large}?", "no"),
        ]
        found += [Candidate(text, (answer,), facts) for text, answer in forms]
    scene.ask_at_the_end(found)


def tell_path_finding(scene: Scene) -> None:
    """How do you get from the attic to the harbour? The directions of two steps; of more, when stories are longer."""
    edges = _tell_map(scene, _places(scene), COMPASS, "The {first} is {relation} of the {second}.")
    paths = list(_paths(edges))
    # A map may be too round for the long paths that its size would allow.
    wanted = min(2 + max(0, scene.length - 5) // 2, max(len(facts) for *_, facts in paths))
    found = []
    for start, end, steps, facts in paths:
        if len(facts) == wanted:
            directions = tuple(_name_of(step, COMPASS) for step in steps)
            found.append(Candidate(f"How do you get from the {start} to the {end}?", directions, facts))
    scene.ask_at_the_end(found)
