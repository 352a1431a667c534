"""Published techniques of a few dozen lines each: what a paper claims, the formula, what we changed.

All are off by default.
"""
