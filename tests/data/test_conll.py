"""Column files: what is read, what is refused, and that a file written in any manner comes back."""

from pathlib import Path

import datasets
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_metalstm.data.conll import read_conll

CONLL2000 = Path(__file__).resolve().parents[3] / "shared" / "data" / "conll2000"
TEXT = """-DOCSTART- -X- O

U.N. NNP I-ORG
official NN O
Ekeus NNP I-PER

# # O
-DOCSTART- -X- O

Rome NNP I-LOC
Paris NNP B-LOC

"""
COLUMNS = ["tokens", "pos_tags", "ner_tags"]


@pytest.fixture
def write(tmp_path):
    def write(text, name="train.txt", encoding="utf-8"):
        path = tmp_path / name
        path.write_bytes(text.encode(encoding))
        return path

    return write


def names(dataset, column, row):
    return dataset.features[column].feature.int2str(dataset[row][column])


def test_sentences_documents_and_lines_are_read(write):
    data = read_conll(write(TEXT), COLUMNS)
    train = data["train"]
    assert isinstance(data, datasets.DatasetDict) and train.num_rows == 3
    assert train["tokens"][:] == [["U.N.", "official", "Ekeus"], ["#"], ["Rome", "Paris"]]
    assert train["document"][:] == [0, 0, 1] and train["line"][:] == [3, 7, 10]
    assert names(train, "pos_tags", 0) == ["NNP", "NN", "NNP"]
    assert train.features["ner_tags"].feature.names == ["O", "B-LOC", "I-LOC", "I-ORG", "I-PER"]
    assert train.features["tokens"] == datasets.List(datasets.Value("string"))


def test_columns_by_index_and_by_name_are_the_same(write):
    path = write(TEXT)
    by_index = read_conll(path, {"tokens": 0, "ner_tags": -1})["train"]
    by_name = read_conll(path, ["tokens", None, "ner_tags"])["train"]
    assert by_index.to_dict() == by_name.to_dict() and set(by_index.features) == {
        "tokens",
        "ner_tags",
        "document",
        "line",
    }


def test_only_the_columns_named_as_labels_become_labels(write):
    train = read_conll(write(TEXT), COLUMNS, labels=["ner_tags"])["train"]
    assert train[0]["pos_tags"] == ["NNP", "NN", "NNP"]


def test_known_labels_keep_their_order_and_refuse_others(write):
    known = ["I-PER", "I-ORG", "I-LOC", "B-LOC", "O"]
    train = read_conll(write(TEXT), COLUMNS, labels={"ner_tags": known})["train"]
    assert train[0]["ner_tags"] == [1, 4, 0]
    with pytest.raises(ValueError, match=r"line 11: tag 'B-LOC' of column 'ner_tags' is none of the labels given: I-"):
        read_conll(write(TEXT), COLUMNS, labels={"ner_tags": ["I-PER", "I-ORG", "I-LOC", "O"]})


def test_comments_are_left_out_where_asked_for(write):
    text = TEXT.replace("# # O", "## a note\n# a = b")
    train = read_conll(write(text), COLUMNS, comment_prefix="#")["train"]
    assert train["tokens"][:] == [["U.N.", "official", "Ekeus"], ["Rome", "Paris"]]
    assert train["line"][:] == [3, 11]


def test_chunk_tags_are_checked_and_converted(write):
    path = write(TEXT)
    converted = read_conll(path, COLUMNS, schemes={"ner_tags": "detect"}, target_scheme="IOBES")["train"]
    assert names(converted, "ner_tags", 0) == ["S-ORG", "O", "S-PER"]
    assert names(converted, "ner_tags", 2) == ["S-LOC", "S-LOC"]
    with pytest.raises(
        ValueError, match=r"train.txt, line 3: tag 'I-ORG' cannot begin a chunk in IOB2; the tags are IOB1"
    ):
        read_conll(path, COLUMNS, schemes={"ner_tags": "IOB2"})
    with pytest.warns(UserWarning, match="line 3: tag 'I-ORG'.*the tags are IOB1"):
        kept = read_conll(path, COLUMNS, schemes={"ner_tags": "BIO"}, faults="warn")["train"]
    assert names(kept, "ner_tags", 2) == ["I-LOC", "B-LOC"]
    with pytest.raises(ValueError, match="line 3"):
        read_conll(path, COLUMNS, schemes={"ner_tags": "IOB2"}, faults="warn", target_scheme="IOBES")


@pytest.mark.parametrize("scheme", ["detect", "IOB1"])
def test_tags_of_no_scheme_are_refused_with_their_line(write, scheme):
    with pytest.raises(ValueError, match=r"line 4: tag 'I-O' puts a chunk prefix before O"):
        read_conll(write(TEXT.replace("NN O", "NN I-O")), COLUMNS, schemes={"ner_tags": scheme})


def test_detection_names_the_first_fault_where_no_scheme_fits(write):
    text = TEXT.replace("U.N. NNP I-ORG", "U.N. NNP B-ORG")
    with pytest.raises(ValueError, match=r"line 3: tag 'B-ORG' is not behind.*no scheme fits; nearest is IOB1"):
        read_conll(write(text), COLUMNS, schemes={"ner_tags": "detect"})


def test_a_tag_unseen_in_training_is_refused_or_added(write):
    files = {"train": write(TEXT), "test": write("a DT O\nb NN I-MISC\n", "test.txt")}
    message = (
        r"test.txt, line 2: tag 'I-MISC' of column 'ner_tags' does not occur in the split 'train', whose tags are O"
    )
    with pytest.raises(ValueError, match=message):
        read_conll(files, COLUMNS, labels=["ner_tags"])
    data = read_conll(files, COLUMNS, labels=["ner_tags"], unseen_tags="add")
    assert names(data["test"], "ner_tags", 0) == ["O", "I-MISC"]
    assert data["train"].features == data["test"].features


