"""Moving a model to another vocabulary, and noticing when model and tokenizer do not fit."""

import re

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

from hf_metalstm import MetaLSTMConfig, MetaLSTMModel, WordTokenizer
from hf_metalstm.convert.vocabulary import check_vocabulary, remap_vocabulary


@pytest.fixture
def old() -> WordTokenizer:
    return WordTokenizer.train_from_iterator(["a b"])


@pytest.fixture
def new() -> WordTokenizer:
    return WordTokenizer.train_from_iterator(["c c b d"])


def encoder(tokenizer: WordTokenizer, spare: int = 0) -> MetaLSTMModel:
    return MetaLSTMModel(MetaLSTMConfig(vocab_size=len(tokenizer) + spare, embedding_size=3, hidden_size=4))


def language_model(tokenizer: WordTokenizer, tied: bool) -> GPT2LMHeadModel:
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_embd=4,
        n_layer=1,
        n_head=1,
        n_positions=8,
        tie_word_embeddings=tied,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    return GPT2LMHeadModel(config)


def test_known_words_keep_their_rows_and_new_ones_get_the_mean():
    """The example of the requirement: {a, b, unk} becomes {b, c, unk}."""
    settings = {"bos_token": None, "eos_token": None}
    old = WordTokenizer.train_from_iterator(["a b"], **settings)
    new = WordTokenizer.train_from_iterator(["b c"], **settings)
    model = encoder(old)
    torch.nn.init.normal_(model.embeddings.weight)
    before = dict(zip(old.convert_ids_to_tokens(range(4)), model.embeddings.weight.detach().clone(), strict=True))
    report = remap_vocabulary(model, old, new)
    after = dict(zip(new.convert_ids_to_tokens(range(4)), model.embeddings.weight, strict=True))
    assert model.config.vocab_size == len(new) == model.embeddings.num_embeddings
    for word in ("<pad>", "<unk>", "b"):
        assert torch.equal(after[word], before[word])
    torch.testing.assert_close(after["c"], torch.stack(list(before.values())).mean(0))
    assert (report.kept, report.new, report.dropped) == (["b"], ["c"], ["a"])
    assert str(report) == "1 kept, 1 new (e.g. c), 1 dropped"


def test_a_smaller_and_a_larger_vocabulary_both_run(old):
    for text in ("a", "a b c d e f g"):
        new = WordTokenizer.train_from_iterator([text])
        model = encoder(old)
        remap_vocabulary(model, old, new)
        assert model(**new(text, return_tensors="pt")).last_hidden_state.shape[1] == len(text.split())


@pytest.mark.parametrize("tied", [True, False])
def test_the_output_layer_moves_too_and_stays_tied(old, new, tied):
    model = language_model(old, tied)
    rows, output = model.transformer.wte.weight.detach().clone(), model.lm_head.weight.detach().clone()
    remap_vocabulary(model, old, new)
    b_old, b_new, c_new = old.get_vocab()["b"], new.get_vocab()["b"], new.get_vocab()["c"]
    assert torch.equal(model.transformer.wte.weight[b_new], rows[b_old])
    assert torch.equal(model.lm_head.weight[b_new], output[b_old])
    torch.testing.assert_close(model.lm_head.weight[c_new], output.mean(0))
    assert (model.lm_head.weight is model.transformer.wte.weight) is tied
    assert model(**new("c b", return_tensors="pt")).logits.shape[-1] == len(new)


def test_the_bias_of_an_output_layer_moves_like_its_rows(old, new):
    model = language_model(old, tied=False)
    model.lm_head = torch.nn.Linear(4, len(old), bias=True)
    bias = model.lm_head.bias.detach().clone()
    remap_vocabulary(model, old, new)
    assert model.lm_head.bias[new.get_vocab()["b"]] == bias[old.get_vocab()["b"]]
    torch.testing.assert_close(model.lm_head.bias[new.get_vocab()["c"]], bias.mean())


