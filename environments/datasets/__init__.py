"""Episodes from benchmark files and from generated worlds."""
