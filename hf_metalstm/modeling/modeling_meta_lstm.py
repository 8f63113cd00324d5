# Copyright 2026 The hf_metalstm authors.
# Licensed under the Apache License, Version 2.0 (the "License"); see the LICENSE file.
#
"""Meta-LSTM: an LSTM whose weights a smaller, shared LSTM generates at every step.

Source: Chen, Qiu, Liu, Huang 2018, "Meta Multi-Task Learning for Sequence Modeling" (AAAI; arXiv 1802.08969). How its
parts map to this file:

* theta_m, the Meta-LSTM (equations 8 to 12) with W_z: `MetaNetwork`, one a layer and direction, shared by all tasks;
* theta_b^(k), the basic LSTM {P, Q, B} of task k (equations 13 to 16): `BasicLSTM`;
* the two together, run over a sequence by `recurrent.meta_lstm`: `MetaLSTMCell`;
* the output layer of task k: one entry of `MetaLSTMForSequenceClassification.classifiers`.

Parameters of one direction with input size d: theta_m has 4m(d + h + m + 1) + mz; P and Q have 4hz + 4z(d + h), which
is the paper's "8hz + 4dz"; B has 4hz more, which the paper does not count. The paper prints Q as z x d although
W(z_t) = P diag(z_t) Q must act on [x_t ; h_{t-1}]; its own count agrees with z x (d + h), which is what stands here.
The authors' TensorFlow cell leaves out W_z and scales by h^_t itself; here z_t = W_z h^_t as in the paper.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils import ModelOutput, logging

from .checks import (
    check_class_labels,
    check_float_labels,
    check_ids,
    check_is_tensor,
    check_sequence_input,
    values_are_known,
)
from .configuration_meta_lstm import MetaLSTMConfig
from .loading import ClearLoadingErrors
from .padding import RealTokens
from .pooling import pool, pooled_size
from .recurrent import lstm, meta_lstm
from .recurrent_types import LSTMWeights, MetaLSTMWeights
from .task_rows import TaskRows

logger = logging.get_logger(__name__)


@dataclass
class MetaLSTMModelOutput(ModelOutput):
    """Output of `MetaLSTMModel`.

    Args:
        last_hidden_state: (batch, tokens, directions * hidden_size), zero where there is padding.
        last_state: (batch, directions * hidden_size), each direction's state after the last token that it reads.
        hidden_states: the embeddings, then each layer's output, all (batch, tokens, ...).
        meta_vectors: (batch, tokens, directions * z_size), z_t of the last layer.
    """

    last_hidden_state: Tensor | None = None
    last_state: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    meta_vectors: Tensor | None = None


@dataclass
class MetaLSTMSequenceClassifierOutput(ModelOutput):
    """Output of `MetaLSTMForSequenceClassification`.

    Args:
        loss: (), what is trained on.
        task_loss: (), mean loss of the classifiers; `loss` without any other part.
        logits: (batch, classes). In a batch with task ids as wide as the widest task; columns that a row's task does
            not have hold the dtype's minimum, so that their probability is 0.
        hidden_states, meta_vectors: see `MetaLSTMModelOutput`.
    """

    loss: Tensor | None = None
    task_loss: Tensor | None = None
    logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    meta_vectors: Tensor | None = None


class LSTMCell(nn.Module):
    """A standard LSTM in one direction, gates in the order input, forget, candidate, output."""

    def __init__(self, input_size: int, config: MetaLSTMConfig):
        super().__init__()
        h = config.hidden_size
        self.input_weight = nn.Parameter(torch.empty(4 * h, input_size))
        self.hidden_weight = nn.Parameter(torch.empty(4 * h, h))
        self.bias = nn.Parameter(torch.empty(4 * h))

    def init_weights(self) -> None:
        """Uniform in +-1/sqrt(hidden), forget gates open: the cell remembers from the first step of training on."""
        h = self.hidden_weight.shape[1]
        init.uniform_(self.input_weight, -(h**-0.5), h**-0.5)
        init.uniform_(self.hidden_weight, -(h**-0.5), h**-0.5)
        init.copy_(self.bias, torch.arange(4).eq(1).repeat_interleave(h).to(self.bias))

    def forward(self, inputs: Tensor, lengths: Tensor | None, tasks: TaskRows, reverse: bool) -> tuple[Tensor, ...]:
        weights = LSTMWeights(self.input_weight, self.hidden_weight, self.bias)
        outputs, state = lstm(inputs, weights, lengths, reverse=reverse)
        return outputs, state.hidden


class MetaNetwork(nn.Module):
    """theta_m: the Meta-LSTM [g^ o^ i^ f^] = W_m [x_t ; h^_{t-1} ; h_{t-1}] + b_m and z_t = W_z h^_t."""

    def __init__(self, input_size: int, config: MetaLSTMConfig):
        super().__init__()
        m = config.meta_size
        self.input_weight = nn.Parameter(torch.empty(4 * m, input_size))
        self.meta_weight = nn.Parameter(torch.empty(4 * m, m))
        self.hidden_weight = nn.Parameter(torch.empty(4 * m, config.hidden_size))
        self.bias = nn.Parameter(torch.empty(4 * m))
        self.z_weight = nn.Parameter(torch.empty(config.z_size, m))

    def init_weights(self) -> None:
        m = self.meta_weight.shape[1]
        for weight in (self.input_weight, self.meta_weight, self.hidden_weight):
            init.uniform_(weight, -(m**-0.5), m**-0.5)
        init.copy_(self.bias, torch.arange(4).eq(1).repeat_interleave(m).to(self.bias))
        init.normal_(self.z_weight, 0.0, m**-0.5)


class BasicLSTM(nn.Module):
    """theta_b: one task's P, Q and B, from which z_t makes the weights of its LSTM at step t."""

    def __init__(self, input_size: int, config: MetaLSTMConfig):
        super().__init__()
        h, z = config.hidden_size, config.z_size
        self.p = nn.Parameter(torch.empty(4, h, z))
        self.q_input = nn.Parameter(torch.empty(4, z, input_size))
        self.q_hidden = nn.Parameter(torch.empty(4, z, h))
        self.b = nn.Parameter(torch.empty(4, h, z))

    def init_weights(self) -> None:
        h, z = self.p.shape[1:]
        init.normal_(self.p, 0.0, z**-0.5)
        init.normal_(self.q_input, 0.0, h**-0.5)
        init.normal_(self.q_hidden, 0.0, h**-0.5)
        init.normal_(self.b, 0.0, z**-0.5)


