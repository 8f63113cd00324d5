"""Scores: plain functions and, in `evaluate_modules`, the same as `evaluate` metrics that need no network."""

from .classification import accuracy, classification_metrics, macro_f1
from .evaluate_modules import Accuracy, MacroF1

__all__ = ["Accuracy", "MacroF1", "accuracy", "classification_metrics", "macro_f1"]
