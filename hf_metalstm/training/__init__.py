"""Trainers: thin subclasses of transformers' Trainer, each with ordinary `TrainingArguments`."""

from .loss_guard import GuardedTrainer, NonFiniteLossError
from .multitask_trainer import MultiTaskTrainer

__all__ = ["GuardedTrainer", "MultiTaskTrainer", "NonFiniteLossError"]
