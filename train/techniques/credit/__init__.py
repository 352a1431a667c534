"""Techniques that change the credit: estimators and selectors."""