class MetaLSTMCell(nn.Module):
    """A Meta-LSTM in one direction: one meta network, and one basic LSTM for each task."""

    def __init__(self, input_size: int, config: MetaLSTMConfig):
        super().__init__()
        self.meta = MetaNetwork(input_size, config)
        self.basic = nn.ModuleList(BasicLSTM(input_size, config) for _ in range(len(config.tasks or [None])))

    def weights(self, task: int) -> MetaLSTMWeights:
        """The tensors of the shared meta network and of one task's basic LSTM."""
        meta, basic = self.meta, cast(BasicLSTM, self.basic[task])
        return MetaLSTMWeights(
            meta.input_weight,
            meta.meta_weight,
            meta.hidden_weight,
            meta.bias,
            meta.z_weight,
            basic.p,
            basic.q_input,
            basic.q_hidden,
            basic.b,
        )

    def forward(self, inputs: Tensor, lengths: Tensor | None, tasks: TaskRows, reverse: bool) -> tuple[Tensor, ...]:
        def run(task: int, rows: Tensor, row_lengths: Tensor | None) -> tuple[Tensor, ...]:
            outputs, vectors, state = meta_lstm(rows, self.weights(task), row_lengths, reverse=reverse)
            return outputs, state.hidden, vectors

        return tasks.run(run, inputs, lengths)


CELL_CLASSES = {"lstm": LSTMCell, "meta_lstm": MetaLSTMCell}


class MetaLSTMLayer(GradientCheckpointingLayer):
    """One layer: a cell for each direction, their results side by side."""

    def __init__(self, input_size: int, config: MetaLSTMConfig):
        super().__init__()
        cell = CELL_CLASSES[config.cell]
        self.cells = nn.ModuleList(cell(input_size, config) for _ in range(1 + config.bidirectional))

    def forward(self, hidden: Tensor, lengths: Tensor | None, tasks: TaskRows) -> tuple[Tensor, ...]:
        results = [cell(hidden, lengths, tasks, reverse=bool(index)) for index, cell in enumerate(self.cells)]
        return tuple(torch.cat(parts, dim=-1) for parts in zip(*results, strict=True))


