"""Pictures of trained models and of their training; drawing needs the extra `plots` (matplotlib)."""
