"""The synchronous faces: verbs that wait, and the event loop in a thread that runs them."""