class MetaLSTMPreTrainedModel(ClearLoadingErrors, PreTrainedModel):
    """Initialisation, saving and loading of the Meta-LSTM family."""

    config: MetaLSTMConfig
    config_class = MetaLSTMConfig
    base_model_prefix = "encoder"
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    # The models' losses are means over the batch; Trainer divides by the accumulation steps itself.
    accepts_loss_kwargs = False
    _no_split_modules = ["MetaLSTMLayer"]
    _supports_context_parallel = False

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, (LSTMCell, MetaNetwork, BasicLSTM)):
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

    def set_active_task(self, name: str | None) -> None:
        """Chooses the task of calls without `task_ids`; see `MetaLSTMConfig.set_active_task`."""
        self.config.set_active_task(name)

    def freeze_meta(self, frozen: bool = True) -> None:
        """Keeps theta_m fixed in training, or frees it again.

        This is the paper's transfer experiment: a meta network learnt on other tasks, a new task's basic LSTM on top.
        Optimizers made before the call still hold the parameters but get no gradients for them.

        Raises:
            ValueError: the cell has no meta network.
        """
        if self.config.cell != "meta_lstm":
            raise ValueError(f"cell={self.config.cell!r} has no meta network to freeze")
        for module in self.modules():
            if isinstance(module, MetaNetwork):
                module.requires_grad_(not frozen)

    def add_task(self, name: str, labels: Iterable[str]) -> int:
        """Gives the model a further task: a private basic LSTM in every cell, and what its head needs.

        Theta_m and the embeddings are shared as they are; nothing of the other tasks changes. Make the optimizer after
        it.

        Args:
            name: of the task.
            labels: names of its classes.

        Returns:
            The new task's id.

        Raises:
            ValueError: see `MetaLSTMConfig.add_task`.
        """
        task = self.config.add_task(name, labels)
        for module in list(self.modules()):
            if isinstance(module, MetaLSTMCell):
                module.basic.append(self._new_part(BasicLSTM(module.meta.input_weight.shape[1], self.config)))
        return task

    def _new_part(self, module: nn.Module) -> nn.Module:
        """Initialises a module that joins a model which already exists."""
        module.to(self.device, self.dtype).train(self.training)
        self._init_weights(module)
        return module

    def save_pretrained(self, save_directory: Any, *args: Any, **kwargs: Any) -> None:
        """As `PreTrainedModel.save_pretrained`; `AutoModel` finds the encoder in the saved code too."""
        if getattr(self, "_auto_class", None) is not None:
            home = __name__.rsplit(".", 1)[-1]
            self.config.auto_map = {
                **(getattr(self.config, "auto_map", None) or {}),
                "AutoModel": f"{home}.{MetaLSTMModel.__name__}",
            }
        super().save_pretrained(save_directory, *args, **kwargs)

    def _wants_dict(self, return_dict: bool | None) -> bool:
        return bool(self.config.return_dict if return_dict is None else return_dict)

    def _task_rows(self, task_ids: Tensor | None, batch: int) -> TaskRows:
        tasks = self.config.tasks
        if tasks is None or (task_ids is None and len(tasks) == 1):
            return TaskRows(0)
        if task_ids is None:
            if self.config.active_task is None:
                raise ValueError(
                    f"task_ids is missing: the model has {len(tasks)} tasks and no active task. Give "
                    f"task_ids with values in "
                    f"0..{len(tasks) - 1} ({', '.join(tasks)}), or call model.set_active_task(name)"
                )
            return TaskRows(self.config.task_id(self.config.active_task))
        check_is_tensor(task_ids, "task_ids")
        if task_ids.shape != (batch,):
            raise ValueError(f"task_ids have shape {tuple(task_ids.shape)}, but the batch has ({batch},) rows")
        check_ids(task_ids, len(tasks), "task_ids")
        return TaskRows(task_ids)


