"""GPT-1 against transformers' OpenAIGPT with the same weights, against itself in other batches, with bad input."""

import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from torch.nn import functional as F
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMultipleChoice,
    AutoModelForSequenceClassification,
    OpenAIGPTConfig,
    OpenAIGPTDoubleHeadsModel,
    OpenAIGPTForSequenceClassification,
    OpenAIGPTLMHeadModel,
)

from hf_metalstm import (
    GPT1Config,
    GPT1DoubleHeadsModel,
    GPT1ForSequenceClassification,
    GPT1LMHeadModel,
    GPT1Model,
)
from hf_metalstm.modeling.chunked_loss import chunked_linear_cross_entropy
from hf_metalstm.modeling.gpt1_losses import add_objectives

SIZES = dict(vocab_size=43, n_embd=24, n_layer=3, n_head=4, n_positions=24)
HEADS = {
    "lm": (OpenAIGPTLMHeadModel, GPT1LMHeadModel, AutoModelForCausalLM),
    "double": (OpenAIGPTDoubleHeadsModel, GPT1DoubleHeadsModel, AutoModelForMultipleChoice),
    "classes": (
        OpenAIGPTForSequenceClassification,
        GPT1ForSequenceClassification,
        AutoModelForSequenceClassification,
    ),
}


def ids_of(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(3, SIZES["vocab_size"], shape, generator=torch.Generator().manual_seed(seed))


def build(model_class: type, **changes: object) -> torch.nn.Module:
    """Not at the initial weights, whose small sizes and zero biases hide faults."""
    torch.manual_seed(0)
    model = model_class(GPT1Config(**{**SIZES, **changes})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@pytest.fixture(scope="module")
def peers(tmp_path_factory) -> dict:
    """transformers' models and ours, read from their folders."""
    made = {}
    for name, (theirs, ours, _) in HEADS.items():
        torch.manual_seed(1)
        peer = theirs(OpenAIGPTConfig(**SIZES, pad_token_id=0)).eval()
        with torch.no_grad():
            for parameter in peer.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
        folder = tmp_path_factory.mktemp(name)
        peer.save_pretrained(folder)
        made[name] = peer, ours.from_pretrained(folder).eval(), folder
    return made


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("padded", [False, True])
def test_logits_and_hidden_states_equal_those_of_transformers(peers, implementation, padded):
    peer, model, _ = peers["lm"]
    model.set_attn_implementation(implementation)
    ids, mask = ids_of(3, 11), torch.ones(3, 11, dtype=torch.long)
    if padded:
        mask[0, 7:], mask[2, 2:] = 0, 0
    with torch.no_grad():
        wanted = peer(ids, attention_mask=mask, output_hidden_states=True)
        got = model(ids, attention_mask=mask, output_hidden_states=True)
    real = mask.bool()
    torch.testing.assert_close(got.logits[real], wanted.logits[real], rtol=1e-5, atol=1e-5)
    assert len(got.hidden_states) == len(wanted.hidden_states) == SIZES["n_layer"] + 1
    for ours, theirs in zip(got.hidden_states, wanted.hidden_states, strict=True):
        torch.testing.assert_close(ours[real], theirs[real], rtol=1e-5, atol=1e-5)


def test_double_heads_and_classifier_equal_those_of_transformers(peers):
    peer, model, _ = peers["double"]
    ids, places = ids_of(2, 3, 9), torch.tensor([[8, 5, 0], [2, 8, 7]])
    with torch.no_grad():
        wanted, got = peer(ids, mc_token_ids=places), model(ids, mc_token_ids=places)
    torch.testing.assert_close(got.mc_logits, wanted.mc_logits, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(got.logits, wanted.logits, rtol=1e-5, atol=1e-5)
    peer, model, _ = peers["classes"]
    with torch.no_grad():
        torch.testing.assert_close(model(ids[:, 0]).logits, peer(ids[:, 0]).logits, rtol=1e-5, atol=1e-5)


def test_gradients_equal_those_of_transformers(peers):
    peer, model, _ = peers["lm"]
    peer, model = copy.deepcopy(peer), copy.deepcopy(model)
    ids = ids_of(2, 8)
    labels = ids.clone()
    labels[0, :4] = -100
    peer(ids, labels=labels).loss.backward()
    model(ids, labels=labels).loss.backward()
    theirs = dict(peer.named_parameters())
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, theirs[name].grad, rtol=1e-4, atol=1e-5)


def test_greedy_tokens_equal_those_of_transformers_with_and_without_a_cache(peers):
    peer, model, _ = peers["lm"]
    ids, mask = ids_of(3, 6), torch.ones(3, 6, dtype=torch.long)
    mask[1, :2] = 0
    wanted = peer.generate(ids, attention_mask=mask, do_sample=False, max_new_tokens=12, pad_token_id=0)
    for use_cache in (True, False):
        got = model.generate(
            ids, attention_mask=mask, do_sample=False, max_new_tokens=12, pad_token_id=0, use_cache=use_cache
        )
        assert torch.equal(got, wanted)


def test_beams_and_samples_are_the_same_with_and_without_a_cache():
    model, ids = build(GPT1LMHeadModel), ids_of(2, 5)
    settings_of = [{"num_beams": 3, "do_sample": False, "num_return_sequences": 2}, {"do_sample": True, "top_k": 5}]
    for choice in settings_of:
        results = []
        for use_cache in (True, False):
            torch.manual_seed(3)
            results.append(model.generate(ids, max_new_tokens=8, pad_token_id=0, use_cache=use_cache, **choice))
        assert torch.equal(*results)


def test_double_heads_write_on_as_their_language_model_does():
    double = build(GPT1DoubleHeadsModel)
    language = GPT1LMHeadModel(double.config).eval()
    language.load_state_dict({k: v for k, v in double.state_dict().items() if "multiple_choice" not in k})
    ids = ids_of(2, 5)
    kwargs = {"max_new_tokens": 7, "do_sample": False, "pad_token_id": 0}
    assert torch.equal(double.generate(ids, **kwargs), language.generate(ids, **kwargs))


def test_a_text_in_parts_with_a_cache_equals_the_whole():
    model, ids = build(GPT1LMHeadModel), ids_of(2, 12)
    whole = model(ids).logits
    first = model(ids[:, :5], use_cache=True)
    second = model(ids[:, 5:9], cache=first.cache, use_cache=True)
    third = model(ids[:, 9:], cache=second.cache, attention_mask=torch.ones(2, 12, dtype=torch.long))
    torch.testing.assert_close(torch.cat([first.logits, second.logits, third.logits], 1), whole)


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    left=st.booleans(),
    extra=st.integers(0, 6),
    implementation=st.sampled_from(["eager", "sdpa"]),
)
def test_padding_on_any_side_changes_nothing(lengths, left, extra, implementation):
    model = build(GPT1LMHeadModel)
    model.set_attn_implementation(implementation)
    width = max(lengths) + extra
    batch, mask = ids_of(len(lengths), width, seed=5), torch.zeros(len(lengths), width, dtype=torch.long)
    texts = [ids_of(length, seed=row) for row, length in enumerate(lengths)]
    for row, text in enumerate(texts):
        place = slice(width - len(text), width) if left else slice(0, len(text))
        batch[row, place], mask[row, place] = text, 1
    with torch.no_grad():
        logits = model(batch, attention_mask=mask).logits
        assert torch.isfinite(logits).all()
        for row, text in enumerate(texts):
            torch.testing.assert_close(logits[row][mask[row].bool()], model(text[None]).logits[0], rtol=1e-5, atol=1e-5)


def test_choices_are_rows_of_their_own():
    model = build(GPT1DoubleHeadsModel)
    ids = ids_of(2, 3, 7)
    output = model(ids, output_hidden_states=True, output_attentions=True)
    assert {tuple(state.shape) for state in output.hidden_states} == {(2, 3, 7, 24)}
    assert {tuple(attention.shape) for attention in output.attentions} == {(2, 3, 4, 7, 7)}
    for row in range(2):
        for choice in range(3):
            alone = model(ids[row, choice][None, None])
            torch.testing.assert_close(output.logits[row, choice], alone.logits[0, 0])
            torch.testing.assert_close(output.mc_logits[row, choice], alone.mc_logits[0, 0])


def test_similarity_reads_both_orders_and_has_none():
    model = build(GPT1ForSequenceClassification, num_labels=3)
    pair = ids_of(2, 2, 8)
    logits = model(pair).logits
    torch.testing.assert_close(logits, model(pair.flip(1)).logits)
    states = model.transformer(pair).last_hidden_state[:, :, -1]
    torch.testing.assert_close(logits, (states[:, 0] + states[:, 1]) @ model.score.weight.T)


def test_objectives_are_what_their_equations_say():
    model = build(GPT1DoubleHeadsModel, lm_coef=0.3)
    ids, right = ids_of(2, 3, 7), torch.tensor([2, 0])
    labels = ids.clone()
    labels[0, 1, :3], labels[1, 2] = -100, -100
    output = model(ids, labels=labels, mc_labels=right)
    scored = labels[..., 1:] != -100
    log_probabilities = output.logits.double().log_softmax(-1)[..., :-1, :]
    each = -log_probabilities.gather(-1, labels[..., 1:, None].clamp(min=0)).squeeze(-1)
    torch.testing.assert_close(output.lm_loss.double(), each[scored].mean(), rtol=1e-5, atol=1e-6)
    chosen = -output.mc_logits.log_softmax(-1)[torch.arange(2), right].mean()
    torch.testing.assert_close(output.mc_loss, chosen)
    torch.testing.assert_close(output.loss, output.mc_loss + 0.3 * output.lm_loss)
    # The authors' average: each sequence's first.
    model.config.lm_loss_reduction = "sequence"
    means = [row[real].mean() for row, real in zip(each.flatten(0, 1), scored.flatten(0, 1), strict=True) if real.any()]
    torch.testing.assert_close(model(ids, labels=labels).loss.double(), torch.stack(means).mean(), rtol=1e-5, atol=1e-6)


def test_the_objectives_are_added_with_the_coefficient():
    torch.testing.assert_close(
        torch.tensor(2.7),
        add_objectives(torch.tensor(0.7), torch.tensor(4.0), 0.5),
    )


def test_the_loss_of_training_holds_no_logits_and_equals_that_of_evaluation():
    model = build(GPT1LMHeadModel, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    ids = ids_of(2, 9)
    evaluated = model(ids, labels=ids)
    trained = model.train()(ids, labels=ids)
    assert trained.logits is None and evaluated.logits.shape == (2, 9, 43)
    torch.testing.assert_close(trained.loss, evaluated.loss)
    assert model(ids, labels=ids, logits_to_keep=2).logits.shape == (2, 2, 43)


def test_logits_to_keep_are_the_last_ones():
    model, ids = build(GPT1LMHeadModel), ids_of(2, 9)
    whole = model(ids).logits
    torch.testing.assert_close(model(ids, logits_to_keep=3).logits, whole[:, -3:])
    torch.testing.assert_close(model(ids, logits_to_keep=torch.tensor([1, 4])).logits, whole[:, [1, 4]])
    choices = build(GPT1DoubleHeadsModel)
    pair = ids_of(2, 2, 6)
    torch.testing.assert_close(choices(pair, logits_to_keep=2).logits, choices(pair).logits[:, :, -2:])


@settings(max_examples=40, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 4), st.integers(1, 9)),
    chunk=st.integers(1, 40),
    reduction=st.sampled_from(["sum", "mean", "sequence_mean"]),
    with_bias=st.booleans(),
    seed=st.integers(0, 99),
)
def test_the_chunked_loss_and_its_gradients_equal_the_plain_ones(shape, chunk, reduction, with_bias, seed):
    make = torch.Generator().manual_seed(seed)
    hidden = torch.randn(*shape, 5, generator=make, dtype=torch.float64)
    weight, bias = (torch.randn(*size, generator=make, dtype=torch.float64) for size in ((11, 5), (11,)))
    labels = torch.randint(-1, 11, shape, generator=make)
    labels[labels < 0] = -100
    results = []
    for plain in (True, False):
        parts = [part.clone().requires_grad_() for part in (hidden, weight, bias)]
        used = parts[2] if with_bias else None
        if plain:
            logits = F.linear(parts[0], parts[1], used)
            each = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none", ignore_index=-100)
            real = labels != -100
            loss = {
                "sum": lambda each=each: each.sum(),
                "mean": lambda each=each, real=real: each.sum() / real.sum().clamp(min=1),
                "sequence_mean": lambda each=each, real=real: (
                    (each.sum(1) / real.sum(1).clamp(min=1)).sum() / real.any(1).sum().clamp(min=1)
                ),
            }[reduction]()
        else:
            loss = chunked_linear_cross_entropy(*parts[:2], labels, used, reduction=reduction, chunk_rows=chunk)
        (2.5 * loss).backward()
        results.append([loss.detach(), *(p.grad if p.grad is not None else torch.zeros_like(p) for p in parts)])
    for got, wanted in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("other", HEADS)
