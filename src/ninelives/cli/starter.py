"""
An agent to begin with: it greets whoever is named, by a letter that must not go out twice.

    ninelives run agent.py:agent "Ada" --thread demo

It needs no key: `model` is a script. Put a real model in its place, kill it anywhere, and run it again.
"""

from pathlib import Path

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from ninelives import effect, idempotency_key
from ninelives.effects import Done, NotDone

OUTBOX = Path("outbox.txt")


def already_sent(name: str) -> Done[str] | NotDone:
    """Asked when a kill left it open whether the letter went out: is this call's key in the outbox?"""
    sent = OUTBOX.read_text("utf-8") if OUTBOX.exists() else ""
    return Done(f"A letter to {name} went out.") if idempotency_key() in sent else NotDone()


@tool
@effect(probe=already_sent)
def send_letter(name: str) -> str:
    """Send a letter. An outside act: it happens once, however often the agent is killed."""
    with OUTBOX.open("a", encoding="utf-8") as outbox:
        outbox.write(f"{idempotency_key()}: Dear {name}\n")
    return f"A letter to {name} went out."


def model(state: MessagesState) -> MessagesState:
    """Stands in for a chat model: asks for the letter, then says what became of it."""
    last = state["messages"][-1]
    if isinstance(last, ToolMessage):
        return {"messages": [AIMessage(last.text)]}
    call = {"name": "send_letter", "args": {"name": str(last.text)}, "id": f"letter-{len(state['messages'])}"}
    return {"messages": [AIMessage("", tool_calls=[{**call, "type": "tool_call"}])]}


def wants_tool(state: MessagesState) -> str:
    last = state["messages"][-1]
    return "tools" if isinstance(last, AIMessage) and last.tool_calls else END


builder = StateGraph(MessagesState)
builder.add_node(model)
builder.add_node("tools", ToolNode([send_letter]))
builder.add_edge(START, "model")
builder.add_conditional_edges("model", wants_tool, ["tools", END])
builder.add_edge("tools", "model")
agent = builder.compile()
