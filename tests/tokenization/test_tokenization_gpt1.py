"""GPT1Tokenizer: its words and pieces, the inputs it builds, and that a saved one does the same elsewhere."""

import importlib.util
import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    AutoTokenizer,
    OpenAIGPTConfig,
    OpenAIGPTForSequenceClassification,
    OpenAIGPTLMHeadModel,
    TokenizersBackend,
)

from hf_metalstm import GPT1Tokenizer
from hf_metalstm.tokenization.gpt1_text_rules import authors_splitter

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
CORPUS = [
    "The cat can't sleep, so the dog sings.",
    "A dog slept well; the cats didn't.\nIt's late...",
    "What does the naïve café owner think of well-known songs?",
]
HAS_AUTHORS_LIBRARIES = all(importlib.util.find_spec(name) for name in ("ftfy", "spacy"))
needs_authors_libraries = pytest.mark.skipif(not HAS_AUTHORS_LIBRARIES, reason="ftfy and spaCy are not installed")


@pytest.fixture(scope="module")
def tokenizer() -> GPT1Tokenizer:
    return GPT1Tokenizer.train_from_iterator(CORPUS)


@pytest.fixture(scope="module")
def bpe_files() -> tuple[Path, Path]:
    files = (DATA / "gpt1_bpe" / "encoder_bpe_40000.json", DATA / "gpt1_bpe" / "vocab_40000.bpe")
    if not all(file.is_file() for file in files):
        pytest.skip("the authors' BPE files are not beside the project")
    return files


@pytest.fixture(scope="module")
def authors(bpe_files) -> GPT1Tokenizer:
    return GPT1Tokenizer.from_bpe_files(*bpe_files)


def write_bpe(folder: Path, vocab: dict, merges: str) -> tuple[Path, Path]:
    (folder / "encoder.json").write_text(json.dumps(vocab), encoding="utf-8")
    (folder / "merges.bpe").write_text(merges, encoding="utf-8")
    return folder / "encoder.json", folder / "merges.bpe"


SMALL_VOCAB = ["<unk>", "l", "o", "w", "w</w>", "e", "r</w>", "lo", "low</w>", "n</w>", "\n</w>"]
SMALL_MERGES = "#version: 0.2\nl o\nlo w</w>\n"


@pytest.fixture
def small(tmp_path) -> GPT1Tokenizer:
    return GPT1Tokenizer.from_bpe_files(*write_bpe(tmp_path, {t: i for i, t in enumerate(SMALL_VOCAB)}, SMALL_MERGES))


def test_merges_apply_in_their_order_and_only_where_they_fit(small):
    assert small.tokenize("low lower xlow") == ["low</w>", "lo", "w", "e", "r</w>", "<unk>", "low</w>"]
    # Each unknown character is one unknown token, as in the authors' code.
    assert small("zz low").input_ids == [0, 0, 8]
    assert small("low\nlow").input_ids == [8, 10, 8]


def test_special_tokens_follow_the_vocabulary_in_the_authors_order_and_differ(small):
    n = len(SMALL_VOCAB)
    ids = [small.unk_token_id, small.bos_token_id, small.sep_token_id, small.cls_token_id, small.pad_token_id]
    assert ids == [0, n, n + 1, n + 2, n + 3] and len(small) == n + 4
    assert (small.model_max_length, small.eos_token) == (512, None)


