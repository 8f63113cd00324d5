# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""Checks of what a Dynamic Memory Network is given: stories, questions, supporting facts, answers."""

from collections.abc import Sequence

import torch
from torch import Tensor

from .checks import check_ids, check_is_tensor, check_sequence_input, values_are_known


def check_story(
    input_ids: Tensor | None, attention_mask: Tensor | None, inputs_embeds: Tensor | None, vocab_size: int
) -> Tensor:
    """Checks a batch of stories and says which tokens are real.

    Args:
        input_ids: (batch, facts, tokens), or (batch, tokens) for sentences whose tokens are the facts.
        attention_mask: alike; None means all are real.
        inputs_embeds: as input_ids with one dimension more, instead of them.
        vocab_size: ids must lie below it.

    Returns:
        (batch, facts, tokens), True for real tokens; single sentences have facts of one token.

    Raises:
        TypeError: something is no tensor, or the ids are no integers.
        ValueError: both or neither input, an empty batch, a story without facts, a wrong shape, an id out of range.
    """
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError("give exactly one of input_ids and inputs_embeds")
    given, name = (input_ids, "input_ids") if input_ids is not None else (inputs_embeds, "inputs_embeds")
    check_is_tensor(given, name)
    assert given is not None
    shape = given.shape if input_ids is not None else given.shape[:-1]
    if len(shape) not in (2, 3):
        raise ValueError(
            f"{name} has shape {tuple(given.shape)}, expected (batch, facts, tokens{', size' * (name != 'input_ids')}) "
            f"or, for single sentences, (batch, tokens{', size' * (name != 'input_ids')})"
        )
    if shape[0] == 0:
        raise ValueError(f"empty batch: {name} has shape {tuple(given.shape)}")
    if 0 in shape:
        raise ValueError(f"story 0 has no facts: {name} has shape {tuple(given.shape)}")
    if input_ids is not None:
        check_ids(input_ids, vocab_size, "input_ids")
    if attention_mask is None:
        real = torch.ones(shape, dtype=torch.bool, device=given.device)
    else:
        check_is_tensor(attention_mask, "attention_mask")
        if attention_mask.shape != shape:
            raise ValueError(f"attention_mask has shape {tuple(attention_mask.shape)}, but {name} has {tuple(shape)}")
        real = attention_mask != 0
    if len(shape) == 2:
        real = real[:, :, None]
    if values_are_known() and not bool(real.any(2).any(1).all()):
        row = int((~real.any(2).any(1)).nonzero()[0])
        raise ValueError(f"story {row} has no facts: its attention_mask is all 0")
    return real


def check_question(
    question_ids: Tensor | None, question_mask: Tensor | None, batch: int, vocab_size: int, learned: bool
) -> None:
    """Checks the questions of a batch.

    Raises:
        TypeError: something is no tensor, or the ids are no integers.
        ValueError: a question is missing or empty, or given to a model that has a learned one; a wrong shape or id.
    """
    if learned:
        if question_ids is not None or question_mask is not None:
            raise ValueError("question_ids are given, but the model has learned_question=True: leave them out")
        return
    if question_ids is None:
        raise ValueError(
            "question_ids is missing: give (batch, tokens) ids, or build the model with learned_question=True where "
            "there is no question to ask"
        )
    check_is_tensor(question_ids, "question_ids")
    if question_ids.ndim != 2 or question_ids.shape[0] != batch:
        raise ValueError(f"question_ids has shape {tuple(question_ids.shape)}, expected ({batch}, tokens)")
    if question_ids.shape[1] == 0:
        raise ValueError(f"the question of story 0 is empty: question_ids has shape {tuple(question_ids.shape)}")
    check_ids(question_ids, vocab_size, "question_ids")
    if question_mask is None:
        return
    check_is_tensor(question_mask, "question_mask")
    if question_mask.shape != question_ids.shape:
        raise ValueError(
            f"question_mask has shape {tuple(question_mask.shape)}, but question_ids has {tuple(question_ids.shape)}"
        )
    if values_are_known():
        empty = (question_mask == 0).all(1)
        if bool(empty.any()):
            raise ValueError(f"the question of story {int(empty.nonzero()[0])} is empty: its question_mask is all 0")


