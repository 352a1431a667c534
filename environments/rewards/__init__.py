"""Metrics, reward terms, credit for sessions, and the scores of a trajectory."""
