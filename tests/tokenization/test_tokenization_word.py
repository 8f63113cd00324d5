"""WordTokenizer: what it learns, how it splits, and that a saved one does the same elsewhere."""

import json
import shutil
import subprocess
import sys
import unicodedata
from collections import Counter

import datasets
import hypothesis
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from transformers import AutoTokenizer, TokenizersBackend

from hf_metalstm import WordTokenizer

CORPUS = [
    "Great cable , useless manual .",
    "Great manual ! Don't go; it's well-known...",
    "The manual can't be worse , the cable is great .",
]


@pytest.fixture(scope="module")
def tokenizer() -> WordTokenizer:
    return WordTokenizer.train_from_iterator(CORPUS)


def test_ids_follow_frequency_then_alphabet_after_the_special_tokens():
    texts = ["b a a c", "a b c d"]
    tokenizer = WordTokenizer.train_from_iterator(texts, split="whitespace")
    counts = Counter(" ".join(texts).split())
    expected = ["<pad>", "<unk>", "<s>", "</s>", *sorted(counts, key=lambda word: (-counts[word], word))]
    assert tokenizer.convert_ids_to_tokens(range(len(tokenizer))) == expected


@given(st.lists(st.lists(st.sampled_from("a b c d e f".split()), min_size=1), min_size=1), st.integers(1, 3))
def test_words_below_the_minimum_frequency_are_left_out(sentences, least):
    counts = Counter(word for sentence in sentences for word in sentence)
    expected = {word for word, count in counts.items() if count >= least}
    texts = [" ".join(sentence) for sentence in sentences]
    if not expected:
        with pytest.raises(ValueError, match="no word"):
            WordTokenizer.train_from_iterator(texts, min_frequency=least)
        return
    tokenizer = WordTokenizer.train_from_iterator(texts, min_frequency=least)
    assert set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens) == expected


def test_the_size_cap_counts_special_tokens_and_keeps_the_most_frequent():
    tokenizer = WordTokenizer.train_from_iterator(["a a a b b c"], max_size=6)
    assert sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get) == ["<pad>", "<unk>", "<s>", "</s>", "a", "b"]


def test_batches_of_texts_and_dataset_columns_train_alike():
    rows = datasets.Dataset.from_dict({"review": CORPUS, "label": [0, 1, 0]})
    expected = WordTokenizer.train_from_iterator(CORPUS).get_vocab()
    assert WordTokenizer.train_from_iterator([CORPUS[:2], CORPUS[2:]]).get_vocab() == expected
    assert WordTokenizer.train_from_iterator(rows, column="review").get_vocab() == expected
    assert WordTokenizer.train_from_iterator(rows["review"]).get_vocab() == expected
    assert WordTokenizer.train_from_iterator(rows.to_iterable_dataset(), column="review").get_vocab() == expected
    assert WordTokenizer.train_from_iterator(list(rows), column="review").get_vocab() == expected
    assert WordTokenizer.train_from_iterator(text for text in CORPUS).get_vocab() == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Great cable,useless manual!", "great cable , useless manual !"),
        ("I don't, can't; DON’T n't", "i do n't , ca n't ; do n't n't"),
        ("it's you’re I'll they'd we've I'm 'single'", "it 's you 're i 'll they 'd we 've i 'm ' single '"),
        ("the dogs' bowl, o'clock", "the dogs ' bowl , o ' clock"),
        ("``quoted'' \"quoted\"", "`` quoted '' \" quoted \""),
        ("well-known -- a--b (a-)", "well-known -- a -- b ( a - )"),
        ("so... very.. end. news.i", "so ... very .. end . news . i"),
        ("in the U.S., e.g. at 9:30", "in the u.s. , e.g. at 9:30"),
        ("2.25, 1,000 1/2 $10 8yrs 5.", "2.25 , 1,000 1/2 $ 10 8yrs 5 ."),
        ("nice:) :-( ;D (see 8) http://x", "nice :) :-( ;d ( see 8 ) http://x"),
        ("see https://a.org/b?c=1. www.d.com/)", "see https://a.org/b?c=1 . www.d.com/ )"),
        ("-LRB- x -RRB-", "-lrb- x -rrb-"),
        ("do n't touch `` it '' , ca n't -- ok ...", "do n't touch `` it '' , ca n't -- ok ..."),
        ("zero\u200bwidth bell\x07here c1\x97dash", "zero width bell here c1 dash"),
        ("soft\u00adhyphen \ufeffmark", "softhyphen mark"),
        ("ÀÉ \u0395\u03a3 caf\u0065\u0301", "àé \u03b5\u03c3 caf\u00e9"),
        ("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"),
        ("❤\ufe0f👍🏽👨\u200d👩\u200d👧🇩🇪🇫🇷", "❤\ufe0f 👍🏽 👨\u200d👩\u200d👧 🇩🇪 🇫🇷"),
    ],
)
def test_text_is_split_as_tokenized_corpora_are(text, words):
    assert split_into_words(text) == words.split(" ")


