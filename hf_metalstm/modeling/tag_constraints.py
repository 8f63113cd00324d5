# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""Chunk tags such as B-NP, their schemes, and which tag may follow which.

* IOB1: I-X is inside a chunk; B-X begins one that directly follows another chunk of the same type.
* IOB2 (also called BIO): B-X begins every chunk, I-X continues it.
* IOBES (also called BIOES): B-X begins, I-X continues and E-X ends a chunk; S-X is a chunk of one word.

O is outside in all of them.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

SCHEMES = {"IOB1": "BI", "IOB2": "BI", "IOBES": "BIES"}
_OTHER_NAMES = {"BIO": "IOB2", "BIOES": "IOBES"}
_PREFIXES = "BIES"


class AllowedTransitions(NamedTuple):
    """Which tags may begin a sequence, end it, and follow each other.

    Args:
        start: (tags,) bool.
        end: (tags,) bool.
        transitions: (tags, tags) bool, [i, j] for j directly after i.
    """

    start: Tensor
    end: Tensor
    transitions: Tensor


def check_scheme(scheme: str) -> str:
    """The scheme's own name: "IOB1", "IOB2" or "IOBES"; "BIO" is IOB2 and "BIOES" is IOBES, in upper or lower case.

    Raises:
        ValueError: there is no such scheme.
    """
    name = str(scheme).upper()
    name = _OTHER_NAMES.get(name, name)
    if name not in SCHEMES:
        raise ValueError(
            f"scheme is {scheme!r}, but must be one of {', '.join(SCHEMES)} (or BIO for IOB2, BIOES for IOBES)"
        )
    return name


@lru_cache(maxsize=10_000)
def split_tag(tag: str) -> tuple[str, str]:
    """Takes a tag apart: ("B", "NP") from "B-NP", ("O", "") from "O".

    Raises:
        ValueError: it is neither O nor B-, I-, E- or S- with a type, or its type is O.

    Example:
        >>> split_tag("I-B-cell")
        ('I', 'B-cell')
    """
    if tag == "O":
        return "O", ""
    prefix, _, kind = tag.partition("-")
    if len(prefix) != 1 or prefix not in _PREFIXES or not kind:
        raise ValueError(f"tag {tag!r} is neither O nor one of B-, I-, E- and S- with a type, such as B-NP")
    if kind == "O":
        raise ValueError(f"tag {tag!r} puts a chunk prefix before O: a word outside every chunk is tagged O alone")
    return prefix, kind


@lru_cache(maxsize=10_000)
def may_follow(before: str | None, after: str | None, scheme: str) -> bool:
    """Whether a scheme lets `after` stand directly behind `before`; None is the border of a sentence.

    Args:
        before, after: tags.
        scheme: "IOB1", "IOB2" or "IOBES", as `check_scheme` returns it.

    Example:
        >>> may_follow("O", "I-NP", "IOB2"), may_follow("O", "I-NP", "IOB1")
        (False, True)
    """
    prefix, kind = ("O", "") if before is None else split_tag(before)
    next_prefix, next_kind = ("O", "") if after is None else split_tag(after)
    same_chunk = prefix in "BI" and kind == next_kind
    if scheme == "IOB1":
        return next_prefix != "B" or same_chunk
    if scheme == "IOB2":
        return next_prefix != "I" or same_chunk
    if prefix in "BI":
        return next_prefix in "IE" and same_chunk
    return next_prefix not in "IE"


def allowed_transitions(labels: Sequence[str], scheme: str) -> AllowedTransitions:
    """The constraints of a tag scheme, for `LinearChainCRF(allowed=...)`.

    Args:
        labels: the tags, in the order of their ids.
        scheme: "IOB1", "IOB2" (or "BIO"), "IOBES" (or "BIOES").

    Raises:
        ValueError: no such scheme, a tag that it does not have, or the same tag twice.

    Example:
        >>> from hf_metalstm.modeling.crf import allowed_transitions
        >>> allowed_transitions(["O", "B-NP", "I-NP"], "IOB2").transitions
        tensor([[ True,  True, False],
                [ True,  True,  True],
                [ True,  True,  True]])
    """
    scheme = check_scheme(scheme)
    for index, label in enumerate(labels):
        prefix, _ = split_tag(label)
        if prefix not in SCHEMES[scheme] + "O":
            raise ValueError(f"labels[{index}] is {label!r}, but {scheme} has no tags with {prefix}-")
        if label in labels[:index]:
            raise ValueError(f"labels[{index}] is {label!r}, which labels[{list(labels).index(label)}] is already")
    # On the CPU, also where a model is built on the meta device: the values are needed to initialise it.
    return AllowedTransitions(
        torch.tensor([may_follow(None, label, scheme) for label in labels], device="cpu"),
        torch.tensor([may_follow(label, None, scheme) for label in labels], device="cpu"),
        torch.tensor([[may_follow(before, after, scheme) for after in labels] for before in labels], device="cpu"),
    )
