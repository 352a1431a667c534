"""Agents that read a known world by rule, and the notes that they read."""
