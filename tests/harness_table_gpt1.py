"""The GPT-1 models in the table of transformers' own common tests (see test_harness.py)."""

import torch
from hf_harness import ModelCase

import hf_metalstm
from hf_metalstm import (
    GPT1Config,
    GPT1DoubleHeadsModel,
    GPT1ForSequenceClassification,
    GPT1LMHeadModel,
    GPT1Model,
)

SIZES = dict(vocab_size=40, n_embd=32, n_layer=2, n_head=4, n_positions=32)
CHOICES = 2


def choice_inputs(config: GPT1Config, batch: int, tokens: int) -> dict[str, torch.Tensor]:
    ids = torch.randint(3, config.vocab_size, (batch, CHOICES, tokens))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def choice_labels(model_class: type, config: GPT1Config, inputs: dict) -> dict[str, torch.Tensor] | None:
    if model_class is GPT1Model:
        return None
    return {"labels": inputs["input_ids"], "mc_labels": torch.ones(len(inputs["input_ids"]), dtype=torch.long)}


def class_labels(model_class: type, config: GPT1Config, inputs: dict) -> dict[str, torch.Tensor] | None:
    if model_class is not GPT1ForSequenceClassification:
        return None
    # Both objectives, so that every parameter has a gradient.
    return {"labels": torch.zeros(len(inputs["input_ids"]), dtype=torch.long), "lm_labels": inputs["input_ids"]}


OLD_NAMES = {"test_bc_cache_name_forward": "the older names of `cache` were never arguments of these models"}
# Tests of this package's own do what these leave out.
ROWS_OF_TOKENS = {
    name: "generate takes (batch, tokens), and these inputs are (batch, choices, tokens)"
    for name in (
        "test_contract_continue_from_state",
        "test_contract_dict_outputs_and_sampling",
        "test_contract_greedy_equals_no_cache",
        "test_contract_beam_equals_no_cache",
        "test_contract_left_padding",
        "test_contract_right_padding_is_inert",
    )
} | {
    "test_eager_matches_sdpa_inference*": "masks whole choices, which are then empty texts",
    "test_retain_grad_hidden_states_attentions": "the states of choices are views of the rows that the blocks read",
}


def model_case(
    name: str, head_classes: tuple, kinds: dict, skip: dict[str, str] | None = None, **settings: object
) -> ModelCase:
    return ModelCase(
        name=name,
        config_class=GPT1Config,
        config_kwargs=SIZES,
        base_model_class=GPT1Model,
        head_classes=head_classes,
        kinds=kinds,
        has_attentions=True,
        skip_recurrent=False,
        common_properties=("hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings"),
        skip={**OLD_NAMES, **(skip or {})},
        setup=hf_metalstm._registration.register,
        **settings,
    )


CASES = [
    model_case("GPT1", (GPT1LMHeadModel,), {GPT1LMHeadModel: "causal-lm"}),
    model_case(
        "GPT1Classifier",
        (GPT1ForSequenceClassification,),
        {GPT1ForSequenceClassification: "seq-cls"},
        make_labels=class_labels,
    ),
    model_case(
        "GPT1DoubleHeads",
        (GPT1DoubleHeadsModel,),
        {},
        make_inputs=choice_inputs,
        make_labels=choice_labels,
        skip=ROWS_OF_TOKENS,
    ),
]
