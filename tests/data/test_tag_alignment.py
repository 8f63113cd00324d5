"""From words and tags to tokens and labels, with several kinds of tokenizers, and to batches."""

import logging

import pytest
import torch
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from hf_metalstm import WordTokenizer
from hf_metalstm.data.conll import read_conll
from hf_metalstm.data.tag_alignment import align_dataset, align_tags
from hf_metalstm.data.token_classification_collator import DataCollatorForTagging
from hf_metalstm.modeling.character_features import CharacterVocabulary
from hf_metalstm.modeling.crf import LinearChainCRF

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcd", *(f"##{letter}" for letter in "abcd")]


def subword_tokenizer(special=True, unknown=True, **options):
    """Each letter is a token; zero-width blanks vanish; [CLS] and [SEP] around the sentence."""
    vocabulary = {piece: index for index, piece in enumerate(PIECES)}
    if unknown:
        model = models.WordPiece(vocabulary, unk_token="[UNK]")
    else:
        model = models.BPE({letter: index for index, letter in enumerate("_abcd")}, [])
    backend = Tokenizer(model)
    backend.normalizer = normalizers.Replace("\u200b", "")
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if special:
        backend.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
    names = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"} if unknown else {}
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]" if unknown else "_", model_max_length=512, **names, **options
    )


def test_the_first_token_of_each_word_gets_its_tag():
    aligned = align_tags(subword_tokenizer(), [["ab", "c", "dab"]], [[5, 6, 7]])
    assert aligned.input_ids == [[2, 4, 9, 6, 7, 8, 9, 3]]
    assert aligned.labels == [[-100, 5, -100, 6, 7, -100, -100, -100]]
    assert aligned.word_starts == [[0, 1, 0, 1, 1, 0, 0, 0]]
    assert aligned.attention_mask == [[1] * 8] and aligned.cut_words == [0] and aligned.character_ids is None


def test_words_without_tags_are_aligned_too():
    aligned = align_tags(subword_tokenizer(), [["ab"]])
    assert aligned.labels is None and aligned.word_starts == [[0, 1, 0, 0]]
    assert "labels" not in aligned.columns()


def test_words_that_vanish_become_the_unknown_token():
    aligned = align_tags(subword_tokenizer(), [["a", "\u200b", "", "xyz", "b"]], [[1, 2, 3, 4, 5]])
    assert aligned.input_ids == [[2, 4, 1, 1, 1, 5, 3]]
    assert aligned.labels == [[-100, 1, 2, 3, 4, 5, -100]]
    with pytest.raises(
        ValueError, match=r"sentence 0: word 1 \('\\u200b'\) gives no token, and the tokenizer has no unk"
    ):
        align_tags(subword_tokenizer(special=False, unknown=False), [["a", "\u200b"]], [[1, 2]])


def test_the_project_s_own_tokenizer_is_aligned():
    tokenizer = WordTokenizer.train_from_iterator(["U.N. official don't"])
    aligned = align_tags(tokenizer, [["U.N.", "don't", "\u200b", "Zorg"]], [[0, 1, 2, 3]])
    assert tokenizer.convert_ids_to_tokens(aligned.input_ids[0]) == ["u.n.", "do", "n't", "<unk>", "<unk>"]
    assert aligned.labels == [[0, 1, -100, 2, 3]]


def test_long_sentences_are_refused_or_cut_and_counted():
    sentences, tags = [["a"], ["ab", "cd", "a", "b"]], [[1], [1, 2, 3, 4]]
    with pytest.raises(ValueError, match="sentence 1 has 8 tokens, but max_length is 5: too_long='cut'"):
        align_tags(subword_tokenizer(), sentences, tags, max_length=5)
    cut = align_tags(subword_tokenizer(), sentences, tags, max_length=5, too_long="cut")
    assert cut.labels == [[-100, 1, -100], [-100, 1, -100, 2, -100]] and cut.cut_words == [0, 2]
    whole = align_tags(subword_tokenizer(), sentences, tags, max_length=8)
    assert whole.cut_words == [0, 0] and len(whole.labels[1]) == 8


def test_a_word_whose_beginning_was_cut_off_carries_no_tag():
    tokenizer = subword_tokenizer(truncation_side="left")
    cut = align_tags(tokenizer, [["ab", "cd", "a", "b"]], [[1, 2, 3, 4]], max_length=5, too_long="cut")
    assert cut.input_ids == [[2, 11, 4, 5, 3]]
    assert cut.labels == [[-100, -100, 3, 4, -100]] and cut.cut_words == [2]
    with pytest.raises(ValueError, match="sentence 0 keeps no word at all with max_length 3"):
        align_tags(tokenizer, [["ab"]], [[1]], max_length=3, too_long="cut")