def test_other_encodings_line_ends_and_separators(write):
    text = "caf\u00e9\tX\r\nNew York\tY\r\n\r\n"
    latin = read_conll(write(text, encoding="latin-1"), ["tokens", "tags"], separator="\t", encoding="latin-1")
    assert latin["train"]["tokens"][:] == [["caf\u00e9", "New York"]]
    with_mark = read_conll(write("\ufeff" + text), ["tokens", "tags"], separator="\t")
    assert with_mark["train"].to_dict() == latin["train"].to_dict()
    # Characters that Python's own splitting takes for blanks or line ends are part of a word.
    odd = read_conll(write("a\u00a0b\u2028c\x0b  X\nd\ty"), ["tokens", "tags"])
    assert odd["train"]["tokens"][:] == [["a\u00a0b\u2028c\x0b", "d"]]


@pytest.mark.parametrize(
    "text, options, message",
    [
        ("a X\nb\n", {}, r"train.txt, line 2: 1 fields, but line 1 has 2: 'b'"),
        ("a X\n\nb c X\n", {}, r"line 3: 3 fields, but line 1 has 2"),
        ("a\n", {}, r"line 1: there are 1 fields, so column 'tags' cannot be number 1"),
        ("a X\n", {"columns": {"tokens": 0, "tags": -3}}, "cannot be number -3"),
        ("a\t\n", {"separator": "\t"}, "line 1: column 'tags' is empty"),
        ("\n\n-DOCSTART- O\n", {}, "train.txt has no sentences"),
        ("a X\n", {"columns": ["tokens", "tokens"]}, "each name must be there once"),
        ("a X\n", {"columns": [None]}, "name no column"),
        ("a X\n", {"columns": ["line", "tags"]}, "'line', which is a column that the reader adds"),
        ("a X\n", {"labels": ["tagz"]}, "labels name the column 'tagz', but the columns are tokens, tags"),
        ("a X\n", {"labels": {"tags": ["X", "X"]}}, "each must be there once"),
        ("a X\n", {"schemes": {"tagz": "IOB2"}}, "schemes name the column 'tagz'"),
        ("a O\n", {"schemes": {"tags": "IOB9"}}, "scheme is 'IOB9'"),
        ("a O\n", {"target_scheme": "IOB2"}, "target_scheme is given, but no column in schemes"),
        ("a O\n", {"unseen_tags": "drop"}, "unseen_tags is 'drop'"),
        ("a O\n", {"schemes": {"tags": "IOB2"}, "faults": "drop"}, "faults is 'drop'"),
        ("a O\n", {"encoding": "latin-99"}, "encoding is 'latin-99'"),
        ("a O\n", {"separator": ""}, "must not be empty"),
    ],
)
def test_bad_files_and_options_are_refused(write, text, options, message):
    with pytest.raises(ValueError, match=message):
        read_conll(write(text), **{"columns": ["tokens", "tags"], **options})


def test_wrong_bytes_are_refused_with_their_line(write):
    with pytest.raises(ValueError, match=r"train.txt, line 2: not UTF-8"):
        read_conll(write("a X\ncaf\u00e9 X\n", encoding="latin-1"), ["tokens", "tags"])


def test_missing_files_and_wrong_types_are_refused(write, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere.txt"):
        read_conll(tmp_path / "nowhere.txt", COLUMNS)
    with pytest.raises(ValueError, match="files is empty"):
        read_conll({}, COLUMNS)
    with pytest.raises(TypeError, match=r"such as \['ner_tags'\]"):
        read_conll(write(TEXT), COLUMNS, labels="ner_tags")
    with pytest.raises(TypeError, match="columns is 'tokens'"):
        read_conll(write(TEXT), "tokens")


word = st.text(st.characters(blacklist_characters=" \t\n\r", blacklist_categories=["Cs"]), min_size=1, max_size=4)
words = word.filter(lambda text: not text.startswith(("-DOCSTART-", "\ufeff")))


@given(
    st.lists(st.lists(st.tuples(words, words), min_size=1, max_size=4), min_size=1, max_size=4),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([" ", "  ", "\t", " \t "]),
    st.integers(1, 3),
    st.booleans(),
)
def test_what_is_written_comes_back(tmp_path_factory, sentences, line_end, blanks, gap, last_line_ends):
    lines = []
    for sentence in sentences:
        lines += [blanks.join(pair) for pair in sentence] + [""] * gap
    text = line_end.join(lines if last_line_ends else lines[:-gap])
    path = tmp_path_factory.mktemp("conll") / "file.txt"
    path.write_bytes(text.encode())
    read = read_conll(path, ["tokens", "tags"], labels=[])["train"]
    assert [list(zip(row["tokens"], row["tags"], strict=True)) for row in read] == sentences


@pytest.mark.skipif(not CONLL2000.is_dir(), reason="the CoNLL-2000 files are not beside the project")
def test_conll2000_is_read_whole():
    files = {split: CONLL2000 / f"{split}.txt" for split in ("train", "test")}
    columns = ["tokens", "pos_tags", "chunk_tags"]
    data = read_conll(files, columns, schemes={"chunk_tags": "IOB2"}, unseen_tags="add")
    assert {split: part.num_rows for split, part in data.items()} == {"train": 8936, "test": 2012}
    assert sum(map(len, data["test"]["tokens"])) == 47377
    # The published test data have a tag that the training data lack.
    with pytest.raises(ValueError, match="tag 'I-LST' of column 'chunk_tags' does not occur in the split 'train'"):
        read_conll(files, columns)
