"""The people, places and objects of generated stories."""

from collections.abc import Mapping
from dataclasses import dataclass, field

PRONOUNS = ("she", "he")
_LEAST = {"people": 4, "places": 6, "objects": 3}
_MOST_OBJECTS = 10

_PEOPLE = {
    "Ada": "she",
    "Bruno": "he",
    "Clara": "she",
    "Emil": "he",
    "Hanna": "she",
    "Igor": "he",
    "Lotte": "she",
    "Marco": "he",
    "Nora": "she",
    "Otto": "he",
}
_PLACES = ("attic", "bakery", "cellar", "harbour", "library", "market", "meadow", "museum", "station", "workshop")
_OBJECTS = ("basket", "compass", "kettle", "lantern", "umbrella", "violin")


@dataclass(frozen=True)
class BabiVocabulary:
    """Words that stories are made of; more of them make stories harder.

    Args:
        people: at least four names, each with its pronoun, "she" or "he".
        places: at least six.
        objects: three to ten.

    Raises:
        ValueError: too few or too many, a word that is not made of letters alone, a word given twice, or a pronoun that
            is neither "she" nor "he".

    Example:
        >>> from hf_metalstm.data.babi_generator import BabiVocabulary
        >>> people = {"Aiko": "she", "Ken": "he", "Yumi": "she", "Taro": "he"}
        >>> sorted(BabiVocabulary(people=people).people)
        ['Aiko', 'Ken', 'Taro', 'Yumi']
    """

    people: Mapping[str, str] = field(default_factory=lambda: dict(_PEOPLE))
    places: tuple[str, ...] = _PLACES
    objects: tuple[str, ...] = _OBJECTS

    def __post_init__(self) -> None:
        seen: dict[str, str] = {}
        for name, least in _LEAST.items():
            words = tuple(getattr(self, name))
            if len(words) < least:
                raise ValueError(f"{name} has {len(words)} words, but stories need at least {least}")
            for word in words:
                if not isinstance(word, str) or not word.isalpha():
                    raise ValueError(f"{name}: {word!r} is not a word of letters alone")
                if word.lower() in seen:
                    raise ValueError(f"{word!r} is given twice, in {seen[word.lower()]} and in {name}")
                seen[word.lower()] = name
        if len(self.objects) > _MOST_OBJECTS:
            raise ValueError(f"objects has {len(self.objects)} words, but people count up to {_MOST_OBJECTS}")
        for name, pronoun in self.people.items():
            if pronoun not in PRONOUNS:
                raise ValueError(f"the pronoun of {name} is {pronoun!r}; allowed: {', '.join(map(repr, PRONOUNS))}")
