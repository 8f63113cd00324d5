"""Moves a model to another vocabulary, word by word, and notices when model and tokenizer do not fit."""

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

REMAP = "hf_metalstm.convert.vocabulary.remap_vocabulary(model, old_tokenizer, new_tokenizer)"
ROLES = ("pad", "unk", "bos", "eos", "sep", "cls", "mask")
# Rows without a word are usual: sizes are rounded up, places reserved. More than this is another vocabulary.
SPARE_ROWS = 1024


@dataclass
class RemapReport:
    """What `remap_vocabulary` did. Special tokens do not count.

    Args:
        kept: words that both vocabularies have; they keep their rows.
        new: words that only the new vocabulary has; they start from the mean row.
        dropped: words that only the old vocabulary has.
    """

    kept: list[str]
    new: list[str]
    dropped: list[str]

    def __str__(self) -> str:
        examples = f" (e.g. {', '.join(self.new[:5])})" if self.new else ""
        return f"{len(self.kept):,} kept, {len(self.new):,} new{examples}, {len(self.dropped):,} dropped"


def check_vocabulary(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuses a tokenizer that cannot be the model's.

    Raises:
        ValueError: the tokenizer has ids for which the model has no embedding, or the model has so many more rows than
            the tokenizer has ids (over 1,024) that it was made for another vocabulary.

    Example:
        >>> from hf_metalstm import MetaLSTMConfig, MetaLSTMModel, WordTokenizer
        >>> from hf_metalstm.convert.vocabulary import check_vocabulary
        >>> tokenizer = WordTokenizer.train_from_iterator(["a good book"])
        >>> check_vocabulary(MetaLSTMModel(MetaLSTMConfig(vocab_size=len(tokenizer))), tokenizer)
    """
    check_ids(model, tokenizer)
    rows, ids = _rows(model), _size(tokenizer)
    if rows > ids + SPARE_ROWS:
        raise ValueError(
            f"the tokenizer has {ids} ids, but the model has embeddings for {rows}: load the tokenizer saved with the "
            f"model; for a new model set vocab_size=len(tokenizer); to move to another vocabulary use {REMAP}"
        )


def check_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raises ValueError when the tokenizer has ids for which the model has no embedding."""
    rows, ids = _rows(model), _size(tokenizer)
    if ids > rows:
        raise ValueError(
            f"the tokenizer has {ids} ids, but the model has embeddings for {rows}: load the tokenizer saved with the "
            "model; for added tokens call model.resize_token_embeddings(len(tokenizer)); to move to another vocabulary "
            f"use {REMAP}"
        )


def _rows(model: PreTrainedModel) -> int:
    return cast(nn.Embedding, model.get_input_embeddings()).weight.shape[0]


def _size(tokenizer: PreTrainedTokenizerBase) -> int:
    # Not len(): with holes between the ids the largest one counts.
    return max(tokenizer.get_vocab().values(), default=-1) + 1


@torch.no_grad()
def remap_vocabulary(
    model: PreTrainedModel, old_tokenizer: PreTrainedTokenizerBase, new_tokenizer: PreTrainedTokenizerBase
) -> RemapReport:
    """Gives a model the vocabulary of another tokenizer, in place.

    Words that both know keep their embedding; new words start from the mean of all old tokens' embeddings (Howard and
    Ruder 2018). A special token that is new by its spelling takes over from the old one with the same role ("[UNK]"
    from "<unk>"). An output layer and its bias, tied or not, are treated alike.

    Args:
        model: any `PreTrainedModel`; its embeddings, `config.vocab_size` and the ids of special tokens in its config
            and generation config change.
        old_tokenizer: the one that the model was trained with.
        new_tokenizer: the one that it shall work with.

    Returns:
        Which words were kept, are new, and were dropped.

    Raises:
        ValueError: the old tokenizer does not fit the model.

    Example:
        >>> from hf_metalstm import MetaLSTMConfig, MetaLSTMModel, WordTokenizer
        >>> from hf_metalstm.convert.vocabulary import remap_vocabulary
        >>> old = WordTokenizer.train_from_iterator(["a good book"])
        >>> new = WordTokenizer.train_from_iterator(["a good film"])
        >>> model = MetaLSTMModel(MetaLSTMConfig(vocab_size=len(old), hidden_size=8))
        >>> print(remap_vocabulary(model, old, new))
        2 kept, 1 new (e.g. film), 1 dropped
    """
    check_vocabulary(model, old_tokenizer)
    old_ids, new_ids = old_tokenizer.get_vocab(), new_tokenizer.get_vocab()
    origins = {**_by_role(old_tokenizer, new_tokenizer), **{word: old_ids[word] for word in new_ids if word in old_ids}}
    source = torch.full((_size(new_tokenizer),), -1)
    for word, index in new_ids.items():
        source[index] = origins.get(word, -1)
    used = torch.tensor(sorted(old_ids.values()))

    output = model.get_output_embeddings()
    rows = _remap_rows(cast(nn.Embedding, model.get_input_embeddings()).weight, source, used)
    output_rows = None if output is None else _remap_rows(output.weight, source, used)
    bias = getattr(output, "bias", None)
    output_bias = None if bias is None else _remap_rows(bias, source, used)
    model.resize_token_embeddings(len(source), mean_resizing=False)
    embeddings = cast(nn.Embedding, model.get_input_embeddings())
    _copy(embeddings, rows, None)
    if output_rows is not None:
        _copy(model.get_output_embeddings(), output_rows, output_bias)
    if embeddings.padding_idx is not None:
        embeddings.padding_idx = new_tokenizer.pad_token_id
    _set_special_ids(model.config, new_tokenizer)
    _set_special_ids(getattr(model, "generation_config", None), new_tokenizer)
    return _report(old_tokenizer, new_tokenizer)


def _by_role(old: PreTrainedTokenizerBase, new: PreTrainedTokenizerBase) -> dict[str, int]:
    """New tokenizer's special tokens -> id of the old one's with the same role."""
    pairs = [(getattr(new, f"{role}_token"), getattr(old, f"{role}_token_id")) for role in reversed(ROLES)]
    return {str(token): index for token, index in pairs if token is not None and index is not None}


def _remap_rows(rows: Tensor, source: Tensor, used: Tensor) -> Tensor:
    mean = rows[used.to(rows.device)].mean(0)
    known = (source >= 0).to(rows.device)
    picked = rows[source.clamp(min=0).to(rows.device)]
    return torch.where(known.view(-1, *[1] * (rows.ndim - 1)), picked, mean)


def _copy(layer: Any, rows: Tensor, bias: Tensor | None) -> None:
    layer.weight.copy_(rows)
    if bias is not None:
        layer.bias.copy_(bias)


def _set_special_ids(config: Any, tokenizer: PreTrainedTokenizerBase) -> None:
    """An id that the config states must mean the same token in the new vocabulary."""
    for role in ROLES:
        name = f"{role}_token_id"
        if getattr(config, name, None) is not None:
            setattr(config, name, getattr(tokenizer, name))


def _report(old: PreTrainedTokenizerBase, new: PreTrainedTokenizerBase) -> RemapReport:
    old_ids, new_ids = old.get_vocab(), new.get_vocab()
    special = {*old.all_special_tokens, *new.all_special_tokens}
    words = [word for word in sorted(new_ids, key=new_ids.__getitem__) if word not in special]
    return RemapReport(
        kept=[word for word in words if word in old_ids],
        new=[word for word in words if word not in old_ids],
        dropped=[w for w in sorted(old_ids, key=old_ids.__getitem__) if w not in new_ids and w not in special],
    )
