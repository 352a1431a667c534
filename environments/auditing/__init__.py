"""Audits of a stored memory, and replays of its past sessions."""
