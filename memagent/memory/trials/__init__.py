"""Trials over a bank, and the lessons that designs take from them."""
