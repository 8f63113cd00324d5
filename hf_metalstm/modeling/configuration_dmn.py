# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""Configuration of Dynamic Memory Networks: how facts are read, how they are attended to, when the passes stop."""

from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedConfig

INPUT_CELLS = ("gru", "lstm")
FACT_ENCODERS = ("story", "sentence", "position")
GATES = ("sigmoid", "softmax")
MEMORY_CELLS = ("gru", "relu")
# z(c, m, q) of the paper, in its order.
ATTENTION_FEATURES = (
    "fact",
    "memory",
    "question",
    "fact*question",
    "fact*memory",
    "|fact-question|",
    "|fact-memory|",
    "fact.W.question",
    "fact.W.memory",
)
_CHOICES = {
    "input_cell": INPUT_CELLS,
    "fact_encoder": FACT_ENCODERS,
    "gate": GATES,
    "memory_cell": MEMORY_CELLS,
}
_SIZES = ("vocab_size", "embedding_size", "hidden_size", "attention_size", "num_passes")
_DROPOUTS = ("embedding_dropout", "fact_dropout", "answer_dropout")


class DMNConfig(PreTrainedConfig):
    """Describes a Dynamic Memory Network (Kumar et al. 2016, "Ask Me Anything"), by option with the changes of DMN+
    (Xiong et al. 2016, "Dynamic Memory Networks for Visual and Textual Question Answering").

    Args:
        vocab_size: number of token ids.
        embedding_size: width of the word embeddings, which facts, question and answer share.
        hidden_size: width of facts, question, episodes and memory.
        num_passes: how often the memory goes over the facts, at most.
        input_cell: "gru" or "lstm" reads facts and questions.
        fact_encoder: "story" reads all sentences as one text and takes the states at their ends (2016); "sentence"
            reads each sentence by itself; "position" adds the embeddings up, weighted by position (DMN+). The last two
            tell nothing of the order of the facts, which the fusion layer then does.
        fusion_layer: a bidirectional GRU over the facts, whose directions are added (DMN+).
        gate: "sigmoid" lets in each fact by itself (2016); "softmax" shares 1 among the facts, and the gate takes the
            place of the update gate in the episode's GRU (DMN+).
        attention_features: what the gate sees of a fact, the memory and the question: some of
            `ATTENTION_FEATURES`; None means all.
        attention_size: hidden units of the gate; None means `hidden_size`.
        memory_cell: "gru" (2016), or "relu" of a linear layer over memory, episode and question (DMN+).
        tie_memory_weights: all passes update the memory with the same weights; False gives each pass its own (DMN+).
        use_end_of_passes: a further, learned fact competes for the gates, and the row that chooses it stops. It has to
            be taught, by `supporting_facts` with passes.
        gate_loss_weight: of the loss on the gates where supporting facts are given.
        learned_question: a learned vector in place of questions, for classifiers of texts that nobody asks about.
        embedding_dropout, fact_dropout, answer_dropout: on the embeddings, on the facts, and on the memory that the
            answer begins with and the states that it is read from.
        initializer_range: standard deviation of the embeddings; other weights are scaled by their own sizes.
        pad_token_id, bos_token_id, eos_token_id: ids of the special tokens, as `DMNTokenizer` has them.
        decoder_start_token_id: what the answer module reads first; None means `bos_token_id`.
        tie_word_embeddings: the answer module's output layer shares the embeddings, which then are `hidden_size` wide.
        use_cache: generation keeps the answer module's state.

    Raises:
        ValueError: a field has a value that is not allowed; the message names the field.

    Example:
        >>> from hf_metalstm import DMNConfig
        >>> config = DMNConfig(vocab_size=100, num_passes=2, attention_features=["fact*question", "|fact-memory|"])
        >>> config.hidden_size, config.gate, config.attention_size
        (80, 'sigmoid', 80)
    """

    model_type = "dmn"
    keys_to_ignore_at_inference = [
        "answer_loss",
        "gate_loss",
        "cache",
        "gates",
        "gate_scores",
        "memory",
        "question",
        "passes",
        "encoder_last_hidden_state",
    ]

    def __init__(
        self,
        vocab_size: int = 1000,
        embedding_size: int = 80,
        hidden_size: int = 80,
        num_passes: int = 3,
        input_cell: str = "gru",
        fact_encoder: str = "story",
        fusion_layer: bool = False,
        gate: str = "sigmoid",
        attention_features: Sequence[str] | None = None,
        attention_size: int | None = None,
        memory_cell: str = "gru",
        tie_memory_weights: bool = True,
        use_end_of_passes: bool = False,
        gate_loss_weight: float = 1.0,
        learned_question: bool = False,
        embedding_dropout: float = 0.0,
        fact_dropout: float = 0.0,
        answer_dropout: float = 0.0,
        initializer_range: float = 0.1,
        pad_token_id: int | None = 0,
        bos_token_id: int | None = 2,
        eos_token_id: int | None = 3,
        decoder_start_token_id: int | None = None,
        tie_word_embeddings: bool = False,
        use_cache: bool = True,
        **kwargs: Any,
    ):
        self.vocab_size = vocab_size
        self.embedding_size = embedding_size
        self.hidden_size = hidden_size
        self.num_passes = num_passes
        self.input_cell = input_cell
        self.fact_encoder = fact_encoder
        self.fusion_layer = fusion_layer
        self.gate = gate
        self.attention_features = list(ATTENTION_FEATURES if attention_features is None else attention_features)
        self.attention_size = hidden_size if attention_size is None else attention_size
        self.memory_cell = memory_cell
        self.tie_memory_weights = tie_memory_weights
        self.use_end_of_passes = use_end_of_passes
        self.gate_loss_weight = gate_loss_weight
        self.learned_question = learned_question
        self.embedding_dropout = embedding_dropout
        self.fact_dropout = fact_dropout
        self.answer_dropout = answer_dropout
        self.initializer_range = initializer_range
        self.pad_token_id = pad_token_id
        self.bos_token_id = bos_token_id
        self.eos_token_id = eos_token_id
        self.decoder_start_token_id = bos_token_id if decoder_start_token_id is None else decoder_start_token_id
        self.tie_word_embeddings = tie_word_embeddings
        self.use_cache = use_cache
        self._check_fields()
        super().__init__(**kwargs)

    @property
    def num_hidden_layers(self) -> int:
        """Recurrent layers that the tokens of a fact, and those of an answer, pass through."""
        return 1

    def _check_fields(self) -> None:
        for name in _SIZES:
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)!r}, but must be an integer of at least 1")
        for name in _DROPOUTS:
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, but must lie in [0, 1)")
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}; allowed: {', '.join(map(repr, allowed))}")
        if not self.gate_loss_weight >= 0:
            raise ValueError(f"gate_loss_weight is {self.gate_loss_weight}, but must not be negative")
        features = self.attention_features
        for feature in features:
            if feature not in ATTENTION_FEATURES:
                raise ValueError(
                    f"attention_features has {feature!r}; allowed: {', '.join(map(repr, ATTENTION_FEATURES))}"
                )
        if not any("fact" in feature for feature in features) or len(set(features)) < len(features):
            raise ValueError(
                f"attention_features is {features}, but must name each feature once, and one with the fact at least: "
                "else every fact has the same gate"
            )
        for name in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"):
            token = getattr(self, name)
            if token is not None and not 0 <= token < self.vocab_size:
                raise ValueError(f"{name} is {token}, but vocab_size is {self.vocab_size}")
        if self.tie_word_embeddings and self.embedding_size != self.hidden_size:
            raise ValueError(
                f"tie_word_embeddings needs embeddings as wide as the memory, but embedding_size is "
                f"{self.embedding_size} and hidden_size {self.hidden_size}"
            )
        if self.fact_encoder == "position" and not self.fusion_layer and self.embedding_size != self.hidden_size:
            raise ValueError(
                "fact_encoder='position' without a fusion layer makes facts as wide as the embeddings, but "
                f"embedding_size is {self.embedding_size} and hidden_size {self.hidden_size}"
            )


DMNConfig.register_for_auto_class()