class MetaLSTMModel(MetaLSTMPreTrainedModel):
    """The encoder: embeddings and the recurrent layers, without a head.

    Example:
        >>> import torch
        >>> from hf_metalstm import MetaLSTMConfig, MetaLSTMModel
        >>> model = MetaLSTMModel(MetaLSTMConfig(vocab_size=50, hidden_size=8, bidirectional=True))
        >>> output = model(torch.tensor([[3, 7, 7], [4, 5, 0]]), attention_mask=torch.tensor([[1, 1, 1], [1, 1, 0]]))
        >>> output.last_hidden_state.shape, output.last_state.shape
        (torch.Size([2, 3, 16]), torch.Size([2, 16]))
    """

    _input_embed_layer = "embeddings"

    def __init__(self, config: MetaLSTMConfig):
        super().__init__(config)
        self.embeddings = nn.Embedding(config.vocab_size, config.embedding_size, padding_idx=config.pad_token_id)
        width = config.hidden_size * (1 + config.bidirectional)
        sizes = [config.embedding_size] + [width] * (config.num_hidden_layers - 1)
        self.layers = nn.ModuleList(MetaLSTMLayer(size, config) for size in sizes)
        self.embedding_dropout = nn.Dropout(config.embedding_dropout)
        self.hidden_dropout = nn.Dropout(config.hidden_dropout)
        self.gradient_checkpointing = False
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        task_ids: Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_meta_vectors: bool | None = None,
        return_dict: bool | None = None,
    ) -> MetaLSTMModelOutput | tuple[Any, ...]:
        """Encodes a batch of texts.

        Args:
            input_ids: (batch, tokens) int64.
            attention_mask: (batch, tokens), 1 for real tokens; padding may stand on either side. None: all are real.
            inputs_embeds: (batch, tokens, embedding_size) instead of input_ids.
            task_ids: (batch,) int64, position of each row's task in `config.tasks`; a batch may mix tasks. Needed when
                there are several tasks and no active one. Rows of one task run together: a batch of k tasks costs k
                loops.
            output_hidden_states: also return the embeddings and each layer's output.
            output_meta_vectors: also return z_t.
            return_dict: False returns a tuple.

        Raises:
            TypeError, ValueError: bad ids, masks or task ids; the message names the place.
        """
        check_sequence_input(input_ids, attention_mask, inputs_embeds, self.config.vocab_size)
        embedded = self.embeddings(input_ids) if inputs_embeds is None else inputs_embeds
        tasks = self._task_rows(task_ids, embedded.shape[0])
        real = RealTokens(attention_mask)
        hidden = real.to_front(self.embedding_dropout(embedded))  # (batch, tokens, embedding)
        every_layer = [hidden]
        last_state, vectors = hidden, []
        for index, layer in enumerate(self.layers):
            if index:
                hidden = self.hidden_dropout(hidden)
            hidden, last_state, *vectors = layer(hidden, real.lengths, tasks)  # (batch, tokens, directions * hidden)
            every_layer.append(hidden)
        if output_meta_vectors and not vectors:
            raise ValueError(f"output_meta_vectors: cell={self.config.cell!r} has no meta vectors")
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        output = MetaLSTMModelOutput(
            last_hidden_state=real.to_places(hidden),
            last_state=last_state,
            hidden_states=tuple(map(real.to_places, every_layer)) if output_hidden_states else None,
            meta_vectors=real.to_places(vectors[0]) if output_meta_vectors else None,
        )
        return output if self._wants_dict(return_dict) else output.to_tuple()


