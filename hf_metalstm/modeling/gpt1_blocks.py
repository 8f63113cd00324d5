# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""The blocks of GPT-1: masked self-attention and a feed-forward network, each with its layer norm after the sum.

Attention goes through transformers' attention interface, so `attn_implementation` chooses it.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.pytorch_utils import Conv1D

from .configuration_gpt1 import GPT1Config

# The paper's gelu is the tanh form; the fused kernel keeps one tensor for the backward pass, not seven.
_ACTIVATIONS = {"gelu": "gelu_pytorch_tanh", "relu": "relu", "silu": "silu", "swish": "silu"}


def eager_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, Tensor]:
    """Attention in plain steps, in the form of transformers' attention interface.

    Args:
        module: tells whether it is being trained.
        query: (batch, heads, tokens, size).
        key, value: (batch, heads, keys, size).
        attention_mask: to add to the scores, or True for what may be seen; None: each token sees what is before it.
        scaling: factor of the scores.
        dropout: on the probabilities.
        kwargs: what other implementations of the interface take.

    Returns:
        (batch, tokens, heads, size) and the probabilities, (batch, heads, tokens, keys).
    """
    scores = query @ key.transpose(-1, -2) * scaling
    if attention_mask is None:
        tokens, keys = scores.shape[-2:]
        attention_mask = torch.ones(tokens, keys, dtype=torch.bool, device=scores.device).tril(keys - tokens)
    if attention_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
    else:
        scores = scores + attention_mask
    # Half precision has too few digits to sum the probabilities in.
    probabilities = scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(value.dtype)
    probabilities = nn.functional.dropout(probabilities, dropout, module.training)
    return (probabilities @ value).transpose(1, 2), probabilities


class GPT1Attention(nn.Module):
    """Masked multi-head self-attention."""

    is_causal = True

    def __init__(self, config: GPT1Config, layer_idx: int):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.head_size = config.n_embd // config.n_head
        self.c_attn = Conv1D(3 * config.n_embd, config.n_embd)
        self.c_proj = Conv1D(config.n_embd, config.n_embd)
        self.resid_dropout = nn.Dropout(config.resid_pdrop)

    def forward(
        self, hidden: Tensor, attention_mask: Tensor | None, cache: Cache | None, output_attentions: bool
    ) -> tuple[Tensor, Tensor | None]:
        batch, tokens, size = hidden.shape
        heads = (
            part.view(batch, tokens, -1, self.head_size).transpose(1, 2) for part in self.c_attn(hidden).split(size, 2)
        )
        query, key, value = heads  # (batch, heads, tokens, head_size)
        if cache is not None:
            key, value = cache.update(key, value, self.layer_idx)
        attend = eager_attention
        if not output_attentions:
            attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention)
        dropout = self.config.attn_pdrop if self.training else 0.0
        read, probabilities = attend(
            self, query, key, value, attention_mask, scaling=self.head_size**-0.5, dropout=dropout
        )
        return self.resid_dropout(self.c_proj(read.reshape(batch, tokens, size))), probabilities


class GPT1FeedForward(nn.Module):
    """Two layers on each token alone."""

    def __init__(self, config: GPT1Config):
        super().__init__()
        self.c_fc = Conv1D(4 * config.n_embd, config.n_embd)
        self.c_proj = Conv1D(config.n_embd, 4 * config.n_embd)
        self.act = ACT2FN[_ACTIVATIONS[config.afn]]
        self.dropout = nn.Dropout(config.resid_pdrop)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.dropout(self.c_proj(self.act(self.c_fc(hidden))))


class GPT1Block(GradientCheckpointingLayer):
    """n = norm(x + attention(x)), h = norm(n + feed_forward(n))."""

    def __init__(self, config: GPT1Config, layer_idx: int):
        super().__init__()
        self.attn = GPT1Attention(config, layer_idx)
        self.ln_1 = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.mlp = GPT1FeedForward(config)
        self.ln_2 = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)

    def forward(
        self,
        hidden: Tensor,
        attention_mask: Tensor | None = None,
        cache: Cache | None = None,
        output_attentions: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        added, probabilities = self.attn(hidden, attention_mask, cache, output_attentions)
        normed = self.ln_1(hidden + added)
        return self.ln_2(normed + self.mlp(normed)), probabilities
