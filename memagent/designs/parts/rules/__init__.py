"""Slots that work by rule, without a language model."""
