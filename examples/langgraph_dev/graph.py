"""A graph with long-term memory that LangGraph's development server serves.

pip install "langgraph-cli[inmem]" memagent
langgraph dev --config examples/langgraph_dev/langgraph.json --allow-blocking

It answers from memory and remembers what was said; no model, no key. Give `Agent` a
model (`model="openai/gpt-4o-mini"`), and the model answers and decides what to keep.
"""

from __future__ import annotations

import os

from langgraph.graph import END, START, MessagesState, StateGraph

from memagent import Agent
from memagent.integrations.langgraph_tools import answer_node, remember_node

agent = Agent(user_id="ana", path=os.environ.get("MEMAGENT_DB", "langgraph_dev.db"))

builder = StateGraph(MessagesState)
builder.add_node("answer", answer_node(agent))
builder.add_node("remember", remember_node(agent))
builder.add_edge(START, "answer")
builder.add_edge("answer", "remember")
builder.add_edge("remember", END)
graph = builder.compile()
