"""A small multi-task model with the interface that the trainers ask for, data for it, and arguments of quick runs."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel, TrainingArguments
from transformers.utils import ModelOutput

from hf_metalstm.training.multitask_trainer import MultiTaskTrainer

TASKS = {"books": ["negative", "positive"], "dvd": ["bad", "middling", "good"]}


class TinyConfig(PreTrainedConfig):
    model_type = "tiny_tasks"

    def __init__(self, vocab_size=20, tasks=None, dropout=0.0, extra=0.0, **kwargs):
        self.vocab_size = vocab_size
        self.tasks = tasks
        self.dropout = dropout
        self.extra = extra
        super().__init__(**kwargs)


@dataclass
class TinyOutput(ModelOutput):
    loss: torch.Tensor | None = None
    task_loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None


class TinyTasks(PreTrainedModel):
    """Mean of the embeddings, one linear head a task; `extra` times the mean squared embedding joins the loss."""

    config_class = TinyConfig

    def __init__(self, config):
        super().__init__(config)
        self.embeddings = nn.Embedding(config.vocab_size, 6)
        self.dropout = nn.Dropout(config.dropout)
        self.heads = nn.ModuleList(nn.Linear(6, len(names)) for names in config.tasks.values())
        self.post_init()

    def forward(self, input_ids=None, attention_mask=None, task_ids=None, labels=None, return_dict=None):
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        embedded = self.embeddings(input_ids) * mask.unsqueeze(-1)
        pooled = self.dropout(embedded.sum(1) / mask.sum(1, keepdim=True))  # (batch, 6)
        widest = max(map(len, self.config.tasks.values()))
        rows = []
        for row, task in zip(pooled, task_ids.tolist(), strict=True):
            logits = self.heads[task](row)
            rows.append(nn.functional.pad(logits, (0, widest - len(logits)), value=torch.finfo(logits.dtype).min))
        logits = torch.stack(rows)
        if labels is None:
            return TinyOutput(logits=logits)
        total = nn.functional.cross_entropy(logits, labels, reduction="sum")
        task_loss = total / (labels != -100).sum().clamp(min=1)
        loss = task_loss + self.config.extra * pooled.square().sum(1).mean() if self.config.extra else task_loss
        return TinyOutput(loss=loss, task_loss=task_loss, logits=logits)


def pad(rows):
    """Collates rows of different lengths, padded on the right."""
    width = max(len(row["input_ids"]) for row in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for index, row in enumerate(rows):
        ids[index, : len(row["input_ids"])] = torch.tensor(row["input_ids"])
        mask[index, : len(row["input_ids"])] = 1
    batch = {"input_ids": ids, "attention_mask": mask}
    for name in ("task_ids", "labels"):
        if name in rows[0]:
            batch[name] = torch.tensor([row[name] for row in rows])
    return batch


@pytest.fixture
def tasks():
    return TASKS


@pytest.fixture
def make_model():
    """Builds the model, in float64 so that sums in another order still agree."""

    def make(**options):
        torch.manual_seed(1)
        return TinyTasks(TinyConfig(**{"tasks": TASKS, **options})).double()

    return make


@pytest.fixture
def make_rows():
    """Builds rows of one task: 3 to 9 tokens, the label decided by the first of them."""

    def make(count, task="books", seed=0):
        random = torch.Generator().manual_seed(seed)
        rows = []
        for _ in range(count):
            length = int(torch.randint(3, 10, (1,), generator=random))
            ids = torch.randint(1, 20, (length,), generator=random).tolist()
            rows.append({"input_ids": ids, "labels": ids[0] % len(TASKS[task])})
        return rows

    return make


@pytest.fixture
def make_trainer(tmp_path, make_model, make_rows):
    """Builds a trainer; keywords that it does not know itself are TrainingArguments."""

    own = ("model", "data_collator", "train_dataset", "eval_dataset", "processing_class", "callbacks")
    own += ("compute_metrics", "sampling", "temperature", "batching", "task_weights", "train_tasks")

    def make(folder="out", **options):
        given = {name: options.pop(name) for name in own if name in options}
        arguments = {"use_cpu": True, "report_to": "none", "disable_tqdm": True, "save_strategy": "no", "seed": 3}
        arguments |= {"per_device_train_batch_size": 4, "per_device_eval_batch_size": 4, "learning_rate": 0.05}
        arguments |= {"num_train_epochs": 1, "max_grad_norm": 0.0, **options}
        trainer = {"data_collator": pad, "train_dataset": {"books": make_rows(13), "dvd": make_rows(7, "dvd", 1)}}
        trainer |= {"model": given["model"] if "model" in given else make_model(), **given}
        return MultiTaskTrainer(args=TrainingArguments(str(tmp_path / folder), **arguments), **trainer)

    return make
