"""A training run: its settings, stages, trainer, warm start and command."""
