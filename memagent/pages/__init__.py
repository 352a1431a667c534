"""Self-contained HTML pages, their charts, and the words and figures that they show."""