def test_a_bias_that_the_model_holds_twice_stays_one(old, new):
    config = BertConfig(
        vocab_size=len(old), hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4
    )
    model = BertForMaskedLM(config)
    torch.nn.init.normal_(model.cls.predictions.bias)
    bias = model.cls.predictions.bias.detach().clone()
    remap_vocabulary(model, old, new)
    assert model.cls.predictions.decoder.bias is model.cls.predictions.bias
    assert model.cls.predictions.decoder.weight is model.bert.embeddings.word_embeddings.weight
    assert model.cls.predictions.bias[new.get_vocab()["b"]] == bias[old.get_vocab()["b"]]
    torch.testing.assert_close(model.cls.predictions.bias[new.get_vocab()["d"]], bias.mean())


def test_special_tokens_with_another_spelling_or_place_take_over(old):
    new = WordTokenizer.train_from_iterator(["b"], pad_token="xxpad", unk_token="xxunk", bos_token=None, eos_token="x")
    model = language_model(old, tied=True)
    model.config.pad_token_id = 0
    before = model.transformer.wte.weight.detach().clone()
    report = remap_vocabulary(model, old, new)
    after = model.transformer.wte.weight
    for token, origin in {"xxpad": "<pad>", "xxunk": "<unk>", "x": "</s>", "b": "b"}.items():
        assert torch.equal(after[new.get_vocab()[token]], before[old.get_vocab()[origin]])
    assert (model.config.pad_token_id, model.config.bos_token_id, model.config.eos_token_id) == (0, None, 2)
    assert (model.generation_config.bos_token_id, model.generation_config.eos_token_id) == (None, 2)
    assert str(report) == "1 kept, 0 new, 1 dropped"


def test_padding_follows_its_token(old):
    new = WordTokenizer.train_from_iterator(["b"])
    new.pad_token = "</s>"
    model = encoder(old)
    remap_vocabulary(model, old, new)
    assert model.config.pad_token_id == model.embeddings.padding_idx == new.pad_token_id == 3


def test_frozen_embeddings_stay_frozen_and_others_learn(old, new):
    for learns in (True, False):
        model = encoder(old)
        model.embeddings.requires_grad_(learns)
        remap_vocabulary(model, old, new)
        assert model.embeddings.weight.requires_grad is learns


def test_a_moved_model_gives_the_same_results_for_known_words(old, new):
    model = encoder(old).eval()
    before = model(**old("b b", return_tensors="pt")).last_hidden_state
    remap_vocabulary(model, old, new)
    assert torch.equal(model(**new("b b", return_tensors="pt")).last_hidden_state, before)


def test_a_moved_model_survives_saving(old, new, tmp_path):
    model = encoder(old)
    remap_vocabulary(model, old, new)
    model.save_pretrained(tmp_path)
    loaded = MetaLSTMModel.from_pretrained(tmp_path)
    assert torch.equal(loaded.embeddings.weight, model.embeddings.weight)
    assert loaded.config.vocab_size == loaded.embeddings.num_embeddings == len(new)


def test_a_tokenizer_with_more_ids_than_the_model_is_refused_with_both_sizes(old):
    model = MetaLSTMModel(MetaLSTMConfig(vocab_size=4, embedding_size=3, hidden_size=4))
    message = r"has 6 ids, but the model has embeddings for 4.*remap_vocabulary\(model, old_tokenizer, new_tokenizer\)"
    for check in (check_vocabulary, lambda model, old: remap_vocabulary(model, old, old)):
        with pytest.raises(ValueError, match=message):
            check(model, old)


def test_added_tokens_count(old):
    model = encoder(old)
    check_vocabulary(model, old)
    old.add_tokens(["c"])
    with pytest.raises(ValueError, match=re.escape("resize_token_embeddings(len(tokenizer))")):
        check_vocabulary(model, old)
    model.resize_token_embeddings(len(old))
    check_vocabulary(model, old)


def test_a_model_may_have_spare_rows_but_not_those_of_another_vocabulary(old, new):
    model = encoder(old, spare=1024)
    check_vocabulary(model, old)
    words = model.embeddings.weight[: len(old)].detach().clone()
    remap_vocabulary(model, old, new)
    assert model.embeddings.num_embeddings == len(new)
    torch.testing.assert_close(model.embeddings.weight[new.get_vocab()["c"]], words.mean(0))
    with pytest.raises(ValueError, match=r"has 6 ids, but the model has embeddings for 1031.*remap_vocabulary"):
        check_vocabulary(encoder(old, spare=1025), old)
