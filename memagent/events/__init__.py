"""The event graph: merging, visibility, walks, expansion, topics and the networkx view."""
