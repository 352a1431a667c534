"""Designs that keep the workspace of a trial small; all extend `exp_rag`."""