def test_checkpoints_cross_between_heads_and_lose_nothing(peers, name, other):
    folder = peers[name][2]
    model, info = HEADS[other][1].from_pretrained(folder, output_loading_info=True)
    wanted = peers[name][0].state_dict()
    for key, value in model.transformer.state_dict().items():
        assert torch.equal(value, wanted[f"transformer.{key}"]), key
    heads = {"lm": (), "double": ("multiple_choice_head.",), "classes": ("score.",)}
    new = () if name == other else heads[other]
    assert all(key.startswith(new) for key in info["missing_keys"]), info["missing_keys"]
    if "lm_head.weight" in model.state_dict():
        assert model.lm_head.weight.data_ptr() == model.transformer.tokens_embed.weight.data_ptr()


@pytest.mark.parametrize("name", HEADS)
def test_a_saved_model_is_the_same_through_auto_classes_and_in_transformers(name, tmp_path):
    theirs, ours, auto = HEADS[name]
    model = build(ours, num_labels=1 if name == "double" else 3)
    model.save_pretrained(tmp_path)
    ids = ids_of(2, 2, 6) if name == "double" else ids_of(2, 6)
    with torch.no_grad():
        wanted = model(ids)
        again = auto.from_pretrained(tmp_path)
        assert type(again) is ours and type(AutoConfig.from_pretrained(tmp_path)) is GPT1Config
        assert torch.equal(again.eval()(ids).logits, wanted.logits)
        encoder = AutoModel.from_pretrained(tmp_path)
        assert type(encoder) is GPT1Model
        torch.testing.assert_close(
            encoder.eval()(ids).last_hidden_state, model.transformer(ids).last_hidden_state, rtol=0, atol=0
        )
        with safe_open(tmp_path / "model.safetensors", "pt") as file:
            names = set(file.keys())
        assert "transformer.tokens_embed.weight" in names and "lm_head.weight" not in names
    assert torch.equal(pickle.loads(pickle.dumps(model))(ids).logits, wanted.logits)
    assert torch.equal(copy.deepcopy(model)(ids).logits, wanted.logits)


