"""Reusable fillings of the slots of a design."""
