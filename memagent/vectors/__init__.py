"""Networked vector indexes, and the projection that keeps them level with the journal."""