def test_gradient_checkpointing_gives_the_same_gradients():
    ids, grads = ids_of(2, 8), []
    for checkpointing in (False, True):
        model = build(GPT1LMHeadModel).train()
        if checkpointing:
            model.gradient_checkpointing_enable()
        torch.manual_seed(9)
        model(ids, labels=ids).loss.backward()
        grads.append([parameter.grad for parameter in model.parameters()])
    for plain, checkpointed in zip(*grads, strict=True):
        torch.testing.assert_close(checkpointed, plain)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_near_and_finite(dtype):
    model, ids = build(GPT1DoubleHeadsModel), ids_of(2, 2, 8)
    mask = torch.ones_like(ids)
    mask[0, 0, :3] = 0
    labels, right = ids.masked_fill(mask == 0, -100), torch.tensor([1, 0])
    wanted = model(ids, attention_mask=mask, labels=labels, mc_labels=right)
    half = copy.deepcopy(model).to(dtype)
    got = half(ids, attention_mask=mask, labels=labels, mc_labels=right)
    torch.testing.assert_close(got.loss.float(), wanted.loss, rtol=0.05, atol=0.05)
    got.loss.backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in half.parameters())
    with torch.autocast("cpu", dtype=dtype):
        mixed = model(ids, attention_mask=mask, labels=labels, mc_labels=right)
    torch.testing.assert_close(mixed.loss.float(), wanted.loss, rtol=0.05, atol=0.05)


