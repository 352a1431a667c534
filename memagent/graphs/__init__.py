"""The three graphs: `ingest` for a chunk, `answer` for a question, `chat` for a message.

`state` has their states and what runs them, and `approval` holds back tools that act.
"""
