# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""What the GPT-1 models return. `...` stands for (batch,), or (batch, choices) where the input has choices."""

from dataclasses import dataclass

from torch import Tensor
from transformers import Cache
from transformers.utils import ModelOutput


@dataclass
class GPT1ModelOutput(ModelOutput):
    """Output of `GPT1Model`.

    Args:
        last_hidden_state: (..., tokens, n_embd).
        cache: keys and values of the tokens read so far.
        hidden_states: the embeddings, then each block's output, all (..., tokens, n_embd).
        attentions: each block's probabilities, (..., n_head, tokens, tokens read so far).
    """

    last_hidden_state: Tensor | None = None
    cache: Cache | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


@dataclass
class GPT1LMHeadOutput(ModelOutput):
    """Output of `GPT1LMHeadModel`.

    Args:
        loss: (), the language model's.
        logits: (batch, kept tokens, vocab_size); None in training with labels, unless asked for.
        cache, hidden_states, attentions: see `GPT1ModelOutput`.
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    cache: Cache | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


@dataclass
class GPT1DoubleHeadsOutput(ModelOutput):
    """Output of `GPT1DoubleHeadsModel`.

    Args:
        loss: (), mc_loss + lm_coef * lm_loss, or the one of them that there are labels for.
        mc_loss: (), cross-entropy of the choices.
        lm_loss: (), the language model's.
        logits: (batch, choices, kept tokens, vocab_size); None in training with labels, unless asked for.
        mc_logits: (batch, choices).
        cache, hidden_states, attentions: see `GPT1ModelOutput`.
    """

    loss: Tensor | None = None
    mc_loss: Tensor | None = None
    lm_loss: Tensor | None = None
    logits: Tensor | None = None
    mc_logits: Tensor | None = None
    cache: Cache | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


@dataclass
class GPT1SequenceClassifierOutput(ModelOutput):
    """Output of `GPT1ForSequenceClassification`.

    Args:
        loss: (), task_loss + lm_coef * lm_loss, or the one of them that there are labels for.
        task_loss: (), that of the classes.
        lm_loss: (), the language model's.
        logits: (batch, classes).
        cache, hidden_states, attentions: see `GPT1ModelOutput`.
    """

    loss: Tensor | None = None
    task_loss: Tensor | None = None
    lm_loss: Tensor | None = None
    logits: Tensor | None = None
    cache: Cache | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
