"""Moves a model to another vocabulary, word by word, and notices when model and tokenizer do not fit."""

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass
class RemapReport:
    """What `remap_vocabulary` did.

    Args:
        kept: words that both vocabularies have; they keep their rows.
        new: words that only the new vocabulary has; they start from the mean row.
    """

    kept: list[str]
    new: list[str]

    def __str__(self) -> str:
        examples = f", e.g. {', '.join(self.new[:5])}" if self.new else ""
        return f"{len(self.kept):,} kept, {len(self.new):,} new{examples}"


def check_vocabulary(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raises ValueError when the tokenizer has ids for which the model has no embedding.

    A model may have more rows than the tokenizer has words; the other way round an id would fall outside.
    """
    rows = cast(nn.Embedding, model.get_input_embeddings()).num_embeddings
    words = _largest_id(tokenizer) + 1
    if words > rows:
        raise ValueError(
            f"the tokenizer has {words} ids, but the model has embeddings for {rows}: load the tokenizer saved "
            "with the model; for added tokens call model.resize_token_embeddings(len(tokenizer)); to move to another "
            "vocabulary use hf_metalstm.convert.vocabulary.remap_vocabulary(model, old_tokenizer, new_tokenizer)"
        )


def _largest_id(tokenizer: PreTrainedTokenizerBase) -> int:
    return max(tokenizer.get_vocab().values(), default=-1)


@torch.no_grad()
def remap_vocabulary(
    model: PreTrainedModel, old_tokenizer: PreTrainedTokenizerBase, new_tokenizer: PreTrainedTokenizerBase
) -> RemapReport:
    """Gives a model the vocabulary of another tokenizer, in place.

    Words that both know keep their embedding; new words start from the mean of the old words' embeddings (Howard and
    Ruder 2018). An output layer and its bias, tied or not, are treated alike.

    Args:
        model: any `PreTrainedModel`; its embeddings and `config.vocab_size` change.
        old_tokenizer: the one that the model was trained with.
        new_tokenizer: the one that it shall work with. Ids must be 0..n-1.

    Returns:
        Which words were kept and which are new. The special tokens count by their text like any word.

    Raises:
        ValueError: the old tokenizer does not fit the model.

    Example:
        >>> from hf_metalstm import MetaLSTMConfig, MetaLSTMModel, WordTokenizer
        >>> from hf_metalstm.convert.vocabulary import remap_vocabulary
        >>> old = WordTokenizer.train_from_iterator(["a good book"])
        >>> new = WordTokenizer.train_from_iterator(["a good film"])
        >>> model = MetaLSTMModel(MetaLSTMConfig(vocab_size=len(old), hidden_size=8))
        >>> print(remap_vocabulary(model, old, new))
        6 kept, 1 new, e.g. film
    """
    check_vocabulary(model, old_tokenizer)
    old_ids, new_ids = old_tokenizer.get_vocab(), new_tokenizer.get_vocab()
    size = _largest_id(new_tokenizer) + 1
    source = torch.full((size,), -1)
    for word, index in new_ids.items():
        source[index] = old_ids.get(word, -1)
    used = torch.tensor(sorted(old_ids.values()))

    embeddings, output = cast(nn.Embedding, model.get_input_embeddings()), model.get_output_embeddings()
    new_rows = _remap_rows(embeddings.weight, source, used)
    new_output = None if output is None else _remap_rows(output.weight, source, used)
    bias = getattr(output, "bias", None)
    new_bias = None if bias is None else _remap_rows(bias, source, used)
    model.resize_token_embeddings(size, mean_resizing=False)
    _fill(model.get_input_embeddings(), new_rows, None)
    if new_output is not None:
        _fill(model.get_output_embeddings(), new_output, new_bias)
    pad = new_tokenizer.pad_token_id
    if getattr(model.config, "pad_token_id", None) is not None and pad is not None:
        model.config.pad_token_id = pad
    kept = [word for word in new_ids if word in old_ids]
    return RemapReport(kept=kept, new=[word for word in new_ids if word not in old_ids])


def _remap_rows(rows: Tensor, source: Tensor, used: Tensor) -> Tensor:
    mean = rows[used.to(rows.device)].mean(0)
    known = (source >= 0).to(rows.device)
    picked = rows[source.clamp(min=0).to(rows.device)]
    return torch.where(known.view(-1, *[1] * (rows.ndim - 1)), picked, mean)


def _fill(layer: Any, rows: Tensor, bias: Tensor | None) -> None:
    layer.weight.copy_(rows)
    if bias is not None:
        layer.bias.copy_(bias)
