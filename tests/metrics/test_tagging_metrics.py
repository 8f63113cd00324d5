"""Scores of taggers: worked examples, an independent count in the manner of conlleval, seqeval, Trainer's inputs."""

import random
from pathlib import Path

import numpy as np
import pytest
import seqeval.metrics
from hypothesis import given
from hypothesis import strategies as st
from seqeval import scheme as seqeval_scheme
from transformers import EvalPrediction

from hf_metalstm.data.conll import read_conll
from hf_metalstm.data.tag_schemes import Chunk, scheme_labels, write_tags
from hf_metalstm.metrics.evaluate_tagging import Conlleval, StrictChunks
from hf_metalstm.metrics.tagging import TaggingMetrics, predicted_tags, score_tags

CONLL2000 = Path(__file__).resolve().parents[3] / "shared" / "data" / "conll2000"


def recount(predictions, references):
    """(gold, predicted, right) chunks by going through the words once, as the shared task describes its counting.

    A chunk is open in one or both of the tag sequences; a pair of chunks that began together with the same type is
    right when both end together.
    """
    gold = predicted = right = 0
    for tags, wanted in zip(predictions, references, strict=True):
        together = False
        last, last_wanted = ("O", None), ("O", None)
        for tag, wanted_tag in zip([*tags, "O"], [*wanted, "O"], strict=True):
            now, now_wanted = (tuple(t.split("-", 1)) if "-" in t else (t, None) for t in (tag, wanted_tag))

            def begins(before, at):
                if at[0] == "O":
                    return False
                return at[0] == "B" or before[0] == "O" or before[1] != at[1]

            def ends(before, at):
                if before[0] == "O":
                    return False
                return at[0] in ("O", "B") or before[1] != at[1]

            if together:
                end, wanted_end = ends(last, now), ends(last_wanted, now_wanted)
                if end and wanted_end:
                    right, together = right + 1, False
                elif end or wanted_end:
                    together = False
            begin, wanted_begin = begins(last, now), begins(last_wanted, now_wanted)
            gold, predicted = gold + wanted_begin, predicted + begin
            if begin and wanted_begin and now[1] == now_wanted[1]:
                together = True
            last, last_wanted = now, now_wanted
    return gold, predicted, right


def counts(scores):
    return scores.chunks.gold, scores.chunks.predicted, scores.chunks.right


def test_the_two_ways_of_counting_differ_on_a_chunk_that_begins_with_i():
    gold, predicted = [["B-X", "I-X"]], [["I-X", "I-X"]]
    assert score_tags(predicted, gold, "conlleval").chunks.f1 == 1.0
    assert score_tags(predicted, gold, "strict").chunks.f1 == 0.0
    assert score_tags(predicted, gold).chunks.f1 == 1.0


def test_strict_iobes_needs_the_end_of_a_chunk():
    scores = score_tags([["B-PER", "I-PER", "S-PER"]], [["B-PER", "E-PER", "S-PER"]], "strict", "IOBES")
    assert (scores.chunks.precision, scores.chunks.recall) == (1.0, 0.5)
    assert scores.chunks.f1 == pytest.approx(2 / 3)


tag_pairs = st.lists(
    st.lists(st.tuples(*[st.sampled_from(["O", "B-X", "I-X", "B-Y", "I-Y"])] * 2), min_size=1, max_size=8),
    min_size=1,
    max_size=4,
)


@given(tag_pairs)
def test_lenient_counts_equal_the_recount_and_seqeval(sentences):
    predictions = [[pair[0] for pair in sentence] for sentence in sentences]
    references = [[pair[1] for pair in sentence] for sentence in sentences]
    scores = score_tags(predictions, references)
    assert counts(scores) == recount(predictions, references)
    with np.errstate(all="ignore"):
        expected = seqeval.metrics.f1_score(references, predictions, zero_division=0)
    assert scores.chunks.f1 == pytest.approx(expected)
    assert scores.accuracy == pytest.approx(seqeval.metrics.accuracy_score(references, predictions))
    assert sum(kind.right for kind in scores.types.values()) == scores.chunks.right


