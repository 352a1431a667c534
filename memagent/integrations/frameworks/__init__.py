"""Adapters for agent frameworks, one module each; importing this loads none of them."""
