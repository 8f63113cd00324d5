# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""What GPT-1 is given: its checks, the positions of its tokens, and where a text ends."""

import torch
from torch import Tensor

from .checks import check_ids, check_is_tensor, values_are_known


def check_tokens(input_ids: Tensor | None, inputs_embeds: Tensor | None, vocab_size: int, size: int) -> torch.Size:
    """Checks ids or embeddings and gives their shape, (batch, tokens) or (batch, choices, tokens).

    Raises:
        TypeError: something is no tensor, or the ids are no integers.
        ValueError: both or neither given, an empty batch or text, a wrong shape, an id out of range.
    """
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError("give exactly one of input_ids and inputs_embeds")
    given, name = (input_ids, "input_ids") if input_ids is not None else (inputs_embeds, "inputs_embeds")
    check_is_tensor(given, name)
    assert given is not None
    shape = given.shape if input_ids is not None else given.shape[:-1]
    if len(shape) not in (2, 3):
        more = "" if input_ids is not None else ", n_embd"
        raise ValueError(
            f"{name} has shape {tuple(given.shape)}, expected (batch, tokens{more}) or (batch, choices, tokens{more})"
        )
    if shape[0] == 0:
        raise ValueError(f"empty batch: {name} has shape {tuple(given.shape)}")
    if 0 in shape:
        raise ValueError(f"row 0 is empty: {name} has shape {tuple(given.shape)}, but a text needs at least one token")
    if input_ids is not None:
        check_ids(input_ids, vocab_size, "input_ids")
    elif given.shape[-1] != size:
        raise ValueError(f"inputs_embeds has shape {tuple(given.shape)}, but n_embd is {size}")
    return shape


def check_mask(attention_mask: Tensor, shape: torch.Size, past: int) -> Tensor:
    """Checks the mask of texts of `shape` that follow `past` tokens, and gives it in the shape of the texts.

    Args:
        attention_mask: (..., past + tokens), 1 for real tokens. (batch, tokens) also does for choices padded alike;
            (rows, 1, tokens, keys) is what transformers' masking functions make, and is not looked into.

    Raises:
        TypeError: no tensor.
        ValueError: another shape, or a row without a real token.
    """
    check_is_tensor(attention_mask, "attention_mask")
    if attention_mask.ndim == 4:
        return attention_mask
    if len(shape) == 3 and attention_mask.ndim == 2:
        attention_mask = attention_mask[:, None].expand(-1, shape[1], -1)
    wanted = (*shape[:-1], past + shape[-1])
    if attention_mask.shape != wanted:
        raise ValueError(
            f"attention_mask has shape {tuple(attention_mask.shape)}, but the input has {wanted}"
            + (f", {past} tokens of the cache included" if past else "")
        )
    if values_are_known():
        empty = (attention_mask == 0).all(-1)
        if bool(empty.any()):
            row = _place(empty)
            raise ValueError(f"row {row} is empty: its attention_mask is all 0, but a text needs at least one token")
    return attention_mask


def make_positions(attention_mask: Tensor | None, shape: torch.Size, past: int, limit: int, device: object) -> Tensor:
    """Counts the real tokens before each token: (..., tokens) positions, 0 for padding on the left.

    Args:
        attention_mask: (..., past + tokens), or None.
        shape: (..., tokens).
        past: tokens read before.
        limit: number of positions that there are.

    Raises:
        ValueError: a text is longer than the limit.
    """
    if attention_mask is None or attention_mask.ndim == 4:
        if past + shape[-1] > limit:
            raise ValueError(_too_long("", past + shape[-1], limit))
        return torch.arange(past, past + shape[-1], device=device)  # type: ignore[call-overload]
    real = (attention_mask != 0).long()
    if values_are_known():
        lengths = real.sum(-1)
        if int(lengths.max()) > limit:
            row = _place(lengths > limit)
            raise ValueError(_too_long(f"row {row} is too long: ", int(lengths.max()), limit))
    # Padding on the right would count on from the last token.
    positions = (real.cumsum(-1) - 1).clamp(min=0).masked_fill(real == 0, 0)
    return positions[..., past:]


def check_positions(position_ids: Tensor, shape: torch.Size, limit: int) -> Tensor:
    """Checks given positions, (..., tokens) or one row for all.

    Raises:
        TypeError: no tensor of integers.
        ValueError: a position out of range, or another shape.
    """
    check_is_tensor(position_ids, "position_ids")
    try:
        # One position is enough to know that it can be broadcast.
        position_ids.expand(shape)
    except RuntimeError as error:
        raise ValueError(
            f"position_ids have shape {tuple(position_ids.shape)}, but the input {tuple(shape)}"
        ) from error
    if values_are_known() and position_ids.numel() and int(position_ids.max()) >= limit:
        place = _place(position_ids >= limit)
        raise ValueError(
            _too_long(f"position_ids[{place}] is {int(position_ids.max())}: ", int(position_ids.max()) + 1, limit)
        )
    check_ids(position_ids, limit, "position_ids")
    return position_ids


