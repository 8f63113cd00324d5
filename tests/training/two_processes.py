"""What `test_multitask_distributed.py` runs on two processes, and on one to compare with.

Run by torchrun: `two_processes.py FOLDER` writes what process 0 and 1 found to `FOLDER/0.pt` and `FOLDER/1.pt`.
"""

import sys
from pathlib import Path

import torch
from transformers import TrainingArguments

from hf_metalstm import MetaLSTMConfig, MetaLSTMForSequenceClassification
from hf_metalstm.data.samplers import MultiTaskBatchSampler
from hf_metalstm.training import multitask_trainer
from hf_metalstm.training.multitask_trainer import MultiTaskTrainer

TASKS = {"books": ["negative", "positive"], "dvd": ["bad", "middling", "good"]}


def rows(count, task, seed):
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, 20, (count, 5), generator=random).tolist()
    return [{"input_ids": row, "labels": row[0] % len(TASKS[task])} for row in ids]


def make_trainer(folder, batch_size, data, trainer_class=MultiTaskTrainer, **options):
    own = {name: options.pop(name) for name in ("batching", "task_weights") if name in options}
    torch.manual_seed(0)
    model = MetaLSTMForSequenceClassification(MetaLSTMConfig(20, 6, 6, 3, 3, tasks=TASKS)).double()
    arguments = {"use_cpu": True, "report_to": "none", "disable_tqdm": True, "save_strategy": "no", "optim": "sgd"}
    arguments |= {"learning_rate": 0.5, "max_grad_norm": 0.0, "dataloader_pin_memory": False, **options}
    args = TrainingArguments(
        str(folder), per_device_train_batch_size=batch_size, per_device_eval_batch_size=8, **arguments
    )
    return trainer_class(model, args, train_dataset=data, **own)


class AlternatingBatches(MultiTaskBatchSampler):
    """Batches of the two tasks in turn, so that process 0 always gets the first and process 1 the second."""

    def __iter__(self):
        batches = list(super().__iter__())
        first, second = ([b for b in batches if (b[0] in self._rows[task])] for task in (0, 1))
        for pair in zip(first, second, strict=True):
            yield from pair


class NotingTrainer(MultiTaskTrainer):
    """Notes the tasks of each batch that this process trains on."""

    def training_step(self, model, inputs, num_items_in_batch=None):
        self.tasks_seen = [*getattr(self, "tasks_seen", []), sorted(set(inputs["task_ids"].tolist()))]
        return super().training_step(model, inputs, num_items_in_batch)


def train_one_task_a_process(folder):
    """Twenty steps, process 0 on books only and process 1 on dvd only."""
    multitask_trainer.MultiTaskBatchSampler = AlternatingBatches
    data = {"books": rows(40, "books", 1), "dvd": rows(40, "dvd", 2)}
    trainer = make_trainer(folder / "apart", 4, data, NotingTrainer, num_train_epochs=2, gradient_checkpointing=True)
    before = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    steps = trainer.train().global_step
    multitask_trainer.MultiTaskBatchSampler = MultiTaskBatchSampler
    weights = trainer.model.state_dict()
    return {
        "steps": steps,
        "tasks_seen": trainer.tasks_seen,
        "wrapper": type(trainer.model_wrapped).__name__,
        "weights": weights,
        "unchanged": [name for name in weights if torch.equal(before[name], weights[name])],
    }


def train_whole_epochs(folder, batch_size, accumulation):
    """Three epochs, each one step over all 20 examples in however many batches."""
    data = {"books": rows(12, "books", 3), "dvd": rows(8, "dvd", 4)}
    data["books"][0]["labels"] = -100
    trainer = make_trainer(
        folder / "whole",
        batch_size,
        data,
        num_train_epochs=3,
        gradient_accumulation_steps=accumulation,
        batching="mixed",
        task_weights={"books": 0.3, "dvd": 1.7},
        logging_steps=1,
    )
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return {"weights": trainer.model.state_dict(), "losses": losses, "epoch_losses": trainer.epoch_losses}


def predict_22_examples(folder):
    """22 examples in batches of 8, not a multiple of what two processes take together."""
    trainer = make_trainer(folder / "predict", 4, {"books": rows(4, "books", 5), "dvd": rows(4, "dvd", 6)})
    output = trainer.predict({"books": rows(13, "books", 7), "dvd": rows(9, "dvd", 8)})
    metrics = {name: value for name, value in output.metrics.items() if "accuracy" in name or "macro_f1" in name}
    by_task = {name: value for name, value in output.metrics.items() if name.endswith(("books_loss", "dvd_loss"))}
    return {
        "predictions": torch.tensor(output.predictions),
        "labels": torch.tensor(output.label_ids),
        "metrics": metrics | by_task,
    }


def resume_within_an_epoch(folder):
    """Weights at the end of a run, and of one that was resumed in the middle of its second epoch."""
    data = {"books": rows(24, "books", 9), "dvd": rows(16, "dvd", 10)}
    options = {"num_train_epochs": 3, "save_strategy": "steps", "save_steps": 7}
    whole = make_trainer(folder / "resume", 4, data, **options)
    whole.train()
    resumed = make_trainer(folder / "resumed", 4, data, **options)
    resumed.train(resume_from_checkpoint=str(folder / "resume" / "checkpoint-7"))
    return {
        "steps": whole.state.max_steps,
        "whole": whole.model.state_dict(),
        "resumed": resumed.model.state_dict(),
        "curves": [trainer.epoch_losses for trainer in (whole, resumed)],
    }


def main(folder):
    torch.set_num_threads(1)
    found = {
        "apart": train_one_task_a_process(folder),
        "whole": train_whole_epochs(folder, 5, 2),
        "predict": predict_22_examples(folder),
        "resume": resume_within_an_epoch(folder),
        "world_size": torch.distributed.get_world_size(),
    }
    torch.save(found, folder / f"{torch.distributed.get_rank()}.pt")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