def split_into_words(text: str) -> list[str]:
    return WordTokenizer.train_from_iterator([text]).tokenize(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [("www" + "." * 100_000, 2), ("🇩" * 100_001, 50_001), ("n't" * 20_000, 40_000), ("a-" * 50_000 + "'t", 4)],
)
def test_long_odd_texts_do_not_exhaust_the_regular_expression(tokenizer, text, words):
    assert len(tokenizer(text).input_ids) == words


def test_text_that_is_tokenized_already_is_split_at_blanks_alone():
    tokenizer = WordTokenizer.train_from_iterator(["ca n't u.s. <br />"], split="whitespace")
    assert tokenizer.tokenize("ca n't u.s. <br />") == ["ca", "n't", "u.s.", "<br", "/>"]


def test_case_is_kept_on_request():
    tokenizer = WordTokenizer.train_from_iterator(["Great great"], lowercase=False)
    assert tokenizer.tokenize("Great great") == ["Great", "great"]
    assert WordTokenizer.train_from_iterator(["Great great"]).tokenize("GREAT") == ["great"]


# Characters that are hard for offsets, and everything else that Unicode has.
LETTERS = st.one_of(
    st.characters(exclude_categories=["Cs"]),
    st.sampled_from("abAB tn'’`.,:-)=1\u0301\u0323\u0338\u200d\u200b\u00ad\ufe0f\u1112\u1161\u11abİΣßﬁ…\x00\x97\n"),
)


@hypothesis.settings(max_examples=150)
@given(st.text(LETTERS, max_size=25), st.sampled_from(["words", "whitespace"]), st.booleans())
def test_offsets_slice_the_original_text_into_its_words(text, split, lowercase):
    assume(not any(token in text for token in ("<pad>", "<unk>", "<s>", "</s>")))
    try:
        tokenizer = WordTokenizer.train_from_iterator([text], split=split, lowercase=lowercase)
    except ValueError:
        assert not any(map(str.isalnum, text))
        return
    encoded = tokenizer(text, return_offsets_mapping=True)
    words = tokenizer.convert_ids_to_tokens(encoded.input_ids)
    normalized = tokenizer.backend_tokenizer.normalizer.normalize_str
    assert [normalized(text[start:stop]) for start, stop in encoded.offset_mapping] == words
    assert "<unk>" not in words
    # In between lies nothing that can be read, and the words as text come apart into the same words again.
    edges = [0, *(place for offset in encoded.offset_mapping for place in offset), len(text)]
    assert edges == sorted(edges)
    between = [text[stop:start] for stop, start in zip(edges[::2], edges[1::2], strict=True)]
    assert not any(map(str.isalnum, "".join(between)))
    assert tokenizer.tokenize(tokenizer.decode(encoded.input_ids)) == words


