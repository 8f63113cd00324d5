# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""GPT-1: a language model that is fine-tuned with its own objective beside that of the task.

Source: Radford, Narasimhan, Salimans, Sutskever 2018, "Improving Language Understanding by Generative Pre-Training",
and the authors' code. How its parts map to this file:

* h_0 = U W_e + W_p, h_l = block(h_{l-1}) (equation 2): `GPT1Model`; the blocks: gpt1_blocks.py;
* P(u) = softmax(h_n W_e^T), L1 (equations 1 and 2): `GPT1LMHeadModel`;
* P(y | x) = softmax(h_l^m W_y) over answers, L2 and L3 = L2 + lambda L1 (equations 3 to 5): `GPT1DoubleHeadsModel`;
  over classes: modeling_gpt1_classification.py.

Parameters have the names and shapes of transformers' OpenAIGPT, so each reads the other's files.
"""

import copy
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import Cache, DynamicCache, GenerationMixin, PreTrainedModel
from transformers import initialization as init
from transformers.masking_utils import create_causal_mask
from transformers.modeling_utils import slice_logits_to_keep
from transformers.pytorch_utils import Conv1D
from transformers.utils import logging

from .configuration_gpt1 import GPT1Config
from .gpt1_blocks import GPT1Block
from .gpt1_inputs import (
    check_choice_labels,
    check_choice_tokens,
    check_mask,
    check_positions,
    check_token_labels,
    check_tokens,
    is_right_padded,
    last_real_tokens,
    make_positions,
)
from .gpt1_losses import add_objectives, choice_loss, following_tokens, language_model_loss, shared_dropout
from .gpt1_outputs import GPT1DoubleHeadsOutput, GPT1LMHeadOutput, GPT1ModelOutput
from .loading import ClearLoadingErrors

logger = logging.get_logger(__name__)

# Names that older files have for our parameters.
_OLD_NAMES = {
    r"(ln_[12])\.(g|gamma)$": r"\1.weight",
    r"(ln_[12])\.(b|beta)$": r"\1.bias",
    r"(c_attn|c_proj|c_fc)\.w$": r"\1.weight",
    r"(c_attn|c_proj|c_fc)\.b$": r"\1.bias",
    r"^lm_head\.decoder\.weight$": r"lm_head.weight",
    r"^multiple_choice_head\.linear\.(weight|bias)$": r"multiple_choice_head.summary.\1",
}


class GPT1PreTrainedModel(ClearLoadingErrors, PreTrainedModel):
    """Initialisation, saving and loading of the GPT-1 family; reads the files of transformers' OpenAIGPT too."""

    config: GPT1Config
    config_class = GPT1Config
    base_model_prefix = "transformer"
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    # Means over the batch, unless a head says otherwise; Trainer divides by the accumulation steps itself.
    accepts_loss_kwargs = False
    _no_split_modules = ["GPT1Block"]
    _skip_keys_device_placement = ["cache"]
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    # OpenAIGPT keeps its causal mask and positions as buffers, and older versions of it save them.
    _keys_to_ignore_on_load_unexpected = [r"h\.\d+\.attn\.bias$", r"h\.\d+\.attn\.masked_bias$", r"position_ids$"]

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any = None, *args: Any, **kwargs: Any) -> Any:
        """As `PreTrainedModel.from_pretrained`; also reads OpenAIGPT's files, and any head's files for any other.

        Raises:
            OSError: a weight file is a git-lfs pointer or cut off; with its name, its size and what it should be.
            ValueError: the tensors have other sizes than the config says, in one line.
        """
        kwargs["key_mapping"] = {**_OLD_NAMES, **(kwargs.get("key_mapping") or {})}
        wants_info = kwargs.pop("output_loading_info", False)
        path = pretrained_model_name_or_path
        model, info = super().from_pretrained(path, *args, output_loading_info=True, **dict(kwargs))
        if any(key.endswith("tokens_embed.weight") for key in info["missing_keys"]) and any(
            key.endswith("lm_head.weight") for key in info["unexpected_keys"]
        ):
            # OpenAIGPTDoubleHeadsModel saves its tied matrix under the name of the output layer alone.
            renamed = {r"^lm_head\.weight$": "tokens_embed.weight", **kwargs["key_mapping"]}
            again = {**kwargs, "key_mapping": renamed}
            model, info = super().from_pretrained(path, *args, output_loading_info=True, **again)
        return (model, info) if wants_info else model

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, Conv1D):
            init.normal_(module.weight, 0.0, self.config.initializer_range)
            init.zeros_(module.bias)

    def save_pretrained(self, save_directory: Any, *args: Any, **kwargs: Any) -> None:
        """As `PreTrainedModel.save_pretrained`; `AutoModel` finds the base model in the saved code too."""
        if getattr(self, "_auto_class", None) is not None:
            self.config.auto_map = {
                **(getattr(self.config, "auto_map", None) or {}),
                "AutoModel": f"modeling_gpt1.{GPT1Model.__name__}",
            }
        super().save_pretrained(save_directory, *args, **kwargs)

    def _wants_dict(self, return_dict: bool | None) -> bool:
        return bool(self.config.return_dict if return_dict is None else return_dict)

    def _logits(self, hidden: Tensor, logits_to_keep: int | Tensor | None, has_labels: bool) -> Tensor | None:
        """Logits of the kept tokens of (..., tokens, n_embd)."""
        output_layer = cast(nn.Linear, self.get_output_embeddings())
        if logits_to_keep is None:
            # Training needs the loss alone, which is made without them; they would be the largest tensor of the step.
            return None if has_labels and self.training else output_layer(hidden)
        kept = slice_logits_to_keep(hidden.flatten(0, -3), logits_to_keep)
        if kept.ndim == 3:
            kept = kept.unflatten(0, hidden.shape[:-2])
        return output_layer(kept)


