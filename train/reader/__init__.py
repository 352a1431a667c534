"""The fit of `memagent.language.reader`: hand-written dialogues in, one file of weights out."""