ACCENTED = "GREAT İstanbul, cafe\u0301 \u1112\u1161\u11ab a=\u0338b"
ACCENTED_WORDS = ["GREAT", "İstanbul", ",", "cafe\u0301", "\u1112\u1161\u11ab", "a", "=\u0338", "b"]


@pytest.mark.parametrize("return_tensors", [None, "pt", "np"])
def test_offsets_are_right_where_characters_merge_or_grow(return_tensors):
    tokenizer = WordTokenizer.train_from_iterator([ACCENTED])
    texts = ["plain", ACCENTED, ""]
    encoded = tokenizer(texts, return_offsets_mapping=True, padding=True, return_tensors=return_tensors)
    offsets = [[tuple(map(int, place)) for place in row] for row in encoded["offset_mapping"]]
    assert [ACCENTED[start:stop] for start, stop in offsets[1]] == ACCENTED_WORDS
    assert offsets[0][:2] == [(0, 5), (0, 0)] and set(offsets[2]) == {(0, 0)}
    # An accent that follows no letter is a word of its own, not part of the one before it.
    assert tokenizer("e\u0301 ...\u0301x", return_offsets_mapping=True).offset_mapping == [(0, 2), (3, 6), (6, 8)]
    assert tokenizer(ACCENTED).input_ids == tokenizer(unicodedata.normalize("NFC", ACCENTED)).input_ids


def test_offsets_are_right_in_pairs_lists_of_words_and_overflowing_parts():
    tokenizer = WordTokenizer.train_from_iterator([ACCENTED])
    for texts in (["x"], ["cafe\u0301 a"]), ([("x", "cafe\u0301 a")],):
        assert tokenizer(*texts, return_offsets_mapping=True).offset_mapping == [[(0, 1), (0, 5), (6, 7)]]
    words = tokenizer(["a", "", "cafe\u0301 a"], is_split_into_words=True, return_offsets_mapping=True)
    assert words.offset_mapping == [(0, 1), (0, 0), (0, 5), (6, 7)]
    pairs = tokenizer([(["a"], ["cafe\u0301"])], is_split_into_words=True, return_offsets_mapping=True)
    assert pairs.offset_mapping == [[(0, 1), (0, 5)]]
    settings = {"max_length": 2, "truncation": True, "return_overflowing_tokens": True}
    parts = tokenizer(["x", "a cafe\u0301 a"], return_offsets_mapping=True, **settings)
    assert parts.offset_mapping == [[(0, 1)], [(0, 1), (2, 7)], [(8, 9)]]


@pytest.mark.parametrize("text", ["", "   ", "\n\t", "\u00ad", "\x00 \u200b"])
def test_a_text_without_words_is_one_unknown_word(tokenizer, text):
    assert tokenizer(text).input_ids == [tokenizer.unk_token_id]
    assert tokenizer.tokenize(text) == ["<unk>"]
    batch = tokenizer(["great", text], padding=True)
    assert batch.input_ids == [[tokenizer.get_vocab()["great"]], [tokenizer.unk_token_id]]
    assert batch.attention_mask == [[1], [1]]


def test_no_texts_give_no_rows(tokenizer):
    assert tokenizer([]) == {"input_ids": [], "attention_mask": []}
    assert tokenizer([], return_tensors="pt").input_ids.shape == (0,)


def test_words_given_as_a_list_keep_their_numbers(tokenizer):
    encoded = tokenizer(["U.N.", "Don't", "", "manual"], is_split_into_words=True)
    assert encoded.word_ids() == [0, 1, 1, 2, 3]
    assert encoded.tokens() == ["<unk>", "do", "n't", "<unk>", "manual"]
    batch = tokenizer([["great"], [], ["no", " "]], is_split_into_words=True)
    assert [batch.tokens(row) for row in range(3)] == [["great"], ["<unk>"], ["<unk>", "<unk>"]]


