# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""Splits a paragraph into the sentences that a memory network takes as facts."""

import re

# A full stop behind one of these does not end a sentence.
_ABBREVIATIONS = frozenset("mr mrs ms dr prof st jr sr vs etc e.g i.e cf no fig al approx dept est inc ltd co".split())
_NEAR = 100  # characters
# An end is marks of the end, then quotation marks or brackets that close, then a blank; or an empty line; or the marks
# of writings that put no blank after them.
_END = re.compile(r"""(?P<marks>[.!?…]+)["'”’»)\]]*(?=\s|$)|[。！？｡]+[」』”’）]*|\n\s*\n""")


def split_sentences(paragraph: str) -> list[str]:
    """Cuts a paragraph behind full stops, question and exclamation marks, and at empty lines.

    A full stop does not end a sentence after a usual abbreviation ("Dr.", "e.g."), after an initial ("J. Smith") or in
    front of a word in small letters, unless the whole text is in small letters. Numbers such as 2.5 stay whole, as no
    blank follows their point.

    Returns:
        The sentences in their order, without blanks around them; [] for a text without any.

    Example:
        >>> from hf_metalstm.tokenization.sentences import split_sentences
        >>> split_sentences("Dr. Ada paid 2.50 for it. Is it hers? She said so.")
        ['Dr. Ada paid 2.50 for it.', 'Is it hers?', 'She said so.']
    """
    sentences, start = [], 0
    lowercase = not any(map(str.isupper, paragraph))
    for end in _END.finditer(paragraph):
        # The words next to the mark are enough, and looking at no more keeps the work in proportion to the text.
        before = paragraph[max(start, end.start() - _NEAR) : end.start()]
        after = paragraph[end.end() : end.end() + _NEAR].lstrip()
        if end["marks"] and set(end["marks"]) <= {".", "…"} and not lowercase and after[:1].islower():
            continue
        if end["marks"] == "." and _is_abbreviation(before):
            continue
        sentences.append(paragraph[start : end.end()])
        start = end.end()
    sentences.append(paragraph[start:])
    return [" ".join(sentence.split()) for sentence in sentences if any(map(str.isalnum, sentence))]


def _is_abbreviation(before: str) -> bool:
    """Whether a full stop behind this belongs to its last word alone, and the sentence goes on."""
    if not before.split():
        return False
    last = before.split()[-1].strip("\"'“‘«([")
    # An initial is one capital; "I" ends sentences far more often than it abbreviates a name.
    return last.lower() in _ABBREVIATIONS or (len(last) == 1 and last.isupper() and last != "I")
