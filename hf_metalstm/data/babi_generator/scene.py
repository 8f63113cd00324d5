"""What all kinds of stories have in common: telling facts, asking questions, balancing answers."""

import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from ..stories import Question, Story
from .vocabulary import BabiVocabulary


@dataclass(frozen=True)
class Candidate:
    """A question that could be asked now, with its answer and the facts it follows from."""

    text: str
    answer: tuple[str, ...]
    supporting: tuple[int, ...]
    # What is balanced: by default the answer; a list is balanced by its length.
    balance: Hashable = None


@dataclass
class Scene:
    """One story being told.

    Args:
        rng: all chance comes from it.
        vocabulary: words.
        length: facts to tell; a kind that tells several facts at once may exceed it.
        num_questions: how many questions to ask, spread over the story.
        asked: how often each answer was given so far, in this and in the stories before.
    """

    rng: random.Random
    vocabulary: BabiVocabulary
    length: int
    num_questions: int
    asked: Counter[Hashable]
    story: Story = field(default_factory=lambda: Story(""))

    @property
    def people(self) -> Sequence[str]:
        return tuple(self.vocabulary.people)

    def tell(self, text: str) -> int:
        """Adds a fact and returns its index."""
        self.story.facts.append(text)
        return len(self.story.facts) - 1

    def elsewhere(self, *places: str | None) -> str:
        """Any place but these."""
        return self.rng.choice([place for place in self.vocabulary.places if place not in places])

    def decoy(self, *places: str) -> str:
        """A place other than these to ask about, one that the story names if there is any.

        If only true places were named before, that a place is named would give the answer away.
        """
        named = {word.rstrip(".") for fact in self.story.facts for word in fact.split()}
        known = [place for place in self.vocabulary.places if place in named and place not in places]
        return self.rng.choice(known) if known else self.elsewhere(*places)

    def ask(self, candidates: Iterable[Candidate]) -> bool:
        """Asks the candidate whose answer was given least so far; False when there is none that is new."""
        position = len(self.story.facts)
        known = {(question.text, question.position) for question in self.story.questions}
        new = [candidate for candidate in candidates if (candidate.text, position) not in known]
        if not new:
            return False

        def given(candidate: Candidate) -> int:
            return self.asked[candidate.balance or candidate.answer]

        # Whatever is drawn, answers come first and questions second: an answer with many questions counts no more.
        least = min(map(given, new))
        rare = [candidate for candidate in new if given(candidate) == least]
        answer = self.rng.choice(sorted({candidate.answer for candidate in rare}))
        chosen = self.rng.choice([candidate for candidate in rare if candidate.answer == answer])
        self.asked[chosen.balance or chosen.answer] += 1
        self.story.questions.append(Question(chosen.text, chosen.answer, chosen.supporting, position, "generated"))
        return True

    def play(self, act: Callable[[], None], candidates: Callable[[], Iterable[Candidate]]) -> None:
        """Tells `length` facts by calls of `act`, with questions between them and at least one."""
        for number in range(1, self.num_questions + 1):
            while len(self.story.facts) < number * self.length / self.num_questions:
                act()
            self.ask(candidates())
        while not self.story.questions:
            act()
            self.ask(candidates())

    def ask_at_the_end(self, candidates: Sequence[Candidate]) -> None:
        """Asks as many different questions as wanted, or as there are, once all facts are told."""
        for _ in range(self.num_questions):
            if not self.ask(candidates):
                return


@dataclass(frozen=True)
class Kind:
    """One of the twenty kinds of tasks.

    Args:
        name: as in the names of bAbI files.
        tell: fills a scene's story.
        length: facts of a story unless asked otherwise.
        shortest: fewest facts that allow a question.
        num_questions: of a story.
        longest: most facts that a vocabulary allows; None where there is no limit.
    """

    name: str
    tell: Callable[[Scene], None]
    length: int
    shortest: int
    num_questions: int
    longest: Callable[[BabiVocabulary], int] | None = None