class GPT1Model(GPT1PreTrainedModel):
    """Embeddings and blocks, without a head.

    Example:
        >>> import torch
        >>> from hf_metalstm import GPT1Config, GPT1Model
        >>> model = GPT1Model(GPT1Config(vocab_size=50, n_embd=8, n_layer=2, n_head=2)).eval()
        >>> output = model(torch.tensor([[3, 7, 7], [4, 5, 0]]), attention_mask=torch.tensor([[1, 1, 1], [1, 1, 0]]))
        >>> output.last_hidden_state.shape, output.cache.get_seq_length()
        (torch.Size([2, 3, 8]), 3)
    """

    _input_embed_layer = "tokens_embed"

    def __init__(self, config: GPT1Config):
        super().__init__(config)
        self.tokens_embed = nn.Embedding(config.vocab_size, config.n_embd)
        self.positions_embed = nn.Embedding(config.n_positions, config.n_embd)
        self.drop = nn.Dropout(config.embd_pdrop)
        self.h = nn.ModuleList(GPT1Block(config, index) for index in range(config.n_layer))
        self.gradient_checkpointing = False
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        cache: Cache | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> GPT1ModelOutput | tuple[Any, ...]:
        """Encodes a batch of texts.

        Args:
            input_ids: (batch, tokens) or (batch, choices, tokens) int64.
            attention_mask: alike, 1 for real tokens, those in the cache included; padding may stand on either side.
                None: all are real.
            token_type_ids: alike; the embeddings of these ids are added.
            position_ids: alike; None counts the real tokens.
            inputs_embeds: input_ids' shape and n_embd, instead of them.
            cache: of the tokens before; it grows by these.
            use_cache: return a cache; None: as the config says, but not in training.
            output_attentions: also return the attention probabilities, which takes the eager implementation.
            output_hidden_states: also return the embeddings and each block's output.
            return_dict: False returns a tuple.

        Raises:
            TypeError, ValueError: bad ids, masks or positions, or a text that is too long; the message names the place.
        """
        config = self.config
        if output_attentions is None:
            output_attentions = config.output_attentions
        if output_hidden_states is None:
            output_hidden_states = config.output_hidden_states
        shape = check_tokens(input_ids, inputs_embeds, config.vocab_size, config.n_embd)
        cache = self._cache(cache, use_cache)
        past = 0 if cache is None else cache.get_seq_length()
        if attention_mask is not None:
            attention_mask = check_mask(attention_mask, shape, past)
        embedded = self.tokens_embed(input_ids) if inputs_embeds is None else inputs_embeds
        if position_ids is None:
            position_ids = make_positions(attention_mask, shape, past, config.n_positions, embedded.device)
        else:
            position_ids = check_positions(position_ids, shape, config.n_positions)
        embedded = embedded + self.positions_embed(position_ids)
        if token_type_ids is not None:
            check_tokens(token_type_ids, None, config.vocab_size, config.n_embd)
            embedded = embedded + self.tokens_embed(token_type_ids)
        hidden = self.drop(embedded).flatten(0, -3)  # (rows, tokens, n_embd)
        visible = self._visible(hidden, attention_mask, cache, past, bool(output_attentions))
        every_layer, every_attention = [hidden], []
        for block in self.h:
            hidden, probabilities = block(
                hidden, attention_mask=visible, cache=cache, output_attentions=bool(output_attentions)
            )
            every_layer.append(hidden)
            every_attention.append(probabilities)

        def unflatten(states: list[Tensor]) -> tuple[Tensor, ...]:
            # A view of a state is not on the way to the loss: without choices give the state itself.
            return tuple(states) if len(shape) == 2 else tuple(state.unflatten(0, shape[:-1]) for state in states)

        states = unflatten(every_layer) if output_hidden_states else unflatten([hidden])
        output = GPT1ModelOutput(
            last_hidden_state=states[-1],
            cache=cache,
            hidden_states=states if output_hidden_states else None,
            attentions=unflatten(every_attention) if output_attentions else None,
        )
        return output if self._wants_dict(return_dict) else output.to_tuple()

    def _cache(self, cache: Cache | None, use_cache: bool | None) -> Cache | None:
        if self.gradient_checkpointing and self.training and torch.is_grad_enabled():
            if use_cache:
                logger.warning_once("use_cache=True does not go with gradient checkpointing: no cache is returned")
            return None
        if use_cache is None:
            use_cache = self.config.use_cache and not self.training
        if cache is not None or not use_cache:
            return cache
        return DynamicCache(config=self.config)

    def _visible(
        self, hidden: Tensor, attention_mask: Tensor | None, cache: Cache | None, past: int, output_attentions: bool
    ) -> Any:
        """The attention mask in the form of the implementation that will take it."""
        config = self.config
        if output_attentions and config._attn_implementation != "eager":
            config = copy.copy(config)
            config._attn_implementation = "eager"
        if attention_mask is not None:
            attention_mask = attention_mask if attention_mask.ndim == 4 else attention_mask.flatten(0, -2)
            # No token sees what comes after it, so padding on the right needs no mask, and the fast kernels take none.
            if past == 0 and is_right_padded(attention_mask):
                attention_mask = None
        visible = create_causal_mask(config, hidden, attention_mask, cache)
        if isinstance(visible, Tensor) and visible.ndim == 4 and attention_mask is not None and attention_mask.ndim < 4:
            # Padding on the left sees no token. Its softmax would spread over all, those to come included.
            here = torch.arange(past, past + hidden.shape[1], device=hidden.device)
            itself = here[:, None] == torch.arange(visible.shape[-1], device=hidden.device)
            visible = visible | itself if visible.dtype == torch.bool else visible.masked_fill(itself, 0.0)
        return visible


