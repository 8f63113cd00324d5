"""Tag schemes: conversion, detection, errors."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_metalstm.data.tag_schemes import (
    Chunk,
    check_tags,
    convert_tags,
    detect_scheme,
    read_chunks,
    scheme_labels,
    write_tags,
)

SCHEMES = ["IOB1", "IOB2", "IOBES"]
EXAMPLE = {
    "IOB1": ["I-MISC", "B-MISC", "I-MISC"],
    "IOB2": ["B-MISC", "B-MISC", "I-MISC"],
    "IOBES": ["S-MISC", "B-MISC", "E-MISC"],
}


@st.composite
def sentences(draw):
    """(chunks, length), with gaps or without, types with hyphens too."""
    chunks, position = [], 0
    for kind, width, gap in draw(
        st.lists(st.tuples(st.sampled_from(["A", "B", "B-cell"]), st.integers(1, 3), st.integers(0, 2)), max_size=5)
    ):
        position += gap
        chunks.append(Chunk(kind, position, position + width))
        position += width
    return chunks, position + draw(st.integers(0, 2))


@pytest.mark.parametrize("source, target", list(itertools.product(SCHEMES, repeat=2)))
def test_the_worked_example_converts_in_all_directions(source, target):
    assert convert_tags(EXAMPLE[source], source, target) == EXAMPLE[target]


@given(sentences(), st.sampled_from(SCHEMES), st.sampled_from(SCHEMES))
def test_conversion_there_and_back_changes_nothing(sentence, source, target):
    chunks, length = sentence
    tags = write_tags(chunks, length, source)
    assert read_chunks(tags, source) == chunks
    converted = convert_tags(tags, source, target)
    assert read_chunks(converted, target) == chunks
    assert convert_tags(converted, target, source) == tags


@given(st.lists(sentences(), min_size=1, max_size=4), st.sampled_from(SCHEMES))
def test_the_scheme_of_any_chunks_is_detected(data, scheme):
    report = detect_scheme([write_tags(chunks, length, scheme) for chunks, length in data])
    has_chunks = any(chunks for chunks, _ in data)
    assert report.chunks == has_chunks
    assert report.scheme == (scheme if has_chunks else None)
    assert not report.faults[scheme] and report.nearest == (scheme if has_chunks else "IOB2")


def naive_is_valid(tags, scheme):
    """Whether some placement of chunks gives exactly these tags: try all."""
    kinds = sorted({tag[2:] for tag in tags if tag != "O"})

    def place(position, chunks):
        if position == len(tags):
            return write_tags(chunks, len(tags), scheme) == tags
        options = [place(position + 1, chunks)]
        for end in range(position + 1, len(tags) + 1):
            options += [place(end, [*chunks, Chunk(kind, position, end)]) for kind in kinds]
        return any(options)

    return place(0, [])


@given(
    st.lists(st.sampled_from(["O", "B-X", "I-X", "E-X", "S-X", "B-Y", "I-Y", "E-Y"]), max_size=4),
    st.sampled_from(SCHEMES),
)
def test_tags_are_accepted_exactly_when_chunks_could_have_given_them(tags, scheme):
    valid = naive_is_valid(tags, scheme)
    assert (not detect_scheme([tags]).faults[scheme]) == valid
    if valid:
        assert write_tags(read_chunks(tags, scheme), len(tags), scheme) == tags
    else:
        with pytest.raises(ValueError, match="tag '"):
            read_chunks(tags, scheme)


def test_iob1_read_as_iob2_names_tag_place_and_scheme():
    tags = [["O", "O"], ["O", "I-PER", "I-PER"], ["I-LOC", "B-LOC"]]
    message = r"file.txt, line 4: tag 'I-PER' cannot begin a chunk in IOB2; the tags are IOB1. Read them as IOB1"
    with pytest.raises(ValueError, match=message):
        check_tags(tags, "IOB2", place=lambda sentence, tag: f"file.txt, line {[0, 3, 7][sentence] + tag}")
    with pytest.warns(UserWarning, match="the tags are IOB1"):
        check_tags(tags, "BIO", warn_only=True)
    check_tags(tags, "IOB1")


@pytest.mark.parametrize(
    "tags, scheme, message",
    [
        (["B-X", "I-Y"], "IOB2", r"tag 1: tag 'I-Y' cannot follow 'B-X' in IOB2; no scheme fits; nearest is IOB2 \(1 "),
        (["O", "B-X"], "IOB1", "tag 1: tag 'B-X' is not behind a chunk of its type.*the tags are IOB2"),
        (["B-X", "E-X"], "IOB2", "tag 1: tag 'E-X': IOB2 has no tags with E-; the tags are IOBES"),
        (["B-X", "O"], "IOBES", "tag 0: tag 'B-X' is followed by O, but a chunk must end with E- or S-"),
        (["O", "B-X"], "IOBES", "tag 1: tag 'B-X' is followed by the end"),
        (["S-X", "I-X"], "IOBES", "tag 1: tag 'I-X' cannot follow 'S-X' in IOBES"),
        (["O", "I-O"], "IOB2", "sentence 0, tag 1: tag 'I-O' puts a chunk prefix before O"),
        (["NN"], "IOB2", "sentence 0, tag 0: tag 'NN' is neither O nor"),
        (["B-X"], "IOB3", "scheme is 'IOB3'"),
    ],
)
def test_the_error_says_what_is_wrong(tags, scheme, message):
    with pytest.raises(ValueError, match=message):
        check_tags([tags], scheme)


def test_bad_tags_stop_detection_too():
    with pytest.raises(ValueError, match="sentence 1, tag 0: tag 'I-O'"):
        detect_scheme([["O"], ["I-O"]])


def test_no_chunks_fit_any_scheme():
    report = detect_scheme([["O", "O"], []])
    assert report.scheme is None and "any scheme fits" in report.describe()


@pytest.mark.parametrize(
    "chunks, message", [([Chunk("X", 1, 4)], "does not lie"), ([Chunk("X", 0, 2), Chunk("Y", 1, 3)], "overlaps")]
)
def test_impossible_chunks_are_refused(chunks, message):
    with pytest.raises(ValueError, match=message):
        write_tags(chunks, 3, "IOB2")


def test_labels_of_a_scheme():
    assert scheme_labels(["X"], "BIOES") == ["O", "B-X", "I-X", "E-X", "S-X"]
