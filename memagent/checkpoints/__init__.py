"""Checkpoints: a memory's projection in one file, so that opening need not replay its journal."""
