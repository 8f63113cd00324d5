"""Generated stories of the twenty bAbI kinds, written from the published descriptions (Weston et al. 2015).

Sentences and words are this project's own. A story tells what happens, or what is the case, and every question has one
answer, which follows from its supporting facts alone. Only task 20 needs knowledge that no story tells: what people do
about how they feel. Answers are as balanced as a kind allows: "yes" and "no" are given equally often.

Accuracy on these stories does not compare with published bAbI results: sentences, words and lengths differ.
"""

import random
from collections import Counter
from collections.abc import Hashable, Sequence
from pathlib import Path

from datasets import DatasetDict

from ..babi import format_babi
from ..stories import SPLITS, Story, make_story_dataset
from .knowledge import (
    longest_basic_deduction,
    longest_basic_induction,
    longest_motivations,
    tell_basic_deduction,
    tell_basic_induction,
    tell_motivations,
)
from .moving import (
    tell_counting,
    tell_lists,
    tell_single_supporting_fact,
    tell_three_argument_relations,
    tell_three_supporting_facts,
    tell_two_supporting_facts,
    tell_yes_no_questions,
)
from .relations import (
    longest_map,
    longest_positional_reasoning,
    tell_path_finding,
    tell_positional_reasoning,
    tell_size_reasoning,
    tell_two_argument_relations,
)
from .scene import Kind, Scene
from .speaking import (
    longest_time_reasoning,
    tell_basic_coreference,
    tell_compound_coreference,
    tell_conjunction,
    tell_indefinite_knowledge,
    tell_simple_negation,
    tell_time_reasoning,
)
from .vocabulary import BabiVocabulary

__all__ = ["KINDS", "BabiVocabulary", "generate_babi", "generate_stories", "write_babi"]

SOURCE = "bAbI-style stories written by generate_babi"
_MOST_ATTEMPTS = 1000

# name, teller, facts of a story, fewest facts, questions of a story, most facts
KINDS: dict[int, Kind] = {
    1: Kind("single-supporting-fact", tell_single_supporting_fact, 10, 1, 5),
    2: Kind("two-supporting-facts", tell_two_supporting_facts, 16, 2, 5),
    3: Kind("three-supporting-facts", tell_three_supporting_facts, 30, 3, 5),
    4: Kind("two-arg-relations", tell_two_argument_relations, 2, 1, 1, longest_map),
    5: Kind("three-arg-relations", tell_three_argument_relations, 16, 3, 5),
    6: Kind("yes-no-questions", tell_yes_no_questions, 10, 1, 5),
    7: Kind("counting", tell_counting, 14, 2, 5),
    8: Kind("lists-sets", tell_lists, 14, 2, 5),
    9: Kind("simple-negation", tell_simple_negation, 10, 1, 5),
    10: Kind("indefinite-knowledge", tell_indefinite_knowledge, 10, 1, 5),
    11: Kind("basic-coreference", tell_basic_coreference, 10, 2, 5),
    12: Kind("conjunction", tell_conjunction, 10, 1, 5),
    13: Kind("compound-coreference", tell_compound_coreference, 10, 2, 5),
    14: Kind("time-reasoning", tell_time_reasoning, 10, 2, 5, longest_time_reasoning),
    15: Kind("basic-deduction", tell_basic_deduction, 8, 2, 4, longest_basic_deduction),
    16: Kind("basic-induction", tell_basic_induction, 9, 3, 1, longest_basic_induction),
    17: Kind("positional-reasoning", tell_positional_reasoning, 2, 2, 4, longest_positional_reasoning),
    18: Kind("size-reasoning", tell_size_reasoning, 5, 2, 4),
    19: Kind("path-finding", tell_path_finding, 5, 2, 1, longest_map),
    20: Kind("agents-motivations", tell_motivations, 12, 1, 8, longest_motivations),
}


def generate_babi(
    tasks: Sequence[int] | None = None,
    train_size: int = 900,
    validation_size: int = 100,
    test_size: int = 1000,
    story_length: int | None = None,
    vocabulary: BabiVocabulary | None = None,
    seed: int = 0,
) -> DatasetDict:
    """Writes stories with questions of some or all of the twenty kinds, the same ones for the same arguments.

    Args:
        tasks: numbers of the kinds; None means all twenty, one after the other in each split.
        train_size, validation_size, test_size: questions of each task; 0 leaves the split out.
        story_length: facts of a story, which makes tasks harder; None means each kind's own. A kind that tells several
            facts at a time may exceed it by up to two.
        vocabulary: people, places and objects.
        seed: another seed gives other stories. What one task holds does not depend on which others are asked for.

    Returns:
        A `DatasetDict` as `read_babi` gives it. Within a task, no story stands in two splits or twice in one.

    Raises:
        TypeError, ValueError: an unknown task, a size or length out of range (the message gives it), or settings
            that allow too few different stories.

    Example:
        >>> from hf_metalstm.data.babi_generator import generate_babi
        >>> data = generate_babi(tasks=[15], train_size=4, validation_size=0, test_size=2)
        >>> row = data["train"][0]
        >>> len(row["facts"]), row["question"], row["answer"], row["supporting_facts"]
        (8, 'What is Marco afraid of?', ['foxes'], [4, 0])
        >>> [row["facts"][index] for index in row["supporting_facts"]]
        ['Marco is an owl.', 'Owls are afraid of foxes.']
    """
    sizes = {"train": train_size, "validation": validation_size, "test": test_size}
    splits: dict[str, list[Story]] = {split: [] for split in SPLITS}
    for number in _choose(tasks):
        for split, stories in _generate(number, sizes, story_length, vocabulary, seed).items():
            splits[split] += stories
    return DatasetDict({split: make_story_dataset(splits[split], SOURCE) for split in SPLITS if sizes[split]})


