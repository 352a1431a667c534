"""The REST service: `memagent serve`, built on FastAPI over the same agent, memory and
store that scripts use.
"""