class MetaLSTMForSequenceClassification(MetaLSTMPreTrainedModel):
    """Classifies texts: one output layer a task on the pooled states of the encoder.

    Example:
        >>> import torch
        >>> from hf_metalstm import MetaLSTMConfig, MetaLSTMForSequenceClassification
        >>> tasks = {"books": ["negative", "positive"], "questions": ["who", "where", "when"]}
        >>> model = MetaLSTMForSequenceClassification(MetaLSTMConfig(vocab_size=50, tasks=tasks))
        >>> ids = torch.tensor([[3, 7, 7], [4, 5, 6]])
        >>> output = model(ids, task_ids=torch.tensor([0, 1]), labels=torch.tensor([1, 2]))
        >>> output.logits.shape, output.logits.softmax(1)[0, 2].item()
        (torch.Size([2, 3]), 0.0)
    """

    def __init__(self, config: MetaLSTMConfig):
        super().__init__(config)
        self.encoder = MetaLSTMModel(config)
        width = config.hidden_size * (1 + config.bidirectional)
        self.pooled_size = pooled_size(width, config.pooling)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifiers = nn.ModuleList(nn.Linear(self.pooled_size, classes) for classes in self._classes())
        self.post_init()

    def _classes(self) -> list[int]:
        """Number of classes of each task."""
        if self.config.tasks is None:
            return [self.config.num_labels or 2]
        return [len(labels) for labels in self.config.tasks.values()]

    def add_task(self, name: str, labels: Iterable[str]) -> int:
        task = super().add_task(name, labels)
        self.classifiers.append(self._new_part(nn.Linear(self.pooled_size, self._classes()[task])))
        return task

    add_task.__doc__ = MetaLSTMPreTrainedModel.add_task.__doc__

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        task_ids: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_meta_vectors: bool | None = None,
        return_dict: bool | None = None,
    ) -> MetaLSTMSequenceClassifierOutput | tuple[Any, ...]:
        """Classifies a batch of texts.

        Args:
            input_ids, attention_mask, inputs_embeds, task_ids, output_hidden_states, output_meta_vectors, return_dict:
                see `MetaLSTMModel.forward`.
            labels: (batch,) int64 class indexes within each row's task; -100 is ignored. A model without tasks also
                does regression (`problem_type="regression"`, or `num_labels=1`) and multi-label classification, with
                float labels of the logits' shape.

        Returns:
            `MetaLSTMSequenceClassifierOutput`. The loss is the mean over the rows that have a label, 0 when none has.

        Raises:
            TypeError, ValueError: bad ids, masks, task ids or labels; the message names the place.
        """
        encoded = self.encoder(
            input_ids,
            attention_mask=attention_mask,
            inputs_embeds=inputs_embeds,
            task_ids=task_ids,
            output_hidden_states=output_hidden_states,
            output_meta_vectors=output_meta_vectors,
            return_dict=True,
        )
        pooled = pool(encoded.last_hidden_state, encoded.last_state, attention_mask, self.config.pooling)
        pooled = self.dropout(pooled)  # (batch, pooled_size)
        tasks = self._task_rows(task_ids, pooled.shape[0])
        widest = 0 if tasks.of_row is None else max(self._classes())

        def classify(task: int, rows: Tensor) -> tuple[Tensor, ...]:
            logits = self.classifiers[task](rows)
            missing = max(0, widest - logits.shape[1])
            return (nn.functional.pad(logits, (0, missing), value=torch.finfo(logits.dtype).min),)

        (logits,) = tasks.run(classify, pooled)
        loss = None if labels is None else self._loss(logits, labels, tasks)
        output = MetaLSTMSequenceClassifierOutput(
            loss=loss,
            task_loss=loss,
            logits=logits,
            hidden_states=encoded.hidden_states,
            meta_vectors=encoded.meta_vectors,
        )
        return output if self._wants_dict(return_dict) else output.to_tuple()

    def _loss(self, logits: Tensor, labels: Tensor, tasks: TaskRows) -> Tensor:
        problem = self.config.problem_type
        if self.config.tasks is not None or problem is None:
            problem = "regression" if self.config.tasks is None and self.config.num_labels == 1 else None
        if problem == "regression":
            predictions = logits.squeeze(1) if logits.shape[1] == 1 else logits
            check_float_labels(labels, tuple(predictions.shape), problem)
            return nn.functional.mse_loss(predictions.float(), labels.float())
        if problem == "multi_label_classification":
            check_float_labels(labels, tuple(logits.shape), problem)
            return nn.functional.binary_cross_entropy_with_logits(logits.float(), labels.float())
        if self.config.tasks is None:
            task_names, names = None, [[str(label) for label in (self.config.id2label or {}).values()]]
        else:
            task_names, names = list(self.config.tasks), list(self.config.tasks.values())
            if tasks.of_row is None:
                task_names, names = [task_names[tasks.only]], [names[tasks.only]]
        check_class_labels(labels, logits.shape[0], names, tasks.of_row, task_names)
        total = nn.functional.cross_entropy(logits.float(), labels.long(), reduction="sum")
        counted = (labels != -100).sum()
        if values_are_known() and int(counted) == 0:
            logger.warning_once("all labels of a batch are -100: its loss is 0 and it trains nothing")
        return total / counted.clamp(min=1)


MetaLSTMModel.register_for_auto_class("AutoModel")
MetaLSTMForSequenceClassification.register_for_auto_class("AutoModelForSequenceClassification")
