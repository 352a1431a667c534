"""The two LangGraph graphs: `ingest` for one chunk, `answer` for one question."""