@given(
    st.lists(st.lists(st.text("abcd\u200bx", max_size=3), min_size=1, max_size=5), min_size=1, max_size=4),
    st.sampled_from(["left", "right"]),
    st.sampled_from(["left", "right"]),
    st.sampled_from([None, 5, 9]),
)
def test_words_and_tags_stay_together_through_alignment_and_collation(sentences, padding, truncation, max_length):
    tokenizer = subword_tokenizer(padding_side=padding, truncation_side=truncation)
    number = 0
    tags = []
    for words in sentences:
        tags.append(list(range(number, number + len(words))))
        number += len(words)
    aligned = align_tags(tokenizer, sentences, tags, max_length, too_long="cut")
    columns = aligned.columns()
    batch = DataCollatorForTagging(tokenizer)(
        [{name: values[row] for name, values in columns.items()} for row in range(len(sentences))]
    )
    assert torch.equal(batch["word_starts"], (batch["labels"] != -100).long())
    assert (batch["attention_mask"][batch["labels"] != -100] == 1).all()
    for row, words in enumerate(sentences):
        labelled = batch["labels"][row]
        kept = labelled[labelled != -100].tolist()
        expected = tags[row][: len(kept)] if truncation == "right" else tags[row][len(words) - len(kept) :]
        assert kept == expected and len(kept) + aligned.cut_words[row] == len(words)
        pieces = tokenizer.convert_ids_to_tokens(batch["input_ids"][row][labelled != -100])
        for piece, tag in zip(pieces, kept, strict=True):
            word = words[tags[row].index(tag)].replace("\u200b", "")
            assert piece == (word[0] if word and "x" not in word else "[UNK]")


def test_characters_are_those_of_each_token_s_word():
    characters = CharacterVocabulary(list("abcd"))
    aligned = align_tags(subword_tokenizer(), [["ab", "\u200b"]], [[0, 1]], characters=characters)
    assert aligned.character_ids == [[[], [2, 3], [2, 3], [1], []]]


@pytest.mark.parametrize(
    "sentences, tags, error, message",
    [
        ([["a"], ["a", "b"]], [[1], [1]], ValueError, "sentence 1 has 2 words, but 1 tags"),
        ([["a"]], [[1], [1]], ValueError, "1 sentences, but tags of 2"),
        ([["a"], []], [[1], []], ValueError, "sentence 1 has no words"),
        (["ab"], [[1, 2]], TypeError, "sentence 0 is the text 'ab', expected a list of words"),
        ([["a"]], [["B-X"]], TypeError, "sentence 0 has the tag 'B-X', expected ids"),
        ([["a"]], [[None]], TypeError, "sentence 0 has the tag None"),
    ],
)
def test_words_and_tags_that_do_not_fit_are_refused(sentences, tags, error, message):
    with pytest.raises(error, match=message):
        align_tags(subword_tokenizer(), sentences, tags)


@pytest.mark.parametrize("options, message", [({"too_long": "drop"}, "too_long is"), ({"max_length": 0}, "max_length")])
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        align_tags(subword_tokenizer(), [["a"]], [[1]], **options)


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "train.txt"
    path.write_text("ab X\nc Y\n\ndab X\na Y\nb X\n\n")
    return read_conll(path, ["tokens", "tags"])["train"]


def test_a_dataset_is_aligned_and_says_what_was_cut(rows, caplog):
    aligned = align_dataset(rows, subword_tokenizer(), "tags")
    assert set(aligned.column_names) == {"input_ids", "attention_mask", "labels", "word_starts", "cut_words"}
    assert aligned["labels"][:] == [[-100, 0, -100, 1, -100], [-100, 0, -100, -100, 1, 0, -100]]
    with caplog.at_level(logging.WARNING, logger="hf_metalstm.data.tag_alignment"):
        cut = align_dataset(rows, subword_tokenizer(), "tags", max_length=5, too_long="cut")
    assert cut["cut_words"][:] == [0, 2]
    assert "max_length 5 cut 2 words off 1 of 2 sentences" in caplog.text
    unlabelled = align_dataset(rows, subword_tokenizer(), None, characters=CharacterVocabulary(["a"]))
    assert "labels" not in unlabelled.column_names and "character_ids" in unlabelled.column_names


