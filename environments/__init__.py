"""Environments: multi-session episodes with questions, the players that run an agent through them, and the scores."""
