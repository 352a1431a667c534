"""Memory designs: slot protocols in `base`, slots in `parts`, one short file a design."""
