"""memagent in other frameworks: a LangGraph store, nodes and tools, an MCP server, mem0's calls."""