def check_supporting_facts(supporting_facts: Tensor, real_facts: Tensor, num_passes: int) -> None:
    """Checks marks of supporting facts.

    Args:
        supporting_facts: 0 or 1, (batch, facts) or (batch, passes, facts).
        real_facts: (batch, facts), True for facts that are no padding.
        num_passes: of the model.

    Raises:
        TypeError: no tensor.
        ValueError: a wrong shape, something else than 0 and 1, or a mark beyond the story.
    """
    check_is_tensor(supporting_facts, "supporting_facts")
    batch, facts = real_facts.shape
    if supporting_facts.shape not in ((batch, facts), (batch, num_passes, facts)):
        raise ValueError(
            f"supporting_facts has shape {tuple(supporting_facts.shape)}, expected {(batch, facts)}, or "
            f"{(batch, num_passes, facts)} for a model with {num_passes} passes"
        )
    if not values_are_known():
        return
    odd = (supporting_facts != 0) & (supporting_facts != 1)
    if bool(odd.any()):
        place = odd.nonzero()[0].tolist()
        raise ValueError(
            f"supporting_facts{place} is {supporting_facts[tuple(place)].item()}, but marks are 0 or 1 for each fact"
        )
    marks = supporting_facts != 0
    beyond = (marks if marks.ndim == 2 else marks.any(1)) & ~real_facts
    if bool(beyond.any()):
        row, fact = beyond.nonzero()[0].tolist()
        raise ValueError(
            f"supporting fact {fact} of the question of story {row} is beyond its story, which has "
            f"{int(real_facts[row].sum())} facts"
        )


def check_answers(labels: Tensor, answers: Tensor, vocab_size: int) -> None:
    """Checks the tokens of answers.

    Args:
        labels: (batch, answer_tokens); -100 is ignored.
        answers: (batch, answer_tokens, ...), what was computed for them.
        vocab_size: labels must lie below it.

    Raises:
        TypeError: no tensor, or no integers.
        ValueError: another shape than the answers', or an id out of range.
    """
    check_is_tensor(labels, "labels")
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise TypeError(f"labels must be integers (token ids of the answers), got {labels.dtype}")
    if labels.shape != answers.shape[:2]:
        raise ValueError(
            f"labels have shape {tuple(labels.shape)}, but there are answers for {tuple(answers.shape[:2])}"
        )
    check_ids(labels.masked_fill(labels == -100, 0), vocab_size, "labels")


def check_answer_ids(
    decoder_input_ids: Tensor | None, decoder_inputs_embeds: Tensor | None, batch: int, vocab_size: int
) -> None:
    """Checks what the answer module reads.

    Raises:
        TypeError: no tensor, or ids that are no integers.
        ValueError: none or both given, another number of rows than stories, or an id out of range.
    """
    if decoder_input_ids is None and decoder_inputs_embeds is None:
        raise ValueError("give labels or decoder_input_ids to train or score answers, or call generate() to answer")
    check_sequence_input(decoder_input_ids, None, decoder_inputs_embeds, vocab_size)
    given = decoder_input_ids if decoder_input_ids is not None else decoder_inputs_embeds
    assert given is not None
    if given.shape[0] != batch:
        raise ValueError(f"there are answers for {given.shape[0]} rows, but {batch} stories")


def check_token_labels(labels: Tensor, names: Sequence[str]) -> None:
    """Checks the tags of words.

    Args:
        labels: (batch, tokens) class indexes; -100 is ignored.
        names: of the classes.

    Raises:
        TypeError: no integers.
        ValueError: a label that is no class.
    """
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise TypeError(f"labels must be integers (class indexes), got {labels.dtype}")
    wrong = ((labels < 0) & (labels != -100)) | (labels >= len(names))
    if values_are_known() and bool(wrong.any()):
        row, token = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"labels[{row}, {token}] is {int(labels[row, token])}, but the model has classes 0..{len(names) - 1}"
        )
