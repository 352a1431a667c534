"""Fit the heads of `learned` further: to a user's corrections, or to the decisions of a model."""