@pytest.mark.parametrize(
    ("vocab", "merges", "message"),
    [
        ({"<unk>": 0, "a": 2}, "", "ids are 0..n-1"),
        (["<unk>"], "", "one object"),
        ({"a": 0}, "", "has no '<unk>'"),
        ({"<unk>": 0, "a": 1}, "#version\na\n", "line 2: expected two pieces"),
        ({"<unk>": 0, "a": 1}, "#version\na a\n", "line 2: 'aa' is not in the vocabulary"),
    ],
)
def test_files_of_another_form_are_refused(vocab, merges, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        GPT1Tokenizer.from_bpe_files(*write_bpe(tmp_path, vocab, merges))


def test_the_authors_files_give_the_authors_ids(authors):
    assert len(authors) == 40478 + 4
    assert authors.convert_tokens_to_ids(["_start_", "_delimiter_", "_classify_", "<pad>"]) == [
        40478, 40479, 40480, 40481,
    ]  # fmt: skip


# Where transformers' OpenAIGPT tokenizer goes wrong: contractions, dashes, ellipses, line ends, accents.
DIFFERENT_IN_TRANSFORMERS = [
    ("I can't", ["i</w>", "ca</w>", "n't</w>"]),
    ("wait—no…", ["wait</w>", "-</w>", "no</w>", "...</w>"]),
    ("one\ntwo", ["one</w>", "\n</w>", "two</w>"]),
    ("naïve", ["naïve</w>"]),
    ("the U.S. is", ["the</w>", "u.s.</w>", "is</w>"]),
    ("what?!", ["what</w>", "?</w>", "!</w>"]),
]


@pytest.mark.parametrize(("text", "tokens"), DIFFERENT_IN_TRANSFORMERS)
def test_english_is_split_as_the_authors_did(authors, text, tokens):
    assert authors.tokenize(text) == tokens


def reference_bpe(word: str, ranks: dict[tuple[str, str], int]) -> list[str]:
    """Byte-pair encoding by the book: merge the pair of lowest rank until none is left."""
    pieces = [*word[:-1], word[-1] + "</w>"]
    while len(pieces) > 1:
        pairs = {(a, b) for a, b in zip(pieces, pieces[1:], strict=False)}
        best = min(pairs, key=lambda pair: ranks.get(pair, 10**9))
        if best not in ranks:
            break
        merged, index = [], 0
        while index < len(pieces):
            if tuple(pieces[index : index + 2]) == best:
                merged.append("".join(best))
                index += 2
            else:
                merged.append(pieces[index])
                index += 1
        pieces = merged
    return pieces


@needs_authors_libraries
def test_the_authors_rules_equal_their_pipeline_written_out(bpe_files):
    exact = GPT1Tokenizer.from_bpe_files(*bpe_files, text_rules="authors")
    lines = bpe_files[1].read_text(encoding="utf-8").split("\n")[1:-1]
    ranks = {(line.split(" ")[0], line.split(" ")[1]): rank for rank, line in enumerate(lines)}
    encoder = json.loads(bpe_files[0].read_text(encoding="utf-8"))
    split = authors_splitter()
    for text in [*(text for text, _ in DIFFERENT_IN_TRANSFORMERS), *CORPUS, "He&#39;d say â€œnoâ€\x9d… ﬁne 漢"]:
        expected = [encoder.get(piece, 0) for word in split(text) for piece in reference_bpe(word, ranks)]
        assert exact(text).input_ids == expected, text


@needs_authors_libraries
def test_both_rules_agree_on_99_of_100_tokens_of_reviews(authors, bpe_files):
    reviews = DATA / "mr" / "rt-polarity.pos"
    if not reviews.is_file():
        pytest.skip("the reviews are not beside the project")
    exact = GPT1Tokenizer.from_bpe_files(*bpe_files, text_rules="authors")
    texts = reviews.read_text(encoding="utf-8", errors="replace").splitlines()[:600]
    same = [authors(text).input_ids == exact(text).input_ids for text in texts]
    # Equality of whole texts is stricter than agreement of tokens, which benchmarks/gpt1_tokenizer.md has.
    assert sum(same) / len(same) > 0.99


@needs_authors_libraries
def test_the_authors_rules_are_saved_chosen_and_without_offsets(tmp_path):
    exact = GPT1Tokenizer.train_from_iterator([*CORPUS, "it's"], text_rules="authors", min_frequency=1)
    text = "_start_ itâ€™s a cat"
    assert exact.tokenize(text)[:3] == ["_start_", "it</w>", "'s</w>"]
    exact.save_pretrained(tmp_path)
    assert GPT1Tokenizer.from_pretrained(tmp_path).tokenize(text) == exact.tokenize(text)
    other = GPT1Tokenizer.from_pretrained(tmp_path, text_rules="tokenizers")
    assert other.tokenize(text) != exact.tokenize(text) and other.text_rules == "tokenizers"
    assert pickle.loads(pickle.dumps(exact)).tokenize(text) == exact.tokenize(text)
    assert exact([["a cat", "sings"]]).input_ids == [exact("a cat", "sings").input_ids]
    with pytest.raises(ValueError, match="there are no offsets: load the tokenizer with text_rules='tokenizers'"):
        exact("a cat", return_offsets_mapping=True)


def test_the_authors_rules_without_their_libraries_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ftfy", None)
    with pytest.raises(ImportError, match=r"needs ftfy, which is not installed: pip install hf-metalstm\[gpt1\]"):
        GPT1Tokenizer.train_from_iterator(CORPUS, text_rules="authors")
    with pytest.raises(ValueError, match="text_rules is 'spacy'; allowed: 'tokenizers', 'authors'"):
        GPT1Tokenizer.train_from_iterator(CORPUS, text_rules="spacy")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It's they'll I'm we'd you've dogs' John's", "it 's they 'll i 'm we 'd you 've dogs ' john 's"),
        ("cannot gonna gotta let's dont im won't", "can not gon na got ta let 's do nt i m wo n't"),
        ("well-known a--b (yes) [no] x/y", "well - known a -- b ( yes ) [ no ] x / y"),
        ("1,000 10:30 3.5% $5 5km 8am #1", "1 , 000 10:30 3.5 % $ 5 5 km 8 am # 1"),
        ("Mr. Smith, e.g. in the U.S., etc. end.", "mr. smith , e.g. in the u.s. , etc . end ."),
        ("so.. very... “quoted” ‘it’ <br>", "so .. very ... \" quoted \" ' it ' < br >"),
        ("soft ﬁne fix\x92s \x97 ok\r\n\r\n next", "soft fine fix 's - ok \n next"),
    ],
)
def test_rules_kept_in_the_file_split_english(text, words):
    tokenizer = GPT1Tokenizer.train_from_iterator([text], min_frequency=1)
    assert "".join(tokenizer.tokenize(text)).replace("</w>", " ").strip(" ") == words


