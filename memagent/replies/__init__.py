"""Readers of model replies: text to ops, facts, answers, events and windows of time."""
