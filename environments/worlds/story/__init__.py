"""The story of an episode: its people, what is told in which session, and the dialogue
that tells it.
"""
