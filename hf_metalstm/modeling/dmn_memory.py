# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""Episodic memory of a Dynamic Memory Network: gates on the facts, episodes, updates of the memory, when to stop."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import initialization as init

from .checks import values_are_known
from .configuration_dmn import DMNConfig
from .dmn_input import GRULayer
from .recurrent import attention_gru, project_gru_inputs
from .recurrent_types import GRUWeights, ProjectedInputs

# An update gate of exactly 0, in every precision.
_CLOSED = -1e4


class Passes(NamedTuple):
    """What the passes over the facts gave."""

    memory: Tensor  # (rows, hidden) after each row's last pass
    gates: Tensor  # (rows, passes, facts), 0 for padding and for passes that a row does not make
    scores: Tensor  # (rows, passes, facts), or one more for the end of the passes: the gates before sigmoid or softmax;
    # 0 after the pass in which a row chose the end
    made: Tensor  # (rows,) number of passes


class AttentionGate(nn.Module):
    """G(c, m, q) = W_2 tanh(W_1 z(c, m, q) + b_1) + b_2 before its sigmoid or softmax, z as the config lists it."""

    def __init__(self, config: DMNConfig):
        super().__init__()
        self.features = list(config.attention_features)
        sizes = [1 if ".W." in feature else config.hidden_size for feature in self.features]
        self.sizes = sizes
        self.bilinear: nn.Parameter | None = None
        if any(".W." in feature for feature in self.features):
            self.bilinear = nn.Parameter(torch.empty(config.hidden_size, config.hidden_size))
        self.hidden = nn.Linear(sum(sizes), config.attention_size)
        self.score = nn.Linear(config.attention_size, 1)

    def init_weights(self) -> None:
        """Of the bilinear form alone: small beside the products that it is added to."""
        if self.bilinear is not None:
            init.normal_(self.bilinear, 0.0, 1.0 / self.bilinear.shape[0])

    def prepare(self, facts: Tensor, question: Tensor) -> tuple[Tensor, Tensor | None]:
        """What stays the same in all passes: the share of b_1 + W_1 z without the memory, and c' W_b.

        Args:
            facts: (rows, facts, hidden).
            question: (rows, hidden).
        """
        bilinear = None if self.bilinear is None else facts @ self.bilinear
        return self._product(facts, question, "question", bilinear) + self.hidden.bias, bilinear

    def forward(self, facts: Tensor, memory: Tensor, prepared: tuple[Tensor, Tensor | None]) -> Tensor:
        """Scores (rows, facts)."""
        fixed, bilinear = prepared
        hidden = torch.tanh(fixed + self._product(facts, memory, "memory", bilinear))
        return self.score(hidden).squeeze(-1)

    def _product(self, facts: Tensor, other: Tensor, name: str, bilinear: Tensor | None) -> Tensor:
        """W_1 z for the features of facts with the question (and of facts alone), or with the memory."""
        columns = self.hidden.weight.split(self.sizes, dim=1)
        wide, parts, weights = other[:, None], [], []
        total: Tensor | float = 0.0
        for feature, weight in zip(self.features, columns, strict=True):
            if feature == name:
                # The same for every fact, so it is multiplied once.
                total = total + nn.functional.linear(wide, weight)
                continue
            if feature == "fact" and name == "question":
                parts.append(facts)
            elif feature == f"fact*{name}":
                parts.append(facts * wide)
            elif feature == f"|fact-{name}|":
                parts.append((facts - wide).abs())
            elif feature == f"fact.W.{name}":
                assert bilinear is not None
                parts.append((bilinear * wide).sum(-1, keepdim=True))
            else:
                continue
            weights.append(weight)
        if parts:
            total = total + nn.functional.linear(torch.cat(parts, dim=-1), torch.cat(weights, dim=1))
        if isinstance(total, float):
            return facts.new_zeros(*facts.shape[:2], self.hidden.out_features)
        return total


