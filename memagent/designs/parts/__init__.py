"""Slots that designs share: by rule, by model, over memories, over the event graph."""
