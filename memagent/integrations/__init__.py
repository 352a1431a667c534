"""memagent inside other frameworks: a LangGraph store with nodes and tools, an MCP
server, and the call shapes of mem0.
"""
