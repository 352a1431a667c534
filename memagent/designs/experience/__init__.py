"""Designs that learn from the outcomes of trials; all extend `verbatim`."""
