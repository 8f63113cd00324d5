# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""Dynamic Memory Networks: facts and a question go in, a memory goes over the facts, an answer comes out.

Source: Kumar et al. 2016, "Ask Me Anything: Dynamic Memory Networks for Natural Language Processing" (ICML; arXiv
1506.07285). How its parts map to this file:

* input module (section 2.1): `dmn_input.InputModule`; question module (2.2): `QuestionModule`;
* episodic memory (2.3), with the gates G(c, m, q): `dmn_memory.EpisodicMemory`; these three make `DMNModel`;
* answer module (2.4), a_0 = m^T, a_t = GRU([y_{t-1} ; q], a_{t-1}), y_t = softmax(W_a a_t): `AnswerModule` and the
  output layer of `DMNForQuestionAnswering`. The paper feeds the softmax of the step before; here, as in transformers,
  the embedding of the token that was chosen, and of a start token at first;
* classes, and an answer for every word (2.4, part-of-speech tagging): modeling_dmn_classification.py.

The end of the passes competes for the gates but is not read: a row that chooses it keeps its memory.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationMixin, PreTrainedModel
from transformers import initialization as init
from transformers.utils import ModelOutput

from .configuration_dmn import DMNConfig
from .dmn_checks import check_answer_ids, check_answers, check_question, check_story, check_supporting_facts
from .dmn_input import RECURRENT_LAYERS, GRULayer, InputModule, LSTMLayer
from .dmn_losses import IGNORED_LABEL, add_losses, gate_loss, mean_cross_entropy, supervised_passes
from .dmn_memory import AttentionGate, EpisodeReader, EpisodicMemory
from .dmn_outputs import AnswerState, DMNModelOutput, DMNQuestionAnsweringOutput
from .loading import ClearLoadingErrors
from .padding import RealTokens


class QuestionModule(nn.Module):
    """q, the last state of a recurrent layer over the question, or a learned vector."""

    def __init__(self, config: DMNConfig):
        super().__init__()
        self.reader: nn.Module | None = None
        self.vector: nn.Parameter | None = None
        if config.learned_question:
            self.vector = nn.Parameter(torch.empty(config.hidden_size))
        else:
            self.reader = RECURRENT_LAYERS[config.input_cell](config.embedding_size, config.hidden_size)

    def init_weights(self) -> None:
        if self.vector is not None:
            init.normal_(self.vector, 0.0, self.vector.shape[0] ** -0.5)

    def forward(self, embedded: Tensor | None, mask: Tensor | None, batch: int) -> Tensor:
        """Reads (batch, tokens, embedding_size), or repeats the vector; (batch, hidden)."""
        if embedded is None or self.reader is None:
            assert self.vector is not None
            return self.vector.expand(batch, -1)
        tokens = RealTokens(mask)
        _, last = self.reader(tokens.to_front(embedded), tokens.lengths)
        return last


