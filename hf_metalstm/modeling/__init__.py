"""Configurations and models. Every file here stands on its own beside its siblings, so that shared models can carry
it."""
