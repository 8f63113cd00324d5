"""GPT-1's weights from the authors' shards, from transformers' files of all ages, and back."""

import json
import pickle

import numpy as np
import pytest
import torch
from transformers import (
    OpenAIGPTConfig,
    OpenAIGPTDoubleHeadsModel,
    OpenAIGPTForSequenceClassification,
    OpenAIGPTLMHeadModel,
    OpenAIGPTModel,
)

from hf_metalstm import (
    GPT1Config,
    GPT1DoubleHeadsModel,
    GPT1ForSequenceClassification,
    GPT1LMHeadModel,
    GPT1Model,
)
from hf_metalstm.cli import main
from hf_metalstm.convert.gpt1 import load_openai_shards, save_as_openai_gpt

SIZES = dict(vocab_size=23, n_positions=9, n_embd=128, n_layer=2, n_head=2)
IDS = torch.tensor([[3, 8, 1, 22, 0, 5]])


def peer(model_class=OpenAIGPTLMHeadModel) -> torch.nn.Module:
    torch.manual_seed(0)
    model = model_class(OpenAIGPTConfig(**SIZES)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def write_shards(folder, model, number=10) -> None:
    """In the form of the authors' release: positions, tokens, blocks; a leading 1 at matrices; split anywhere."""
    body = model.transformer
    arrays = [body.positions_embed.weight, body.tokens_embed.weight]
    for block in body.h:
        attention, feed = block.attn, block.mlp
        arrays += [attention.c_attn.weight[None], attention.c_attn.bias, attention.c_proj.weight[None]]
        arrays += [attention.c_proj.bias, block.ln_1.weight, block.ln_1.bias]
        arrays += [feed.c_fc.weight[None], feed.c_fc.bias, feed.c_proj.weight[None], feed.c_proj.bias]
        arrays += [block.ln_2.weight, block.ln_2.bias]
    (folder / "params_shapes.json").write_text(json.dumps([list(array.shape) for array in arrays]))
    numbers = np.concatenate([array.detach().numpy().ravel() for array in arrays])
    for index, part in enumerate(np.array_split(numbers, number)):
        np.save(folder / f"params_{index}.npy", part)


@pytest.mark.parametrize("model_class", [GPT1LMHeadModel, GPT1Model, GPT1DoubleHeadsModel])
def test_the_authors_shards_give_the_model(model_class, tmp_path):
    source = peer()
    write_shards(tmp_path, source)
    model = load_openai_shards(tmp_path, model_class)
    assert (model.config.n_head, model.config.n_layer, model.config.n_positions) == (2, 2, 9)
    body = model if model_class is GPT1Model else model.transformer
    with torch.no_grad():
        wanted = source.transformer(IDS).last_hidden_state
        torch.testing.assert_close(body(IDS).last_hidden_state, wanted, rtol=1e-5, atol=1e-5)
        if model_class is GPT1LMHeadModel:
            torch.testing.assert_close(model(IDS).logits, source(IDS).logits, rtol=1e-5, atol=1e-5)


def test_shards_that_do_not_fit_are_refused_in_words(tmp_path):
    with pytest.raises(FileNotFoundError, match="params_shapes.json"):
        load_openai_shards(tmp_path)
    write_shards(tmp_path, peer())
    (tmp_path / "params_9.npy").unlink()
    with pytest.raises(ValueError, match="9 shards hold .* is a shard missing"):
        load_openai_shards(tmp_path)
    (tmp_path / "params_9.npy").write_bytes(b"\x93NUMPY\x01\x00cut")
    with pytest.raises(ValueError, match="params_9.npy"):
        load_openai_shards(tmp_path)
    (tmp_path / "params_shapes.json").write_text("[[1, 2], [3]]")
    with pytest.raises(ValueError, match="12 for each block"):
        load_openai_shards(tmp_path)


class Payload:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_a_shard_with_code_in_it_is_not_run(tmp_path):
    write_shards(tmp_path, peer())
    np.save(tmp_path / "params_3.npy", np.array([Payload(tmp_path / "made")], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="params_3.npy"):
        load_openai_shards(tmp_path)
    assert not (tmp_path / "made").exists()


def test_a_weight_file_with_code_in_it_is_not_run(tmp_path):
    peer().config.save_pretrained(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps({"x": Payload(tmp_path / "made")}))
    with pytest.raises(Exception, match=".+"):
        GPT1LMHeadModel.from_pretrained(tmp_path)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("reader", [GPT1LMHeadModel, GPT1Model, GPT1DoubleHeadsModel, GPT1ForSequenceClassification])
@pytest.mark.parametrize("style", ["today", "bare", "tensorflow"])
def test_older_bin_files_of_all_key_styles_are_read(reader, style, tmp_path):
    source = peer()
    state = {name.removeprefix("transformer."): value for name, value in source.transformer.state_dict().items()}
    if style == "today":
        state = {f"transformer.{name}": value for name, value in state.items()} | {
            "lm_head.weight": source.lm_head.weight.detach()
        }
    if style == "tensorflow":
        for old, new in (("ln_1.weight", "ln_1.g"), ("ln_2.weight", "ln_2.g"), ("ln_1.bias", "ln_1.b")):
            state = {name.replace(old, new): value for name, value in state.items()}
        state["h.0.attn.bias"] = torch.ones(1, 1, 9, 9).tril()
    source.config.save_pretrained(tmp_path)
    torch.save(state, tmp_path / "pytorch_model.bin")
    model = reader.from_pretrained(tmp_path).eval()
    body = model if reader is GPT1Model else model.transformer
    with torch.no_grad():
        wanted = source.transformer(IDS).last_hidden_state
        torch.testing.assert_close(body(IDS).last_hidden_state, wanted, rtol=1e-5, atol=1e-5)


PAIRS = {
    GPT1Model: OpenAIGPTModel,
    GPT1LMHeadModel: OpenAIGPTLMHeadModel,
    GPT1DoubleHeadsModel: OpenAIGPTDoubleHeadsModel,
    GPT1ForSequenceClassification: OpenAIGPTForSequenceClassification,
}


@pytest.mark.parametrize("ours", PAIRS, ids=lambda c: c.__name__)
def test_an_exported_folder_is_read_by_transformers_and_gives_the_same(ours, tmp_path):
    torch.manual_seed(3)
    labels = {} if ours is not GPT1ForSequenceClassification else {"id2label": {0: "a", 1: "b", 2: "c"}}
    model = ours(GPT1Config(**SIZES, clf_pdrop=0.3, pad_token_id=0, **labels)).eval()
    save_as_openai_gpt(model, tmp_path)
    theirs, info = PAIRS[ours].from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert theirs.config.summary_first_dropout == 0.3
    ids = IDS[:, None] if ours is GPT1DoubleHeadsModel else IDS
    with torch.no_grad():
        wanted, got = model(ids), theirs.eval()(ids)
    field = "last_hidden_state" if ours is GPT1Model else "logits"
    torch.testing.assert_close(got[field], wanted[field], rtol=1e-5, atol=1e-5)
    if labels:
        assert theirs.config.id2label == labels["id2label"]
    again = ours.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        assert torch.equal(again(ids)[field], wanted[field])


def test_other_models_are_not_exported(tmp_path):
    with pytest.raises(TypeError, match="OpenAIGPTLMHeadModel.*GPT1Model"):
        save_as_openai_gpt(peer(), tmp_path)


def test_the_command_reads_shards_and_writes_back(tmp_path, capsys):
    (tmp_path / "shards").mkdir()
    source = peer()
    write_shards(tmp_path / "shards", source)
    assert main(["convert", "gpt1", str(tmp_path / "shards"), str(tmp_path / "ours")]) == 0
    assert "GPT1LMHeadModel" in capsys.readouterr().out
    assert main(["convert", "gpt1", str(tmp_path / "ours"), str(tmp_path / "theirs"), "--export"]) == 0
    with torch.no_grad():
        theirs = OpenAIGPTLMHeadModel.from_pretrained(tmp_path / "theirs").eval()
        torch.testing.assert_close(theirs(IDS).logits, source(IDS).logits)
    assert main(["convert", "gpt1", str(tmp_path / "nowhere"), str(tmp_path / "x")]) == 1
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
