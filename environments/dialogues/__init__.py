"""Hand-written dialogues with labels of what each turn states, ends and leaves alone."""
