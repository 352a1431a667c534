"""A LangGraph agent that remembers over threads: recall, answer, remember.

A function stands for the model; no key, no server.

python examples/langgraph_agent.py
"""

from __future__ import annotations

import sys
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_store
from langgraph.graph import END, START, MessagesState, StateGraph

from memagent import Agent
from memagent.integrations.langgraph_store import MemoryStore
from memagent.integrations.langgraph_tools import recall_node, remember_node


def answer(state: MessagesState) -> dict[str, Any]:
    """Call a chat model here: the messages, recalled ones among them, are its prompt."""
    recalled = next((str(one.text) for one in state["messages"] if one.type == "system"), "")
    facts = [line[2:] for line in recalled.splitlines() if line.startswith("- ")]
    asked = [one for one in state["messages"] if one.type == "human"][-1]
    get_store().put(("answers",), str(asked.id), {"facts": len(facts)}, index=False)
    return {"messages": [AIMessage(f"I remember: {facts[0]}" if facts else "Tell me more.")]}


def main() -> None:
    """Say something in one thread, ask for it in another."""
    with Agent(path=":memory:", user_id="ana") as agent:
        builder = StateGraph(MessagesState)
        builder.add_node("recall", recall_node(agent))
        builder.add_node("answer", answer)
        builder.add_node("remember", remember_node(agent))
        builder.add_edge(START, "recall")
        builder.add_edge("recall", "answer")
        builder.add_edge("answer", "remember")
        builder.add_edge("remember", END)
        store = MemoryStore(agent)
        graph = builder.compile(checkpointer=InMemorySaver(), store=store)
        for thread, text in (
            ("monday", "My dog Rex is allergic to chicken."),
            ("friday", "What is Rex allergic to?"),
        ):
            config: Any = {"configurable": {"thread_id": thread}}
            told = graph.invoke({"messages": [HumanMessage(text)]}, config)
            sys.stdout.write(f"{thread}: {text}\n  {told['messages'][-1].text}\n")
        sys.stdout.write(f"The graph's store holds {len(store.search(('answers',)))} notes.\n")


if __name__ == "__main__":
    main()
