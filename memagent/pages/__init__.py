"""Self-contained HTML pages: one file with style and script inside, nothing loaded from anywhere."""
