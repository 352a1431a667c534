"""Techniques that change what is sampled: episodes, runs, earlier rows."""
