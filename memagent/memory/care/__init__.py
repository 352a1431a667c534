"""The care of a memory: review, the traces of a source, and erasure."""
