"""GPT-1 from the authors' shards of numbers, and to the layout of transformers' OpenAIGPT.

Files of transformers need no conversion: `from_pretrained` of the GPT-1 models reads them.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import OpenAIGPTConfig

from ..modeling.configuration_gpt1 import GPT1Config
from ..modeling.modeling_gpt1 import GPT1DoubleHeadsModel, GPT1LMHeadModel, GPT1Model, GPT1PreTrainedModel
from ..modeling.modeling_gpt1_classification import GPT1ForSequenceClassification

SHAPES_FILE = "params_shapes.json"
_SHARD = "params_{}.npy"
# The order of a block's parameters in the shards. Matrices there have a leading dimension of 1.
_BLOCK = (
    "attn.c_attn.weight",
    "attn.c_attn.bias",
    "attn.c_proj.weight",
    "attn.c_proj.bias",
    "ln_1.weight",
    "ln_1.bias",
    "mlp.c_fc.weight",
    "mlp.c_fc.bias",
    "mlp.c_proj.weight",
    "mlp.c_proj.bias",
    "ln_2.weight",
    "ln_2.bias",
)
_ARCHITECTURES: dict[type, str] = {
    GPT1Model: "OpenAIGPTModel",
    GPT1LMHeadModel: "OpenAIGPTLMHeadModel",
    GPT1DoubleHeadsModel: "OpenAIGPTDoubleHeadsModel",
    GPT1ForSequenceClassification: "OpenAIGPTForSequenceClassification",
}
_SAME_FIELDS = (
    "vocab_size n_positions n_embd n_layer n_head afn resid_pdrop embd_pdrop attn_pdrop layer_norm_epsilon "
    "initializer_range pad_token_id bos_token_id eos_token_id"
).split()


def read_openai_shards(folder: str | Path) -> dict[str, Tensor]:
    """Reads the authors' released parameters; nothing in the files is run.

    Args:
        folder: holds `params_shapes.json` and `params_0.npy`, `params_1.npy`, ...: one long row of numbers in parts.

    Returns:
        The tensors under the names of `GPT1Model`'s parameters.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: the numbers do not fit the shapes, or the shapes are not those of a GPT-1.
    """
    folder = Path(folder)
    shapes = _read_shapes(folder / SHAPES_FILE)
    parts: list[np.ndarray] = []
    while (path := folder / _SHARD.format(len(parts))).exists():
        try:
            part = np.load(path, allow_pickle=False)
        except ValueError as error:
            raise ValueError(f"{path.name} is no array of numbers, or is cut off: {error}") from error
        if part.ndim != 1 or part.dtype.kind != "f":
            raise ValueError(f"{path.name} holds {part.dtype} of shape {part.shape}, expected one row of floats")
        parts.append(part)
    if not parts:
        raise FileNotFoundError(f"{folder} has no {_SHARD.format(0)}")
    numbers = np.concatenate(parts)
    wanted = sum(math.prod(shape) for shape in shapes)
    if len(numbers) != wanted:
        raise ValueError(
            f"{len(parts)} shards hold {len(numbers)} numbers, but {SHAPES_FILE} asks for {wanted}: is a shard missing?"
        )
    names = ["positions_embed.weight", "tokens_embed.weight"]
    names += [f"h.{index}.{name}" for index in range((len(shapes) - 2) // len(_BLOCK)) for name in _BLOCK]
    tensors, start = {}, 0
    for name, shape in zip(names, shapes, strict=True):
        end = start + math.prod(shape)
        tensor = torch.from_numpy(numbers[start:end].astype(np.float32)).view(shape)
        tensors[name] = tensor.squeeze(0) if tensor.ndim == 3 else tensor
        start = end
    return tensors


def _read_shapes(path: Path) -> list[list[int]]:
    if not path.exists():
        raise FileNotFoundError(f"{path.parent} has no {path.name}")
    shapes = json.loads(path.read_text(encoding="utf-8"))
    whole = isinstance(shapes, list) and all(
        isinstance(shape, list) and all(isinstance(size, int) and size > 0 for size in shape) for shape in shapes
    )
    if not whole or len(shapes) < 2 + len(_BLOCK) or (len(shapes) - 2) % len(_BLOCK):
        raise ValueError(
            f"{path.name} must be a list of shapes: positions, tokens, then {len(_BLOCK)} for each block of GPT-1"
        )
    return shapes


def load_openai_shards(
    folder: str | Path, model_class: type[GPT1PreTrainedModel] = GPT1LMHeadModel, **fields: Any
) -> GPT1PreTrainedModel:
    """A GPT-1 with the authors' released parameters.

    Args:
        folder: see `read_openai_shards`.
        model_class: any of the GPT-1 models; a head beyond the language model is new.
        fields: of `GPT1Config`; the sizes are those of the files, and there are as many heads as 64 goes into the
            width, unless `n_head` is given.

    Raises:
        FileNotFoundError, ValueError: see `read_openai_shards`; or tensors that do not fit each other.

    Example:
        >>> model = load_openai_shards("finetune-transformer-lm/model")  # doctest: +SKIP
        >>> model.save_pretrained("gpt1")  # doctest: +SKIP
    """
    tensors = read_openai_shards(folder)
    positions, width = tensors["positions_embed.weight"].shape
    blocks = sum(name.endswith("ln_2.bias") for name in tensors)
    sizes = {"n_positions": positions, "n_embd": width, "n_layer": blocks, "n_head": max(1, width // 64)}
    config = GPT1Config(vocab_size=len(tensors["tokens_embed.weight"]), **{**sizes, **fields})
    model = model_class(config)
    body = getattr(model, model.base_model_prefix, model)
    wanted = body.state_dict()
    for name, tensor in tensors.items():
        if tensor.shape != wanted[name].shape:
            raise ValueError(
                f"{name} has shape {tuple(tensor.shape)} in the shards, but {tuple(wanted[name].shape)} follows from "
                "the other shapes"
            )
    body.load_state_dict(tensors)
    return model.eval()


def save_as_openai_gpt(model: GPT1PreTrainedModel, folder: str | Path) -> None:
    """Writes a GPT-1 as a folder of transformers' OpenAIGPT, for those who have not this package.

    The embedding matrix is written under both of its names: transformers' double heads look for one, and its other
    models for the other. What OpenAIGPT has not, such as `lm_coef`, is left out.

    Args:
        model: any of the GPT-1 models.
        folder: is made.

    Raises:
        TypeError: another model.

    Example:
        >>> import tempfile
        >>> from transformers import OpenAIGPTLMHeadModel
        >>> from hf_metalstm import GPT1Config, GPT1LMHeadModel
        >>> from hf_metalstm.convert.gpt1 import save_as_openai_gpt
        >>> model = GPT1LMHeadModel(GPT1Config(vocab_size=50, n_embd=8, n_layer=2, n_head=2))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_as_openai_gpt(model, folder)
        ...     type(OpenAIGPTLMHeadModel.from_pretrained(folder)).__name__
        'OpenAIGPTLMHeadModel'
    """
    architecture = _ARCHITECTURES.get(type(model))
    if architecture is None:
        raise TypeError(f"model is a {type(model).__name__}; allowed: {', '.join(c.__name__ for c in _ARCHITECTURES)}")
    config = model.config
    fields: dict[str, Any] = {name: getattr(config, name) for name in _SAME_FIELDS}
    theirs = OpenAIGPTConfig(
        **fields,
        summary_first_dropout=config.clf_pdrop,
        architectures=[architecture],
        tie_word_embeddings=config.tie_word_embeddings,
        id2label=config.id2label,
        label2id=config.label2id,
        problem_type=config.problem_type,
    )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = model.state_dict()
    if isinstance(model, GPT1ForSequenceClassification):
        # Theirs has no language model beside the classes.
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith("lm_head.")}
    # Copies, since the format refuses tensors that share memory.
    copies = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
    save_file(copies, folder / "model.safetensors", metadata={"format": "pt"})
    theirs.save_pretrained(folder)