def test_the_dropout_of_the_choice_head_is_shared_between_choices():
    model = build(GPT1DoubleHeadsModel, clf_pdrop=0.5, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0).train()
    same = ids_of(2, 1, 6).expand(2, 4, 6)
    torch.manual_seed(0)
    scores = model(same).mc_logits
    torch.testing.assert_close(scores, scores[:, :1].expand_as(scores))
    assert not torch.allclose(scores[0], model(same).mc_logits[0])


@pytest.mark.parametrize(
    ("name", "changes"),
    {
        "resid_pdrop": {"resid_pdrop": 0.5},
        "embd_pdrop": {"embd_pdrop": 0.5},
        "attn_pdrop": {"attn_pdrop": 0.5},
        "clf_pdrop": {"clf_pdrop": 0.5},
    }.items(),
)
def test_each_dropout_acts_in_training_alone(name, changes):
    off = dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, clf_pdrop=0.0)
    model, ids = build(GPT1DoubleHeadsModel, **{**off, **changes}), ids_of(2, 2, 8)
    assert torch.equal(model(ids).mc_logits, model(ids).mc_logits)
    model.train()
    assert not torch.allclose(model(ids).mc_logits, model(ids).mc_logits)
    still = build(GPT1DoubleHeadsModel, **off).train()
    torch.testing.assert_close(still(ids).mc_logits, still.eval()(ids).mc_logits)


