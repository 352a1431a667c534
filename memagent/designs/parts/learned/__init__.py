"""A small trained network that reads turns: it marks, points and decides, and writes nothing."""
