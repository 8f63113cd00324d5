"""The equations of Kumar et al. 2016 (and of the parts of DMN+) on one story at a time, word by word, in loops.

Nothing of the package's model code is used: parameters are read by name from a state dict. Products are written as sums
of matrices with vectors, and the gates' features are put together one by one for each fact.
"""

import torch
from torch import Tensor


class Reference:
    """One model's parameters, and the settings that its equations depend on."""

    def __init__(self, parameters: dict[str, Tensor], config):
        self.p, self.config = parameters, config

    def gru_step(self, prefix: str, x: Tensor, h: Tensor) -> Tensor:
        p, n = self.p, len(h)
        a = p[f"{prefix}.input_weight"] @ x + p[f"{prefix}.input_bias"]
        b = p[f"{prefix}.hidden_weight"] @ h + p[f"{prefix}.hidden_bias"]
        reset, update = torch.sigmoid(a[:n] + b[:n]), torch.sigmoid(a[n : 2 * n] + b[n : 2 * n])
        candidate = torch.tanh(a[2 * n :] + reset * b[2 * n :])
        return (1 - update) * candidate + update * h

    def read(self, prefix: str, words: list[Tensor]) -> list[Tensor]:
        """States after each word, by GRU or LSTM."""
        h = torch.zeros(self.config.hidden_size, dtype=torch.float64)
        c, states = h, []
        for x in words:
            if self.config.input_cell == "gru":
                h = self.gru_step(prefix, x, h)
            else:
                p = self.p
                sums = p[f"{prefix}.input_weight"] @ x + p[f"{prefix}.hidden_weight"] @ h + p[f"{prefix}.bias"]
                i, f, g, o = sums.chunk(4)
                c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
                h = torch.sigmoid(o) * torch.tanh(c)
            states.append(h)
        return states

    def facts(self, story: list[list[int]]) -> list[Tensor]:
        table = self.p["encoder.embeddings.weight"]
        embedded = [[table[word] for word in fact] for fact in story]
        reader = "encoder.input_module.reader"
        if self.config.fact_encoder == "story":
            states = self.read(reader, [word for fact in embedded for word in fact])
            ends, position = [], -1
            for fact in embedded:
                position += len(fact)
                ends.append(states[position])
            facts = ends
        elif self.config.fact_encoder == "sentence":
            facts = [self.read(reader, fact)[-1] for fact in embedded]
        else:
            facts = []
            for fact in embedded:
                total, m, d_all = 0.0, len(fact), len(fact[0])
                for j, word in enumerate(fact, start=1):
                    weights = [(1 - j / m) - (d / d_all) * (1 - 2 * j / m) for d in range(1, d_all + 1)]
                    total = total + torch.tensor(weights, dtype=torch.float64) * word
                facts.append(total)
        if self.config.fusion_layer:
            prefix, zero = "encoder.input_module.fusion", torch.zeros(self.config.hidden_size, dtype=torch.float64)
            ahead, back, h = [], [], zero
            for fact in facts:
                h = self.gru_step(f"{prefix}.forward_layer", fact, h)
                ahead.append(h)
            h = zero
            for fact in reversed(facts):
                h = self.gru_step(f"{prefix}.backward_layer", fact, h)
                back.insert(0, h)
            facts = [a + b for a, b in zip(ahead, back, strict=True)]
        return facts

    def question(self, words: list[int] | None) -> Tensor:
        if words is None:
            return self.p["encoder.question_module.vector"]
        table = self.p["encoder.embeddings.weight"]
        return self.read("encoder.question_module.reader", [table[word] for word in words])[-1]

    def score(self, c: Tensor, m: Tensor, q: Tensor) -> Tensor:
        p, gate, parts = self.p, "encoder.episodic_memory.gate", []
        bilinear = p.get(f"{gate}.bilinear")
        for feature in self.config.attention_features:
            part = {
                "fact": lambda: c,
                "memory": lambda: m,
                "question": lambda: q,
                "fact*question": lambda: c * q,
                "fact*memory": lambda: c * m,
                "|fact-question|": lambda: torch.abs(c - q),
                "|fact-memory|": lambda: torch.abs(c - m),
                "fact.W.question": lambda: (c @ bilinear @ q)[None],
                "fact.W.memory": lambda: (c @ bilinear @ m)[None],
            }[feature]
            parts.append(part())
        hidden = torch.tanh(p[f"{gate}.hidden.weight"] @ torch.cat(parts) + p[f"{gate}.hidden.bias"])
        return (p[f"{gate}.score.weight"] @ hidden + p[f"{gate}.score.bias"])[0]

    def episode_step(self, c: Tensor, h: Tensor, g: Tensor) -> Tensor:
        prefix = "encoder.episodic_memory.episode"
        if self.config.gate == "sigmoid":
            return g * self.gru_step(prefix, c, h) + (1 - g) * h
        p, n = self.p, len(h)
        a = p[f"{prefix}.input_weight"] @ c + p[f"{prefix}.input_bias"]
        b = p[f"{prefix}.hidden_weight"] @ h + p[f"{prefix}.hidden_bias"]
        candidate = torch.tanh(a[n:] + torch.sigmoid(a[:n] + b[:n]) * b[n:])
        return g * candidate + (1 - g) * h

    def update(self, index: int, e: Tensor, m: Tensor, q: Tensor) -> Tensor:
        prefix = f"encoder.episodic_memory.updates.{0 if self.config.tie_memory_weights else index}"
        if self.config.memory_cell == "gru":
            return self.gru_step(f"{prefix}.cell", e, m)
        sums = self.p[f"{prefix}.linear.weight"] @ torch.cat([m, e, q]) + self.p[f"{prefix}.linear.bias"]
        return torch.relu(sums)

    def passes(self, facts: list[Tensor], q: Tensor, to_make: int | None = None):
        """Memory, gates of each pass (lists of floats), scores of each pass that was looked at."""
        memory, all_gates, all_scores = q, [], []
        for index in range(self.config.num_passes):
            seen = list(facts)
            if self.config.use_end_of_passes:
                seen.append(self.p["encoder.episodic_memory.end_fact"])
            scores = torch.stack([self.score(c, memory, q) for c in seen])
            gates = torch.sigmoid(scores) if self.config.gate == "sigmoid" else torch.softmax(scores, 0)
            all_scores.append(scores)
            if self.config.use_end_of_passes:
                stop = int(gates.argmax()) == len(facts) if to_make is None else index >= to_make
                if stop:
                    break
            all_gates.append(gates[: len(facts)])
            h = torch.zeros(self.config.hidden_size, dtype=torch.float64)
            for c, g in zip(facts, gates[: len(facts)], strict=True):
                h = self.episode_step(c, h, g)
            memory = self.update(index, h, memory, q)
        return memory, all_gates, all_scores

    def answer_loss(self, memory: Tensor, q: Tensor, answer: list[int]) -> tuple[Tensor, Tensor]:
        """Sum of the tokens' losses, and their logits."""
        table, a, y, losses, logits = self.p["encoder.embeddings.weight"], memory, 2, [], []
        for token in answer:
            a = self.gru_step("answer_module.layer", torch.cat([table[y], q]), a)
            scores = self.p["lm_head.weight"] @ a + self.p["lm_head.bias"]
            losses.append(-torch.log(torch.exp(scores[token]) / torch.exp(scores).sum()))
            logits.append(scores)
            y = token
        return torch.stack(losses).sum(), torch.stack(logits)

    def gate_losses(self, scores: list[Tensor], supporting: list[list[int]], facts: int) -> list[Tensor]:
        """Loss of each pass that is known; `supporting` lists the facts that each pass should find."""
        losses = []
        ended = False
        for pass_scores, found in zip(scores, supporting, strict=False):
            if not found and (not self.config.use_end_of_passes or ended):
                continue
            wanted = set(found)
            if not found:
                wanted, ended = {facts}, True
            if self.config.gate == "sigmoid":
                gates = torch.sigmoid(pass_scores)
                terms = [torch.log(g) if i in wanted else torch.log(1 - g) for i, g in enumerate(gates)]
                losses.append(-torch.stack(terms).sum())
            else:
                gates = torch.softmax(pass_scores, 0)
                losses.append(-torch.stack([torch.log(gates[i]) / len(wanted) for i in wanted]).sum())
        return losses
