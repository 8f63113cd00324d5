"""WordTokenizer: what it learns, how it splits, and that a saved one does the same elsewhere."""

import json
import subprocess
import sys
from collections import Counter

import datasets
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import TokenizersBackend

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
    assert WordTokenizer.train_from_iterator(text for text in CORPUS).get_vocab() == expected


def test_text_is_split_as_tokenized_corpora_are(tokenizer):
    assert tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str(
        "don't it’s the well-known u.s. ``x'' a,b ...!"
    ) == [
        ("do", (0, 2)),
        ("n't", (2, 5)),
        ("it", (6, 8)),
        ("’s", (8, 10)),
        ("the", (11, 14)),
        ("well-known", (15, 25)),
        ("u", (26, 27)),
        (".", (27, 28)),
        ("s", (28, 29)),
        (".", (29, 30)),
        ("``", (31, 33)),
        ("x", (33, 34)),
        ("''", (34, 36)),
        ("a", (37, 38)),
        (",", (38, 39)),
        ("b", (39, 40)),
        ("...", (41, 44)),
        ("!", (44, 45)),
    ]


def test_text_that_is_tokenized_already_is_split_at_blanks_alone():
    tokenizer = WordTokenizer.train_from_iterator(["ca n't u.s. <br />"], split="whitespace")
    assert tokenizer.tokenize("ca n't u.s. <br />") == ["ca", "n't", "u.s.", "<br", "/>"]


def test_case_is_kept_on_request():
    tokenizer = WordTokenizer.train_from_iterator(["Great great"], lowercase=False)
    assert tokenizer.tokenize("Great great") == ["Great", "great"]
    assert WordTokenizer.train_from_iterator(["Great great"]).tokenize("GREAT") == ["great"]


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=40))
def test_offsets_slice_the_original_text_into_its_words(text):
    tokenizer = WordTokenizer.train_from_iterator(["x"])
    encoded = tokenizer(text, return_offsets_mapping=True)
    if not text.strip():
        assert encoded.input_ids == [tokenizer.unk_token_id]
        return
    end = 0
    for start, stop in encoded.offset_mapping:
        assert end <= start < stop <= len(text)
        assert not text[start:stop].isspace()
        end = stop
    rest = set(range(len(text))) - {i for start, stop in encoded.offset_mapping for i in range(start, stop)}
    assert all(text[i].isspace() or not text[i].isprintable() for i in rest)


def test_offsets_are_right_where_lower_casing_changes_the_length_and_with_combining_accents():
    text = "GREAT İstanbul cafe\u0301"
    offsets = WordTokenizer.train_from_iterator([text])(text, return_offsets_mapping=True).offset_mapping
    assert [text[start:stop] for start, stop in offsets] == ["GREAT", "İstanbul", "cafe\u0301"]


@pytest.mark.parametrize("text", ["", "   ", "\n\t"])
def test_a_blank_text_is_one_unknown_word(tokenizer, text):
    assert tokenizer(text).input_ids == [tokenizer.unk_token_id]
    batch = tokenizer(["great", text], padding=True)
    assert batch.input_ids == [[tokenizer.get_vocab()["great"]], [tokenizer.unk_token_id]]
    assert batch.attention_mask == [[1], [1]]


def test_words_given_as_a_list_keep_their_numbers(tokenizer):
    encoded = tokenizer(["U.N.", "Great", "manual"], is_split_into_words=True)
    assert encoded.word_ids() == [0, 0, 0, 0, 1, 2]


def test_padding_and_truncation_work_on_both_sides(tokenizer):
    great, manual = (tokenizer.get_vocab()[word] for word in ("great", "manual"))
    left = tokenizer(["great manual", "great"], padding=True, padding_side="left")
    assert left.input_ids == [[great, manual], [0, great]] and left.attention_mask == [[1, 1], [0, 1]]
    assert tokenizer("great manual", truncation=True, max_length=1).input_ids == [great]
    tokenizer_left = WordTokenizer.train_from_iterator(CORPUS, truncation_side="left")
    assert tokenizer_left("great manual", truncation=True, max_length=1).input_ids == [manual]


def test_decoding_gives_the_words(tokenizer):
    ids = tokenizer("Great, useless thing").input_ids
    assert tokenizer.decode(ids) == "great , useless <unk>"
    assert tokenizer.decode([0, *ids, 0], skip_special_tokens=True) == "great , useless"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"split": "letters"}, "split is 'letters'; allowed: 'words', 'whitespace'"),
        ({"min_frequency": 0}, "min_frequency is 0"),
        ({"max_size": 4}, "max_size is 4"),
        ({"min_frequency": 9}, "no word that occurs 9 times"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        WordTokenizer.train_from_iterator(["a b"], **settings)


def test_a_dataset_without_a_column_name_lists_its_columns():
    with pytest.raises(ValueError, match="has columns review, label"):
        WordTokenizer.train_from_iterator(datasets.Dataset.from_dict({"review": ["a"], "label": [1]}))


TEXTS = ["A GREAT, great manual.", "Don't; it's well-known...", "unseen"]


def test_a_saved_tokenizer_does_the_same_here_and_where_the_class_is_unknown(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    expected = [tokenizer(text).input_ids for text in TEXTS]
    for loaded in (WordTokenizer.from_pretrained(tmp_path), TokenizersBackend.from_pretrained(tmp_path)):
        assert [loaded(text).input_ids for text in TEXTS] == expected
        assert (loaded.pad_token_id, loaded.unk_token_id) == (0, 1)
    assert not [path for path in tmp_path.iterdir() if path.suffix in (".bin", ".pkl", ".pt")]


def test_a_process_without_this_package_loads_it_with_and_without_its_code(tokenizer, tmp_path):
    folder = tmp_path / "saved"
    tokenizer.save_pretrained(folder)
    script = f"""
import json, sys
class Absent:
    def find_spec(self, name, *_):
        if name.split(".")[0] == "hf_metalstm":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
from transformers import AutoTokenizer, TokenizersBackend
plain = TokenizersBackend.from_pretrained({str(folder)!r})
coded = AutoTokenizer.from_pretrained({str(folder)!r}, trust_remote_code=True)
coded.save_pretrained({str(tmp_path / "again")!r})
again = AutoTokenizer.from_pretrained({str(tmp_path / "again")!r}, trust_remote_code=True)
texts = {TEXTS!r}
ids = [[tokenizer(text).input_ids for text in texts] for tokenizer in (plain, coded, again)]
print(json.dumps([ids, coded("").input_ids, type(plain).__name__, type(again).__name__]))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr
    ids, empty, plain_class, again_class = json.loads(done.stdout.splitlines()[-1])
    expected = [tokenizer(text).input_ids for text in TEXTS]
    assert ids == [expected] * 3
    assert empty == [1]
    assert (plain_class, again_class) == ("TokenizersBackend", "WordTokenizer")
