"""Environments in which an agent acts: tasks with steps, one player loop, a checker."""
