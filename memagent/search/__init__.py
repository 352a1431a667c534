"""The search engine: segments, scoring, fusion, weights, expansion and cuts.

No SQL in it.
"""
