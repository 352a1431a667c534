"""Training of the shipped network of the design `learned`, from generated dialogues alone."""
