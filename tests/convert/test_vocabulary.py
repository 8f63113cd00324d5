"""Moving a model to another vocabulary."""

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from hf_metalstm import MetaLSTMConfig, MetaLSTMModel, WordTokenizer
from hf_metalstm.convert.vocabulary import check_vocabulary, remap_vocabulary


@pytest.fixture
def old() -> WordTokenizer:
    return WordTokenizer.train_from_iterator(["a b"])


@pytest.fixture
def new() -> WordTokenizer:
    return WordTokenizer.train_from_iterator(["c c b d"])


def test_known_words_keep_their_rows_and_new_ones_get_the_mean(old, new):
    model = MetaLSTMModel(MetaLSTMConfig(vocab_size=len(old), embedding_size=3, hidden_size=4))
    before = model.embeddings.weight.detach().clone()
    report = remap_vocabulary(model, old, new)
    after = model.embeddings.weight
    assert after.shape[0] == model.config.vocab_size == len(new)
    assert torch.equal(after[new.get_vocab()["b"]], before[old.get_vocab()["b"]])
    for word in "cd":
        torch.testing.assert_close(after[new.get_vocab()[word]], before.mean(0))
    assert sorted(report.new) == ["c", "d"] and "b" in report.kept
    assert str(report).startswith("5 kept, 2 new, e.g. ")


@pytest.mark.parametrize("tied", [True, False])
def test_the_output_layer_moves_too_and_stays_tied(old, new, tied):
    config = GPT2Config(vocab_size=len(old), n_embd=4, n_layer=1, n_head=1, n_positions=8, tie_word_embeddings=tied)
    config.bos_token_id = config.eos_token_id = 2
    model = GPT2LMHeadModel(config)
    rows, output = model.transformer.wte.weight.detach().clone(), model.lm_head.weight.detach().clone()
    remap_vocabulary(model, old, new)
    b_old, b_new, c_new = old.get_vocab()["b"], new.get_vocab()["b"], new.get_vocab()["c"]
    assert torch.equal(model.transformer.wte.weight[b_new], rows[b_old])
    assert torch.equal(model.lm_head.weight[b_new], output[b_old])
    torch.testing.assert_close(model.lm_head.weight[c_new], output.mean(0))
    assert (model.lm_head.weight is model.transformer.wte.weight) is tied


def test_the_bias_of_an_output_layer_moves_like_its_rows(old, new):
    config = GPT2Config(vocab_size=len(old), n_embd=4, n_layer=1, n_head=1, n_positions=8, tie_word_embeddings=False)
    config.bos_token_id = config.eos_token_id = 2
    model = GPT2LMHeadModel(config)
    model.lm_head = torch.nn.Linear(4, len(old), bias=True)
    bias = model.lm_head.bias.detach().clone()
    remap_vocabulary(model, old, new)
    assert model.lm_head.bias[new.get_vocab()["b"]] == bias[old.get_vocab()["b"]]
    torch.testing.assert_close(model.lm_head.bias[new.get_vocab()["c"]], bias.mean())


def test_a_tokenizer_with_more_ids_than_the_model_is_refused_with_both_sizes(old):
    model = MetaLSTMModel(MetaLSTMConfig(vocab_size=4, embedding_size=3, hidden_size=4))
    with pytest.raises(ValueError, match=r"has 6 ids, but the model has embeddings for 4.*remap_vocabulary"):
        check_vocabulary(model, old)
    with pytest.raises(ValueError, match="remap_vocabulary"):
        remap_vocabulary(model, old, old)


def test_a_model_may_have_more_rows_than_the_tokenizer_has_words(old):
    model = MetaLSTMModel(MetaLSTMConfig(vocab_size=50, embedding_size=3, hidden_size=4))
    check_vocabulary(model, old)
    before = model.embeddings.weight[:6].detach().clone()
    remap_vocabulary(model, old, old)
    assert torch.equal(model.embeddings.weight, before)
