# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""Loading a checkpoint: the same numbers as before saving, and what is wrong with a file that cannot be loaded."""

import json
import os
import struct
from collections import Counter
from typing import Any

from safetensors import SafetensorError
from torch import nn

_LFS_POINTER = b"version https://git-lfs.github.com"
# What torch's own allocator gives.
_ALIGNMENT = 64


class CheckpointSizeError(ValueError, RuntimeError):
    """The tensors of a checkpoint have other sizes than the model; a RuntimeError too, as transformers raises."""


class ClearLoadingErrors:
    """Mixin of a `PreTrainedModel`: exact results after loading, and errors that name file and cause."""

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any = None, *args: Any, **kwargs: Any) -> Any:
        """As `PreTrainedModel.from_pretrained`; a model gives bit for bit what it gave before it was saved.

        Raises:
            OSError: a weight file is a git-lfs pointer or cut off; with its name, its size and what it should be.
            CheckpointSizeError: a ValueError; the tensors have other sizes than the config says, in one line.
        """
        try:
            loaded = super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)  # type: ignore[misc]
        except (SafetensorError, OSError) as error:
            problem = _describe_broken_file(pretrained_model_name_or_path)
            if problem is None:
                raise
            raise OSError(problem) from error
        except RuntimeError as error:
            if "ignore_mismatched_sizes" not in str(error):
                raise
            raise CheckpointSizeError(_describe_sizes(cls, pretrained_model_name_or_path, args, kwargs)) from error
        align_tensors(loaded[0] if isinstance(loaded, tuple) else loaded)
        return loaded


def align_tensors(model: nn.Module) -> None:
    """Moves parameters and buffers that a file was mapped to at an odd address to memory of their own.

    Matrix products of the CPU libraries take another path, and round differently, where a matrix does not start at a
    vector's boundary. Parameters stay the same objects, so tied ones stay tied.
    """
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.device.type == "cpu" and tensor.numel() and tensor.data_ptr() % _ALIGNMENT:
            tensor.data = tensor.data.clone()


def _weight_files(folder: Any) -> list[str]:
    if folder is None or not os.path.isdir(folder):
        return []
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(".safetensors")]


def _describe_broken_file(folder: Any) -> str | None:
    for path in _weight_files(folder):
        size = os.path.getsize(path)
        with open(path, "rb") as file:
            start = file.read(len(_LFS_POINTER))
            if start == _LFS_POINTER:
                return (
                    f"{path} ({size} bytes) looks like a git-lfs pointer, not like weights: run `git lfs "
                    f"pull` there, or "
                    "download the file itself"
                )
            file.seek(0)
            expected = _expected_size(file.read(8), file, size)
        if expected is None or size < expected:
            wanted = "its header is cut off" if expected is None else f"its header announces {expected} bytes"
            return f"{path} ({size} bytes) is truncated: {wanted}. Download or copy it again"
    return None


def _expected_size(prefix: bytes, file: Any, size: int) -> int | None:
    """Bytes that a safetensors file should have by its own header; None when the header itself is incomplete."""
    if len(prefix) < 8:
        return None
    (header_size,) = struct.unpack("<Q", prefix)
    if 8 + header_size > size:
        return None
    try:
        header = json.loads(file.read(header_size))
    except ValueError:
        return None
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    return 8 + header_size + max(ends, default=0)


def _describe_sizes(cls: Any, folder: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """One line for any number of tensors: the sizes that differ, most frequent first, and one example."""
    # The same call again, this time told to go on, gives the list that the error only printed.
    _, info = super(ClearLoadingErrors, cls).from_pretrained(
        folder, *args, **{**kwargs, "ignore_mismatched_sizes": True, "output_loading_info": True}
    )
    differing = sorted(info["mismatched_keys"])
    pairs = Counter(
        (stored, wanted)
        for _, found, expected in differing
        for stored, wanted in zip(found, expected, strict=False)
        if stored != wanted
    )
    sizes = ", ".join(
        f"{stored} in the checkpoint but {wanted} in the model" for (stored, wanted), _ in pairs.most_common(3)
    )
    name, found, expected = differing[0]
    return (
        f"the checkpoint {folder} does not fit the config: {len(differing)} tensors differ in "
        f"size ({sizes}; e.g. {name} is "
        f"{tuple(found)}, expected {tuple(expected)}). Load it with its own config; to move to another vocabulary use "
        "hf_metalstm.convert.vocabulary.remap_vocabulary"
    )
