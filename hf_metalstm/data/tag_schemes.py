"""Schemes of chunk tags: reading chunks, writing them in another scheme, and finding out which scheme data have.

The schemes are IOB1, IOB2 (BIO) and IOBES (BIOES), described in `modeling.tag_constraints`. As soon as there is one
chunk, data can follow one of them at most: the first chunk of a sentence begins with I- in IOB1 and with B- in IOB2,
and ends with E- or S- in IOBES alone.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..modeling.tag_constraints import SCHEMES, check_scheme, may_follow, split_tag

Place = Callable[[int, int], str]
"""Where a tag stands, in words: (index of the sentence, index of the tag) -> "train.txt, line 12"."""


class Chunk(NamedTuple):
    """Tags `start` to `end` (exclusive) of a sentence are one chunk of this type."""

    kind: str
    start: int
    end: int


class TagFault(NamedTuple):
    """A tag that a scheme does not allow where it stands."""

    sentence: int
    position: int
    tag: str
    before: str | None  # the tag before it, None at the beginning of a sentence
    after: str | None  # the tag that cannot follow, where the fault is the end of a chunk


@dataclass(frozen=True)
class SchemeReport:
    """What `detect_scheme` found.

    Args:
        scheme: the scheme that all tags follow; None where there is no chunk or none of the schemes fits.
        chunks: whether there is any chunk.
        faults: `{scheme: faults}`, all places where the tags break it.

    Example:
        >>> report = detect_scheme([["I-NP", "B-NP", "O"]])
        >>> report.scheme, len(report.faults["IOB2"])
        ('IOB1', 1)
    """

    scheme: str | None
    chunks: bool
    faults: dict[str, list[TagFault]]

    @property
    def nearest(self) -> str:
        """The scheme with the fewest faults; IOB2 where several have none."""
        return min(("IOB2", "IOB1", "IOBES"), key=lambda scheme: len(self.faults[scheme]))

    def describe(self) -> str:
        """The result in words.

        Example:
            >>> detect_scheme([["B-NP", "I-VP"]]).describe()
            'no scheme fits; nearest is IOB2 (1 place breaks it)'
        """
        if not self.chunks:
            return "there are no chunks, so any scheme fits"
        if self.scheme is not None:
            return f"the tags are {self.scheme}"
        count = len(self.faults[self.nearest])
        return (
            f"no scheme fits; nearest is {self.nearest} ({count} {'place breaks' if count == 1 else 'places break'} it)"
        )


def _default_place(sentence: int, index: int) -> str:
    return f"sentence {sentence}, tag {index}"


def _faults(tags: Sequence[str], scheme: str, sentence: int) -> Iterable[TagFault]:
    before: str | None = None
    for index, tag in enumerate([*tags, None]):
        foreign = tag is not None and split_tag(tag)[0] not in SCHEMES[scheme] + "O"
        if foreign:
            assert tag is not None
            yield TagFault(sentence, index, tag, before, None)
        elif not may_follow(before, tag, scheme):
            # What a chunk lacks is its own fault where the next tag may begin anywhere.
            if scheme == "IOBES" and before is not None and may_follow(None, tag, scheme):
                if split_tag(before)[0] in SCHEMES[scheme]:
                    yield TagFault(sentence, index - 1, before, None, tag if tag is not None else "the end")
            else:
                assert tag is not None
                yield TagFault(sentence, index, tag, before, None)
        before = tag


def detect_scheme(sentences: Iterable[Sequence[str]]) -> SchemeReport:
    """Finds out which scheme the tags of some sentences follow.

    Args:
        sentences: the tags of each sentence. Borders of sentences matter: give whole sentences.

    Raises:
        ValueError: a tag that no scheme has, such as I-O or NP.

    Example:
        >>> detect_scheme([["O", "S-NP"], ["B-NP", "E-NP"]]).scheme
        'IOBES'
    """
    faults: dict[str, list[TagFault]] = {scheme: [] for scheme in SCHEMES}
    chunks = False
    for number, tags in enumerate(sentences):
        for index, tag in enumerate(tags):
            try:
                split_tag(tag)
            except ValueError as error:
                raise ValueError(f"{_default_place(number, index)}: {error}") from error
        chunks = chunks or any(tag != "O" for tag in tags)
        for scheme in SCHEMES:
            faults[scheme] += _faults(tags, scheme, number)
    fitting = [scheme for scheme in SCHEMES if chunks and not faults[scheme]]
    return SchemeReport(fitting[0] if fitting else None, chunks, faults)


def check_tags(
    sentences: Sequence[Sequence[str]], scheme: str, place: Place = _default_place, warn_only: bool = False
) -> None:
    """Makes sure that tags follow a scheme.

    Args:
        sentences: the tags of each sentence.
        scheme: what they are taken for.
        place: where a tag stands, for the message.
        warn_only: warn instead of raising; tags that belong to no scheme are an error all the same.

    Raises:
        ValueError: they do not follow it. The message names the first tag that breaks it, its place, and the scheme
            that the tags do follow.

    Example:
        >>> check_tags([["I-NP", "O"]], "IOB1")
    """
    scheme = check_scheme(scheme)
    for number, tags in enumerate(sentences):
        for index, tag in enumerate(tags):
            try:
                split_tag(tag)
            except ValueError as error:
                raise ValueError(f"{place(number, index)}: {error}") from error
    fault = next((fault for number, tags in enumerate(sentences) for fault in _faults(tags, scheme, number)), None)
    if fault is None:
        return
    report = detect_scheme(sentences)
    message = f"{place(fault.sentence, fault.position)}: {_explain(fault, scheme)}; {report.describe()}"
    if report.scheme is not None:
        message += f". Read them as {report.scheme}, and convert them where another scheme is wanted"
    if not warn_only:
        raise ValueError(message)
    warnings.warn(message, stacklevel=2)


def _explain(fault: TagFault, scheme: str) -> str:
    prefix, _ = split_tag(fault.tag)
    if prefix not in SCHEMES[scheme] + "O":
        return f"tag {fault.tag!r}: {scheme} has no tags with {prefix}-"
    if fault.after is not None:
        return f"tag {fault.tag!r} is followed by {fault.after}, but a chunk must end with E- or S- in {scheme}"
    if scheme == "IOB1":
        return f"tag {fault.tag!r} is not behind a chunk of its type, but in IOB1 only B- of such a chunk is written"
    if fault.before is None or fault.before == "O":
        return f"tag {fault.tag!r} cannot begin a chunk in {scheme}"
    return f"tag {fault.tag!r} cannot follow {fault.before!r} in {scheme}"


def read_chunks(tags: Sequence[str], scheme: str) -> list[Chunk]:
    """The chunks of one sentence, in order.

    Raises:
        ValueError: the tags do not follow the scheme.

    Example:
        >>> read_chunks(["B-NP", "I-NP", "O", "B-VP"], "IOB2")
        [Chunk(kind='NP', start=0, end=2), Chunk(kind='VP', start=3, end=4)]
    """
    scheme = check_scheme(scheme)
    check_tags([tags], scheme)
    chunks: list[Chunk] = []
    for index, tag in enumerate(tags):
        prefix, kind = split_tag(tag)
        if prefix == "O":
            continue
        open_chunk = chunks[-1] if chunks and chunks[-1].end == index else None
        if prefix in "IE" and open_chunk is not None and open_chunk.kind == kind:
            chunks[-1] = Chunk(kind, chunks[-1].start, index + 1)
        else:
            chunks.append(Chunk(kind, index, index + 1))
    return chunks


def write_tags(chunks: Iterable[Chunk], length: int, scheme: str) -> list[str]:
    """The tags of a sentence with these chunks.

    Args:
        chunks: in any order.
        length: of the sentence.
        scheme: of the tags.

    Raises:
        ValueError: chunks overlap or leave the sentence.

    Example:
        >>> write_tags([Chunk("NP", 0, 2), Chunk("VP", 3, 4)], 4, "IOBES")
        ['B-NP', 'E-NP', 'O', 'S-VP']
    """
    scheme = check_scheme(scheme)
    tags = ["O"] * length
    previous: Chunk | None = None
    for chunk in sorted(chunks, key=lambda chunk: chunk.start):
        kind, start, end = chunk
        if not 0 <= start < end <= length:
            raise ValueError(f"{chunk} does not lie in a sentence of {length} words")
        if previous is not None and start < previous.end:
            raise ValueError(f"{chunk} overlaps {previous}")
        tags[start:end] = [f"I-{kind}"] * (end - start)
        behind_its_like = previous is not None and previous.end == start and previous.kind == kind
        if scheme != "IOB1" or behind_its_like:
            tags[start] = f"B-{kind}"
        if scheme == "IOBES":
            tags[end - 1] = f"{'S' if end - start == 1 else 'E'}-{kind}"
        previous = chunk
    return tags


def convert_tags(tags: Sequence[str], source: str, target: str) -> list[str]:
    """The same chunks in another scheme.

    Args:
        tags: of one sentence.
        source: their scheme.
        target: the scheme wanted.

    Raises:
        ValueError: the tags do not follow `source`; see `check_tags`.

    Example:
        >>> convert_tags(["I-MISC", "B-MISC", "I-MISC"], "IOB1", "IOB2")
        ['B-MISC', 'B-MISC', 'I-MISC']
        >>> convert_tags(["B-MISC", "B-MISC", "I-MISC"], "IOB2", "IOBES")
        ['S-MISC', 'B-MISC', 'E-MISC']
    """
    return write_tags(read_chunks(tags, source), len(tags), target)


def scheme_labels(kinds: Iterable[str], scheme: str) -> list[str]:
    """All tags that a scheme has for these types of chunks, O first.

    Example:
        >>> scheme_labels(["NP", "VP"], "IOB2")
        ['O', 'B-NP', 'I-NP', 'B-VP', 'I-VP']
    """
    return ["O", *(f"{prefix}-{kind}" for kind in kinds for prefix in SCHEMES[check_scheme(scheme)])]
