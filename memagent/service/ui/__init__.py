"""The dashboard at `/ui`: pages over the verbs of REST, which work without any script."""
