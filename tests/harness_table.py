"""The package's classes in the table of transformers' own common tests (see test_harness.py)."""

import torch
from hf_harness import ModelCase, TokenizerCase

import hf_metalstm
from hf_metalstm import MetaLSTMConfig, MetaLSTMForSequenceClassification, MetaLSTMModel, WordTokenizer

# The mixins expect all hidden states, the embeddings among them, to be hidden_size wide.
SIZES = dict(vocab_size=40, embedding_size=8, hidden_size=8, meta_size=6, z_size=5)
TASKS = {"books": ["negative", "positive"], "questions": ["who", "where", "when"]}

TASKS_SAY_THE_LABELS = {
    "test_problem_types": "the tasks of a multi-task model are single-label classifications",
    "test_config": "passes num_labels, which a multi-task model takes from its tasks; the other cases run it",
    "test_load_with_mismatched_shapes": "passes num_labels, which a multi-task model takes from its tasks",
    "test_can_load_ignoring_mismatched_shapes": "passes num_labels, which a multi-task model takes from its tasks",
}

BOTH_WAYS = {
    "test_hidden_states_output": "expects every layer to be hidden_size wide; with two directions it is twice that",
}


def text_inputs(config: MetaLSTMConfig, batch: int, tokens: int) -> dict[str, torch.Tensor]:
    ids = torch.randint(3, config.vocab_size, (batch, tokens))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def task_inputs(config: MetaLSTMConfig, batch: int, tokens: int) -> dict[str, torch.Tensor]:
    return {**text_inputs(config, batch, tokens), "task_ids": torch.arange(batch) % len(TASKS)}


def task_labels(model_class: type, config: MetaLSTMConfig, inputs: dict) -> dict[str, torch.Tensor] | None:
    if model_class is MetaLSTMModel:
        return None
    return {"labels": torch.ones(inputs["input_ids"].shape[0], dtype=torch.long)}


def model_case(name: str, skip: dict[str, str] | None = None, **settings: object) -> ModelCase:
    several_tasks = "tasks" in settings
    return ModelCase(
        name=name,
        config_class=MetaLSTMConfig,
        config_kwargs={**SIZES, "num_hidden_layers": 2, **settings},
        base_model_class=MetaLSTMModel,
        head_classes=(MetaLSTMForSequenceClassification,),
        kinds={MetaLSTMForSequenceClassification: "seq-cls"},
        make_inputs=task_inputs if several_tasks else text_inputs,
        make_labels=task_labels if several_tasks else None,
        skip=skip or {},
        setup=hf_metalstm._registration.register,
    )


def word_tokenizer() -> WordTokenizer:
    words = "a b c d e hello world this is text some other lower newer the of and to in with"
    return WordTokenizer.train_from_iterator([words])


CASES = [
    model_case("MetaLSTM"),
    model_case("MetaLSTMBothWays", bidirectional=True, skip=BOTH_WAYS),
    model_case("MetaLSTMPlainCell", cell="lstm"),
    model_case("MetaLSTMManyTasks", tasks=TASKS, pooling="concat", skip=TASKS_SAY_THE_LABELS),
    TokenizerCase(
        name="WordTokenizer",
        tokenizer_class=WordTokenizer,
        make_tokenizer=word_tokenizer,
        setup=hf_metalstm._registration.register,
    ),
]
