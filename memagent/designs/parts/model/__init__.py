"""Slots that ask a language model."""
