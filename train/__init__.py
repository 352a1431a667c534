"""Training of the agent that `memagent` serves.

The only package that imports torch, transformers and trl.
"""