@given(
    st.lists(st.tuples(st.sampled_from("XY"), st.integers(1, 3), st.integers(0, 1)), min_size=1, max_size=5),
    st.integers(0, 1000),
    st.sampled_from(["IOB2", "IOBES"]),
)
def test_strict_counts_equal_seqeval(chunks, seed, scheme):
    position, spans = 0, []
    for kind, width, gap in chunks:
        spans.append(Chunk(kind, position + gap, position + gap + width))
        position += gap + width
    gold = write_tags(spans, position, scheme)
    draw = random.Random(seed)
    predicted = [draw.choice(scheme_labels("XY", scheme)) if draw.random() < 0.3 else tag for tag in gold]
    scores = score_tags([predicted], [gold], "strict", scheme)
    expected = seqeval.metrics.f1_score(
        [gold], [predicted], mode="strict", scheme=getattr(seqeval_scheme, scheme), zero_division=0
    )
    assert scores.chunks.f1 == pytest.approx(expected) and scores.chunks.gold == len(spans)
    assert score_tags([gold], [gold], "conlleval").chunks.right == len(spans)


@pytest.mark.skipif(not CONLL2000.is_dir(), reason="the CoNLL-2000 files are not beside the project")
def test_the_whole_test_file_of_conll2000_scores_as_recounted():
    data = read_conll(CONLL2000 / "test.txt", ["tokens", None, "chunk_tags"], labels=[])["train"]
    references = data["chunk_tags"][:]
    tags = sorted({tag for sentence in references for tag in sentence})
    draw = random.Random(0)
    predictions = [[draw.choice(tags) if draw.random() < 0.1 else tag for tag in row] for row in references]
    scores = score_tags(predictions, references)
    gold, predicted, right = recount(predictions, references)
    assert gold == 23852  # as published with the data
    assert counts(scores) == (gold, predicted, right) and right < 0.9 * gold
    assert scores.chunks.precision == right / predicted and scores.chunks.recall == right / gold
    assert scores.chunks.f1 == pytest.approx(2 * right / (gold + predicted), abs=1e-12)
    assert scores.tags == 47377
    computed = Conlleval().compute(predictions=predictions, references=references)
    assert computed["f1"] == scores.chunks.f1 and computed["types"]["NP"]["number"] == 12422
    strict = score_tags(predictions, references, "strict")
    assert strict.chunks.gold == gold and strict.chunks.f1 != scores.chunks.f1


def test_types_accuracy_and_table():
    scores = score_tags([["B-NP", "I-NP", "B-VP", "O"]], [["B-NP", "I-NP", "B-NP", "O"]])
    assert scores.accuracy == 0.75 and list(scores.types) == ["NP", "VP"]
    result = scores.as_dict()
    assert result["types"]["NP"] == {"precision": 1.0, "recall": 0.5, "f1": pytest.approx(2 / 3), "number": 2}
    assert result["types"]["VP"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "number": 0}
    assert [line.split()[:4] for line in scores.table().splitlines()[1:4]] == [
        ["NP", "2", "1", "1"],
        ["VP", "0", "1", "0"],
        ["total", "2", "2", "1"],
    ]


@pytest.mark.parametrize(
    "tags, chunks",
    [
        (["B-X", "E-X", "I-X"], 2),
        (["S-X", "I-X", "E-X"], 2),
        (["I-X", "E-X", "E-X"], 2),
        (["S-X", "S-X", "O"], 2),
        (["B-X", "I-X", "E-X"], 1),
        (["I-X", "S-X", "B-X"], 3),
    ],
)
def test_ends_and_single_words_are_read_leniently_too(tags, chunks):
    assert counts(score_tags([tags], [tags])) == (chunks,) * 3


def test_tags_without_types_count_as_one_type():
    assert counts(score_tags([["B", "I", "O"]], [["I", "I", "O"]])) == (1, 1, 1)


def test_metrics_of_evaluate_accumulate_batches():
    metric = Conlleval()
    metric.add_batch(predictions=[["B-X", "O"]], references=[["B-X", "O"]])
    metric.add_batch(predictions=[["O"]], references=[["B-X"]])
    assert metric.compute() == score_tags([["B-X", "O"], ["O"]], [["B-X", "O"], ["B-X"]]).as_dict()
    strict = StrictChunks().compute(predictions=[["S-X"]], references=[["S-X"]], scheme="BIOES")
    assert strict["f1"] == 1.0


