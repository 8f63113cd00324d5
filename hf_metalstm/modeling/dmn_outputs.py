# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""What the Dynamic Memory Networks return, and the state that an answer is continued from."""

from dataclasses import dataclass

from torch import Tensor
from transformers.utils import ModelOutput


@dataclass
class DMNModelOutput(ModelOutput):
    """Output of `DMNModel`.

    Args:
        last_hidden_state: (batch, facts, hidden) facts at their places, zero where there is padding.
        memory: (batch, hidden) after the last pass.
        question: (batch, hidden).
        gates: (batch, passes, facts), exactly 0 for padded facts, and in passes that a row did not make.
        gate_scores: (batch, passes, facts), before sigmoid or softmax; with an end of the passes one more, for it.
        passes: (batch,) number of passes made.
        hidden_states: the embeddings of the facts, then the states of the input module at all tokens (where it has
            any), (batch, facts, tokens, ...), or (batch, tokens, ...) for single sentences.
    """

    last_hidden_state: Tensor | None = None
    memory: Tensor | None = None
    question: Tensor | None = None
    gates: Tensor | None = None
    gate_scores: Tensor | None = None
    passes: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None


@dataclass
class DMNQuestionAnsweringOutput(ModelOutput):
    """Output of `DMNForQuestionAnswering`.

    Args:
        loss: (), what is trained on: answer_loss + gate_loss_weight * gate_loss.
        answer_loss: (), mean cross-entropy of the answers' tokens.
        gate_loss: (), cross-entropy of the gates; None where no supporting facts are given.
        logits: (batch, answer_tokens, vocab_size).
        gates: (batch, passes, facts), exactly 0 for padded facts, and in passes that a row did not make.
        memory: (batch, hidden) after the last pass.
        passes: (batch,) number of passes made.
        cache: `AnswerState`, for the next token.
        encoder_last_hidden_state: (batch, facts, hidden) facts.
        encoder_hidden_states: see `DMNModelOutput.hidden_states`.
        decoder_hidden_states: embeddings and states of the answer module, (batch, answer_tokens, ...).
    """

    loss: Tensor | None = None
    answer_loss: Tensor | None = None
    gate_loss: Tensor | None = None
    logits: Tensor | None = None
    gates: Tensor | None = None
    memory: Tensor | None = None
    passes: Tensor | None = None
    cache: "AnswerState | None" = None
    encoder_last_hidden_state: Tensor | None = None
    encoder_hidden_states: tuple[Tensor, ...] | None = None
    decoder_hidden_states: tuple[Tensor, ...] | None = None


@dataclass
class DMNClassifierOutput(ModelOutput):
    """Output of `DMNForSequenceClassification` and `DMNForTokenClassification`.

    Args:
        loss: (), what is trained on: answer_loss + gate_loss_weight * gate_loss.
        answer_loss: (), mean loss of the classes.
        gate_loss: (), cross-entropy of the gates; None where no supporting facts are given.
        logits: (batch, classes), or (batch, tokens, classes).
        gates: (batch, passes, facts), or (batch, tokens, passes, facts): each word has gates of its own.
        memory: (batch, hidden), or (batch, tokens, hidden).
        hidden_states: see `DMNModelOutput`.
    """

    loss: Tensor | None = None
    answer_loss: Tensor | None = None
    gate_loss: Tensor | None = None
    logits: Tensor | None = None
    gates: Tensor | None = None
    memory: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None


class AnswerState:
    """State of the answer module between two tokens; what `generate` keeps as the cache.

    Args:
        hidden: (batch, hidden) a_t.
        length: tokens read.
    """

    is_compileable = False

    def __init__(self, hidden: Tensor, length: int):
        self.hidden = hidden
        self.length = length
        self.is_linear = [True]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.length

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Rows as beam search chose them."""
        self.hidden = self.hidden.index_select(0, beam_idx.to(self.hidden.device))
