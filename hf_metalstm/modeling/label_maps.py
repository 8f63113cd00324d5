# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""The names of a configuration's classes: that its fields agree, and what becomes of them with a new head."""

from collections.abc import Mapping
from typing import Any

_FIELDS = ("id2label", "label2id")


def check_label_maps(kwargs: Mapping[str, Any]) -> None:
    """`num_labels`, `id2label` and `label2id` must tell the same story; transformers lets them differ.

    Raises:
        ValueError: two of them disagree.
    """
    num_labels, id2label, label2id = (kwargs.get(key) for key in ("num_labels", *_FIELDS))
    if id2label is not None and num_labels is not None and len(id2label) != num_labels:
        raise ValueError(f"num_labels is {num_labels}, but id2label has {len(id2label)} entries: change one of them")
    if id2label is not None and label2id is not None:
        if {str(label): int(index) for index, label in id2label.items()} != {k: int(v) for k, v in label2id.items()}:
            raise ValueError(f"id2label {id2label} and label2id {label2id} disagree: change one of them")


def without_old_names(config_dict: dict[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Leaves out a file's names of classes where another number of them is wanted, and gives a copy then.

    `from_pretrained(folder, num_labels=3)` asks for a new head: the names in the file belong to the old one.
    """
    names = config_dict.get("id2label")
    if names is None or "id2label" in wanted or wanted.get("num_labels") in (None, len(names)):
        return config_dict
    return {key: value for key, value in config_dict.items() if key not in _FIELDS}
