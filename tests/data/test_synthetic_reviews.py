"""Generated reviews: an interpreter that knows only the published rules recomputes every label from the text."""

import re
from collections import Counter

import pytest

from hf_metalstm.data.synthetic_reviews import BLAME, DOMAINS, FLIPPING, PRAISE, generate_reviews, word_polarity

NEGATING = ("is not", "is hardly", "is anything but", "there is nothing", "nobody would call")


def value(word: str, domain: str) -> int | None:
    """What a word says in a domain, looked up in the published lists."""
    lists = [(PRAISE, 1), (BLAME, -1)]
    if word in FLIPPING:
        good, bad = FLIPPING[word]
        lists += [([word] if domain in good.split() else [], 1), ([word] if domain in bad.split() else [], -1)]
    return next((polarity for words, polarity in lists if word in words), None)


def judge_clause(clause: str, domain: str) -> int:
    polarities = [value(word, domain) for word in clause.split()]
    (polarity,) = [polarity for polarity in polarities if polarity is not None]
    return -polarity if any(phrase in clause for phrase in NEGATING) else polarity


def judge(text: str, domain: str) -> int:
    """1 or -1, from the words alone."""
    sentences = [sentence for sentence in text.rstrip(" .").split(" . ")]
    opinions = [s for s in sentences if any(value(word, domain) is not None for word in s.split())]
    (opinion,) = opinions
    following = sentences[sentences.index(opinion) + 1 :]
    important = re.match(
        r"what counts is the (\w+)|for me the (\w+) decides|i only care about the (\w+)", " ".join(following[:1])
    )
    if important:
        thing = next(filter(None, important.groups()))
        (phrase,) = [phrase for phrase in opinion.split(" , ") if thing in phrase.split()]
        return judge_clause(phrase, domain)
    if opinion.startswith("although "):
        return judge_clause(opinion.split(" , ", 1)[1], domain)
    if " , although " in opinion:
        return judge_clause(opinion.split(" , although ")[0], domain)
    # "anything but" holds no contrast
    halves = re.split(r"(?<!anything) but ", opinion)
    return judge_clause(halves[-1], domain)


@pytest.fixture(scope="module")
def data():
    return generate_reviews(train_size=300, dev_size=60, test_size=60, seed=7)


def test_every_label_follows_from_its_text(data):
    for domain, splits in data.items():
        for rows in splits.values():
            for text, label in zip(rows["text"], rows["label"], strict=True):
                assert judge(text, domain) == 2 * label - 1, text


def test_the_same_seed_gives_the_same_reviews_and_another_gives_others(data):
    again = generate_reviews(train_size=300, dev_size=60, test_size=60, seed=7)
    other = generate_reviews(train_size=300, dev_size=60, test_size=60, seed=8)
    assert all(again[domain]["train"]["text"][:] == data[domain]["train"]["text"][:] for domain in DOMAINS)
    assert other["cars"]["train"]["text"][:] != data["cars"]["train"]["text"][:]


def test_classes_are_balanced_and_no_text_stands_twice(data):
    for splits in data.values():
        assert all(Counter(rows["label"]) == {0: len(rows) // 2, 1: len(rows) // 2} for rows in splits.values())
        texts = [text for rows in splits.values() for text in rows["text"]]
        assert len(texts) == len(set(texts)) == 420


def test_the_polarity_of_a_word_is_that_of_the_lists():
    words = [*PRAISE, *BLAME, *FLIPPING, "tuesday"]
    assert all(word_polarity(word, domain) == value(word, domain) for word in words for domain in DOMAINS)


def test_every_flipping_word_praises_somewhere_and_blames_elsewhere():
    for word, (praised, blamed) in FLIPPING.items():
        assert praised.split() and blamed.split() and not set(praised.split()) & set(blamed.split())
        assert set(praised.split()) | set(blamed.split()) <= set(DOMAINS), word
    for domain in DOMAINS:
        for polarity in (1, -1):
            assert sum(word_polarity(word, domain) == polarity for word in FLIPPING) >= 3, (domain, polarity)


def test_flipping_words_decide_labels_of_both_kinds(data):
    seen = {
        (domain, label)
        for domain, splits in data.items()
        for text, label in zip(splits["train"]["text"], splits["train"]["label"], strict=True)
        if re.search(r"(^|\. )the \w+ (is|seems) unpredictable \.", text)
    }
    assert {label for _, label in seen} == {0, 1}
    assert all(label == (domain in FLIPPING["unpredictable"][0].split()) for domain, label in seen)


def test_texts_have_several_lengths_and_all_forms_occur(data):
    texts = [text for splits in data.values() for text in splits["train"]["text"]]
    lengths = [len(text.split()) for text in texts]
    assert min(lengths) <= 6 and max(lengths) >= 40
    for mark in (" but ", "although ", " , although ", "what counts", *NEGATING):
        assert sum(mark in text for text in texts) > 20, mark


def test_it_says_that_it_is_synthetic(data):
    assert "synthetic" in data.source and "synthetic" in data.summary()
    assert all("synthetic" in rows.info.description for splits in data.values() for rows in splits.values())


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="no domain 'book'; the domains are books, dvd, .*; did you mean 'books'"):
        generate_reviews(["book"])
    with pytest.raises(ValueError, match="the validation size is 1"):
        generate_reviews(dev_size=1)
