# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""Sums over all tag sequences of a linear-chain CRF: partition function, marginals, expected transitions.

The gradient of the log partition function is what the forward-backward algorithm computes: the probability of each tag
at each step, and the expected number of times that each transition is taken. `log_partition` is one autograd Function
that uses them, instead of going back through the loop.

The chain read from its end is a chain too, with transposed transitions, and start and end swapped. So both directions
run in one loop, the second on rows that are turned round within their lengths.

Two forms of the loop compute the same numbers:

* `scaled_sums` works with probabilities, scaled to sum to 1 at each step (Rabiner 1989, section V.A), in float64: a
  step is a matrix product and a product. It is right as long as no reachable tag becomes less probable than float64 can
  say (`scaling_is_safe`).
* `log_sums` works with logarithms, for everything else.

All of them expect a batch whose steps are in front, `(steps, batch, tags)`, each row's real steps first and the scores
behind them finite. Forbidden starts, ends and transitions have the score minus infinity.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

# float64 reaches down to exp(-708); the rest is for the number of tags and for rounding.
_SAFE_RANGE = 600.0


class ChainScores(NamedTuple):
    """Scores of one batch of chains."""

    emissions: Tensor  # (steps, batch, tags)
    start: Tensor  # (tags,)
    end: Tensor  # (tags,)
    transitions: Tensor  # (tags, tags), [i, j] for j directly after i
    lengths: Tensor  # (batch,) int64, at least 1


class ChainSums(NamedTuple):
    """What is known about all tag sequences of each row; the last two are None unless asked for."""

    log_partition: Tensor  # (batch,)
    marginals: Tensor | None  # (steps, batch, tags), zero behind a row's length
    pairs: Tensor | None  # (batch, tags, tags), expected number of transitions


def scaling_is_safe(scores: ChainScores) -> bool:
    """Whether `scaled_sums` can represent every reachable tag's probability.

    Where any tag is reached from any other in k steps, a tag's probability, relative to the most probable one of its
    step, is at least exp(-k * range of the scores of a step) / number of tags; the end of the chain is one step more.
    In the product of two directions, what is too small to be represented is nothing beside the sum.
    """
    if scores.emissions.device.type == "mps":  # which has no float64
        return False
    allowed = scores.transitions > -torch.inf
    reach, steps = allowed, 1
    while not bool(reach.all()):
        if steps > len(allowed):
            return False
        reach, steps = (reach.float() @ allowed.float()) > 0, steps + 1
    low, high = scores.emissions.aminmax(dim=2)
    ranges = []
    for part in (scores.start, scores.end, scores.transitions):
        finite = part[part > -torch.inf]
        if not len(finite):
            return False
        ranges.append(finite.max() - finite.min())
    width = (high - low).max() + torch.stack(ranges).max()
    return bool(width * (steps + 1) < _SAFE_RANGE)  # False for NaN


@torch.compiler.disable
def chain_sums(scores: ChainScores, both_directions: bool) -> ChainSums:
    """Partition function and, with both directions, marginals and pairs."""
    sums = scaled_sums if scaling_is_safe(scores) else log_sums
    return sums(scores, both_directions)


def _turn_round(values: Tensor, lengths: Tensor) -> Tensor:
    """(steps, batch, n): each row's real steps in the opposite order, in the same place."""
    step = torch.arange(values.shape[0], device=values.device)[:, None]
    index = torch.where(step < lengths, lengths - 1 - step, step)
    return values.gather(0, index[..., None].expand_as(values))


def _last(values: Tensor, lengths: Tensor) -> Tensor:
    """(steps, batch, n) -> (batch, n) at each row's last real step."""
    return values[lengths - 1, torch.arange(len(lengths), device=values.device)]


def _is_real(values: Tensor, lengths: Tensor) -> Tensor:
    """(steps, batch, 1) bool"""
    return (torch.arange(values.shape[0], device=values.device)[:, None] < lengths)[..., None]


