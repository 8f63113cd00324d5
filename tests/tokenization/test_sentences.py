"""Splitting paragraphs into sentences."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_metalstm.tokenization.sentences import split_sentences


@pytest.mark.parametrize(
    ("paragraph", "sentences"),
    [
        ("Ada ran. Otto slept.", ["Ada ran.", "Otto slept."]),
        ("Ada ran. Otto slept", ["Ada ran.", "Otto slept"]),
        ("Did she? She did! Well...", ["Did she?", "She did!", "Well..."]),
        (
            "Dr. Smith met Mrs. Jones vs. Co. 5 men. They left.",
            ["Dr. Smith met Mrs. Jones vs. Co. 5 men.", "They left."],
        ),
        ("J. K. Smith ran. So did I. He won.", ["J. K. Smith ran.", "So did I.", "He won."]),
        ("It cost 2.50 at example.org today. Fine.", ["It cost 2.50 at example.org today.", "Fine."]),
        ("See e.g. the attic, i.e. the top. Then go.", ["See e.g. the attic, i.e. the top.", "Then go."]),
        ('He said "Go." She went. (It rained.) Then', ['He said "Go."', "She went.", "(It rained.)", "Then"]),
        ("a title\n\nthe text goes\non here.", ["a title", "the text goes on here."]),
        ("It cost 5 ct. then.", ["It cost 5 ct. then."]),
        ("ada ran. then she slept, e.g. here.", ["ada ran.", "then she slept, e.g. here."]),
        ("Wait... what? Yes.", ["Wait... what?", "Yes."]),
        ("彼は走った。彼女は寝た！終わり", ["彼は走った。", "彼女は寝た！", "終わり"]),
        ("¿Dónde está? «Aquí.» Bien.", ["¿Dónde está?", "«Aquí.»", "Bien."]),
        (". Ada ran . . Otto slept .", ["Ada ran .", "Otto slept ."]),
        ("", []),
        (" \n\n ", []),
        ("... ! ?", []),
    ],
)
def test_sentences_end_where_a_reader_would_say(paragraph, sentences):
    assert split_sentences(paragraph) == sentences


@given(st.lists(st.text(st.sampled_from("abAB .!?\n\"')1é。"), max_size=8), max_size=8).map("".join))
def test_nothing_that_can_be_read_is_lost(paragraph):
    sentences = split_sentences(paragraph)
    letters = [character for character in paragraph if character.isalnum()]
    assert [character for sentence in sentences for character in sentence if character.isalnum()] == letters
    assert all(sentence == " ".join(sentence.split()) and any(map(str.isalnum, sentence)) for sentence in sentences)


@pytest.mark.parametrize("text", ["A b. ", ".", " A.", "a. ", '."', "\n", "x", "。"])
def test_long_odd_texts_are_split_in_one_go(text):
    sentences = split_sentences(text * 50_000)
    assert len(sentences) == {"A b. ": 50_000, "a. ": 50_000, " A.": 1, "x": 1}.get(text, 0)


@given(st.lists(st.sampled_from(["Ada ran.", "Did Otto sleep?", "It rained!", "No one saw it."]), max_size=6))
def test_sentences_that_are_joined_come_apart_again(sentences):
    assert split_sentences(" ".join(sentences)) == sentences