class GRUMemory(nn.Module):
    """m^i = GRU(e^i, m^{i-1})."""

    def __init__(self, hidden_size: int):
        super().__init__()
        self.cell = GRULayer(hidden_size, hidden_size)

    def forward(self, episode: Tensor, memory: Tensor, question: Tensor) -> Tensor:
        return torch.gru_cell(episode, memory, *self.cell.weights())


class ReLUMemory(nn.Module):
    """m^i = ReLU(W [m^{i-1} ; e^i ; q] + b) (DMN+, equation 11)."""

    def __init__(self, hidden_size: int):
        super().__init__()
        self.linear = nn.Linear(3 * hidden_size, hidden_size)

    def forward(self, episode: Tensor, memory: Tensor, question: Tensor) -> Tensor:
        return torch.relu(self.linear(torch.cat([memory, episode, question], dim=-1)))


class EpisodeReader(nn.Module):
    """e^i: the state after a GRU that the gates open has gone over the facts.

    With sigmoid gates h_t = g_t GRU(c_t, h_{t-1}) + (1 - g_t) h_{t-1} (Kumar et al. 2016, section 2.3). With softmax
    gates the gate takes the update gate's place: h_t = g_t n_t + (1 - g_t) h_{t-1}, n_t the candidate (DMN+, equation
    16), which is the former with an update gate of 0.
    """

    def __init__(self, config: DMNConfig):
        super().__init__()
        self.has_update_gate = config.gate == "sigmoid"
        parts, h = 3 if self.has_update_gate else 2, config.hidden_size
        self.input_weight = nn.Parameter(torch.empty(parts * h, h))
        self.hidden_weight = nn.Parameter(torch.empty(parts * h, h))
        self.input_bias = nn.Parameter(torch.empty(parts * h))
        self.hidden_bias = nn.Parameter(torch.empty(parts * h))

    def init_weights(self) -> None:
        bound = self.hidden_weight.shape[1] ** -0.5
        init.uniform_(self.input_weight, -bound, bound)
        init.uniform_(self.hidden_weight, -bound, bound)
        init.zeros_(self.input_bias)
        init.zeros_(self.hidden_bias)

    def weights(self) -> GRUWeights:
        """Of all three gates; a missing update gate is closed."""
        if self.has_update_gate:
            return GRUWeights(self.input_weight, self.hidden_weight, self.input_bias, self.hidden_bias)
        h = self.hidden_weight.shape[1]
        zeros = self.hidden_weight.new_zeros(h, h)
        return GRUWeights(
            torch.cat([self.input_weight[:h], zeros, self.input_weight[h:]]),
            torch.cat([self.hidden_weight[:h], zeros, self.hidden_weight[h:]]),
            torch.cat([self.input_bias[:h], torch.full_like(zeros[0], _CLOSED), self.input_bias[h:]]),
            torch.cat([self.hidden_bias[:h], zeros[0], self.hidden_bias[h:]]),
        )


