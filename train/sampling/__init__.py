"""Sampling from a policy: models, batches, engines and constrained decoding."""