def test_decoding_reads_like_english_and_comes_back_to_the_same_ids(authors):
    text = "he can't, won't (yet) say it's $5... \"why?\" we'd ask!\nno."
    ids = authors(text).input_ids
    assert authors.decode(ids) == "he can't, won't (yet) say it's $5... \" why? \" we'd ask!\nno."
    assert authors(authors.decode(ids)).input_ids == ids
    built = authors.build_entailment("A cat.", "It's a pet!")["input_ids"]
    assert authors.decode(built) == "_start_ a cat. _delimiter_ it's a pet! _classify_"
    assert authors.decode(built, skip_special_tokens=True) == "a cat. it's a pet!"


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_offsets_slice_the_text_into_its_pieces(tokenizer, text):
    encoded = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
    places = encoded.offset_mapping
    assert all(0 <= start <= stop <= len(text) for start, stop in places)
    assert [start for start, _ in places] == sorted(start for start, _ in places)


def test_offsets_are_those_of_the_text_as_it_was(tokenizer):
    text = "The CAT can’t — “sleep”…"
    encoded = tokenizer(text, return_offsets_mapping=True)
    words: dict[int, list[int]] = {}
    for word, (start, stop) in zip(encoded.word_ids(), encoded.offset_mapping, strict=True):
        words.setdefault(word, [start, stop])[1] = stop
    assert [text[a:b] for a, b in words.values()] == ["The", "CAT", "ca", "n’t", "—", "“", "sleep", "”", "…"]


def test_a_text_alone_a_pair_and_padding(tokenizer):
    start, delimiter, extract = tokenizer.bos_token_id, tokenizer.sep_token_id, tokenizer.cls_token_id
    cat, dog = tokenizer("cat").input_ids, tokenizer("the dog").input_ids
    assert tokenizer("cat", "the dog").input_ids == [start, *cat, delimiter, *dog, extract]
    batch = tokenizer(["cat", "the dog sings"], padding=True)
    dog = tokenizer("the dog sings").input_ids
    missing = len(dog) - len(cat)
    assert batch.input_ids == [[*cat, *[tokenizer.pad_token_id] * missing], dog] and missing > 0
    assert batch.attention_mask[0] == [1] * len(cat) + [0] * missing
    dog = tokenizer("the dog").input_ids
    cut = tokenizer("the dog sings the cat", "the dog", truncation="only_first", max_length=3 + len(dog) + 1)
    assert cut.input_ids == [start, tokenizer("the").input_ids[0], delimiter, *dog, extract]


def test_a_single_text_is_wrapped_for_classification_on_request(tokenizer, tmp_path):
    wrapped = GPT1Tokenizer.train_from_iterator(CORPUS)
    wrapped.set_task("classification")
    wrapped.save_pretrained(tmp_path)
    expected = wrapped.build_classification("the cat")["input_ids"]
    assert expected == [wrapped.bos_token_id, *tokenizer("the cat").input_ids, wrapped.cls_token_id]
    for one in (wrapped, GPT1Tokenizer.from_pretrained(tmp_path), TokenizersBackend.from_pretrained(tmp_path)):
        assert one("the cat").input_ids == expected
    with pytest.raises(ValueError, match="task is 'qa'; allowed"):
        wrapped.set_task("qa")


WORDS = st.lists(st.sampled_from("cat dog sings slept well the owner".split()), min_size=1, max_size=12).map(" ".join)


