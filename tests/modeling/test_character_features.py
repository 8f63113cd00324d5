"""Character features against one word at a time, computed with torch's own layers."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_metalstm.modeling.character_features import (
    CHARACTER_ENCODERS,
    CharacterCNN,
    CharacterLSTM,
    CharacterVocabulary,
)

KINDS = sorted(CHARACTER_ENCODERS)


def make(kind):
    torch.manual_seed(0)
    encoder = CHARACTER_ENCODERS[kind](12, 5, 4).double().eval()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.normal_()
    return encoder


def feature_of_word(encoder, ids):
    """One word, without padding, by other means."""
    embedded = encoder.embeddings[torch.tensor(ids)]
    if isinstance(encoder, CharacterCNN):
        width = encoder.filters.shape[2]
        zeros = embedded.new_zeros(width - 1, embedded.shape[1])
        padded = torch.cat([zeros, embedded, zeros])
        windows = [padded[place : place + width] for place in range(len(padded) - width + 1)]
        sums = [torch.einsum("kd,fdk->f", window, encoder.filters) + encoder.bias for window in windows]
        return torch.stack(sums).max(0).values.tanh()
    hidden = encoder.output_size // 2
    reference = torch.nn.LSTM(embedded.shape[1], hidden, bidirectional=True).double()
    with torch.no_grad():
        for direction, suffix in enumerate(("", "_reverse")):
            getattr(reference, f"weight_ih_l0{suffix}").copy_(encoder.input_weights[direction])
            getattr(reference, f"weight_hh_l0{suffix}").copy_(encoder.hidden_weights[direction])
            getattr(reference, f"bias_ih_l0{suffix}").copy_(encoder.biases[direction])
            getattr(reference, f"bias_hh_l0{suffix}").zero_()
    _, (state, _) = reference(embedded[:, None])
    return state[:, 0].flatten()


words_of_batch = st.lists(
    st.lists(st.lists(st.integers(1, 11), max_size=5), min_size=1, max_size=4), min_size=1, max_size=3
)


@pytest.mark.parametrize("kind", KINDS)
@given(words_of_batch, st.integers(0, 2), st.integers(0, 2), st.booleans())
def test_features_equal_those_of_single_words_however_they_are_padded(kind, batch, left, right, more_words):
    encoder = make(kind)
    longest = max(len(word) for row in batch for word in row)
    shape = (len(batch), max(map(len, batch)) + more_words, max(1, left + longest + right))
    ids = torch.randint(12, shape)  # what stands in the padding does not matter
    mask = torch.zeros(shape, dtype=torch.long)
    for row, words in enumerate(batch):
        for place, word in enumerate(words):
            ids[row, place, left : left + len(word)] = torch.tensor(word, dtype=torch.long)
            mask[row, place, left : left + len(word)] = 1
    features = encoder(ids, mask)
    assert features.shape == (*shape[:2], encoder.output_size)
    for row in range(shape[0]):
        for place in range(shape[1]):
            word = batch[row][place] if place < len(batch[row]) else []
            expected = feature_of_word(encoder, word) if word else torch.zeros_like(features[row, place])
            torch.testing.assert_close(features[row, place], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_mask_zeros_are_padding(kind):
    encoder = make(kind)
    ids = torch.tensor([[[3, 4, 0], [5, 0, 0], [0, 0, 0]]])
    torch.testing.assert_close(encoder(ids), encoder(ids, (ids != 0).long()))
    assert (encoder(ids)[0, 2] == 0).all() and (encoder(torch.zeros_like(ids)) == 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_learns_and_padding_does_not(kind):
    encoder = make(kind)
    encoder(torch.tensor([[[3, 4, 0], [5, 0, 0]]])).square().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in encoder.parameters())
    touched = encoder.embeddings.grad.abs().sum(1).nonzero()[:, 0]
    assert touched.tolist() == [3, 4, 5]


def test_options_change_the_result():
    ids = torch.tensor([[[3, 4, 5, 6]]])
    shapes = {CharacterCNN(12, num_filters=7)(ids).shape[-1], CharacterLSTM(12, hidden_size=6)(ids).shape[-1]}
    assert shapes == {7, 12}
    assert CharacterCNN(12, kernel_size=2).filters.shape == (30, 30, 2)
    for kind in KINDS:
        encoder = CHARACTER_ENCODERS[kind](12, dropout=0.5).train()
        assert not torch.equal(encoder(ids), encoder(ids))
        assert torch.equal(encoder.eval()(ids), encoder(ids))


def test_the_order_of_characters_counts():
    for kind in KINDS:
        encoder = make(kind)
        assert not torch.allclose(encoder(torch.tensor([[[3, 4, 5]]])), encoder(torch.tensor([[[5, 4, 3]]])))


@pytest.mark.parametrize("kind", KINDS)
def test_half_precision_models_run(kind):
    encoder = CHARACTER_ENCODERS[kind](12).to(torch.bfloat16).eval()
    ids = torch.tensor([[[3, 4, 0], [5, 0, 0]]])
    features = encoder(ids)
    assert features.dtype == torch.bfloat16
    torch.testing.assert_close(features.float(), encoder.float()(ids), atol=0.05, rtol=0.05)


def test_the_vocabulary_counts_encodes_and_survives_json():
    vocabulary = CharacterVocabulary.train(["banana", "nab", "é"], min_frequency=2)
    assert vocabulary.characters == ["a", "n", "b"] and len(vocabulary) == 5
    assert vocabulary.encode("nabé") == [3, 2, 4, 1] and vocabulary.encode("") == []
    again = CharacterVocabulary(**json.loads(json.dumps(vocabulary.to_dict())))
    assert again.to_dict() == vocabulary.to_dict() and again.encode("nabé") == [3, 2, 4, 1]


def test_long_words_keep_their_beginning_and_their_end():
    vocabulary = CharacterVocabulary(list("abcdefg"), max_word_length=5)
    assert vocabulary.encode("abcdefg") == vocabulary.encode("abc") + vocabulary.encode("fg")
    assert vocabulary.encode("abcde") == [2, 3, 4, 5, 6]


def test_batches_are_padded_on_the_right():
    batch = CharacterVocabulary(["a", "b"]).encode_batch([["ab", "", "b"], ["a"]])
    assert batch.tolist() == [[[2, 3], [0, 0], [3, 0]], [[2, 0], [0, 0], [0, 0]]] and batch.dtype == torch.int64


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: CharacterVocabulary(["ab"]), ValueError, r"characters\[0\] is 'ab'"),
        (lambda: CharacterVocabulary(["a", "b", "a"]), ValueError, "hold 'a' twice"),
        (lambda: CharacterVocabulary(["a"], 1), ValueError, "max_word_length is 1"),
        (lambda: CharacterVocabulary.train("abc"), TypeError, "one string"),
        (lambda: CharacterVocabulary.train(["abc"], min_frequency=2), ValueError, "no character occurs 2 times"),
        (lambda: CharacterVocabulary(["a"]).encode_batch([[], []]), ValueError, "no word"),
        (lambda: CharacterCNN(0), ValueError, "vocab_size is 0"),
        (lambda: CharacterCNN(5, kernel_size=0), ValueError, "kernel_size is 0"),
        (lambda: CharacterLSTM(5, hidden_size=0), ValueError, "hidden_size is 0"),
        (lambda: CharacterCNN(5)(torch.zeros(1, 2, dtype=torch.long)), ValueError, r"expected \(batch, words, char"),
        (lambda: CharacterCNN(5)(torch.tensor([[[1, 5]]])), ValueError, r"character_ids\[0, 0, 1\] is 5"),
        (lambda: CharacterCNN(5)(torch.ones(1, 1, 2)), TypeError, "integers"),
        (
            lambda: CharacterCNN(5)(torch.ones(1, 1, 2, dtype=torch.long), torch.ones(1, 1, 3)),
            ValueError,
            r"character_mask has shape \(1, 1, 3\)",
        ),
    ],
)
def test_bad_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
