"""The language of a world: its grammar as data, the half that a split may use, and days
in words.
"""
