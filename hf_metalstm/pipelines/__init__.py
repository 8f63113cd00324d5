"""Pipelines of tasks that transformers does not have, or does not have for these models."""
