"""The reading of statements in English, German and Spanish: by words and by a trained network.

`vocabulary` has the words that rules look for. `reader` tells, with the weights that are
shipped, what a statement ends; `network` runs them.
"""