def test_each_option_of_the_configuration_changes_the_result():
    ids = ids_of(2, 2, 8)
    plain = build(GPT1DoubleHeadsModel)(ids, labels=ids, mc_labels=torch.tensor([0, 1]))
    for changes in ({"afn": "relu"}, {"afn": "silu"}, {"layer_norm_epsilon": 0.5}, {"n_head": 2}):
        assert not torch.allclose(build(GPT1DoubleHeadsModel, **changes)(ids).logits, plain.logits), changes
    for changes in ({"lm_coef": 0.0}, {"lm_coef": 2.0}):
        other = build(GPT1DoubleHeadsModel, **changes)(ids, labels=ids, mc_labels=torch.tensor([0, 1]))
        torch.testing.assert_close(other.loss, plain.mc_loss + changes["lm_coef"] * plain.lm_loss)
    assert build(GPT1Model, use_cache=False)(ids).cache is None and build(GPT1Model)(ids).cache is not None
    untied = build(GPT1LMHeadModel, tie_word_embeddings=False)
    assert untied.lm_head.weight.data_ptr() != untied.transformer.tokens_embed.weight.data_ptr()
    spread = [GPT1Model(GPT1Config(**SIZES, initializer_range=std)).h[0].mlp.c_fc.weight.std() for std in (0.01, 0.1)]
    torch.testing.assert_close(torch.stack(spread), torch.tensor([0.01, 0.1]), rtol=0.1, atol=0)


def test_new_tokens_resize_model_tie_and_config_together(tmp_path):
    model = build(GPT1LMHeadModel)
    before, ids = model.transformer.tokens_embed.weight.detach().clone(), ids_of(1, 6)
    logits = model(ids).logits
    model.resize_token_embeddings(43 + 4)
    assert model.config.vocab_size == 47 and model.lm_head.out_features == 47
    assert torch.equal(model.transformer.tokens_embed.weight[:43], before)
    torch.testing.assert_close(model(ids).logits[..., :43], logits)
    model.save_pretrained(tmp_path)
    again = GPT1DoubleHeadsModel.from_pretrained(tmp_path)
    assert again.transformer.tokens_embed.weight.shape == (47, 24)
    assert torch.equal(again.lm_head.weight, model.lm_head.weight)


