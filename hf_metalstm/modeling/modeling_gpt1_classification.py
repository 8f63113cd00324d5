# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""GPT-1 for classes: P(y | x) = softmax(h_l^m W_y) of texts, of pairs, and of pairs in both orders."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache

from .configuration_gpt1 import GPT1Config
from .gpt1_inputs import check_mask, check_token_labels, last_real_tokens
from .gpt1_losses import (
    add_objectives,
    classification_loss,
    following_tokens,
    language_model_loss,
    shared_dropout,
)
from .gpt1_outputs import GPT1SequenceClassifierOutput
from .modeling_gpt1 import GPT1Model, GPT1PreTrainedModel


class GPT1ForSequenceClassification(GPT1PreTrainedModel):
    """Classifies texts by the state of their last real token: loss = task_loss + lm_coef * lm_loss.

    Entailment is one text made of two. Similarity has no order, so its input holds both, (batch, 2, tokens), and the
    two states are added before the linear layer (Radford et al. 2018, section 3.3). `GPT1Tokenizer` builds all of them.

    Example:
        >>> import torch
        >>> from hf_metalstm import GPT1Config, GPT1ForSequenceClassification
        >>> config = GPT1Config(vocab_size=50, n_embd=8, n_layer=2, n_head=2, num_labels=3)
        >>> model = GPT1ForSequenceClassification(config).eval()
        >>> text = torch.tensor([[3, 7, 7, 2]])
        >>> output = model(text, labels=torch.tensor([2]), lm_labels=text)
        >>> output.logits.shape, torch.isclose(output.loss, output.task_loss + 0.5 * output.lm_loss).item()
        (torch.Size([1, 3]), True)
        >>> model(torch.tensor([[[3, 7, 9, 5, 2], [3, 5, 9, 7, 2]]])).logits.shape
        torch.Size([1, 3])
    """

    _tied_weights_keys = {"lm_head.weight": "transformer.tokens_embed.weight"}

    def __init__(self, config: GPT1Config):
        super().__init__(config)
        self.transformer = GPT1Model(config)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.score = nn.Linear(config.n_embd, config.num_labels or 2, bias=False)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        lm_labels: Tensor | None = None,
        cache: Cache | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> GPT1SequenceClassifierOutput | tuple[Any, ...]:
        """Classifies a batch of texts.

        Args:
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, cache, use_cache, output_attentions,
                output_hidden_states, return_dict: see `GPT1Model.forward`; (batch, tokens), or (batch, 2, tokens) for
                both orders of a pair. Which tokens are padding is said by the mask alone.
            labels: (batch,) int64 classes; -100 is ignored. Float targets of the logits' shape where the config's
                `problem_type` is "regression" (or num_labels is 1) or "multi_label_classification".
            lm_labels: as the input ids, for the language model: the ids themselves, shifted here; -100 is ignored.

        Returns:
            `GPT1SequenceClassifierOutput`. Losses are means over the batch; one whose labels are all -100 is 0.

        Raises:
            TypeError, ValueError: bad ids, masks, positions or labels; the message names the place.
        """
        encoded = self.transformer(
            input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            cache=cache,
            use_cache=use_cache,
            output_attentions=output_attentions,
            output_hidden_states=output_hidden_states,
            return_dict=True,
        )
        hidden = encoded.last_hidden_state
        shape = hidden.shape[:-1]
        mask = attention_mask
        if mask is not None:
            mask = check_mask(mask, shape, mask.shape[-1] - shape[-1])
        last = last_real_tokens(mask, shape, hidden.device)
        extracts = torch.take_along_dim(hidden, last[..., None, None], dim=-2).squeeze(-2)
        if extracts.ndim == 3:
            extracts = extracts.sum(1)  # both orders of a pair: (batch, n_embd)
        pooled = shared_dropout(extracts[:, None], self.config.clf_pdrop, self.training).squeeze(1)
        logits = self.score(pooled)  # (batch, classes)
        task_loss = None if labels is None else classification_loss(logits, labels, self.config)
        lm_loss = None
        if lm_labels is not None:
            check_token_labels(lm_labels, shape, self.config.vocab_size, "lm_labels")
            following = following_tokens(lm_labels)
            lm_loss = language_model_loss(hidden, self.lm_head, following, self.config.lm_loss_reduction)
        output = GPT1SequenceClassifierOutput(
            loss=add_objectives(task_loss, lm_loss, self.config.lm_coef),
            task_loss=task_loss,
            lm_loss=lm_loss,
            logits=logits,
            cache=encoded.cache,
            hidden_states=encoded.hidden_states,
            attentions=encoded.attentions,
        )
        return output if self._wants_dict(return_dict) else output.to_tuple()


GPT1ForSequenceClassification.register_for_auto_class("AutoModelForSequenceClassification")
