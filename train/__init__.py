"""Training: the only package that imports torch, transformers and trl; it trains the
agent that `memagent` serves.
"""
