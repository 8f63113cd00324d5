# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""Dynamic Memory Networks that classify: a text or story by its memory, or every word by a memory of its own.

Source: Kumar et al. 2016, sections 2.4 and 4; the model itself is in modeling_dmn.py.
"""

from typing import Any

from torch import Tensor, nn

from .checks import check_class_labels, check_float_labels, check_is_tensor
from .configuration_dmn import DMNConfig
from .dmn_checks import check_story, check_token_labels
from .dmn_losses import add_losses, mean_cross_entropy
from .dmn_outputs import DMNClassifierOutput
from .modeling_dmn import DMNModel, DMNPreTrainedModel


class DMNForSequenceClassification(DMNPreTrainedModel):
    """Classifies texts, or stories with a question, by the memory after the last pass.

    For sentiment a text's tokens are the facts, with two passes, and the question is the same for all texts: build the
    model with `learned_question=True`.

    Example:
        >>> import torch
        >>> from hf_metalstm import DMNConfig, DMNForSequenceClassification
        >>> config = DMNConfig(vocab_size=50, num_passes=2, learned_question=True, num_labels=5)
        >>> output = DMNForSequenceClassification(config)(torch.tensor([[5, 6, 7]]), labels=torch.tensor([4]))
        >>> output.logits.shape, output.gates.shape
        (torch.Size([1, 5]), torch.Size([1, 2, 3]))
    """

    def __init__(self, config: DMNConfig):
        super().__init__(config)
        self.encoder = DMNModel(config)
        self.dropout = nn.Dropout(config.answer_dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels or 2)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        question_ids: Tensor | None = None,
        question_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        supporting_facts: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> DMNClassifierOutput | tuple[Any, ...]:
        """Classifies a batch.

        Args:
            input_ids, attention_mask, question_ids, question_mask, inputs_embeds, output_hidden_states, return_dict:
                see `DMNModel.forward`.
            supporting_facts: see `DMNForQuestionAnswering.forward`.
            labels: (batch,) class indexes; -100 is ignored. Floats of the logits' shape for regression
                (`problem_type="regression"`, or `num_labels=1`) and multi-label classification.

        Raises:
            TypeError, ValueError: bad ids, masks, questions, supporting facts or labels; the message names the place.
        """
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
        logits = self.classifier(self.dropout(encoded.memory))  # (batch, classes)
        loss_of_gates = None
        if supporting_facts is not None:
            real_facts = check_story(input_ids, attention_mask, inputs_embeds, self.config.vocab_size).any(2)
            loss_of_gates = self._gate_loss(encoded, supporting_facts, real_facts)
        loss_of_classes = None if labels is None else self._class_loss(logits, labels)
        output = DMNClassifierOutput(
            loss=add_losses(loss_of_classes, loss_of_gates, 1.0, self.config.gate_loss_weight),
            answer_loss=loss_of_classes,
            gate_loss=loss_of_gates,
            logits=logits,
            gates=encoded.gates,
            memory=encoded.memory,
            hidden_states=encoded.hidden_states,
        )
        return output if self._wants_dict(return_dict) else output.to_tuple()

    def _class_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        problem = self.config.problem_type
        if problem == "regression" or (problem is None and self.config.num_labels == 1):
            predictions = logits.squeeze(1) if logits.shape[1] == 1 else logits
            check_float_labels(labels, tuple(predictions.shape), "regression")
            return nn.functional.mse_loss(predictions.float(), labels.float())
        if problem == "multi_label_classification":
            check_float_labels(labels, tuple(logits.shape), problem)
            return nn.functional.binary_cross_entropy_with_logits(logits.float(), labels.float())
        names = [str(label) for label in (self.config.id2label or {}).values()]
        check_class_labels(labels, logits.shape[0], [names], None)
        return mean_cross_entropy(logits, labels)


class DMNForTokenClassification(DMNPreTrainedModel):
    """Gives every word of a sentence its tag: the memory of a word has gone over the words up to it.

    Example:
        >>> import torch
        >>> from hf_metalstm import DMNConfig, DMNForTokenClassification
        >>> config = DMNConfig(vocab_size=50, num_passes=2, learned_question=True, num_labels=4)
        >>> ids = torch.tensor([[5, 6, 7], [8, 9, 0]])
        >>> output = DMNForTokenClassification(config)(ids, attention_mask=ids != 0)
        >>> output.logits.shape, output.gates.shape
        (torch.Size([2, 3, 4]), torch.Size([2, 3, 2, 3]))
    """

    def __init__(self, config: DMNConfig):
        super().__init__(config)
        self.encoder = DMNModel(config)
        self.dropout = nn.Dropout(config.answer_dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels or 2)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        question_ids: Tensor | None = None,
        question_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> DMNClassifierOutput | tuple[Any, ...]:
        """Tags a batch of sentences.

        Args:
            input_ids, attention_mask, question_ids, question_mask, inputs_embeds, output_hidden_states, return_dict:
                see `DMNModel.forward`.
            labels: (batch, tokens) class indexes, or (batch, facts) for stories, whose facts then are tagged; -100 is
                ignored.

        Raises:
            TypeError, ValueError: bad ids, masks, questions or labels; the message names the place.
        """
        encoded = self.encoder(
            input_ids,
            attention_mask=attention_mask,
            question_ids=question_ids,
            question_mask=question_mask,
            inputs_embeds=inputs_embeds,
            for_each_fact=True,
            output_hidden_states=output_hidden_states,
            return_dict=True,
        )
        logits = self.classifier(self.dropout(encoded.memory))  # (batch, tokens, classes)
        loss = None
        if labels is not None:
            check_is_tensor(labels, "labels")
            if labels.shape != logits.shape[:2]:
                raise ValueError(f"labels have shape {tuple(labels.shape)}, expected {tuple(logits.shape[:2])}")
            check_token_labels(labels, [str(label) for label in (self.config.id2label or {}).values()])
            loss = mean_cross_entropy(logits.flatten(0, 1), labels.flatten())
        output = DMNClassifierOutput(
            loss=loss,
            answer_loss=loss,
            logits=logits,
            gates=encoded.gates,
            memory=encoded.memory,
            hidden_states=encoded.hidden_states,
        )
        return output if self._wants_dict(return_dict) else output.to_tuple()


DMNForSequenceClassification.register_for_auto_class("AutoModelForSequenceClassification")
DMNForTokenClassification.register_for_auto_class("AutoModelForTokenClassification")
