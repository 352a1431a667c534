"""Runs whose tasks are acted in: their task, and demonstrations before any comparison."""