class GPT1LMHeadModel(GPT1PreTrainedModel, GenerationMixin):
    """Language model; `generate` writes on.

    Example:
        >>> import torch
        >>> from hf_metalstm import GPT1Config, GPT1LMHeadModel
        >>> model = GPT1LMHeadModel(GPT1Config(vocab_size=50, n_embd=8, n_layer=2, n_head=2)).eval()
        >>> ids = torch.tensor([[3, 7, 7]])
        >>> model(ids, labels=ids).logits.shape
        torch.Size([1, 3, 50])
        >>> model.generate(ids, max_new_tokens=4, do_sample=False).shape
        torch.Size([1, 7])
    """

    _tied_weights_keys = {"lm_head.weight": "transformer.tokens_embed.weight"}

    def __init__(self, config: GPT1Config):
        super().__init__(config)
        # Trainer counts the labels of a step as this loss does, without each text's first.
        self.loss_type = "ForCausalLM"
        self.transformer = GPT1Model(config)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.post_init()

    @property
    def accepts_loss_kwargs(self) -> bool:  # type: ignore[override]
        """Whether Trainer should pass the number of labels of a step; the mean over sequences has no use for it."""
        return self.config.lm_loss_reduction == "token"

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        cache: Cache | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        logits_to_keep: int | Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        shift_labels: Tensor | None = None,
    ) -> GPT1LMHeadOutput | tuple[Any, ...]:
        """Scores the next token of each token.

        Args:
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, cache, use_cache, output_attentions,
                output_hidden_states, return_dict: see `GPT1Model.forward`; (batch, tokens).
            labels: (batch, tokens), the ids themselves: they are shifted here. -100 is ignored.
            logits_to_keep: make the logits of this many last tokens, 0 for all, or of the tokens of a tensor, as in
                transformers. None makes all, but none in training with labels, whose loss does without.
            num_items_in_batch: labels of the whole step where a batch is a part of it; the loss is then the sum over
                the tokens divided by this.
            shift_labels: (batch, tokens), each token's successor, instead of `labels`: where a text is spread over
                devices, its last token here is not the last of all.

        Returns:
            `GPT1LMHeadOutput`. The loss is 0, and trains nothing, where all labels are -100.

        Raises:
            TypeError, ValueError: bad ids, masks, positions or labels; the message names the place.
        """
        encoded = self.transformer(
            input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            cache=cache,
            use_cache=use_cache,
            output_attentions=output_attentions,
            output_hidden_states=output_hidden_states,
            return_dict=True,
        )
        hidden, loss = encoded.last_hidden_state, None
        if shift_labels is None and labels is not None:
            check_token_labels(labels, hidden.shape[:-1], self.config.vocab_size, "labels")
            shift_labels = following_tokens(labels)
        elif shift_labels is not None:
            check_token_labels(shift_labels, hidden.shape[:-1], self.config.vocab_size, "shift_labels")
        if shift_labels is not None:
            reduction = self.config.lm_loss_reduction
            loss = language_model_loss(hidden, self.lm_head, shift_labels, reduction, num_items_in_batch)
        output = GPT1LMHeadOutput(
            loss=loss,
            logits=self._logits(hidden, logits_to_keep, loss is not None),
            cache=encoded.cache,
            hidden_states=encoded.hidden_states,
            attentions=encoded.attentions,
        )
        return output if self._wants_dict(return_dict) else output.to_tuple()


