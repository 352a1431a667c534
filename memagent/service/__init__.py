"""The REST service: `memagent serve`, on FastAPI over the same agent, memory and store."""