def is_right_padded(attention_mask: Tensor) -> bool:
    """Whether all real tokens stand in front of the padding; False where the values are unknown."""
    if attention_mask.ndim == 4 or not values_are_known():
        return False
    real = attention_mask != 0
    return not bool((real[..., 1:] & ~real[..., :-1]).any())


def last_real_tokens(attention_mask: Tensor | None, shape: torch.Size, device: object) -> Tensor:
    """Index of each text's last real token, (...), whatever the side of the padding."""
    if attention_mask is None:
        return torch.full(shape[:-1], shape[-1] - 1, device=device)  # type: ignore[call-overload]
    places = torch.arange(shape[-1], device=attention_mask.device)
    return ((attention_mask[..., -shape[-1] :] != 0) * places).argmax(-1)


def check_choice_tokens(mc_token_ids: Tensor, shape: torch.Size) -> None:
    """Checks the place of each choice's extract token.

    Raises:
        TypeError: no tensor of integers.
        ValueError: not one a choice, or out of range.
    """
    check_is_tensor(mc_token_ids, "mc_token_ids")
    if mc_token_ids.shape != shape[:-1]:
        raise ValueError(
            f"mc_token_ids have shape {tuple(mc_token_ids.shape)}, but there are (batch, choices) = {tuple(shape[:-1])}"
        )
    if values_are_known() and mc_token_ids.numel() and not mc_token_ids.is_floating_point():
        wrong = (mc_token_ids < 0) | (mc_token_ids >= shape[-1])
        if bool(wrong.any()):
            place = tuple(wrong.nonzero()[0].tolist())
            raise ValueError(
                f"mc_token_ids{list(place)} is {int(mc_token_ids[place])}, but there are tokens 0..{shape[-1] - 1}: "
                "give each choice the place of its extract token"
            )
    check_ids(mc_token_ids, shape[-1], "mc_token_ids")


def check_choice_labels(mc_labels: Tensor, shape: torch.Size) -> None:
    """Checks which choice is right in each row of (batch, choices, tokens); -100 is ignored.

    Raises:
        TypeError: no tensor of integers.
        ValueError: not one a row, or no such choice.
    """
    check_is_tensor(mc_labels, "mc_labels")
    if mc_labels.is_floating_point() or mc_labels.dtype == torch.bool:
        raise TypeError(f"mc_labels must be integers (the index of the right choice), got {mc_labels.dtype}")
    if mc_labels.shape != shape[:1]:
        raise ValueError(f"mc_labels have shape {tuple(mc_labels.shape)}, but the batch has ({shape[0]},) rows")
    if values_are_known():
        wrong = ((mc_labels < 0) & (mc_labels != -100)) | (mc_labels >= shape[1])
        if bool(wrong.any()):
            row = int(wrong.nonzero()[0])
            raise ValueError(f"mc_labels[{row}] is {int(mc_labels[row])}, but row {row} has choices 0..{shape[1] - 1}")


def check_token_labels(labels: Tensor, shape: torch.Size, vocab_size: int, name: str) -> None:
    """Checks the labels of the language model; -100 is ignored.

    Raises:
        TypeError: no tensor of integers.
        ValueError: not one a token, or outside the vocabulary.
    """
    check_is_tensor(labels, name)
    if labels.shape != shape:
        raise ValueError(f"{name} have shape {tuple(labels.shape)}, but the input has {tuple(shape)} tokens")
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise TypeError(f"{name} must hold integers, got {labels.dtype}")
    if values_are_known():
        wrong = ((labels < 0) & (labels != -100)) | (labels >= vocab_size)
        if bool(wrong.any()):
            place = tuple(wrong.nonzero()[0].tolist())
            raise ValueError(
                f"{name}{list(place)} is {int(labels[place])}, but labels must lie in 0..{vocab_size - 1}, or be -100"
            )


def _place(wrong: Tensor) -> str | int:
    """The first True, as people write an index."""
    place = wrong.nonzero()[0].tolist()
    return place[0] if len(place) == 1 else ", ".join(map(str, place))


def _too_long(where: str, tokens: int, limit: int) -> str:
    return f"{where}{tokens} tokens > {limit} positions; truncate the text, or generate fewer tokens"