class AnswerModule(nn.Module):
    """a_t = GRU([y_{t-1} ; q], a_{t-1})."""

    def __init__(self, config: DMNConfig):
        super().__init__()
        self.layer = GRULayer(config.embedding_size + config.hidden_size, config.hidden_size)

    def forward(self, embedded: Tensor, question: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs (batch, answer_tokens, hidden) and the last state, from (batch, answer_tokens, embedding_size)."""
        asked = question[:, None].expand(-1, embedded.shape[1], -1)
        return self.layer(torch.cat([embedded, asked.to(embedded)], dim=-1), None, state.to(embedded))


class DMNPreTrainedModel(ClearLoadingErrors, PreTrainedModel):
    """Initialisation, saving and loading of the Dynamic Memory Networks."""

    config: DMNConfig
    config_class = DMNConfig
    base_model_prefix = "encoder"
    main_input_name = "input_ids"
    # The models' losses are means over the batch; Trainer divides by the accumulation steps itself.
    accepts_loss_kwargs = False
    _is_stateful = True
    _no_split_modules: list[str] = []
    _supports_context_parallel = False

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        own = (GRULayer, LSTMLayer, AttentionGate, EpisodeReader, EpisodicMemory, QuestionModule)
        if isinstance(module, own):
            module.init_weights()
        elif isinstance(module, nn.Embedding):
            init.normal_(module.weight, 0.0, self.config.initializer_range)
            if module.padding_idx is not None and not getattr(module.weight, "_is_hf_initialized", False):
                init.zeros_(module.weight[module.padding_idx])
        elif isinstance(module, nn.Linear):
            init.xavier_uniform_(module.weight)
            if module.bias is not None:
                init.zeros_(module.bias)
        else:
            super()._init_weights(module)

    def save_pretrained(self, save_directory: Any, *args: Any, **kwargs: Any) -> None:
        """As `PreTrainedModel.save_pretrained`; `AutoModel` finds the base model in the saved code too."""
        if getattr(self, "_auto_class", None) is not None:
            home = __name__.rsplit(".", 1)[-1]
            self.config.auto_map = {
                **(getattr(self.config, "auto_map", None) or {}),
                "AutoModel": f"{home}.{DMNModel.__name__}",
            }
        super().save_pretrained(save_directory, *args, **kwargs)

    def _wants_dict(self, return_dict: bool | None) -> bool:
        return bool(self.config.return_dict if return_dict is None else return_dict)

    def _gate_loss(self, encoded: DMNModelOutput, supporting_facts: Tensor | None, real_facts: Tensor) -> Tensor | None:
        config = self.config
        if supporting_facts is None:
            return None
        assert encoded.gate_scores is not None and encoded.passes is not None
        return gate_loss(
            encoded.gate_scores, encoded.passes, supporting_facts, real_facts, config.gate, config.use_end_of_passes
        )


class DMNModel(DMNPreTrainedModel):
    """Input, question and episodic memory modules: what a Dynamic Memory Network knows before it answers.

    Example:
        >>> import torch
        >>> from hf_metalstm import DMNConfig, DMNModel
        >>> model = DMNModel(DMNConfig(vocab_size=50, hidden_size=8, num_passes=2))
        >>> facts = torch.tensor([[[5, 6, 7], [8, 9, 0]], [[5, 6, 0], [0, 0, 0]]])
        >>> output = model(facts, attention_mask=facts != 0, question_ids=torch.tensor([[10, 11], [12, 13]]))
        >>> output.memory.shape, output.gates.shape, output.gates[1, :, 1].tolist()
        (torch.Size([2, 8]), torch.Size([2, 2, 2]), [0.0, 0.0])
    """

    _input_embed_layer = "embeddings"

    def __init__(self, config: DMNConfig):
        super().__init__(config)
        self.embeddings = nn.Embedding(config.vocab_size, config.embedding_size, padding_idx=config.pad_token_id)
        self.embedding_dropout = nn.Dropout(config.embedding_dropout)
        self.fact_dropout = nn.Dropout(config.fact_dropout)
        self.input_module = InputModule(config)
        self.question_module = QuestionModule(config)
        self.episodic_memory = EpisodicMemory(config)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        question_ids: Tensor | None = None,
        question_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        supporting_facts: Tensor | None = None,
        for_each_fact: bool = False,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> DMNModelOutput | tuple[Any, ...]:
        """Goes over the facts of a batch of stories with their questions.

        Args:
            input_ids: (batch, facts, tokens) int64; or (batch, tokens), single sentences whose tokens are the facts.
            attention_mask: alike, 1 for real tokens; a fact without a real token is padding. None: all are real.
            question_ids: (batch, tokens); not with a learned question.
            question_mask: alike.
            inputs_embeds: (batch, facts, tokens, embedding_size), or (batch, tokens, embedding_size), instead of
                input_ids.
            supporting_facts: 0 or 1, (batch, facts) or (batch, passes, facts). Looked at in training alone, and only
                where passes end early: the last form tells how many passes to make.
            for_each_fact: a memory for each fact, which has gone over the facts up to it (section 2.4): memory is
                (batch, facts, hidden), gates (batch, facts, passes, facts). Costs the square of the number of facts.
            output_hidden_states: also return embeddings and states of the input module.
            return_dict: False returns a tuple.

        Raises:
            TypeError, ValueError: bad ids, masks, questions or supporting facts; the message names the place.
        """
        real_tokens = check_story(input_ids, attention_mask, inputs_embeds, self.config.vocab_size)
        embedded = self.embeddings(input_ids) if inputs_embeds is None else inputs_embeds
        real_facts = real_tokens.any(2)
        places = RealTokens(real_facts)
        tokens = self.embedding_dropout(embedded).view(*real_tokens.shape, -1)  # (batch, facts, tokens, embedding)
        facts, states = self.input_module(tokens, real_tokens, places)
        facts = self.fact_dropout(facts)  # (batch, facts, hidden), real ones first
        question = self._question(question_ids, question_mask, len(facts)).to(facts)  # (batch, hidden)
        passes_to_make = None
        if supporting_facts is not None:
            check_supporting_facts(supporting_facts, real_facts, self.config.num_passes)
            if self.training and self.config.use_end_of_passes and supporting_facts.ndim == 3:
                _, passes_to_make = supervised_passes(supporting_facts, self.config.num_passes)
        passes = self.episodic_memory(facts, places.lengths, question, passes_to_make, for_each_fact)
        memory, gates, scores = passes.memory, passes.gates, passes.scores
        if for_each_fact:
            memory, gates, scores = (places.to_places(part) for part in (memory, gates, scores))
            memory = memory.masked_fill(~real_facts[:, :, None], 0.0)
            gates = gates.masked_fill(~real_facts[:, :, None, None], 0.0)
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        hidden_states = None
        if output_hidden_states:
            # Single sentences as they are, not as stories of one-token facts.
            states = states if states is None or embedded.ndim == 3 else states.unflatten(1, embedded.shape[1:3])
            hidden_states = tuple(part for part in (embedded, states) if part is not None)
        output = DMNModelOutput(
            last_hidden_state=places.to_places(facts).masked_fill(~real_facts[:, :, None], 0.0),
            memory=memory,
            question=question,
            gates=_facts_to_places(gates, facts.shape[1], places),
            gate_scores=_facts_to_places(scores, facts.shape[1], places),
            passes=passes.made,
            hidden_states=hidden_states,
        )
        return output if self._wants_dict(return_dict) else output.to_tuple()

    def _question(self, question_ids: Tensor | None, question_mask: Tensor | None, batch: int) -> Tensor:
        check_question(question_ids, question_mask, batch, self.config.vocab_size, self.config.learned_question)
        embedded = None if question_ids is None else self.embedding_dropout(self.embeddings(question_ids))
        return self.question_module(embedded, question_mask, batch)


def _facts_to_places(values: Tensor, count: int, places: RealTokens) -> Tensor:
    """(batch, ..., facts) with the real facts first, to where they stand in the story; what follows them stays."""
    moved = places.to_places(values[..., :count].movedim(-1, 1)).movedim(1, -1)
    return torch.cat([moved, values[..., count:]], dim=-1)


class DMNForQuestionAnswering(DMNPreTrainedModel, GenerationMixin):
    """Answers questions about stories with one token or several; `generate` writes the answer.

    Example:
        >>> import torch
        >>> from hf_metalstm import DMNConfig, DMNForQuestionAnswering
        >>> model = DMNForQuestionAnswering(DMNConfig(vocab_size=50, hidden_size=8))
        >>> story = {
        ...     "input_ids": torch.tensor([[[5, 6, 7], [8, 9, 0]]]),
        ...     "attention_mask": torch.tensor([[[1, 1, 1], [1, 1, 0]]]),
        ...     "question_ids": torch.tensor([[10, 11]]),
        ... }
        >>> output = model(**story, labels=torch.tensor([[12, 3]]), supporting_facts=torch.tensor([[0, 1]]))
        >>> output.logits.shape, output.gates.shape
        (torch.Size([1, 2, 50]), torch.Size([1, 3, 2]))
        >>> torch.isclose(output.loss, output.answer_loss + output.gate_loss).item()
        True
        >>> model.generate(**story, max_new_tokens=2).shape[0]
        1
    """

    _tied_weights_keys = {"lm_head.weight": "encoder.embeddings.weight"}

    def __init__(self, config: DMNConfig):
        # What transformers calls a model that reads one thing and writes another; the other heads only read.
        config.is_encoder_decoder = True
        super().__init__(config)
        self.encoder = DMNModel(config)
        self.answer_module = AnswerModule(config)
        self.dropout = nn.Dropout(config.answer_dropout)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size)
        # A training schedule sets it: the answers' loss then weighs nothing, where there is a loss on the gates.
        self.train_gates_only = False
        self.post_init()

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False

    def get_encoder(self, modality: str | None = None) -> nn.Module:
        return self.encoder

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.embeddings

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.encoder.set_input_embeddings(value)

    @torch.no_grad()
    def generate(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        question_ids: Tensor | None = None,
        question_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        supporting_facts: Tensor | None = None,
        labels: Tensor | None = None,
        encoder_outputs: DMNModelOutput | None = None,
        output_hidden_states: bool | None = None,
        **generation_settings: Any,
    ) -> Any:
        """Writes the answers, by `GenerationMixin.generate`, which knows no masks of stories.

        Args:
            input_ids, attention_mask, question_ids, question_mask, inputs_embeds: see `DMNModel.forward`.
            supporting_facts, labels: left out of account, so that a whole batch of training data may be given.
            encoder_outputs: a `DMNModelOutput` in place of story and question.
            output_hidden_states: as in `GenerationMixin.generate`, as are all other arguments: `max_new_tokens`,
                `num_beams`, `do_sample`, `generation_config`, ...

        Returns:
            (batch * num_return_sequences, tokens) ids, the start token first, or what
            `return_dict_in_generate=True` asks for.
        """
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                input_ids,
                attention_mask=attention_mask,
                question_ids=question_ids,
                question_mask=question_mask,
                inputs_embeds=inputs_embeds,
                output_hidden_states=output_hidden_states,
                return_dict=True,
            )
        if output_hidden_states is not None:
            generation_settings["output_hidden_states"] = output_hidden_states
        # A copy: what is given is repeated in place, once for each beam.
        return super().generate(encoder_outputs=DMNModelOutput(**encoder_outputs), **generation_settings)

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """The start token, then the labels without their last."""
        if self.config.decoder_start_token_id is None:
            raise ValueError("decoder_start_token_id is None: give decoder_input_ids, or set it in the config")
        filler = self.config.pad_token_id or 0
        start = labels.new_full((labels.shape[0], 1), self.config.decoder_start_token_id)
        return torch.cat([start, labels[:, :-1].masked_fill(labels[:, :-1] == IGNORED_LABEL, filler)], dim=1)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        question_ids: Tensor | None = None,
        question_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        supporting_facts: Tensor | None = None,
        labels: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        encoder_outputs: DMNModelOutput | tuple[Any, ...] | None = None,
        cache: AnswerState | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> DMNQuestionAnsweringOutput | tuple[Any, ...]:
        """Scores answers.

        Args:
            input_ids, attention_mask, question_ids, question_mask, inputs_embeds: see `DMNModel.forward`.
            supporting_facts: 0 or 1, (batch, facts) where every pass should find the same facts, or (batch, passes,
                facts), as `DataCollatorForDMN` makes them. A story without any is trained on its answer alone.
            labels: (batch, answer_tokens) ids, the end token included; -100 is ignored.
            decoder_input_ids, decoder_inputs_embeds: what the answer module reads; made of the labels when None.
            encoder_outputs: a `DMNModelOutput` in place of story and question.
            cache: `AnswerState` of the tokens before `decoder_input_ids`.
            use_cache: return the state.
            output_hidden_states: also return embeddings and states of the input and answer modules.
            return_dict: False returns a tuple.

        Returns:
            `DMNQuestionAnsweringOutput`.

        Raises:
            TypeError, ValueError: bad ids, masks, questions, supporting facts or labels; the message names the place.
        """
        if encoder_outputs is None:
            encoded = self.encoder(
                input_ids,
                attention_mask=attention_mask,
                question_ids=question_ids,
                question_mask=question_mask,
                inputs_embeds=inputs_embeds,
                supporting_facts=supporting_facts,
                output_hidden_states=output_hidden_states,
                return_dict=True,
            )
        else:
            encoded = encoder_outputs
            if not isinstance(encoded, ModelOutput):
                # Without hidden states a tuple holds the same fields in the same order.
                encoded = DMNModelOutput(*encoded)
        if labels is not None and decoder_input_ids is None and decoder_inputs_embeds is None:
            check_answers(labels, labels, self.config.vocab_size)
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        memory, question = encoded.memory, encoded.question
        check_answer_ids(decoder_input_ids, decoder_inputs_embeds, len(memory), self.config.vocab_size)
        read = self.encoder.embeddings(decoder_input_ids) if decoder_inputs_embeds is None else decoder_inputs_embeds
        state = self.dropout(memory) if cache is None else cache.hidden
        states, last = self.answer_module(self.encoder.embedding_dropout(read), question, state)
        logits = self.lm_head(self.dropout(states))  # (batch, answer_tokens, vocab_size)
        real_facts = None
        if supporting_facts is not None and encoder_outputs is None:
            real_facts = check_story(input_ids, attention_mask, inputs_embeds, self.config.vocab_size).any(2)
        loss_of_gates = None if real_facts is None else self._gate_loss(encoded, supporting_facts, real_facts)
        loss_of_answers = None if labels is None else self._answer_loss(logits, labels)
        answer_weight = 0.0 if self.train_gates_only and self.training and loss_of_gates is not None else 1.0
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        if use_cache is None:
            use_cache = self.config.use_cache
        output = DMNQuestionAnsweringOutput(
            loss=add_losses(loss_of_answers, loss_of_gates, answer_weight, self.config.gate_loss_weight),
            answer_loss=loss_of_answers,
            gate_loss=loss_of_gates,
            logits=logits,
            gates=encoded.gates,
            memory=memory,
            passes=encoded.passes,
            cache=AnswerState(last, read.shape[1] + (0 if cache is None else cache.length)) if use_cache else None,
            encoder_last_hidden_state=encoded.last_hidden_state,
            encoder_hidden_states=encoded.hidden_states,
            decoder_hidden_states=(read, states) if output_hidden_states else None,
        )
        return output if self._wants_dict(return_dict) else output.to_tuple()

    def _answer_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        check_answers(labels, logits, self.config.vocab_size)
        return mean_cross_entropy(logits.flatten(0, 1), labels.flatten())


DMNModel.register_for_auto_class("AutoModel")
DMNForQuestionAnswering.register_for_auto_class("AutoModelForSeq2SeqLM")