def test_task_ids_stay_and_the_collator_takes_the_rows(rows):
    aligned = align_dataset(rows.add_column("task_ids", [1, 0]), subword_tokenizer(), "tags")
    batch = DataCollatorForTagging(subword_tokenizer())(list(aligned))
    assert batch["task_ids"].tolist() == [1, 0]
    assert batch["labels"].tolist() == [[-100, 0, -100, 1, -100, -100, -100], [-100, 0, -100, -100, 1, 0, -100]]


def test_errors_name_row_and_line(rows):
    with pytest.raises(ValueError, match=r"sentence 1 \(line 4\) has 7 tokens, but max_length is 5"):
        align_dataset(rows, subword_tokenizer(), "tags", max_length=5)
    broken = Dataset.from_dict({"tokens": [["a"], ["a", "b"]], "tags": [[0], [0]]})
    with pytest.raises(ValueError, match="sentence 1 has 2 words, but 1 tags"):
        align_dataset(broken, subword_tokenizer(), "tags")
    with pytest.raises(ValueError, match="there is no column 'tagz'; the columns are tokens, tags, document, line"):
        align_dataset(rows, subword_tokenizer(), "tagz")


@pytest.mark.parametrize("side", ["left", "right"])
def test_batches_are_padded_on_the_tokenizer_s_side(side):
    collate = DataCollatorForTagging(subword_tokenizer(padding_side=side), pad_to_multiple_of=4)
    batch = collate(
        [
            {"input_ids": [4, 5, 6], "labels": [1, -100, 2], "character_ids": [[2], [], [3, 4]], "task_ids": 1},
            {"input_ids": [7], "labels": [3], "character_ids": [[5]], "task_ids": 0, "cut_words": 2},
        ]
    )
    flip = (lambda row: row) if side == "right" else (lambda row: row[-1:] + row[:-1])
    short = (lambda row: row) if side == "right" else (lambda row: row[1:] + row[:1])
    assert batch["labels"].tolist() == [flip([1, -100, 2, -100]), short([3, -100, -100, -100])]
    assert batch["attention_mask"].tolist() == [flip([1, 1, 1, 0]), short([1, 0, 0, 0])]
    assert batch["character_ids"].tolist()[0] == flip([[2, 0], [0, 0], [3, 4], [0, 0]])
    assert batch["character_ids"].tolist()[1] == short([[5, 0], [0, 0], [0, 0], [0, 0]])
    assert batch["task_ids"].tolist() == [1, 0]
    assert set(batch) == {"input_ids", "attention_mask", "labels", "character_ids", "task_ids"}
    assert all(value.dtype == torch.int64 for value in batch.values())


@pytest.mark.parametrize(
    "examples, error, message",
    [
        ([], ValueError, "empty batch"),
        ([{"tokens": ["a"]}], ValueError, r"example 0 of the batch has no input_ids \(it has tokens\)"),
        ([{"input_ids": []}], ValueError, "sentence 0 has no tokens"),
        ([{"input_ids": [4], "labels": [1, 2]}], ValueError, "labels of example 0 are 2, but it has 1 tokens"),
        ([{"input_ids": [4], "labels": [1]}, {"input_ids": [4]}], ValueError, "example 1 of the batch has no labels"),
        ([{"input_ids": [4], "labels": ["X"]}], TypeError, "labels of example 0 is 'X'"),
        ([{"input_ids": [4], "task_ids": 0.5}], TypeError, "task_ids of example 0 is 0.5"),
    ],
)
def test_batches_that_do_not_fit_are_refused(examples, error, message):
    with pytest.raises(error, match=message):
        DataCollatorForTagging(subword_tokenizer())(examples)


def test_a_crf_reads_words_whatever_the_tokens_and_the_padding_are():
    crf = LinearChainCRF(3)
    scores = torch.randn(len(PIECES), 3)
    likelihoods = []
    for side in ("left", "right"):
        tokenizer = subword_tokenizer(padding_side=side)
        aligned = align_tags(tokenizer, [["ab", "c"], ["d", "ab", "ca"]], [[0, 2], [1, 1, 0]]).columns()
        examples = [{name: values[row] for name, values in aligned.items()} for row in range(2)]
        batch = DataCollatorForTagging(tokenizer)(examples)
        emissions = scores[batch["input_ids"]]
        likelihoods.append(crf.log_likelihood(emissions, batch["labels"], batch["attention_mask"]))
        decoded = crf.decode(emissions, batch["attention_mask"], batch["word_starts"])
        assert ((decoded != -100) == (batch["labels"] != -100)).all()
    words = scores[torch.tensor([[4, 6]])]
    torch.testing.assert_close(likelihoods[0][:1], crf.log_likelihood(words, torch.tensor([[0, 2]])))
    torch.testing.assert_close(*likelihoods)