def scaled_sums(scores: ChainScores, both_directions: bool) -> ChainSums:
    """`chain_sums` with probabilities that are scaled at each step."""
    dtype, lengths = scores.emissions.dtype, scores.lengths
    emissions, start, end, transitions = (part.double() for part in scores[:4])
    steps, batch, tags = emissions.shape
    # The largest score of each kind is taken out, and comes back in the logarithm.
    emission_shift = emissions.amax(2)
    start_shift, end_shift, shift = start.max(), end.max(), transitions.max()
    weights = (emissions - emission_shift[..., None]).exp_()
    start, end, transitions = (start - start_shift).exp(), (end - end_shift).exp(), (transitions - shift).exp()

    directions = 1 + both_directions
    if both_directions:
        weights = torch.stack([weights, _turn_round(weights, lengths)], dim=1)
        first, matrix = torch.stack([start, end])[:, None], torch.stack([transitions, transitions.t()])
    else:
        weights, first, matrix = weights[:, None], start[None, None], transitions[None]
    before = weights.new_empty(steps, directions, batch, tags)  # probabilities without the step's own emission
    after = torch.empty_like(before)  # with it
    scale = weights.new_empty(steps, directions, batch, 1)
    before[0] = first
    views = zip(before.unbind(), after.unbind(), scale.unbind(), weights.unbind(), strict=True)
    previous = None
    for to_step, at_step, step_scale, weight in views:
        if previous is not None:
            torch.bmm(previous, matrix, out=to_step)
        torch.mul(to_step, weight, out=at_step)
        torch.sum(at_step, dim=2, keepdim=True, out=step_scale)
        at_step.div_(step_scale)
        previous = at_step

    ended = (_last(after[:, 0], lengths) * end).sum(1)
    scales = (scale[:, 0, :, 0].log() + emission_shift).cumsum(0)
    log_partition = _last(scales[..., None], lengths)[:, 0] + ended.log() + start_shift + end_shift
    log_partition = (log_partition + (lengths - 1) * shift).to(dtype)
    if not both_directions:
        return ChainSums(log_partition, None, None)
    real = _is_real(after, lengths)
    from_end = _turn_round(before[:, 1], lengths)
    marginals = after[:, 0] * from_end
    marginals = torch.where(real, marginals / marginals.sum(2, keepdim=True), 0.0)
    # p(i at s, j at s+1) = after(i) transition(i, j) after_from_end(j) / normaliser, all steps in one product.
    right = _turn_round(after[:, 1], lengths)[1:]
    normaliser = (before[1:, 0] * right).sum(2, keepdim=True)
    right = torch.where(real[1:], right / normaliser, 0.0)
    pairs = torch.bmm(after[:-1, 0].permute(1, 2, 0), right.transpose(0, 1)) * transitions
    return ChainSums(log_partition, marginals.to(dtype), pairs.to(dtype))


def log_sums(scores: ChainScores, both_directions: bool) -> ChainSums:
    """`chain_sums` with logarithms: any scores, slower."""
    emissions, start, end, transitions, lengths = scores
    after, _ = _log_messages(emissions, start, transitions)
    log_partition = (_last(after, lengths) + end).logsumexp(1)
    if not both_directions:
        return ChainSums(log_partition, None, None)
    after_from_end, before_from_end = _log_messages(_turn_round(emissions, lengths), end, transitions.t())
    real = _is_real(after, lengths)
    marginals = (after + _turn_round(before_from_end, lengths) - log_partition[:, None]).exp()
    marginals = torch.where(real, marginals, 0.0)
    right = _turn_round(after_from_end, lengths)
    pairs = emissions.new_zeros(emissions.shape[1], *transitions.shape)
    for step in range(1, len(emissions)):
        joint = after[step - 1, :, :, None] + transitions + right[step, :, None, :] - log_partition[:, None, None]
        pairs += torch.where(real[step, :, :, None], joint.exp(), 0.0)
    return ChainSums(log_partition, marginals, pairs)


def _log_messages(emissions: Tensor, first: Tensor, transitions: Tensor) -> tuple[Tensor, Tensor]:
    """(steps, batch, tags) log sums over all beginnings that reach a tag, with the step's emission and without it."""
    before, after = torch.empty_like(emissions), torch.empty_like(emissions)
    before[0] = first
    after[0] = first + emissions[0]
    for step in range(1, len(emissions)):
        before[step] = (after[step - 1][:, :, None] + transitions).logsumexp(1)
        after[step] = before[step] + emissions[step]
    return after, before


class _LogPartition(Function):
    """log Z of each row; its gradient is marginals and expected transitions."""

    @staticmethod
    def forward(ctx: Any, *scores: Tensor) -> Tensor:
        sums = chain_sums(ChainScores(*scores), both_directions=True)
        ctx.save_for_backward(sums.marginals, sums.pairs, scores[4])
        return sums.log_partition

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        marginals, pairs, lengths = ctx.saved_tensors
        emissions = marginals * grad[:, None]
        transitions = (grad @ pairs.flatten(1)).view_as(pairs[0])
        return emissions, emissions[0].sum(0), _last(emissions, lengths).sum(0), transitions, None


# Tracing the loop would unroll it, and again for every new length: a compiled model calls these as they are.
@torch.compiler.disable
def log_partition(scores: ChainScores) -> Tensor:
    """(batch,): log of the sum of exp(score) over all tag sequences of each row, differentiable once."""
    if not (torch.is_grad_enabled() and any(part.requires_grad for part in scores)):
        return chain_sums(scores, both_directions=False).log_partition
    result: Tensor = _LogPartition.apply(*scores)
    return result


@torch.compiler.disable
def best_paths(scores: ChainScores) -> Tensor:
    """(steps, batch) int64: the tag sequence with the highest score (Viterbi), arbitrary behind a row's length."""
    emissions, start, end, transitions, lengths = scores
    best = start + emissions[0]
    bests, sources = [best], [torch.empty(0)]
    for emission in emissions[1:].unbind():
        best, source = (best[:, :, None] + transitions).max(1)
        best = best + emission
        bests.append(best)
        sources.append(source)  # (batch, tags), the best tag before each tag
    final = (_last(torch.stack(bests), lengths) + end).argmax(1)
    path = [final]
    for step in range(len(emissions) - 2, -1, -1):
        came_from = sources[step + 1].gather(1, path[-1][:, None])[:, 0]
        path.append(torch.where(lengths - 1 > step, came_from, final))
    return torch.stack(path[::-1])