class EpisodicMemory(nn.Module):
    """Goes over the facts up to `num_passes` times; m^0 = q."""

    def __init__(self, config: DMNConfig):
        super().__init__()
        self.num_passes = config.num_passes
        self.gate_kind = config.gate
        self.gate = AttentionGate(config)
        self.episode = EpisodeReader(config)
        cell = GRUMemory if config.memory_cell == "gru" else ReLUMemory
        self.updates = nn.ModuleList(
            cell(config.hidden_size) for _ in range(1 if config.tie_memory_weights else config.num_passes)
        )
        self.end_fact = nn.Parameter(torch.empty(config.hidden_size)) if config.use_end_of_passes else None

    def init_weights(self) -> None:
        if self.end_fact is not None:
            init.normal_(self.end_fact, 0.0, self.end_fact.shape[0] ** -0.5)

    def forward(
        self,
        facts: Tensor,
        lengths: Tensor | None,
        question: Tensor,
        passes_to_make: Tensor | None = None,
        for_each_fact: bool = False,
    ) -> Passes:
        """Answers a question from facts.

        Args:
            facts: (rows, facts, hidden), the real ones first in each row.
            lengths: (rows,) number of real facts; None means all.
            question: (rows, hidden).
            passes_to_make: (rows,) how many passes each row makes; None lets the gates decide.
            for_each_fact: a memory for each fact, which sees no fact after it: all results then have a dimension for
                it behind the rows.
        """
        rows, count, _ = facts.shape
        seen = facts  # by the gate; the end of the passes can be chosen, but there is nothing in it to read
        if self.end_fact is not None:
            seen = torch.cat([facts, self.end_fact.to(facts).expand(rows, 1, -1)], dim=1)
        fixed, bilinear = self.gate.prepare(seen, question)
        # The product with the input matrix is the same in all passes.
        (projected,) = project_gru_inputs(facts, self.episode.weights())
        if for_each_fact:
            # Each fact becomes a row of its own, whose story ends with it.
            upto = torch.arange(1, count + 1, device=facts.device).expand(rows, -1)
            lengths = (upto if lengths is None else upto.minimum(lengths[:, None])).flatten()
            seen, fixed, projected, question = (
                part.repeat_interleave(count, 0) for part in (seen, fixed, projected, question)
            )
            bilinear = None if bilinear is None else bilinear.repeat_interleave(count, 0)
            passes_to_make = None if passes_to_make is None else passes_to_make.repeat_interleave(count, 0)
        passes = self._go_over(seen, (fixed, bilinear), ProjectedInputs(projected), lengths, question, passes_to_make)
        return Passes(*(part.unflatten(0, (rows, count)) for part in passes)) if for_each_fact else passes

    def _go_over(
        self,
        seen: Tensor,
        prepared: tuple[Tensor, Tensor | None],
        projected: ProjectedInputs,
        lengths: Tensor | None,
        question: Tensor,
        passes_to_make: Tensor | None,
    ) -> Passes:
        rows, count, _ = projected.gates.shape
        real = None
        if lengths is not None:
            real = torch.arange(count, device=question.device) < lengths[:, None]
        weights = self.episode.weights()
        memory, running = question, torch.ones(rows, dtype=torch.bool, device=question.device)
        made = torch.zeros(rows, dtype=torch.long, device=question.device)
        all_gates, all_scores = [], []
        for index in range(self.num_passes):
            scores = self.gate(seen, memory, prepared)
            gates = self._open(scores, real)
            all_scores.append(scores.masked_fill(~running[:, None], 0.0))
            if self.end_fact is not None:
                chosen = gates.argmax(1) == count if passes_to_make is None else passes_to_make <= index
                running = running & ~chosen
                gates = gates[:, :-1].masked_fill(~running[:, None], 0.0)
            all_gates.append(gates)
            # In training all passes are made, so that the weights of each take part in every step.
            if not self.training and values_are_known() and not bool(running.any()):
                break
            episode = attention_gru(projected, gates, weights, lengths)  # (rows, hidden)
            updated = self.updates[min(index, len(self.updates) - 1)](episode, memory, question)
            memory = updated if self.end_fact is None else torch.where(running[:, None], updated, memory)
            made = made + running
        missing = self.num_passes - len(all_gates)
        return Passes(
            memory,
            torch.stack(all_gates + [torch.zeros_like(all_gates[0])] * missing, dim=1),
            torch.stack(all_scores + [torch.zeros_like(all_scores[0])] * missing, dim=1),
            made,
        )

    def _open(self, scores: Tensor, real: Tensor | None) -> Tensor:
        """Gates from scores: exactly 0 where there is no fact."""
        padding = None
        if real is not None:
            # The end of the passes stands behind the facts, and is always there.
            padding = nn.functional.pad(~real, (0, scores.shape[1] - real.shape[1]), value=False)
        if self.gate_kind == "sigmoid":
            gates = torch.sigmoid(scores)
            return gates if padding is None else gates.masked_fill(padding, 0.0)
        if padding is not None:
            scores = scores.masked_fill(padding, float("-inf"))
        return scores.softmax(1)