@given(WORDS, st.lists(WORDS, min_size=2, max_size=4), st.integers(5, 40))
def test_choices_fit_keep_their_special_tokens_and_share_one_context(tokenizer, context, answers, limit):
    built = tokenizer.build_multiple_choice(context, answers, max_length=limit)
    whole = tokenizer(context).input_ids
    contexts = set()
    for row, mask, place, answer in zip(
        built["input_ids"], built["attention_mask"], built["mc_token_ids"], answers, strict=True
    ):
        assert len(row) <= limit and mask == [1] * len(row)
        assert row[0] == tokenizer.bos_token_id and row[place] == tokenizer.cls_token_id == row[-1]
        delimiter = row.index(tokenizer.sep_token_id)
        contexts.add(tuple(row[1:delimiter]))
        ids = tokenizer(answer).input_ids
        assert row[delimiter + 1 : -1] == ids[: limit - 4]
    (kept,) = contexts
    assert list(kept) == whole[: len(kept)] and kept
    # All room is used: the longest row is full, or nothing was cut.
    assert list(kept) == whole or max(map(len, built["input_ids"])) == limit


@given(WORDS, WORDS, st.integers(5, 30), st.sampled_from(["left", "right"]))
def test_pairs_fit_and_cut_the_premise_first(tokenizer, premise, hypothesis, limit, side):
    tokenizer.truncation_side = side
    try:
        row = tokenizer.build_entailment(premise, hypothesis, max_length=limit)["input_ids"]
    finally:
        tokenizer.truncation_side = "right"
    first, second = tokenizer(premise).input_ids, tokenizer(hypothesis).input_ids
    assert len(row) == min(limit, len(first) + len(second) + 3)
    delimiter = row.index(tokenizer.sep_token_id)
    one, two = row[1:delimiter], row[delimiter + 1 : -1]
    kept = (lambda ids, part: ids[-len(part) :]) if side == "left" else (lambda ids, part: ids[: len(part)])
    assert one == kept(first, one) and two == kept(second, two) and one and two
    assert two == second or len(one) == 1


@given(WORDS, WORDS, st.integers(5, 30))
def test_similarity_holds_both_orders_whichever_comes_first(tokenizer, one, two, limit):
    rows = tokenizer.build_similarity(one, two, max_length=limit)["input_ids"]
    assert tokenizer.build_similarity(two, one, max_length=limit)["input_ids"] == rows[::-1]
    split = rows[0].index(tokenizer.sep_token_id)
    start, extract = tokenizer.bos_token_id, tokenizer.cls_token_id
    assert rows[1] == [start, *rows[0][split + 1 : -1], tokenizer.sep_token_id, *rows[0][1:split], extract]
    assert len(rows[0]) == len(rows[1]) <= limit


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda t: t.build_classification(" "), ValueError, "text is empty after tokenization"),
        (lambda t: t.build_classification(3), TypeError, r"text is 3 \(int\), expected a text"),
        (lambda t: t.build_classification("cat", max_length=2), ValueError, "max_length is 2, but 2 special tokens"),
        (lambda t: t.build_entailment("cat", ""), ValueError, "hypothesis is empty"),
        (lambda t: t.build_multiple_choice("cat", ["dog", "\n "]), ValueError, r"answers\[1\] is empty"),
        (lambda t: t.build_multiple_choice("cat", ["dog"]), ValueError, "expected a list of two answers or more"),
        (lambda t: t.build_multiple_choice("cat", "dog"), ValueError, "answers is 'dog'"),
        (lambda t: t.build_multiple_choice("cat", ["a", "dog"], 4), ValueError, "max_length is 4"),
    ],
)
def test_inputs_that_cannot_be_built_are_named(tokenizer, build, error, message):
    with pytest.raises(error, match=message):
        build(tokenizer)


@pytest.mark.parametrize("tied", [True, False])
def test_new_tokens_resize_model_and_config_and_leave_old_rows_alone(tokenizer, tied, tmp_path):
    old = tokenizer.vocab_size
    config = OpenAIGPTConfig(vocab_size=old, n_embd=64, n_layer=1, n_head=2, n_positions=16, tie_word_embeddings=tied)
    model = OpenAIGPTLMHeadModel(config).eval()
    before = model.get_input_embeddings().weight.detach().clone()
    ids = torch.tensor([tokenizer("the cat").input_ids])
    logits = model(ids).logits
    assert tokenizer.add_task_tokens(model) == 4 == len(tokenizer) - old
    weight = model.get_input_embeddings().weight
    assert weight.shape == (old + 4, 64) and model.config.vocab_size == old + 4
    assert torch.equal(weight[:old], before)
    assert weight[old:].std().item() == pytest.approx(0.02, rel=0.2)
    assert (model.get_output_embeddings().weight is weight) == tied
    assert model.config.pad_token_id == tokenizer.pad_token_id != tokenizer.unk_token_id
    torch.testing.assert_close(model(ids).logits[..., :old], logits, rtol=0, atol=1e-6)
    built = torch.tensor([tokenizer.build_classification("the cat")["input_ids"]])
    model.save_pretrained(tmp_path)
    loaded = OpenAIGPTLMHeadModel.from_pretrained(tmp_path)
    torch.testing.assert_close(loaded(built).logits, model(built).logits, rtol=0, atol=0)
    # A second call finds nothing to do, and a model of other tokens is refused.
    assert tokenizer.add_task_tokens(model) == 0 and model.get_input_embeddings().weight.shape[0] == old + 4
    model.resize_token_embeddings(old + 9)
    with pytest.raises(ValueError, match="do not belong together"):
        tokenizer.add_task_tokens(model)


