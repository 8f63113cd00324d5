"""Fills the embeddings of many new models with the same word vectors, which are read once."""

from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..convert.vectors import VectorReport, fill_embeddings


class WordVectors:
    """Word vectors for models that share a tokenizer; call it with each model.

    Args:
        source: see `fill_embeddings`.
        tokenizer: of the models.

    Attributes:
        report: which words were found; None before the first call.
    """

    def __init__(self, source: str | Path, tokenizer: PreTrainedTokenizerBase):
        self.source = source
        self.tokenizer = tokenizer
        self.report: VectorReport | None = None
        self._filled: Tensor | None = None

    @torch.no_grad()
    def __call__(self, model: PreTrainedModel) -> None:
        """Writes the vectors into the model's embeddings, words without one as they are in the first model.

        Raises:
            See `fill_embeddings`.
        """
        weight = cast(nn.Embedding, model.get_input_embeddings()).weight
        if self._filled is None:
            self.report = fill_embeddings(model, self.tokenizer, self.source)
            self._filled = weight.detach().clone()
        else:
            weight.copy_(self._filled)
