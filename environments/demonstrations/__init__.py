"""Demonstrations for a warm start."""
