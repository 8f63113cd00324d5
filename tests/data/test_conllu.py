"""CoNLL-U: words, multiword tokens, empty nodes, comments, features; what is refused."""

from pathlib import Path

import pytest
from datasets import ClassLabel, List, Value

from hf_metalstm.data.conllu import UPOS, parse_features, read_conllu

EWT = Path(__file__).resolve().parents[3] / "shared" / "data" / "ud_ewt"
SAMPLE = """\
# newdoc id = d
# sent_id = s1
# text = Don't go (now).
1-2 Don't _ _ _ _ _ _ _ _
1 Do do AUX VB Mood=Imp|VerbForm=Fin 3 aux _ _
2 n't not PART RB Polarity=Neg 3 advmod _ SpaceAfter=Yes
3 go go VERB VB Mood=Imp|VerbForm=Fin 0 root _ _
3.1 went go VERB VBD _ _ _ 0:root _
4 ( ( PUNCT -LRB- _ 5 punct _ SpaceAfter=No
5 now now ADV RB _ 3 advmod _ SpaceAfter=No|Gloss
6 ) ) PUNCT -RRB- _ 5 punct _ SpaceAfter=No
7 . . PUNCT . _ 3 punct _ _

# no id here
1 Dogs dog NOUN NNS Number=Plur 0 root _ _
""".replace(" ", "\t")
SAMPLE = "\n".join(line.replace("\t", " ") if line.startswith("#") else line for line in SAMPLE.split("\n"))


@pytest.fixture
def write(tmp_path):
    def write(text, name="train.conllu"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_words_tags_and_trees_are_read(write):
    rows = read_conllu(write(SAMPLE))["train"]
    first, second = rows
    assert first["tokens"] == ["Do", "n't", "go", "(", "now", ")", "."]
    assert [UPOS[tag] for tag in first["upos"]] == ["AUX", "PART", "VERB", "PUNCT", "ADV", "PUNCT", "PUNCT"]
    assert first["xpos"][3] == "-LRB-" and first["lemmas"][1] == "not"
    assert first["heads"] == [3, 3, 0, 5, 3, 5, 3] and first["deprels"][2] == "root"
    assert first["feats"][:3] == ["Mood=Imp|VerbForm=Fin", "Polarity=Neg", "Mood=Imp|VerbForm=Fin"]
    assert (first["sent_id"], first["text"], first["line"]) == ("s1", "Don't go (now).", 4)
    assert (second["sent_id"], second["text"], second["line"]) == (None, None, 15)
    assert rows.features["upos"] == List(ClassLabel(names=UPOS)) and len(UPOS) == 17
    assert rows.features["heads"] == List(Value("int64"))


def test_multiword_tokens_are_described_and_decide_about_spaces(write):
    first, second = read_conllu(write(SAMPLE))["train"]
    assert first["multiword_tokens"] == [{"form": "Don't", "start": 0, "end": 2}]
    assert second["multiword_tokens"] == []
    assert first["space_after"] == [False, True, True, False, False, False, True]


def test_other_columns_and_features_become_labels(write):
    rows = read_conllu(write(SAMPLE), labels=["xpos", "feats_Mood"], features=["Mood"])["train"]
    assert rows.features["feats_Mood"].feature.names == ["Imp", "_"]
    assert rows[0]["feats_Mood"] == [0, 1, 0, 1, 1, 1, 1]
    assert rows[0]["upos"][0] == "AUX"
    assert rows.features["xpos"].feature.names == ["-LRB-", "-RRB-", ".", "NNS", "RB", "VB"]


def test_a_tag_unseen_in_training_is_refused_with_its_line(write):
    files = {"train": write(SAMPLE), "test": write(SAMPLE.replace("NNS", "NNPS"), "test.conllu")}
    with pytest.raises(ValueError, match="test.conllu, line 15: tag 'NNPS' of column 'xpos' does not occur"):
        read_conllu(files, labels=["xpos"])
    with pytest.raises(ValueError, match="train.conllu, line 15: tag 'NOUNS' of column 'upos' is none of the labels"):
        read_conllu(write(SAMPLE.replace("NOUN", "NOUNS")))


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("3\tgo\tgo", "3\tgo go", "line 7: 9 fields, but CoNLL-U has ten, with tabs between them"),
        ("3\tgo\tgo", "4\tgo\tgo", "line 7: word 4 stands behind word 2"),
        ("3\tgo\tgo", "x\tgo\tgo", "line 7: ID is 'x'"),
        ("3.1\t", "4.1\t", "line 8: empty node 4.1 stands behind word 3"),
        ("1-2\t", "2-3\t", "line 4: multiword token 2-3 stands behind word 0"),
        ("1-2\t", "1-9\t", "line 13: the sentence ends within the multiword token of line 4"),
        ("Mood=Imp|VerbForm=Fin\t0", "Mood\t0", "line 7: feature 'Mood' is not name=value"),
        ("Mood=Imp|VerbForm=Fin\t0", "Mood=Imp|Mood=Ind\t0", "line 7: feature 'Mood' is there twice"),
        ("\t0\troot\t_\t_\n3.1", "\tx\troot\t_\t_\n3.1", "line 7: HEAD is 'x'"),
        ("\t0\troot\t_\t_\n3.1", "\t8\troot\t_\t_\n3.1", "line 13: HEAD of line 7 is 8, but the sentence has 7 words"),
        ("\t0\troot\t_\t_\n3.1", "\t0\t\t_\t_\n3.1", "line 7: DEPREL is empty"),
        ("3.1\twent", "# note\n3.1\twent", "line 8: a comment within a sentence"),
    ],
)
def test_broken_files_are_refused_with_their_line(write, old, new, message):
    assert SAMPLE.count(old) == 1
    with pytest.raises(ValueError, match=message):
        read_conllu(write(SAMPLE.replace(old, new)))


@pytest.mark.parametrize(
    "text, message",
    [
        ("# only a comment\n\n", "train.conllu has no sentences"),
        ("1-2\tab\t_\t_\t_\t_\t_\t_\t_\t_\n", "the sentence ends within"),
        ("0.1\tab\t_\t_\t_\t_\t_\t_\t_\t_\n\n", "the sentence has no words"),
    ],
)
def test_files_without_words_are_refused(write, text, message):
    with pytest.raises(ValueError, match=message):
        read_conllu(write(text))


def test_numbers_are_no_labels(write):
    with pytest.raises(ValueError, match="labels name the column 'heads'"):
        read_conllu(write(SAMPLE), labels=["heads"])
    with pytest.raises(TypeError, match="features is 'Mood'"):
        read_conllu(write(SAMPLE), features="Mood")


def test_features_are_parsed():
    assert parse_features("Case=Acc,Dat|Number[psor]=Sing") == {"Case": "Acc,Dat", "Number[psor]": "Sing"}


@pytest.mark.skipif(not EWT.is_dir(), reason="the English Web Treebank is not beside the project")
def test_the_texts_of_a_treebank_come_back_from_words_and_spaces():
    files = {split: EWT / f"en_ewt-ud-{split}.conllu" for split in ("dev", "test")}
    data = read_conllu(files)
    assert {split: part.num_rows for split, part in data.items()} == {"dev": 2001, "test": 2077}
    for row in data["test"]:
        words = list(zip(row["tokens"], row["space_after"], strict=True))
        for token in row["multiword_tokens"]:
            first, end = token["start"], token["end"]
            words[first:end] = [("", False)] * (end - first - 1) + [(token["form"], words[end - 1][1])]
        # Some texts hold other white space than the plain blank.
        assert "".join(form + " " * space for form, space in words).split() == row["text"].split()