def test_padding_and_truncation_work_on_both_sides(tokenizer):
    great, manual = (tokenizer.get_vocab()[word] for word in ("great", "manual"))
    left = tokenizer(["great manual", "great"], padding=True, padding_side="left")
    assert left.input_ids == [[great, manual], [0, great]] and left.attention_mask == [[1, 1], [0, 1]]
    assert tokenizer("great manual", truncation=True, max_length=1).input_ids == [great]
    settings = {"padding_side": "left", "truncation_side": "left", "model_max_length": 1}
    other = WordTokenizer.train_from_iterator(CORPUS, **settings)
    assert other("great manual", truncation=True).input_ids == [manual]
    assert other("great", padding="max_length", max_length=2).input_ids == [0, great]


def test_two_texts_follow_each_other(tokenizer):
    assert tokenizer("great", "manual !").tokens() == ["great", "manual", "!"]


def test_decoding_gives_the_words(tokenizer):
    ids = tokenizer("Great, useless thing").input_ids
    assert tokenizer.decode(ids) == "great , useless <unk>"
    assert tokenizer.decode([0, *ids, 0], skip_special_tokens=True) == "great , useless"


def test_special_tokens_come_first_also_when_the_corpus_holds_them():
    tokenizer = WordTokenizer.train_from_iterator(
        ["<unk> <unk> <unk> a b </s> [sep]"], split="whitespace", extra_special_tokens=["[sep]"]
    )
    assert tokenizer.convert_ids_to_tokens(range(7)) == ["<pad>", "<unk>", "<s>", "</s>", "[sep]", "a", "b"]
    assert sorted(tokenizer.get_vocab().values()) == list(range(len(tokenizer))) == list(range(7))
    assert tokenizer("[sep] a <unk>").input_ids == [4, 5, 1]
    assert tokenizer.decode([4, 5, 1], skip_special_tokens=True) == "a"


def test_special_tokens_may_be_spelt_otherwise_or_left_out():
    tokenizer = WordTokenizer.train_from_iterator(
        ["a"], pad_token="[PAD]", unk_token="[UNK]", bos_token=None, eos_token=None
    )
    assert tokenizer.get_vocab() == {"[PAD]": 0, "[UNK]": 1, "a": 2}
    assert tokenizer("zzz").input_ids == [1] == tokenizer("").input_ids
    assert (tokenizer.pad_token_id, tokenizer.bos_token) == (0, None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"split": "letters"}, "split is 'letters'; allowed: 'words', 'whitespace'"),
        ({"min_frequency": 0}, "min_frequency is 0"),
        ({"max_size": 4}, "max_size is 4"),
        ({"min_frequency": 9}, "no word that occurs 9 times"),
        ({"eos_token": "<s>"}, "the special token '<s>' is given twice"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        WordTokenizer.train_from_iterator(["a b"], **settings)


@pytest.mark.parametrize(
    ("column", "message"), [(None, "column is missing"), ("reviews", "there is no column 'reviews'")]
)
def test_a_dataset_without_the_right_column_lists_its_columns(column, message):
    rows = datasets.Dataset.from_dict({"review": ["a"], "label": [1]})
    with pytest.raises(ValueError, match=f"{message}: the data set has review, label"):
        WordTokenizer.train_from_iterator(rows, column=column)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("one text", "texts is one string"),
        ({"train": ["a"], "test": ["b"]}, "texts is a mapping with train, test: choose one"),
        (["a", None], r"item 1 of texts holds None \(NoneType\), not a text"),
        ([["a", 3]], r"item 0 of texts holds 3 \(int\)"),
        ([{"text": "a"}], "name the column with the texts by column="),
    ],
)
def test_a_corpus_of_something_else_is_refused(texts, message):
    with pytest.raises(TypeError, match=message):
        WordTokenizer.train_from_iterator(texts)


def test_the_corpus_is_read_as_it_comes_and_in_any_order():
    seen = []

    def texts(order):
        for text in order:
            seen.append(text)
            yield text

    tokenizer = WordTokenizer.train_from_iterator(texts(CORPUS))
    assert seen == CORPUS
    assert tokenizer.get_vocab() == WordTokenizer.train_from_iterator(texts(CORPUS[::-1])).get_vocab()


