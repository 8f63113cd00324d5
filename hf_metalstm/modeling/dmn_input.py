# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""Input module of a Dynamic Memory Network: from embedded sentences to one vector a fact; its recurrent layers."""

import torch
from torch import Tensor, nn
from transformers import initialization as init

from .configuration_dmn import DMNConfig
from .padding import RealTokens
from .recurrent import gru, lstm
from .recurrent_types import GRUWeights, LSTMWeights


class GRULayer(nn.Module):
    """A gated recurrent unit in one direction, with the equations of torch.nn.GRU."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__()
        self.input_weight = nn.Parameter(torch.empty(3 * hidden_size, input_size))
        self.hidden_weight = nn.Parameter(torch.empty(3 * hidden_size, hidden_size))
        self.input_bias = nn.Parameter(torch.empty(3 * hidden_size))
        self.hidden_bias = nn.Parameter(torch.empty(3 * hidden_size))

    def init_weights(self) -> None:
        """Uniform in +-1/sqrt(hidden), biases 0."""
        bound = self.hidden_weight.shape[1] ** -0.5
        init.uniform_(self.input_weight, -bound, bound)
        init.uniform_(self.hidden_weight, -bound, bound)
        init.zeros_(self.input_bias)
        init.zeros_(self.hidden_bias)

    def weights(self) -> GRUWeights:
        return GRUWeights(self.input_weight, self.hidden_weight, self.input_bias, self.hidden_bias)

    def forward(
        self, inputs: Tensor, lengths: Tensor | None, state: Tensor | None = None, reverse: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Outputs (batch, steps, hidden), and the state after the last step read (batch, hidden)."""
        return gru(inputs, self.weights(), lengths, state, reverse=reverse)


class LSTMLayer(nn.Module):
    """A standard LSTM in one direction, gates in the order input, forget, candidate, output."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__()
        self.input_weight = nn.Parameter(torch.empty(4 * hidden_size, input_size))
        self.hidden_weight = nn.Parameter(torch.empty(4 * hidden_size, hidden_size))
        self.bias = nn.Parameter(torch.empty(4 * hidden_size))

    def init_weights(self) -> None:
        """Uniform in +-1/sqrt(hidden), forget gates open."""
        h = self.hidden_weight.shape[1]
        init.uniform_(self.input_weight, -(h**-0.5), h**-0.5)
        init.uniform_(self.hidden_weight, -(h**-0.5), h**-0.5)
        init.copy_(self.bias, torch.arange(4).eq(1).repeat_interleave(h).to(self.bias))

    def forward(self, inputs: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        """Outputs (batch, steps, hidden), and the hidden state after the last step (batch, hidden)."""
        outputs, state = lstm(inputs, LSTMWeights(self.input_weight, self.hidden_weight, self.bias), lengths)
        return outputs, state.hidden


RECURRENT_LAYERS: dict[str, type[GRULayer] | type[LSTMLayer]] = {"gru": GRULayer, "lstm": LSTMLayer}


class FusionLayer(nn.Module):
    """Lets facts know of each other: a GRU over them in either direction, the two added (DMN+, section 3.1)."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__()
        self.forward_layer = GRULayer(input_size, hidden_size)
        self.backward_layer = GRULayer(input_size, hidden_size)

    def forward(self, facts: Tensor, lengths: Tensor | None) -> Tensor:
        ahead, _ = self.forward_layer(facts, lengths)
        back, _ = self.backward_layer(facts, lengths, reverse=True)
        return ahead + back


class InputModule(nn.Module):
    """Facts c_1..c_T from embedded sentences, as `config.fact_encoder` says."""

    def __init__(self, config: DMNConfig):
        super().__init__()
        self.fact_encoder = config.fact_encoder
        width = config.embedding_size
        self.reader: nn.Module | None = None
        if config.fact_encoder != "position":
            self.reader = RECURRENT_LAYERS[config.input_cell](config.embedding_size, config.hidden_size)
            width = config.hidden_size
        self.fusion = FusionLayer(width, config.hidden_size) if config.fusion_layer else None

    def forward(self, embedded: Tensor, mask: Tensor, places: RealTokens) -> tuple[Tensor, Tensor | None]:
        """Encodes a batch of stories.

        Args:
            embedded: (batch, facts, tokens, embedding_size).
            mask: (batch, facts, tokens), True for real tokens.
            places: where the real facts stand.

        Returns:
            Facts (batch, facts, hidden), the real ones first in each row, and the states of all tokens at their places
            (batch, facts * tokens, hidden), or None where the encoder has none.
        """
        encoders = {"story": self._read_story, "sentence": self._read_sentences, "position": self._add_up}
        facts, states = encoders[self.fact_encoder](embedded, mask)
        facts = places.to_front(facts)
        if self.fusion is not None:
            facts = self.fusion(facts, places.lengths)
        return facts, states

    def _read_story(self, embedded: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """The states at the ends of the sentences, which are read as one text."""
        assert self.reader is not None
        tokens = RealTokens(mask.flatten(1))
        outputs, _ = self.reader(tokens.to_front(embedded.flatten(1, 2)), tokens.lengths)
        ends = (mask.sum(2).cumsum(1) - 1).clamp(min=0)  # (batch, facts), among the real tokens
        facts = outputs.gather(1, ends[:, :, None].expand(-1, -1, outputs.shape[2]))  # (batch, facts, hidden)
        return facts, tokens.to_places(outputs)

    def _read_sentences(self, embedded: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """The last state of each sentence, read by itself."""
        assert self.reader is not None
        rows = mask.flatten(0, 1)
        # A padded fact has no token to read: it reads one, and nobody reads it.
        readable = torch.cat([rows[:, :1] | ~rows.any(1, keepdim=True), rows[:, 1:]], dim=1)
        tokens = RealTokens(readable)
        outputs, last = self.reader(tokens.to_front(embedded.flatten(0, 1)), tokens.lengths)
        states = tokens.to_places(outputs).unflatten(0, mask.shape[:2]).flatten(1, 2)
        return last.unflatten(0, mask.shape[:2]), states

    def _add_up(self, embedded: Tensor, mask: Tensor) -> tuple[Tensor, None]:
        return (embedded * position_weights(mask, embedded.shape[3]).to(embedded)).sum(2), None


def position_weights(mask: Tensor, size: int) -> Tensor:
    """l_jd = (1 - j/M) - (d/D)(1 - 2j/M) for token j of M and unit d of D (Sukhbaatar et al. 2015, section 4.1).

    Args:
        mask: (..., tokens), True for real tokens.
        size: D.

    Returns:
        (..., tokens, size), 0 for padding.
    """
    real = mask.float()
    position = (real.cumsum(-1) / real.sum(-1, keepdim=True).clamp(min=1))[..., None]  # j / M
    unit = torch.arange(1, size + 1, device=mask.device) / size  # d / D
    return ((1 - position) - unit * (1 - 2 * position)) * real[..., None]