def generate_stories(
    task: int,
    size: int,
    story_length: int | None = None,
    vocabulary: BabiVocabulary | None = None,
    seed: int = 0,
) -> list[Story]:
    """Stories of one kind, with `size` questions in all; see `generate_babi`."""
    (number,) = _choose([task])
    return _generate(number, {"train": size}, story_length, vocabulary, seed)["train"]


def write_babi(
    folder: str | Path,
    tasks: Sequence[int] | None = None,
    train_size: int = 1000,
    test_size: int = 1000,
    story_length: int | None = None,
    vocabulary: BabiVocabulary | None = None,
    seed: int = 0,
) -> list[Path]:
    """Writes generated stories as files in the bAbI format, `qa1_single-supporting-fact_train.txt` and so on.

    Args:
        folder: is made if need be; files of the same names are replaced.
        tasks, train_size, test_size, story_length, vocabulary, seed: as for `generate_babi`. `read_babi` draws the
            validation split from the train file.

    Returns:
        The files.
    """
    folder = Path(folder)
    written = []
    for number in _choose(tasks):
        splits = _generate(number, {"train": train_size, "test": test_size}, story_length, vocabulary, seed)
        folder.mkdir(parents=True, exist_ok=True)
        for split, stories in splits.items():
            if not stories:
                raise ValueError(f"the {split} size is 0, but a file needs at least one story")
            path = folder / f"qa{number}_{KINDS[number].name}_{split}.txt"
            path.write_text(format_babi(stories), encoding="utf-8")
            written.append(path)
    return written


def _choose(tasks: Sequence[int] | None) -> list[int]:
    if tasks is None:
        return list(KINDS)
    if isinstance(tasks, (int, str)) or not all(type(number) is int for number in tasks):
        raise TypeError(f"tasks is {tasks!r}, expected a list of task numbers, such as [1, 2]")
    for number in tasks:
        if number not in KINDS:
            raise ValueError(f"there is no task {number}; the kinds are 1..{max(KINDS)}")
    if not tasks or len(set(tasks)) < len(tasks):
        raise ValueError(f"tasks is {list(tasks)}, expected one task or more, each of them once")
    return list(tasks)


def _generate(
    number: int, sizes: dict[str, int], length: int | None, vocabulary: BabiVocabulary | None, seed: int
) -> dict[str, list[Story]]:
    """The stories of one task: `{split: stories}`, all different."""
    kind = KINDS[number]
    vocabulary = vocabulary or BabiVocabulary()
    length = _check_length(number, length, vocabulary)
    seen: set[tuple[str, ...]] = set()
    splits = {}
    for split, size in sizes.items():
        if size < 0:
            raise ValueError(f"the {split} size is {size}, but must not be negative")
        rng = random.Random(f"{kind.name} {split} {seed}")
        asked: Counter[Hashable] = Counter()
        stories: list[Story] = []
        missing = size
        while missing:
            story = _new_story(number, rng, vocabulary, length, asked, seen)
            del story.questions[missing:]
            missing -= len(story.questions)
            stories.append(story)
        splits[split] = stories
    return splits


def _check_length(number: int, length: int | None, vocabulary: BabiVocabulary) -> int:
    kind = KINDS[number]
    longest = None if kind.longest is None else kind.longest(vocabulary)
    if length is None:
        return kind.length if longest is None else min(kind.length, longest)
    if length < kind.shortest or (longest is not None and length > longest):
        allowed = f"at least {kind.shortest}" if longest is None else f"{kind.shortest}..{longest} with this vocabulary"
        raise ValueError(f"story_length is {length}, but task {number} ({kind.name}) needs {allowed}")
    return length


def _new_story(
    number: int,
    rng: random.Random,
    vocabulary: BabiVocabulary,
    length: int,
    asked: Counter[Hashable],
    seen: set[tuple[str, ...]],
) -> Story:
    kind = KINDS[number]
    for _ in range(_MOST_ATTEMPTS):
        counts = asked.copy()
        scene = Scene(rng, vocabulary, length, kind.num_questions, counts, Story(f"qa{number}_{kind.name}"))
        kind.tell(scene)
        key = (*scene.story.facts, *(question.text for question in scene.story.questions))
        # Some maps allow no question of the kind.
        if scene.story.questions and key not in seen:
            seen.add(key)
            asked.clear()
            asked.update(counts)
            return scene.story
    raise ValueError(
        f"task {number} ({kind.name}) has hardly more than {len(seen)} different stories of {length} facts: ask for "
        "fewer questions, or for longer stories"
    )
