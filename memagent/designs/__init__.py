"""Memory designs: slot protocols in `base`, reusable fillings in `parts`, one short
file for each design.
"""