def test_models_that_do_not_generate_are_resized_too(tokenizer):
    sizes = dict(n_embd=8, n_layer=1, n_head=2, n_positions=16, num_labels=2)
    model = OpenAIGPTForSequenceClassification(OpenAIGPTConfig(vocab_size=tokenizer.vocab_size, **sizes))
    assert tokenizer.add_task_tokens(model) == 4 and model.config.vocab_size == len(tokenizer)


def test_training_learns_from_texts_and_lists_up_to_the_size(tokenizer):
    again = GPT1Tokenizer.train_from_iterator([CORPUS])
    assert again.get_vocab() == tokenizer.get_vocab()
    assert GPT1Tokenizer.train_from_iterator(CORPUS, vocab_size=60).vocab_size == 60 < tokenizer.vocab_size
    other = GPT1Tokenizer.train_from_iterator(CORPUS, pad_token="[PAD]", padding_side="left", model_max_length=9)
    assert (other.pad_token, other.padding_side, other.model_max_length) == ("[PAD]", "left", 9)
    assert len(other.build_classification("the cat sings " * 9)["input_ids"]) == 9


@pytest.mark.parametrize(
    ("texts", "settings", "error", "message"),
    [
        ("a text", {}, TypeError, "texts is one str"),
        ([1], {}, TypeError, r"item 0 of texts holds 1 \(int\)"),
        ([" "], {}, ValueError, "the corpus has no word"),
        (["a"], {"vocab_size": 1}, ValueError, "vocab_size is 1"),
        (["a"], {"pad_token": "<unk>"}, ValueError, "special tokens need spellings of their own"),
    ],
)
def test_bad_corpora_and_settings_are_refused(texts, settings, error, message):
    with pytest.raises(error, match=message):
        GPT1Tokenizer.train_from_iterator(texts, **settings)


ELSEWHERE = """
import json, sys
class Absent:
    def find_spec(self, name, *_):
        if name.split(".")[0] == "hf_metalstm":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
from transformers import AutoTokenizer, TokenizersBackend
folder, without_code, texts = json.loads(sys.argv[1])
loaded = [AutoTokenizer.from_pretrained(without_code), AutoTokenizer.from_pretrained(folder, trust_remote_code=True)]
ids = [[one(text).input_ids for text in texts] for one in loaded]
pair = [one("a cat", "it sings").input_ids for one in loaded]
choices = loaded[1].build_multiple_choice("a cat", ["sings", "slept well"])
print(json.dumps([[type(one).__name__ for one in loaded], ids, pair, choices]))
"""


def test_a_process_without_this_package_gives_the_same_ids(tokenizer, tmp_path):
    folder, without_code = str(tmp_path / "saved"), str(tmp_path / "without_code")
    tokenizer.save_pretrained(folder)
    shutil.copytree(folder, without_code)
    config = json.loads((tmp_path / "saved" / "tokenizer_config.json").read_text())
    del config["auto_map"]
    (tmp_path / "without_code" / "tokenizer_config.json").write_text(json.dumps(config))
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, json.dumps([folder, without_code, CORPUS])],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    classes, ids, pair, choices = json.loads(done.stdout.splitlines()[-1])
    assert classes == ["TokenizersBackend", "GPT1Tokenizer"]
    assert ids == [[tokenizer(text).input_ids for text in CORPUS]] * 2
    assert pair == [tokenizer.build_entailment("a cat", "it sings")["input_ids"]] * 2
    assert choices == tokenizer.build_multiple_choice("a cat", ["sings", "slept well"])


def test_the_auto_class_finds_it_by_name_here(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert type(loaded) is GPT1Tokenizer and loaded(CORPUS[0]) == tokenizer(CORPUS[0])
