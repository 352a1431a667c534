"""Published techniques, a short file each: the claim of the paper, its formula, our changes.

All are off by default.
"""