BAD = {
    "id": (GPT1LMHeadModel, lambda: dict(input_ids=torch.tensor([[1, 43]])), "43"),
    "float ids": (GPT1LMHeadModel, lambda: dict(input_ids=torch.ones(1, 3)), "integer"),
    "empty batch": (GPT1LMHeadModel, lambda: dict(input_ids=ids_of(0, 3)), "empty batch"),
    "empty row": (
        GPT1LMHeadModel,
        lambda: dict(input_ids=ids_of(2, 3), attention_mask=torch.tensor([[1, 1, 1], [0, 0, 0]])),
        "row 1 is empty",
    ),
    "too long": (GPT1LMHeadModel, lambda: dict(input_ids=ids_of(1, 25)), "25 tokens > 24 positions; truncate"),
    "label": (GPT1LMHeadModel, lambda: dict(input_ids=ids_of(1, 3), labels=torch.tensor([[1, 50, 2]])), "50"),
    "label shape": (GPT1LMHeadModel, lambda: dict(input_ids=ids_of(1, 3), labels=ids_of(1, 4)), r"\(1, 4\).*\(1, 3\)"),
    "mask shape": (
        GPT1LMHeadModel,
        lambda: dict(input_ids=ids_of(1, 3), attention_mask=torch.ones(1, 4)),
        r"\(1, 4\).*\(1, 3\)",
    ),
    "2-D choices": (GPT1DoubleHeadsModel, lambda: dict(input_ids=ids_of(2, 3)), "language_model_only"),
    "choice label": (
        GPT1DoubleHeadsModel,
        lambda: dict(input_ids=ids_of(2, 2, 3), mc_labels=torch.tensor([0, 2])),
        r"mc_labels\[1\] is 2, but row 1 has choices 0..1",
    ),
    "choice place": (
        GPT1DoubleHeadsModel,
        lambda: dict(input_ids=ids_of(1, 2, 3), mc_token_ids=torch.tensor([[0, 3]])),
        r"mc_token_ids\[0, 1\] is 3, but there are tokens 0..2",
    ),
    "class": (
        GPT1ForSequenceClassification,
        lambda: dict(input_ids=ids_of(2, 3), labels=torch.tensor([0, 5])),
        r"labels\[1\] is 5",
    ),
    "both": (GPT1Model, lambda: dict(input_ids=ids_of(1, 3), inputs_embeds=torch.ones(1, 3, 24)), "exactly one"),
    "position": (
        GPT1Model,
        lambda: dict(input_ids=ids_of(1, 3), position_ids=torch.tensor([[0, 1, 24]])),
        "24.*24 positions",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_words(case):
    model_class, inputs, message = BAD[case]
    with pytest.raises((ValueError, TypeError), match=message):
        build(model_class)(**inputs())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_embd": 25}, "n_embd is 25.*n_head"),
        ({"afn": "tanh"}, "afn is 'tanh'"),
        ({"resid_pdrop": 1.0}, "resid_pdrop"),
        ({"lm_coef": -1}, "lm_coef"),
        ({"lm_loss_reduction": "mean"}, "lm_loss_reduction is 'mean'"),
        ({"num_labels": 3, "id2label": {0: "a", 1: "b"}}, "num_labels is 3.*2"),
        ({"pad_token_id": 99}, "pad_token_id is 99"),
        ({"n_layer": 0}, "n_layer is 0"),
    ],
)
def test_configurations_that_contradict_themselves_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        GPT1Config(**{**SIZES, **changes})


def test_a_number_of_labels_has_no_meaning_for_double_heads():
    with pytest.raises(ValueError, match="num_labels is 4.*GPT1ForSequenceClassification"):
        GPT1DoubleHeadsModel(GPT1Config(**SIZES, num_labels=4))


def test_regression_and_several_labels_at_once():
    ids = ids_of(3, 5)
    one = build(GPT1ForSequenceClassification, num_labels=1)
    targets = torch.tensor([0.5, -1.0, 2.0])
    output = one(ids, labels=targets)
    torch.testing.assert_close(output.loss, (output.logits.squeeze(1) - targets).square().mean())
    many = build(GPT1ForSequenceClassification, num_labels=4, problem_type="multi_label_classification")
    wanted = torch.tensor([[1.0, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1]])
    output = many(ids, labels=wanted)
    p = output.logits.sigmoid()
    torch.testing.assert_close(output.loss, -(wanted * p.log() + (1 - wanted) * (1 - p).log()).mean())