TEXTS = ["A GREAT, great manual.", "Don’t; it's well-known...", "unseen", "cafe\u0301 soft\u00adhyphen \x97 <s> x"]


def test_a_saved_tokenizer_does_the_same_here_and_where_the_class_is_unknown(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    expected = [tokenizer(text).input_ids for text in TEXTS]
    for load in (WordTokenizer, AutoTokenizer, TokenizersBackend):
        loaded = load.from_pretrained(tmp_path)
        assert type(loaded) is (TokenizersBackend if load is TokenizersBackend else WordTokenizer)
        assert [loaded(text).input_ids for text in TEXTS] == expected
        assert (loaded.pad_token_id, loaded.unk_token_id) == (0, 1)
    assert not [path for path in tmp_path.iterdir() if path.suffix in (".bin", ".pkl", ".pt")]


@pytest.mark.parametrize(
    "settings",
    [
        {"split": "whitespace", "lowercase": False},
        {"extra_special_tokens": ["[sep]"], "padding_side": "left", "truncation_side": "left", "model_max_length": 3},
        {"pad_token": "[PAD]", "unk_token": "[UNK]", "bos_token": None, "eos_token": None},
    ],
)
def test_every_setting_survives_saving(settings, tmp_path):
    tokenizer = WordTokenizer.train_from_iterator(CORPUS, **settings)
    tokenizer.save_pretrained(tmp_path)
    for loaded in (WordTokenizer.from_pretrained(tmp_path), TokenizersBackend.from_pretrained(tmp_path)):
        for text in TEXTS:
            assert loaded(text, truncation=True, max_length=3) == tokenizer(text, truncation=True, max_length=3)
        for name in ("padding_side", "truncation_side", "model_max_length", "all_special_tokens", "all_special_ids"):
            assert getattr(loaded, name) == getattr(tokenizer, name)


ELSEWHERE = """
import json, sys
class Absent:
    def find_spec(self, name, *_):
        if name.split(".")[0] == "hf_metalstm":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
from transformers import AutoTokenizer, TokenizersBackend
folder, without_code, again, texts = json.loads(sys.argv[1])
tokenizers = [TokenizersBackend.from_pretrained(folder), AutoTokenizer.from_pretrained(without_code)]
tokenizers.append(AutoTokenizer.from_pretrained(folder, trust_remote_code=True))
tokenizers[-1].save_pretrained(again)
tokenizers.append(AutoTokenizer.from_pretrained(again, trust_remote_code=True))
ids = [[one(text).input_ids for text in [*texts, ""]] for one in tokenizers]
print(json.dumps([[type(one).__name__ for one in tokenizers], ids]))
"""


def test_a_process_without_this_package_loads_it_with_and_without_its_code(tokenizer, tmp_path):
    folder, without_code, again = (str(tmp_path / name) for name in ("saved", "without_code", "again"))
    tokenizer.save_pretrained(folder)
    # A folder that does not mention the code loads without a question.
    shutil.copytree(folder, without_code)
    (tmp_path / "without_code" / "tokenization_word.py").unlink()
    config = json.loads((tmp_path / "saved" / "tokenizer_config.json").read_text())
    assert "tokenization_word.WordTokenizer" in config.pop("auto_map")["AutoTokenizer"]
    (tmp_path / "without_code" / "tokenizer_config.json").write_text(json.dumps(config))
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, json.dumps([folder, without_code, again, TEXTS])],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    classes, ids = json.loads(done.stdout.splitlines()[-1])
    assert classes == ["TokenizersBackend", "TokenizersBackend", "WordTokenizer", "WordTokenizer"]
    expected = [tokenizer(text).input_ids for text in TEXTS]
    assert ids == [[*expected, []], [*expected, []], [*expected, [1]], [*expected, [1]]]
