"""The rules of memory: pure parsing, validation and effects, and the bank that carries them out."""