class GPT1ChoiceHead(nn.Module):
    """One score a choice, from the state of its extract token."""

    def __init__(self, config: GPT1Config):
        super().__init__()
        self.dropout = config.clf_pdrop
        self.summary = nn.Linear(config.n_embd, 1)

    def forward(self, states: Tensor) -> Tensor:
        """(batch, choices, n_embd) to (batch, choices)."""
        return self.summary(shared_dropout(states, self.dropout, self.training)).squeeze(-1)


class GPT1DoubleHeadsModel(GPT1PreTrainedModel, GenerationMixin):
    """Multiple choice with the language model's objective beside it: loss = mc_loss + lm_coef * lm_loss.

    Example:
        >>> import torch
        >>> from hf_metalstm import GPT1Config, GPT1DoubleHeadsModel
        >>> model = GPT1DoubleHeadsModel(GPT1Config(vocab_size=50, n_embd=8, n_layer=2, n_head=2)).eval()
        >>> ids = torch.tensor([[[3, 7, 7, 2], [3, 5, 2, 0]]])
        >>> mask = torch.tensor([[[1, 1, 1, 1], [1, 1, 1, 0]]])
        >>> labels = ids.masked_fill(mask == 0, -100)
        >>> output = model(ids, attention_mask=mask, labels=labels, mc_labels=torch.tensor([1]))
        >>> output.mc_logits.shape, torch.isclose(output.loss, output.mc_loss + 0.5 * output.lm_loss).item()
        (torch.Size([1, 2]), True)
    """

    _tied_weights_keys = {"lm_head.weight": "transformer.tokens_embed.weight"}

    def __init__(self, config: GPT1Config):
        if getattr(config, "_num_labels_wanted", None) not in (None, 1):
            raise ValueError(
                f"num_labels is {config._num_labels_wanted}, but a model with double heads gives each choice one score "
                "and takes any number of choices: leave num_labels out, or use GPT1ForSequenceClassification"
            )
        super().__init__(config)
        self.transformer = GPT1Model(config)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.multiple_choice_head = GPT1ChoiceHead(config)
        self.post_init()

    def prepare_inputs_for_generation(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return {**super().prepare_inputs_for_generation(*args, **kwargs), "language_model_only": True}

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        mc_token_ids: Tensor | None = None,
        labels: Tensor | None = None,
        mc_labels: Tensor | None = None,
        cache: Cache | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        logits_to_keep: int | Tensor | None = None,
        language_model_only: bool = False,
    ) -> GPT1DoubleHeadsOutput | tuple[Any, ...]:
        """Scores the choices of a batch, and their tokens.

        Args:
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, cache, use_cache, output_attentions,
                output_hidden_states, return_dict: see `GPT1Model.forward`; (batch, choices, tokens).
            mc_token_ids: (batch, choices), place of each choice's extract token; None: its last real token.
            labels: (batch, choices, tokens), the ids themselves: they are shifted here. -100 is ignored.
            mc_labels: (batch,), index of the right choice; -100 is ignored.
            logits_to_keep: see `GPT1LMHeadModel.forward`.
            language_model_only: leave out the choices; the input is (batch, tokens), as in `generate`.

        Returns:
            `GPT1DoubleHeadsOutput`. Both losses are means over the batch; one whose labels are all -100 is 0.

        Raises:
            TypeError, ValueError: bad ids, masks, positions, places or labels; the message names the place.
        """
        given = input_ids if input_ids is not None else inputs_embeds
        if isinstance(given, Tensor) and not language_model_only and given.ndim < (3 if input_ids is not None else 4):
            name = "input_ids" if input_ids is not None else "inputs_embeds"
            raise ValueError(
                f"{name} has shape {tuple(given.shape)}, but the choice head takes (batch, choices, tokens): stack "
                "the choices, or pass language_model_only=True"
            )
        encoded = self.transformer(
            input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            cache=cache,
            use_cache=use_cache,
            output_attentions=output_attentions,
            output_hidden_states=output_hidden_states,
            return_dict=True,
        )
        hidden = encoded.last_hidden_state
        shape = hidden.shape[:-1]
        mc_logits, mc_loss, lm_loss = None, None, None
        if not language_model_only:
            if mc_token_ids is None:
                mask = (
                    None
                    if attention_mask is None
                    else check_mask(attention_mask, shape, attention_mask.shape[-1] - shape[-1])
                )
                mc_token_ids = last_real_tokens(mask, shape, hidden.device)
            else:
                check_choice_tokens(mc_token_ids, shape)
            extracts = torch.take_along_dim(hidden, mc_token_ids[..., None, None], dim=-2).squeeze(-2)
            mc_logits = self.multiple_choice_head(extracts)  # (batch, choices)
        if mc_labels is not None and mc_logits is not None:
            check_choice_labels(mc_labels, shape)
            mc_loss = choice_loss(mc_logits, mc_labels)
        if labels is not None:
            check_token_labels(labels, shape, self.config.vocab_size, "labels")
            following = following_tokens(labels)
            lm_loss = language_model_loss(hidden, self.lm_head, following, self.config.lm_loss_reduction)
        output = GPT1DoubleHeadsOutput(
            loss=add_objectives(mc_loss, lm_loss, self.config.lm_coef),
            mc_loss=mc_loss,
            lm_loss=lm_loss,
            logits=self._logits(hidden, logits_to_keep, labels is not None or mc_labels is not None),
            mc_logits=mc_logits,
            cache=encoded.cache,
            hidden_states=encoded.hidden_states,
            attentions=encoded.attentions,
        )
        return output if self._wants_dict(return_dict) else output.to_tuple()


GPT1Model.register_for_auto_class("AutoModel")
GPT1LMHeadModel.register_for_auto_class("AutoModelForCausalLM")
GPT1DoubleHeadsModel.register_for_auto_class("AutoModelForMultipleChoice")
