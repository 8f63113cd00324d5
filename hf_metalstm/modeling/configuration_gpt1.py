# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""Configuration of GPT-1; reads the configurations of `openai-community/openai-gpt` too."""

from typing import Any

from transformers import PreTrainedConfig
from transformers.utils import logging

from .label_maps import check_label_maps, without_old_names

logger = logging.get_logger(__name__)

ACTIVATIONS = ("gelu", "relu", "silu", "swish")
LM_LOSS_REDUCTIONS = ("token", "sequence")
OPENAI_MODEL_TYPE = "openai-gpt"

_DROPOUTS = ("embd_pdrop", "attn_pdrop", "resid_pdrop", "clf_pdrop")
# Fields of OpenAIGPT's configurations, with the values under which its heads are ours.
_SUMMARY_FIELDS: dict[str, tuple[Any, ...]] = {
    "summary_type": ("cls_index",),
    "summary_use_proj": (True,),
    "summary_proj_to_labels": (True,),
    "summary_activation": (None, ""),
}
# Others that say nothing any more.
_OLD_FIELDS = ("n_ctx", "n_special", "predict_special_tokens", "task_specific_params")


class GPT1Config(PreTrainedConfig):
    """Configuration of `GPT1Model` and its heads (Radford et al. 2018).

    `GPT1Config.from_pretrained` also reads configurations of model type "openai-gpt".

    Args:
        vocab_size: rows of the embeddings, special tokens included.
        n_positions: longest text in tokens.
        n_embd: width of the model.
        n_layer: number of blocks.
        n_head: attention heads; `n_embd` is a multiple.
        afn: activation of the blocks: "gelu" (the paper's, in its tanh form), "relu", "silu" or "swish".
        resid_pdrop: dropout on what each sub-layer adds.
        embd_pdrop: dropout on the sum of token and position embeddings.
        attn_pdrop: dropout on the attention probabilities.
        clf_pdrop: dropout before the choice and classification heads; `summary_first_dropout` is another name.
        layer_norm_epsilon: of the layer norms.
        initializer_range: standard deviation of new weights.
        lm_coef: lambda in L3 = L2 + lambda L1, the weight of the language model's loss beside that of the task.
        lm_loss_reduction: "token" averages the language model's loss over tokens; "sequence" over each sequence first,
            as the authors' code does.
        use_cache: return keys and values of the tokens read, for the tokens to come.
        pad_token_id, bos_token_id, eos_token_id: as in transformers.
        tie_word_embeddings: the output layer is the embedding matrix.

    Raises:
        ValueError: a field is out of range, or two disagree; the message names them.

    Example:
        >>> from hf_metalstm import GPT1Config
        >>> config = GPT1Config(n_embd=32, n_layer=2, n_head=4)
        >>> config.hidden_size, config.num_hidden_layers, config.max_position_embeddings
        (32, 2, 512)
    """

    model_type = "gpt1"
    attribute_map = {
        "hidden_size": "n_embd",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "max_position_embeddings": "n_positions",
    }
    keys_to_ignore_at_inference = ["cache", "mc_loss", "lm_loss", "task_loss"]

    def __init__(
        self,
        vocab_size: int = 40478,
        n_positions: int = 512,
        n_embd: int = 768,
        n_layer: int = 12,
        n_head: int = 12,
        afn: str = "gelu",
        resid_pdrop: float = 0.1,
        embd_pdrop: float = 0.1,
        attn_pdrop: float = 0.1,
        clf_pdrop: float = 0.1,
        layer_norm_epsilon: float = 1e-5,
        initializer_range: float = 0.02,
        lm_coef: float = 0.5,
        lm_loss_reduction: str = "token",
        use_cache: bool = True,
        pad_token_id: int | None = None,
        bos_token_id: int | None = None,
        eos_token_id: int | list[int] | None = None,
        tie_word_embeddings: bool = True,
        **kwargs: Any,
    ):
        # transformers sets the fields of its names for the sizes by attribute_map, which __init__ must see first.
        given = {ours: kwargs.pop(theirs) for theirs, ours in self.attribute_map.items() if theirs in kwargs}
        self.vocab_size = vocab_size
        self.n_positions = given.get("n_positions", n_positions)
        self.n_embd = given.get("n_embd", n_embd)
        self.n_layer = given.get("n_layer", n_layer)
        self.n_head = given.get("n_head", n_head)
        self.afn = afn
        self.resid_pdrop = resid_pdrop
        self.embd_pdrop = embd_pdrop
        self.attn_pdrop = attn_pdrop
        self.clf_pdrop = kwargs.pop("summary_first_dropout", clf_pdrop)
        self.layer_norm_epsilon = layer_norm_epsilon
        self.initializer_range = initializer_range
        self.lm_coef = lm_coef
        self.lm_loss_reduction = lm_loss_reduction
        self.use_cache = use_cache
        self.pad_token_id = pad_token_id
        self.bos_token_id = bos_token_id
        self.eos_token_id = eos_token_id
        self.tie_word_embeddings = tie_word_embeddings
        self._check_fields()
        check_label_maps(kwargs)
        _drop_openai_fields(kwargs)
        super().__init__(**kwargs)
        # Not saved: a classifier's names in a file are none of a double-heads model's business, but a wish is.
        self._num_labels_wanted = kwargs.get("num_labels")

    def _check_fields(self) -> None:
        for name in ("vocab_size", "n_positions", "n_embd", "n_layer", "n_head"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)!r}, but must be an integer of at least 1")
        if self.n_embd % self.n_head:
            raise ValueError(f"n_embd is {self.n_embd}, but must be a multiple of n_head, which is {self.n_head}")
        for name in _DROPOUTS:
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, but must lie in [0, 1)")
        for name, allowed in (("afn", ACTIVATIONS), ("lm_loss_reduction", LM_LOSS_REDUCTIONS)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}; allowed: {', '.join(map(repr, allowed))}")
        if self.lm_coef < 0:
            raise ValueError(f"lm_coef is {self.lm_coef}, but must not be negative")
        if self.pad_token_id is not None and not 0 <= self.pad_token_id < self.vocab_size:
            raise ValueError(f"pad_token_id is {self.pad_token_id}, but vocab_size is {self.vocab_size}")

    def to_dict(self) -> dict[str, Any]:
        output = super().to_dict()
        output.pop("_num_labels_wanted", None)
        return output

    @classmethod
    def get_config_dict(cls, pretrained_model_name_or_path: Any, **kwargs: Any) -> Any:
        config_dict, kwargs = super().get_config_dict(pretrained_model_name_or_path, **kwargs)
        if config_dict.get("model_type") == OPENAI_MODEL_TYPE:
            config_dict = {**config_dict, "model_type": cls.model_type}
        return config_dict, kwargs

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        return super().from_dict(without_old_names(config_dict, kwargs), **kwargs)


def _drop_openai_fields(kwargs: dict[str, Any]) -> None:
    for name in _OLD_FIELDS:
        kwargs.pop(name, None)
    for name, allowed in _SUMMARY_FIELDS.items():
        value = kwargs.pop(name, allowed[0])
        if value not in allowed:
            logger.warning(
                f"{name}={value!r} is left out of account: the heads of GPT-1 are linear layers on the state of the "
                "extract token"
            )


GPT1Config.register_for_auto_class()
