"""The Dynamic Memory Networks in the table of transformers' own common tests (see test_harness.py)."""

import torch
from hf_harness import ModelCase

import hf_metalstm
from hf_metalstm import (
    DMNConfig,
    DMNForQuestionAnswering,
    DMNForSequenceClassification,
    DMNForTokenClassification,
    DMNModel,
)

# The mixins expect all hidden states, the embeddings among them, to be hidden_size wide.
SIZES = dict(vocab_size=40, embedding_size=8, hidden_size=8, num_passes=2)
NO_LAYERS = ("hidden_size",)
SKIP = {
    "test_generate_without_input_ids": "a story and a question are required inputs",
}


def text_inputs(config: DMNConfig, batch: int, tokens: int) -> dict[str, torch.Tensor]:
    ids = torch.randint(3, config.vocab_size, (batch, tokens))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if not config.learned_question:
        question = torch.randint(3, config.vocab_size, (batch, 4))
        inputs |= {"question_ids": question, "question_mask": torch.ones_like(question)}
    return inputs


def story_inputs(config: DMNConfig, batch: int, tokens: int) -> dict[str, torch.Tensor]:
    return {
        **text_inputs(config, batch, tokens),
        "decoder_input_ids": torch.randint(3, config.vocab_size, (batch, tokens)),
    }


def answering_case(name: str, **settings: object) -> ModelCase:
    return ModelCase(
        name=name,
        config_class=DMNConfig,
        config_kwargs={**SIZES, "is_encoder_decoder": True, **settings},
        base_model_class=None,
        head_classes=(DMNForQuestionAnswering,),
        kinds={DMNForQuestionAnswering: "seq2seq-lm"},
        make_inputs=story_inputs,
        is_encoder_decoder=True,
        common_properties=NO_LAYERS,
        extra_id_inputs=("question_ids",),
        skip=SKIP,
        setup=hf_metalstm._registration.register,
    )


def encoding_case(name: str, skip: dict[str, str] | None = None, **settings: object) -> ModelCase:
    return ModelCase(
        name=name,
        config_class=DMNConfig,
        config_kwargs={**SIZES, **settings},
        base_model_class=DMNModel,
        head_classes=(DMNForSequenceClassification, DMNForTokenClassification),
        kinds={DMNForSequenceClassification: "seq-cls", DMNForTokenClassification: "token-cls"},
        make_inputs=text_inputs,
        common_properties=NO_LAYERS,
        extra_id_inputs=("question_ids",),
        skip=skip or {},
        setup=hf_metalstm._registration.register,
    )


CASES = [
    answering_case("DMNAnswering"),
    answering_case("DMNAnsweringTied", tie_word_embeddings=True, gate="softmax", memory_cell="relu"),
    encoding_case("DMN", skip={"test_load_with_mismatched_shapes": "asks nothing; the learned question runs it"}),
    encoding_case("DMNLearnedQuestion", learned_question=True, input_cell="lstm", tie_memory_weights=False),
]
