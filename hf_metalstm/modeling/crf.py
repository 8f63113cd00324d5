# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""Linear-chain conditional random field (Lafferty, McCallum, Pereira 2001): the output layer of a sequence tagger.

The score of tags y for one row is

    s(y) = start[y_1] + sum_t emissions[t, y_t] + sum_t transitions[y_t, y_{t+1}] + end[y_n],

and p(y) = exp(s(y)) / Z, where Z sums over all tag sequences of that length. `crf_forward_backward` computes Z,
`tag_constraints` says which sequences a tag scheme has.
"""

import torch
from torch import Tensor, nn
from transformers import initialization as init

from .checks import check_is_tensor, values_are_known
from .crf_forward_backward import ChainScores, best_paths, chain_sums, log_partition
from .padding import RealTokens
from .tag_constraints import AllowedTransitions, allowed_transitions

__all__ = ["AllowedTransitions", "LinearChainCRF", "allowed_transitions"]

IGNORED_LABEL = -100


class LinearChainCRF(nn.Module):
    """Scores and reads whole tag sequences.

    In all methods `attention_mask` is (batch, tokens), non-zero for real tokens, with padding on either side; None
    means that all are real. A row's real tokens must be contiguous. Those that carry no tag are left out of the chain,
    so that their neighbours follow each other directly: this is what tagging the first subword of each word needs. In
    `labels` they are -100; `tagged` says the same where no labels are known. Emissions of tokens outside the chain
    never matter.

    Half-precision emissions are computed in float32, and results stay in float32.

    Args:
        num_tags: number of tags.
        allowed: the sequences that exist, from `allowed_transitions`; all others have probability 0, and their scores
            no gradient. None allows all.

    Raises:
        ValueError: `num_tags` is below 1, or `allowed` is for another number of tags.

    Example:
        >>> import torch
        >>> from hf_metalstm.modeling.crf import LinearChainCRF, allowed_transitions
        >>> crf = LinearChainCRF(3, allowed_transitions(["O", "B-NP", "I-NP"], "IOB2"))
        >>> emissions = torch.tensor([[[0.0, 2.0, 5.0], [0.0, 0.0, 4.0], [9.0, 0.0, 0.0]]])
        >>> labels = torch.tensor([[1, 2, -100]])
        >>> loss = crf(emissions, labels)
        >>> crf.decode(emissions, attention_mask=torch.tensor([[1, 1, 0]]))
        tensor([[   1,    2, -100]])
    """

    start_allowed: Tensor | None
    end_allowed: Tensor | None
    transition_allowed: Tensor | None

    def __init__(self, num_tags: int, allowed: AllowedTransitions | None = None):
        super().__init__()
        if num_tags < 1:
            raise ValueError(f"num_tags is {num_tags}, but a chain needs at least 1")
        self.num_tags = num_tags
        self.start_scores = nn.Parameter(torch.empty(num_tags))
        self.end_scores = nn.Parameter(torch.empty(num_tags))
        self.transition_scores = nn.Parameter(torch.empty(num_tags, num_tags))
        shapes = {"start": (num_tags,), "end": (num_tags,), "transitions": (num_tags, num_tags)}
        for (field, shape), name in zip(shapes.items(), ("start", "end", "transition"), strict=True):
            part = None if allowed is None else getattr(allowed, field)
            if part is not None and part.shape != shape:
                raise ValueError(
                    f"allowed.{field} has shape {tuple(part.shape)}, but {num_tags} tags need {shape}: make it from "
                    "the labels of this chain"
                )
            self.register_buffer(f"{name}_allowed", None if part is None else torch.empty_like(part))
        self._allowed = allowed
        self.init_weights()

    def init_weights(self) -> None:
        """Draws all scores from U(-0.1, 0.1) and sets the constraints."""
        for scores in (self.start_scores, self.end_scores, self.transition_scores):
            init.uniform_(scores, -0.1, 0.1)
        # Buffers are set here too: loading a checkpoint that lacks them leaves them undefined.
        if self._allowed is not None:
            for name, part in zip(("start", "end", "transition"), self._allowed, strict=True):
                init.copy_(self.get_buffer(f"{name}_allowed"), part)

    def extra_repr(self) -> str:
        return f"num_tags={self.num_tags}, constrained={self.transition_allowed is not None}"

    def forward(self, emissions: Tensor, labels: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """What a tagger is trained on: the mean over the rows of the negative log-likelihood.

        Rows without any label do not count; if no row has one, the loss is 0 with gradient 0.

        Args:
            emissions: (batch, tokens, tags).
            labels: (batch, tokens) int64 tag ids, -100 for tokens outside the chain.
            attention_mask: (batch, tokens).

        Returns:
            (), float32 or float64.

        Raises:
            TypeError: labels are no integers.
            ValueError: a label out of range, a mask with a hole or an empty row, shapes that differ, or labels that the
                constraints forbid.
        """
        likelihood = self.log_likelihood(emissions, labels, attention_mask)
        chain = self._chain_mask(emissions, attention_mask, labels != IGNORED_LABEL)
        if self.transition_allowed is not None and values_are_known():
            impossible = (likelihood == -torch.inf).nonzero()
            if len(impossible):
                row = int(impossible[0])
                tags = labels[row][chain[row]].tolist()
                raise ValueError(
                    f"labels[{row}] are {_shown(tags)}, a sequence that the constraints forbid: {self._fault(tags)}. "
                    "Convert the tags to the scheme of the constraints (a sentence that was cut within a chunk may "
                    "break it at its border), or do without constraints"
                )
        return -likelihood.sum() / chain.any(1).sum().clamp(min=1)

    def log_likelihood(self, emissions: Tensor, labels: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """log p(labels) of each row: 0 for a row without labels, minus infinity for a sequence that is not allowed.

        Args and errors are those of `forward`, which refuses labels that are not allowed.

        Returns:
            (batch,), float32 or float64.
        """
        self._check_emissions(emissions)
        self._check_labels(emissions, labels, attention_mask)
        chain = self._chain_mask(emissions, attention_mask, labels != IGNORED_LABEL)
        scores, tokens = self._chain_scores(emissions, chain)
        tags = tokens.to_front(labels.masked_fill(~chain, 0)).t()  # (tokens, batch)
        lengths = scores.lengths
        with torch.autocast(emissions.device.type, enabled=False):
            # The scores as they are: a forbidden sequence is taken out below, which keeps infinities out of the sums.
            real = torch.arange(len(tags), device=tags.device)[:, None] < lengths
            rows = torch.arange(tags.shape[1], device=tags.device)
            last = tags[lengths - 1, rows]
            score = scores.emissions.gather(2, tags[..., None])[..., 0].where(real, 0.0).sum(0)
            pairs = tags[:-1] * self.num_tags + tags[1:]
            taken = self.transition_scores.to(score.dtype).flatten().index_select(0, pairs.flatten()).view_as(pairs)
            score = score + taken.where(real[1:], 0.0).sum(0)
            score = score + self.start_scores.to(score.dtype)[tags[0]] + self.end_scores.to(score.dtype)[last]
            result = score - self._checked(log_partition(scores), chain)
            if self.transition_allowed is not None:
                assert self.start_allowed is not None and self.end_allowed is not None
                possible = (self.transition_allowed.flatten()[pairs] | ~real[1:]).all(0)
                possible = possible & self.start_allowed[tags[0]] & self.end_allowed[last]
                result = result.where(possible, -torch.inf)
            return result.where(chain.any(1), 0.0)

    def log_partition(
        self, emissions: Tensor, attention_mask: Tensor | None = None, tagged: Tensor | None = None
    ) -> Tensor:
        """log Z of each row (batch,); 0 for a row without tagged tokens. Args as in `decode`."""
        chain = self._chain_mask(emissions, attention_mask, tagged)
        scores, _ = self._chain_scores(emissions, chain)
        with torch.autocast(emissions.device.type, enabled=False):
            return self._checked(log_partition(scores), chain).where(chain.any(1), 0.0)

    @torch.no_grad()
    def marginals(
        self, emissions: Tensor, attention_mask: Tensor | None = None, tagged: Tensor | None = None
    ) -> Tensor:
        """Probability of each tag at each token, over all tag sequences.

        Args as in `decode`.

        Returns:
            (batch, tokens, tags), zero for tokens outside the chain.
        """
        chain = self._chain_mask(emissions, attention_mask, tagged)
        scores, tokens = self._chain_scores(emissions, chain)
        with torch.autocast(emissions.device.type, enabled=False):
            sums = chain_sums(scores, both_directions=True)
        self._checked(sums.log_partition, chain)
        assert sums.marginals is not None
        probabilities = tokens.to_places(sums.marginals.transpose(0, 1).contiguous())
        return probabilities.masked_fill(~chain[..., None], 0.0)

    @torch.no_grad()
    def decode(self, emissions: Tensor, attention_mask: Tensor | None = None, tagged: Tensor | None = None) -> Tensor:
        """The most probable tag sequence of each row (Viterbi).

        Args:
            emissions: (batch, tokens, tags).
            attention_mask: (batch, tokens), non-zero for real tokens.
            tagged: (batch, tokens), non-zero for the real tokens that carry a tag, such as first subwords; None means
                all of them.

        Returns:
            (batch, tokens) int64, -100 for tokens outside the chain.

        Raises:
            ValueError: a mask with a hole or an empty row, or shapes that differ.
        """
        chain = self._chain_mask(emissions, attention_mask, tagged)
        scores, tokens = self._chain_scores(emissions, chain)
        tags = tokens.to_places(best_paths(scores).t().unsqueeze(-1).contiguous())[..., 0]
        return tags.masked_fill(~chain, IGNORED_LABEL)

    def _check_emissions(self, emissions: Tensor) -> None:
        check_is_tensor(emissions, "emissions")
        if emissions.ndim != 3 or emissions.shape[2] != self.num_tags:
            raise ValueError(
                f"emissions have shape {tuple(emissions.shape)}, expected (batch, tokens, {self.num_tags})"
            )
        if 0 in emissions.shape:
            raise ValueError(f"empty batch: emissions have shape {tuple(emissions.shape)}")
        if not emissions.is_floating_point():
            raise TypeError(f"emissions must be floating-point scores, got {emissions.dtype}")

    def _chain_mask(self, emissions: Tensor, attention_mask: Tensor | None, tagged: Tensor | None) -> Tensor:
        """(batch, tokens) bool: real tokens that carry a tag."""
        self._check_emissions(emissions)
        chain = emissions.new_ones(emissions.shape[:2], dtype=torch.bool)
        for mask, name in ((attention_mask, "attention_mask"), (tagged, "tagged")):
            if mask is None:
                continue
            check_is_tensor(mask, name)
            if mask.shape != chain.shape:
                raise ValueError(
                    f"{name} has shape {tuple(mask.shape)}, but the emissions are for {tuple(chain.shape)} tokens"
                )
            if name == "attention_mask":
                _check_contiguous(mask != 0)
            chain = chain & (mask != 0)
        return chain

    def _check_labels(self, emissions: Tensor, labels: Tensor, attention_mask: Tensor | None) -> None:
        check_is_tensor(labels, "labels")
        if labels.is_floating_point() or labels.dtype == torch.bool:
            raise TypeError(f"labels must be integers (tag ids), got {labels.dtype}")
        if labels.shape != emissions.shape[:2]:
            raise ValueError(
                f"labels have shape {tuple(labels.shape)}, but the emissions are for {tuple(emissions.shape[:2])} "
                "tokens"
            )
        if not values_are_known():
            return
        wrong = ((labels < 0) & (labels != IGNORED_LABEL)) | (labels >= self.num_tags)
        if attention_mask is not None and attention_mask.shape == labels.shape:
            wrong = wrong & (attention_mask != 0)  # whatever stands where there is padding
        if bool(wrong.any()):
            row, token = wrong.nonzero()[0].tolist()
            raise ValueError(
                f"labels[{row}, {token}] is {int(labels[row, token])}, but tag ids lie in 0..{self.num_tags - 1}, and "
                f"{IGNORED_LABEL} marks tokens without a tag"
            )

    def _chain_scores(self, emissions: Tensor, chain: Tensor) -> tuple[ChainScores, RealTokens]:
        """The chains of a batch, each at the front of its row, and the way back to the tokens' places."""
        tokens = RealTokens(chain)
        dtype = torch.promote_types(torch.promote_types(emissions.dtype, self.start_scores.dtype), torch.float32)
        # Padding may hold anything; a row without a tag counts as one step, and its result is dropped.
        known = emissions.to(dtype).masked_fill(~chain[..., None], 0.0)
        lengths = chain.sum(1).clamp(min=1)
        start, end, transitions = (
            scores.to(dtype) if allowed is None else scores.to(dtype).masked_fill(~allowed, -torch.inf)
            for scores, allowed in (
                (self.start_scores, self.start_allowed),
                (self.end_scores, self.end_allowed),
                (self.transition_scores, self.transition_allowed),
            )
        )
        steps = tokens.to_front(known).transpose(0, 1).contiguous()  # (tokens, batch, tags)
        return ChainScores(steps, start, end, transitions, lengths), tokens

    def _checked(self, partition: Tensor, chain: Tensor) -> Tensor:
        """Raises ValueError where the constraints leave a row no sequence at all."""
        if self.transition_allowed is not None and values_are_known():
            impossible = ((partition == -torch.inf) & chain.any(1)).nonzero()
            if len(impossible):
                row = int(impossible[0])
                raise ValueError(f"row {row}: the constraints allow no sequence of {int(chain[row].sum())} tags at all")
        return partition

    def _fault(self, tags: list[int]) -> str:
        assert self.transition_allowed is not None and self.start_allowed is not None
        if not self.start_allowed[tags[0]]:
            return f"tag {tags[0]} cannot be the first"
        for place, (before, after) in enumerate(zip(tags, tags[1:], strict=False)):
            if not self.transition_allowed[before, after]:
                return f"tag {after} cannot follow tag {before} (places {place} and {place + 1} of the chain)"
        return f"tag {tags[-1]} cannot be the last"


def _shown(tags: list[int]) -> str:
    return f"[{', '.join(map(str, tags[:12]))}{', ...' if len(tags) > 12 else ''}]"


def _check_contiguous(mask: Tensor) -> None:
    """Raises ValueError for a row without real tokens, or with padding between them."""
    if not values_are_known():
        return
    begins = mask.clone()
    begins[:, 1:] &= ~mask[:, :-1]
    runs = begins.sum(1)
    wrong = (runs != 1).nonzero()
    if not len(wrong):
        return
    row = int(wrong[0])
    if int(runs[row]) == 0:
        raise ValueError(f"row {row} is empty: its attention_mask is all 0, but a chain needs at least one token")
    real = mask[row].nonzero()[:, 0]
    hole = int((~mask[row, int(real[0]) :]).nonzero()[0]) + int(real[0])
    raise ValueError(
        f"attention_mask has a hole: row {row} is 0 at token {hole}, between real tokens. Padding stands at one side "
        f"or both; tokens without a tag are marked by {IGNORED_LABEL} in labels, or by 0 in tagged"
    )
