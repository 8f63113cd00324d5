"""The sixteen defects of transformers 5.24's OpenAIGPT, each with the right value here."""

import copy

import pytest
import torch
from torch.utils.data import Dataset
from transformers import AutoModel, OpenAIGPTConfig, OpenAIGPTDoubleHeadsModel, Trainer, TrainingArguments

from hf_metalstm import (
    GPT1Config,
    GPT1DoubleHeadsModel,
    GPT1ForSequenceClassification,
    GPT1LMHeadModel,
    GPT1Model,
    GPT1Tokenizer,
)

SIZES = dict(vocab_size=31, n_embd=16, n_layer=2, n_head=2, n_positions=20)
STILL = dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, clf_pdrop=0.0)


def ids_of(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(1, SIZES["vocab_size"], shape, generator=torch.Generator().manual_seed(seed))


def build(model_class: type, **changes: object) -> torch.nn.Module:
    torch.manual_seed(0)
    model = model_class(GPT1Config(**{**SIZES, **STILL, **changes})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


class Rows(Dataset):
    def __init__(self, **columns: torch.Tensor):
        self.columns = columns

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {name: column[index] for name, column in self.columns.items()}


def stack(rows: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def train(model: torch.nn.Module, rows: Rows, folder, **arguments: object) -> Trainer:
    settings = dict(
        output_dir=str(folder), use_cpu=True, max_steps=1, learning_rate=0.1, lr_scheduler_type="constant",
        optim="sgd", max_grad_norm=0.0, report_to="none", disable_tqdm=True, save_strategy="no", logging_steps=1,
    )  # fmt: skip
    trainer = Trainer(model, TrainingArguments(**{**settings, **arguments}), train_dataset=rows, data_collator=stack)
    trainer.train()
    return trainer


def choices(rows: int = 4) -> Rows:
    ids = ids_of(rows, 2, 6)
    return Rows(input_ids=ids, labels=ids, mc_labels=torch.arange(rows) % 2)


def test_1_trainer_trains_the_choice_head_and_the_loss_has_both_objectives(tmp_path):
    model = build(GPT1DoubleHeadsModel)
    before = model.multiple_choice_head.summary.weight.detach().clone()
    output = model(**stack(list(choices())))
    torch.testing.assert_close(output.loss, output.mc_loss + 0.5 * output.lm_loss)
    ids = ids_of(2, 2, 6)
    alone = model(ids, mc_labels=torch.tensor([0, 1]))
    assert alone.lm_loss is None
    torch.testing.assert_close(alone.loss, alone.mc_loss)
    train(model, choices(), tmp_path, max_steps=3, per_device_train_batch_size=4)
    assert (model.multiple_choice_head.summary.weight - before).abs().max() > 1e-4


def examples_of(model_class: type) -> Rows:
    ids = ids_of(4, 6)
    if model_class is GPT1DoubleHeadsModel:
        return choices()
    if model_class is GPT1ForSequenceClassification:
        return Rows(input_ids=ids, labels=torch.tensor([0, 1, 1, 0]), lm_labels=ids)
    return Rows(input_ids=ids, labels=ids)


@pytest.mark.parametrize("model_class", [GPT1DoubleHeadsModel, GPT1ForSequenceClassification, GPT1LMHeadModel])
def test_2_accumulated_batches_train_as_one_large_batch(model_class, tmp_path):
    results = []
    for size, steps in ((4, 1), (1, 4), (2, 2)):
        model = build(model_class)
        trainer = train(
            model,
            examples_of(model_class),
            tmp_path,
            per_device_train_batch_size=size,
            gradient_accumulation_steps=steps,
        )
        results.append((trainer.state.log_history[0]["loss"], model.state_dict()))
    for loss, weights in results[1:]:
        assert loss == pytest.approx(results[0][0], rel=1e-4)
        for name, value in weights.items():
            torch.testing.assert_close(value, results[0][1][name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("reader", [AutoModel, GPT1ForSequenceClassification, GPT1LMHeadModel, GPT1DoubleHeadsModel])
def test_3_every_head_reads_the_embeddings_of_a_double_heads_file(reader, tmp_path):
    model = build(GPT1DoubleHeadsModel)
    model.save_pretrained(tmp_path / "ours")
    theirs = OpenAIGPTDoubleHeadsModel(OpenAIGPTConfig(**SIZES))
    theirs.save_pretrained(tmp_path / "theirs")
    folders = [("ours", model)] + ([] if reader is AutoModel else [("theirs", theirs)])
    for folder, source in folders:
        again = reader.from_pretrained(tmp_path / folder)
        assert torch.equal(again.get_input_embeddings().weight, source.get_input_embeddings().weight)


def test_4_and_5_choices_of_any_length_are_scored_at_their_last_real_token():
    model = build(GPT1DoubleHeadsModel)
    long, short = ids_of(9), ids_of(6, seed=1)
    alone = torch.stack([model(text[None, None]).mc_logits[0, 0] for text in (short, long)])
    for left in (False, True):
        ids, mask = torch.zeros(1, 2, 9, dtype=torch.long), torch.zeros(1, 2, 9, dtype=torch.long)
        for row, text in enumerate((short, long)):
            place = slice(9 - len(text), 9) if left else slice(0, len(text))
            ids[0, row, place], mask[0, row, place] = text, 1
        batched = model(ids, attention_mask=mask).mc_logits[0]
        torch.testing.assert_close(batched, alone, rtol=1e-5, atol=1e-5)
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        embedded = model.transformer.tokens_embed(ids)
        for inputs in (
            dict(input_ids=ids, attention_mask=mask, position_ids=positions),
            dict(inputs_embeds=embedded, attention_mask=mask),
        ):
            torch.testing.assert_close(model(**inputs).mc_logits[0], alone, rtol=1e-5, atol=1e-5)
    types = ids_of(1, 2, 9, seed=3)
    assert not torch.allclose(model(ids, token_type_ids=types).mc_logits, model(ids).mc_logits)


@pytest.mark.parametrize("model_class", [GPT1LMHeadModel, GPT1ForSequenceClassification])
def test_6_left_padding_without_positions_changes_nothing(model_class):
    model, text = build(model_class), ids_of(1, 5)
    padded = torch.cat([torch.zeros(1, 4, dtype=torch.long), text], 1)
    mask = (torch.arange(9) >= 4).long()[None]
    got, wanted = model(padded, attention_mask=mask).logits, model(text).logits
    torch.testing.assert_close(got[:, -5:] if got.ndim == 3 else got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("model_class", [GPT1LMHeadModel, GPT1DoubleHeadsModel, GPT1ForSequenceClassification])
def test_7_labels_that_are_all_ignored_give_0_and_no_gradient_and_others_are_refused(model_class):
    model = build(model_class)
    ids = ids_of(2, 2, 5) if model_class is GPT1DoubleHeadsModel else ids_of(2, 5)
    none = torch.full((2,), -100)
    labels = {
        GPT1LMHeadModel: {"labels": torch.full_like(ids, -100)},
        GPT1DoubleHeadsModel: {"labels": torch.full_like(ids, -100), "mc_labels": none},
        GPT1ForSequenceClassification: {"labels": none, "lm_labels": torch.full_like(ids, -100)},
    }[model_class]
    loss = model(ids, **labels).loss
    loss.backward()
    assert loss.item() == 0
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())
    with pytest.raises(ValueError, match="-1"):
        model(ids, **{name: torch.full_like(value, -1) for name, value in labels.items()})


def test_8_checkpointing_sdpa_and_the_cache_are_there():
    model = build(GPT1DoubleHeadsModel)
    assert model.supports_gradient_checkpointing and model.config._attn_implementation == "sdpa"
    assert model(ids_of(1, 2, 5), use_cache=True).cache.get_seq_length() == 5
    assert model.generate(ids_of(1, 4), max_new_tokens=3, do_sample=False, pad_token_id=0).shape == (1, 7)


def test_9_no_score_however_low_lets_a_token_see_what_follows():
    model = build(GPT1Model)
    with torch.no_grad():
        for block in model.h:
            block.attn.c_attn.weight *= 300
    ids = ids_of(1, 6)
    other = ids.clone()
    other[0, 4:] = 30 - other[0, 4:]
    for implementation in ("eager", "sdpa"):
        model.set_attn_implementation(implementation)
        first, second = model(ids).last_hidden_state, model(other).last_hidden_state
        torch.testing.assert_close(first[:, :4], second[:, :4])
        assert not torch.allclose(first[:, 4:], second[:, 4:])
    mask = torch.tensor([[0, 0, 1, 1, 1, 1]])
    rows = model(ids, attention_mask=mask, output_attentions=True).attentions[0][0]
    torch.testing.assert_close(rows[:, :2], torch.eye(6)[:2].expand(2, 2, 6))
    assert not rows[:, 2:, :2].any()


def test_10_the_mask_alone_says_what_is_padding_to_the_classifier():
    model = build(GPT1ForSequenceClassification, pad_token_id=7)
    ids = torch.tensor([[5, 3, 7], [4, 7, 7]])
    free = build(GPT1ForSequenceClassification)
    torch.testing.assert_close(model(ids).logits, free(ids).logits)
    mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
    masked = model(ids, attention_mask=mask).logits
    torch.testing.assert_close(masked[1], model(ids[1:, :1]).logits[0])
    embedded = model(inputs_embeds=model.transformer.tokens_embed(ids), attention_mask=mask)
    torch.testing.assert_close(embedded.logits, masked)


def test_11_models_do_not_write_into_the_callers_configuration():
    config = GPT1Config(**SIZES, id2label={0: "a", 1: "b", 2: "c", 3: "d"})
    before = copy.deepcopy(config.to_dict())
    GPT1DoubleHeadsModel(config)
    GPT1ForSequenceClassification(config)(ids_of(2, 4), labels=torch.tensor([0, 3]))
    after = config.to_dict()
    assert after["id2label"] == before["id2label"] and config.num_labels == 4 and config.problem_type is None


def test_12_hidden_states_of_choices_have_one_shape():
    states = build(GPT1DoubleHeadsModel)(ids_of(2, 2, 6), output_hidden_states=True).hidden_states
    assert [tuple(state.shape) for state in states] == [(2, 2, 6, 16)] * 3


@pytest.mark.parametrize("use_cache", [True, False])
def test_13_generation_goes_to_the_last_position_and_stops_with_words(use_cache):
    model, prompt = build(GPT1LMHeadModel), ids_of(1, 5)
    kwargs = {"do_sample": False, "pad_token_id": 0, "use_cache": use_cache}
    assert model.generate(prompt, max_new_tokens=15, **kwargs).shape == (1, 20)
    with pytest.raises(ValueError, match="tokens > 20 positions"):
        model.generate(prompt, max_new_tokens=17, **kwargs)


def test_14_and_15_the_tokenizer_splits_as_the_authors_and_pads():
    tokenizer = GPT1Tokenizer.train_from_iterator(["you can't be naïve \u2014 really ..."] * 3, vocab_size=400)
    tokens = "".join(tokenizer.tokenize("Can't \u2014 naïve ..."))
    assert "ca</w>n't</w>" in tokens and "ï" in tokens and "-</w>" in tokens and "<unk>" not in tokens
    assert tokenizer.pad_token_id not in (None, tokenizer.unk_token_id)
    batch = tokenizer(["can't", "you can't be"], padding=True, return_tensors="pt")
    assert batch["attention_mask"].sum(1).tolist()[0] < batch["input_ids"].shape[1]
    assert tokenizer.model_max_length <= 512
    pair = tokenizer.build_entailment("you can't", "be")["input_ids"]
    assert pair.count(tokenizer.sep_token_id) == 1


def test_16_positions_have_dropout_and_the_authors_average_is_to_be_had():
    model = build(GPT1Model, embd_pdrop=0.6).train()
    embedded = torch.zeros(1, 8, 16)
    torch.manual_seed(0)
    dropped = model(inputs_embeds=embedded, output_hidden_states=True).hidden_states[0]
    share = (dropped == 0).float().mean().item()
    assert 0.4 < share < 0.8
    uneven = ids_of(2, 6)
    labels = uneven.clone()
    labels[0, 3:] = -100
    token = build(GPT1LMHeadModel)(uneven, labels=labels).loss
    sequence = build(GPT1LMHeadModel, lm_loss_reduction="sequence")(uneven, labels=labels).loss
    assert (token - sequence).abs() > 1e-4
