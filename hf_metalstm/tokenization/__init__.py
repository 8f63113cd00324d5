"""Tokenizers. Every file here stands on its own, so that shared models can carry it."""
