# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""How GPT-1 cleans English text and splits it into words, before byte-pair encoding.

Radford et al. (2018) repair the text with ftfy, set some punctuation apart, split with spaCy's English tokenizer and
lower-case. This is done here twice: exactly, with those two libraries, and in rules that `tokenizers` keeps in
tokenizer.json, which need neither.
"""

import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

from tokenizers import Regex, normalizers, pre_tokenizers
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import PreTokenizer

# Stands around each word of a text that was split beforehand. A private character, which no text should hold.
FRAME = "\ue000"

# The authors put blanks around each run of one of these.
_SET_APART = '\\-~!";?+,()\\\\/*\\[\\]{}|_'
# Within a word, without blanks and the above.
_INSIDE = f"[^\\s{FRAME}{_SET_APART}]"
# Marks that come off at the edges of words, and what is left then.
_EDGE = "'`´‘’‚“”„«»§%=#&<>:$£€¥¢¡¿…©®™°•·.‖■●♥♪"
_CORE = f"[^\\s{FRAME}{_SET_APART}{_EDGE}]"

_PRONOUNS = "i you he she it we they that there these this those what when where who why how".split()
_AUXILIARIES = (
    "ai are ca could dare did do does had has have is may might must need ought sha should was were wo would".split()
)
# What spaCy splits without an apostrophe too. Not among them: words such as "ill", "were", "shell".
_BARE = {
    "nt": _AUXILIARIES,
    "d": "i he it we they you that there these this those what when where who why how".split(),
    "ll": "it they you that there these this those what when where who why how".split(),
    "ve": "i we they you that there these this those what when where who why how could should would might must".split(),
    "re": "they you there these this those what when where who why how".split(),
    "s": "he she that there this what when where who why how".split(),
    "m": ["i"],
}
_ABBREVIATIONS = (
    "mr mrs ms dr st jr vs inc co corp ltd bros prof gen gov rep rev sen mt messrs adm ph\\.d "
    "jan feb apr jun jul aug sep sept oct nov dec "
    "ak ala ariz ark calif colo conn del fla ga ia id ill ind kan kans ky la mass md mich minn miss mo mont neb nebr "
    "nev okla ore pa tenn va wash wis"
).split()
_UNITS = "km|cm|mm|nm|ft|in|kg|mg|lb|oz|mph|mb|gb|kb|tb|m|g|t"


def _any(words: list[str]) -> str:
    return "(?:" + "|".join(words) + ")"


_START, _END = f"(?<!{_INSIDE})", f"(?!{_CORE})"
_WORDS = "|".join(
    [
        f"(?<={FRAME})[^{FRAME}]++(?={FRAME})",  # split beforehand
        "\\n",
        "-++|~++|\\\\++|/++|\\|++",
        # Contractions: the first part, then the second.
        f"(?<!{_CORE}){_any(_AUXILIARIES)}(?=n't{_END})",
        f"(?<={_CORE})n't{_END}",
        f"(?<!{_CORE}){_any([*_PRONOUNS, 'could', 'should', 'would', 'might', 'must', 'let'])}"
        f"(?='(?:d|ll|ve|re|m|s){_END})",
        f"'(?:d|ll|ve|re|m|s|em|bout|cause|cos|coz|cuz|nuff){_END}",
        *(f"(?<!{_CORE}){_any(stems)}(?={ending}{_END})" for ending, stems in _BARE.items()),
        f"(?<!{_CORE})(?:can(?=not{_END})|gon(?=na{_END})|got(?=ta{_END})|c'm(?=on{_END}))",
        f"(?<!{_INSIDE}|')(?:doin|goin|havin|lovin|nothin|nuthin|somethin|ol)'{_END}",
        # Abbreviations keep their full stop, and so do initials.
        f"{_START}(?:{_any(_ABBREVIATIONS)}\\.|(?:\\p{{L}}\\.)++){_END}(?!\\.)",
        f"\\d++(?=(?:{_UNITS}|[ap]\\.?m){_END})",
        f"(?<=\\d)[ap]\\.m\\.{_END}",
        f"{_START}(?:[:;=]['o]?[dpox03]|<3)(?!{_INSIDE})",  # smileys
        "\\.{2,}+|''",
        # A word, with what may stand inside of one.
        f"{_CORE}(?:(?!'s{_END}){_CORE}|(?!'s{_END})['&#%$.’](?={_CORE})|:(?=\\d))*+",
        f"[^\\s{FRAME}]",
    ]
)

# What ftfy does to ordinary text, as far as it can be said in replacements.
_REPAIRS = [
    ("\r\n|[\r\u2028\u2029]", "\n"),
    ("\x1b\\[[0-9;?]*[A-Za-z]", ""),
    ("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufeff\u206a-\u206f\ufff9-\ufffc]", ""),
    ("[\x91\x92‘’ʼ‚‛]", "'"),
    ("[\x93\x94“”„‟]", '"'),
    ("ﬀ", "ff"),
    ("ﬁ", "fi"),
    ("ﬂ", "fl"),
    ("ﬃ", "ffi"),
    ("ﬄ", "ffl"),
    ("ﬅ|ﬆ", "st"),
    ("\u3000", " "),
    # The authors' own.
    ("[\x96\x97—–―]", "-"),
    ("[\x85…]", "..."),
    ("´", "'"),
    ("\\s*\\n\\s*", "\n"),
]
_SET_APART_RUNS = re.compile(
    "(" + "|".join(re.escape(mark) + "+" for mark in ["-", "~", "!", '"', ";", "?", "+", ",", ")", "(", "\\", "/"])
    + "|" + "|".join(re.escape(mark) + "+" for mark in "*[]}{|_") + ")"
)  # fmt: skip


def text_normalizer() -> Normalizer:
    """Repairs and lower-cases; offsets keep pointing to the text as it was."""
    steps = [normalizers.NFC(), *(normalizers.Replace(Regex(pattern), new) for pattern, new in _REPAIRS)]
    return normalizers.Sequence([*steps, normalizers.Strip(), normalizers.Lowercase()])


def word_splitter() -> PreTokenizer:
    """Splits into words; line ends are words too."""
    return pre_tokenizers.Split(Regex(_WORDS), behavior="removed", invert=True)


def authors_splitter() -> Callable[[str], list[str]]:
    """The authors' own way from text to words, which needs ftfy and spaCy.

    Raises:
        ImportError: one of them is not installed; the message says what to install.
    """
    fix_text, words = _library("ftfy").fix_text, _library("spacy").blank("en")

    def split(text: str) -> list[str]:
        text = fix_text(text)
        for old, new in (("—", "-"), ("–", "-"), ("―", "-"), ("…", "..."), ("´", "'")):
            text = text.replace(old, new)
        text = _SET_APART_RUNS.sub(r" \1 ", text)
        text = re.sub(r"\s*\n\s*", " \n ", text)
        text = re.sub(r"[^\S\n]+", " ", text).strip()
        # spaCy joins a line end with the blank behind it.
        found = (word.text.lower() for word in words(text))
        return ["\n" if not word.strip() else word for word in found]

    return split


def _library(name: str) -> Any:
    # By name: a plain import would make the file demand the library wherever it is loaded.
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(
            f"text_rules='authors' needs {name}, which is not installed: pip install hf-metalstm[gpt1], or choose "
            "text_rules='tokenizers', which needs nothing and agrees on nearly all tokens of English text"
        ) from error