LABELS = ["O", "B-NP", "I-NP"]


def test_trainer_metrics_ignore_unlabelled_tokens_and_take_scores_or_ids():
    wanted = np.array([[-100, 1, 2, -100], [0, 1, -100, -100]])
    ids = np.array([[1, 1, 2, 2], [0, 0, 1, -100]])
    scores = np.eye(3)[np.clip(ids, 0, None)]
    expected = {"precision": 1.0, "recall": 0.5, "f1": pytest.approx(2 / 3), "accuracy": 0.75}
    for predictions in (ids, scores, (scores, np.zeros(3))):
        assert TaggingMetrics(LABELS)(EvalPrediction(predictions, wanted)) == expected
    assert predicted_tags(EvalPrediction(ids, wanted), LABELS)[0] == [["B-NP", "I-NP"], ["O", "O"]]
    assert TaggingMetrics(LABELS, per_type=True)(EvalPrediction(ids, wanted))["f1_NP"] == pytest.approx(2 / 3)
    assert TaggingMetrics(["N", "V", "P"], "accuracy")(EvalPrediction(ids, wanted)) == {"accuracy": 0.75}


def test_trainer_metrics_are_strict_on_request():
    prediction = EvalPrediction(np.array([[2, 2]]), np.array([[1, 2]]))
    assert TaggingMetrics(LABELS)(prediction)["f1"] == 1.0
    assert TaggingMetrics(LABELS, "strict")(prediction)["f1"] == 0.0


@pytest.mark.parametrize(
    "predictions, references, options, message",
    [
        ([["O"]], [["O", "O"]], {}, "sentence 0 has 1 predicted tags, but 2 in the references"),
        ([["O"]], [["O"], ["O"]], {}, "1 sentences of predictions, but 2 of references"),
        ([[]], [[]], {}, "nothing to score"),
        ([["NN"]], [["O"]], {}, "sentence 0, tag 0: 'NN' is no tag of a known scheme"),
        ([["Ox"]], [["O"]], {}, "'Ox' is no tag"),
        ([[""]], [["O"]], {}, "'' is no tag"),
        ([["E-X"]], [["O"]], {"scoring": "strict"}, "sentence 0, tag 0: 'E-X' is no tag of IOB2"),
        ([["O"]], [["I-X"]], {"scoring": "strict"}, "sentence 0, tag 0: tag 'I-X' cannot begin.*the tags are IOB1"),
        ([["O"]], [["O"]], {"scoring": "strict", "scheme": "IOB1"}, "strict scores are for IOB2, IOBES"),
        ([["O"]], [["O"]], {"scoring": "f1"}, "scoring is 'f1'"),
    ],
)
def test_what_cannot_be_scored_is_refused(predictions, references, options, message):
    with pytest.raises(ValueError, match=message):
        score_tags(predictions, references, **options)


@pytest.mark.parametrize(
    "predictions, wanted, message",
    [
        (np.zeros((1, 3)), np.zeros((1, 2)), r"predictions have shape \(1, 3\) and labels \(1, 2\)"),
        (np.zeros((1, 2)), np.full((1, 2), -100), "2 labels, all of them -100"),
        (np.array([[0, -100]]), np.zeros((1, 2)), r"predictions\[0, 1\] is -100.*decode every labelled token"),
        (np.zeros((1, 2)), np.array([[0, 3]]), r"labels\[0, 1\] is 3, but there are labels 0..2"),
    ],
)
def test_predictions_that_do_not_fit_are_refused(predictions, wanted, message):
    with pytest.raises(ValueError, match=message):
        TaggingMetrics(LABELS)(EvalPrediction(predictions, wanted))


def test_unknown_scoring_and_plain_strings_are_refused():
    with pytest.raises(ValueError, match="scoring is 'iob'"):
        TaggingMetrics(LABELS, "iob")
    with pytest.raises(TypeError, match=r"predictions\[0\] is 'BIO'"):
        score_tags(["BIO"], [["B", "I", "O"]])
