"""
The four graphs that are killed everywhere: a chain of ten, a fan-out of eight, a deep agent, a bare tool node; and
small ones for standing still, for questions, and for acts that have a business key.

Their reducers append and add, so that whatever is applied twice shows in the end state.
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypedDict, cast

from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Send

from ninelives.chaos.workload import Workload, World
from ninelives.effects import Done, NotDone


class Log(TypedDict):
    log: Annotated[list[str], operator.add]
    total: Annotated[int, operator.add]


EMPTY: Any = {"log": [], "total": 0}


def charging(world: World, step: str) -> Any:
    """A declared act with a probe: `charge(order)` charges it, and says how it is called."""

    def ask(order: str) -> Done[str] | NotDone:
        arrival = world.happened(f"charge {order}")
        return Done(arrival.result) if arrival else NotDone()

    def charge(order: str) -> str:
        return world.act(f"charge {order}", step, f"charged {order}")

    return world.declare(charge, probe=ask)


def mailing(world: World, step: str) -> Any:
    """A declared act without a probe."""

    def mail(to: str) -> str:
        return world.act(f"mail {to}", step, f"mailed {to}")

    return world.declare(mail)


# -- ten steps, two of which act outside -----------------------------------------------------------------------------


def build_chain(world: World) -> Any:
    graph = StateGraph(Log)
    previous = START
    for number in range(1, 11):
        name = f"s{number}"
        graph.add_node(name, _link(world, name, f"{number:02d}", acts=number in (3, 7)))
        graph.add_edge(previous, name)
        previous = name
    graph.add_edge(previous, END)
    return graph.compile()


def _link(world: World, name: str, step: str, *, acts: bool) -> Any:
    charge = charging(world, step)

    def link(state: Log) -> Any:
        with world.unit(f"node:{name}", step):
            return {"log": [charge(name) if acts else name], "total": 1}

    return link


CHAIN = Workload("chain", build_chain, EMPTY)


# -- eight at once, each acting outside ------------------------------------------------------------------------------


def build_fanout(world: World) -> Any:
    charge = charging(world, "02")

    def plan(state: Log) -> Any:
        with world.unit("node:plan", "01"):
            return {"log": ["plan"]}

    def work(order: dict[str, int]) -> Any:
        with world.unit(f"node:work {order['i']}", "02"):
            return {"log": [charge(f"w{order['i']}")], "total": 1}

    def join(state: Log) -> Any:
        with world.unit("node:join", "03"):
            return {"log": ["join"]}

    graph = StateGraph(Log)
    graph.add_node("plan", plan)
    graph.add_node("work", cast(Any, work))
    graph.add_node("join", join)
    graph.add_edge(START, "plan")
    graph.add_conditional_edges("plan", lambda _: [Send("work", {"i": i}) for i in range(8)], ["work"])
    graph.add_edge("work", "join")
    graph.add_edge("join", END)
    return graph.compile()


FANOUT = Workload("fanout", build_fanout, EMPTY)


# -- a deep agent: a subagent, parallel tools, one act that nobody can ask about ---------------------------------------


class Scripted(BaseChatModel):
    """A model whose next message depends only on how many it has sent: the same history gets the same answer."""

    world: Any
    who: str
    steps: list[str]
    script: list[list[tuple[str, str, dict[str, str]]]]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Scripted:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        turn = sum(isinstance(message, AIMessage) for message in messages)
        with self.world.unit(f"model:{self.who} {turn}", self.steps[turn]):
            calls = [{"id": i, "name": name, "args": args} for i, name, args in self.script[turn]]
            message = AIMessage("" if calls else "done", id=f"{self.who}-{turn}", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])


def tools_of(world: World, steps: dict[str, str]) -> dict[str, BaseTool]:
    """
    Four tools, each taking the name of what it is about.

    `search` acts on nothing; `charge` and `publish` are declared and can be asked about; `mail` is declared and cannot.

    Args:
        steps: where a call stands, by what it is about.
    """

    def body(kind: str) -> Callable[[str], str]:
        def call(what: str) -> str:
            step, result = steps[what], f"{kind} {what} done"
            with world.unit(f"tool:{kind} {what}", step):
                return result if kind == "search" else world.act(f"{kind} {what}", step, result)

        return call

    def probe(kind: str) -> Callable[[str], Done[str] | NotDone]:
        def ask(what: str) -> Done[str] | NotDone:
            arrival = world.happened(f"{kind} {what}")
            return Done(arrival.result) if arrival else NotDone()

        return ask

    made = {
        kind: StructuredTool.from_function(body(kind), name=kind, description=kind)
        for kind in ("search", "charge", "publish", "mail")
    }
    declared = {kind: world.declare(made[kind], probe=probe(kind)) for kind in ("charge", "publish")}
    return {**made, **declared, "mail": world.declare(made["mail"])}


def build_agent(world: World) -> Any:
    steps = {"a": "02.02", "b": "02.02", "p": "02.04", "m": "02", "n": "02", "z": "04"}
    tools = tools_of(world, steps)
    researcher = Scripted(
        world=world,
        who="researcher",
        steps=["02.01", "02.03", "02.05"],
        script=[
            [("r1", "search", {"what": "a"}), ("r2", "search", {"what": "b"})],
            [("r3", "publish", {"what": "p"})],
            [],
        ],
    )
    main = Scripted(
        world=world,
        who="main",
        steps=["01", "03", "05"],
        script=[
            [
                ("m1", "task", {"description": "look it up", "subagent_type": "researcher"}),
                ("m2", "mail", {"what": "m"}),
                ("m3", "search", {"what": "n"}),
            ],
            [("m4", "charge", {"what": "z"})],
            [],
        ],
    )
    subagent: Any = {
        "name": "researcher",
        "description": "looks things up",
        "system_prompt": "look things up",
        "model": researcher,
        "tools": [tools["search"], tools["publish"]],
    }
    own = [tools["search"], tools["mail"], tools["charge"]]
    return create_deep_agent(model=main, tools=own, subagents=[subagent])


GO: Any = {"messages": [{"role": "user", "content": "go"}]}
AGENT = Workload("agent", build_agent, GO)


# -- a bare tool node: three calls in one task -------------------------------------------------------------------------


def build_toolnode(world: World) -> Any:
    tools = tools_of(world, dict.fromkeys("abc", "02"))

    def ask(state: MessagesState) -> Any:
        with world.unit("node:ask", "01"):
            kinds = zip("abc", ("charge", "search", "publish"), strict=True)
            calls = [{"id": f"call-{what}", "name": kind, "args": {"what": what}} for what, kind in kinds]
            return {"messages": [AIMessage("", id="asking", tool_calls=calls)]}

    def sum_up(state: MessagesState) -> Any:
        with world.unit("node:sum up", "03"):
            return {"messages": [AIMessage(f"{len(state['messages'])} messages", id="summed up")]}

    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_node("tools", ToolNode([tools["charge"], tools["search"], tools["publish"]]))
    graph.add_node("sum up", sum_up)
    for start, end in ((START, "ask"), ("ask", "tools"), ("tools", "sum up"), ("sum up", END)):
        graph.add_edge(start, end)
    return graph.compile()


TOOLNODE = Workload("toolnode", build_toolnode, GO)


# -- a little of everything, for standing still ------------------------------------------------------------------------


def build_little(world: World) -> Any:
    """A plain step; two at once, one acting with a probe and one without; a step that calls out undeclared."""
    charge = charging(world, "02")
    mail = mailing(world, "02")

    def begin(state: Log) -> Any:
        with world.unit("node:begin", "01"):
            return {"log": ["begun"]}

    def pay(state: Log) -> Any:
        with world.unit("node:pay", "02"):
            return {"log": [charge("a")], "total": 1}

    def tell(state: Log) -> Any:
        with world.unit("node:tell", "02"):
            return {"log": [mail("b")], "total": 1}

    def ring(state: Log) -> Any:
        with world.unit("node:ring", "03"):
            return {"log": [world.call("ring", "03", "rung")]}

    graph = StateGraph(Log)
    for node in (begin, pay, tell, ring):
        graph.add_node(node.__name__, node)
    for start, end in ((START, "begin"), ("begin", "pay"), ("begin", "tell"), ("ring", END)):
        graph.add_edge(start, end)
    graph.add_edge(["pay", "tell"], "ring")
    return graph.compile()


LITTLE = Workload("little", build_little, EMPTY)


def build_little_async(world: World) -> Any:
    """The same, of async functions."""

    async def charge(order: str) -> str:
        await asyncio.sleep(0)
        return world.act(f"charge {order}", "02", f"charged {order}")

    async def ask(order: str) -> Done[str] | NotDone:
        arrival = world.happened(f"charge {order}")
        return Done(arrival.result) if arrival else NotDone()

    async def mail(to: str) -> str:
        await asyncio.sleep(0)
        return world.act(f"mail {to}", "02", f"mailed {to}")

    charge_once, mail_once = world.declare(charge, probe=ask), world.declare(mail)

    async def begin(state: Log) -> Any:
        with world.unit("node:begin", "01"):
            return {"log": ["begun"]}

    async def pay(state: Log) -> Any:
        with world.unit("node:pay", "02"):
            return {"log": [await charge_once("a")], "total": 1}

    async def tell(state: Log) -> Any:
        with world.unit("node:tell", "02"):
            return {"log": [await mail_once("b")], "total": 1}

    async def ring(state: Log) -> Any:
        with world.unit("node:ring", "03"):
            return {"log": [world.call("ring", "03", "rung")]}

    graph = StateGraph(Log)
    for node in (begin, pay, tell, ring):
        graph.add_node(node.__name__, node)
    for start, end in ((START, "begin"), ("begin", "pay"), ("begin", "tell"), ("ring", END)):
        graph.add_edge(start, end)
    graph.add_edge(["pay", "tell"], "ring")
    return graph.compile()


LITTLE_ASYNC = Workload("little, async", build_little_async, EMPTY, asynchronous=True)


# -- questions: a node that asks between two acts, a declared tool that asks before it acts ----------------------------


class Talk(MessagesState):
    log: Annotated[list[str], operator.add]


def build_asking(world: World) -> Any:
    """What is answered, and by whom, is told to the history alone: the end is the same whoever answered."""
    charge, mail = charging(world, "02"), mailing(world, "02")

    def begin(state: Talk) -> Any:
        with world.unit("node:begin", "01"):
            calls = [{"id": "call-p", "name": "publish", "args": {"what": "p"}}]
            return {"log": ["begun"], "messages": [AIMessage("", id="asking", tool_calls=calls)]}

    def agree(state: Talk) -> Any:
        with world.unit("node:agree", "02"):
            charged = charge("a")
            world.ask("may I mail?")
            return {"log": [charged, mail("b")]}

    def end(state: Talk) -> Any:
        with world.unit("node:end", "04"):
            return {"log": ["ended"]}

    graph = StateGraph(Talk)
    for node in (begin, agree, end):
        graph.add_node(node.__name__, node)
    graph.add_node("tools", ToolNode([_asking_tool(world, "03")]))
    for start, to in ((START, "begin"), ("begin", "agree"), ("agree", "tools"), ("tools", "end"), ("end", END)):
        graph.add_edge(start, to)
    return graph.compile()


def _asking_tool(world: World, step: str) -> BaseTool:
    def publish(what: str) -> str:
        with world.unit(f"tool:publish {what}", step):
            world.ask("may I publish?")
            return world.act(f"publish {what}", step, f"published {what}")

    def ask(what: str) -> Done[str] | NotDone:
        arrival = world.happened(f"publish {what}")
        return Done(arrival.result) if arrival else NotDone()

    return world.declare(StructuredTool.from_function(publish, name="publish", description="publish"), probe=ask)


NOTHING_SAID: Any = {"messages": [], "log": []}
ASKING = Workload("asking", build_asking, NOTHING_SAID, answer=lambda life: {"say": "yes", "from": life})


# -- acts under a business key -----------------------------------------------------------------------------------------


def build_keyed(world: World) -> Any:
    """Two tasks at once and one after them act on the same order; a mail without a probe goes to the same address."""

    def ask(order: str) -> Done[str] | NotDone:
        arrival = world.happened(f"charge {order}")
        return Done(arrival.result) if arrival else NotDone()

    def charge(order: str) -> str:
        return world.act(f"charge {order}", "01", f"charged {order}")

    def mail(to: str) -> str:
        return world.act(f"mail {to}", "01", f"mailed {to}")

    charge_once = world.declare(charge, probe=ask, key=lambda order: f"order {order}")
    mail_once = world.declare(mail, key=lambda to: f"address {to}")

    def left(state: Log) -> Any:
        with world.unit("node:left", "01"):
            return {"log": [charge_once("a")], "total": 1}

    def right(state: Log) -> Any:
        with world.unit("node:right", "01"):
            return {"log": [charge_once("a"), mail_once("b")], "total": 1}

    def again(state: Log) -> Any:
        with world.unit("node:again", "02"):
            return {"log": [charge_once("a"), mail_once("b")], "total": 1}

    graph = StateGraph(Log)
    for node in (left, right, again):
        graph.add_node(node.__name__, node)
    for start, end in ((START, "left"), (START, "right"), ("again", END)):
        graph.add_edge(start, end)
    graph.add_edge(["left", "right"], "again")
    return graph.compile()


KEYED = Workload("keyed", build_keyed, EMPTY)


# -- people decide: what a turn may do, each call for itself, several calls of one tool node ---------------------------


def reviewed_tools(world: World, steps: Mapping[str, str] | None = None) -> list[BaseTool]:
    """Three acts: one can be asked about, one cannot, one is declared by a probe that looks outside."""

    def body(kind: str) -> Callable[[str], str]:
        return lambda what: world.act(f"{kind} {what}", (steps or {}).get(kind, "02"), f"{kind} {what} done")

    def probe(kind: str) -> Callable[[str], Done[str] | NotDone]:
        def ask(what: str) -> Done[str] | NotDone:
            arrival = world.happened(f"{kind} {what}")
            return Done(arrival.result) if arrival else NotDone()

        return ask

    made = {
        kind: StructuredTool.from_function(body(kind), name=kind, description=kind)
        for kind in ("charge", "mail", "publish")
    }
    return [
        world.declare(made["charge"], probe=probe("charge")),
        world.declare(made["mail"]),
        world.declare(made["publish"], probe=probe("publish")),
    ]


REVIEWED_CALLS = [("c", "charge", {"what": "a"}), ("m", "mail", {"what": "b"}), ("p", "publish", {"what": "d"})]


def build_reviewed(world: World, mode: Any = "batched") -> Any:
    """An agent that wants to do three things at once, each of which a person is asked about."""
    model = Scripted(world=world, who="clerk", steps=["01", "03"], script=[REVIEWED_CALLS, []])
    review = HumanInTheLoopMiddleware(interrupt_on={"charge": True, "mail": True, "publish": True}, interrupt_mode=mode)
    return create_agent(model, reviewed_tools(world), middleware=[review])


def decided_about(name: str) -> dict[str, Any]:
    """The charge may be made, the mail goes to somebody else, nothing is published."""
    if name == "mail":
        return {"type": "edit", "edited_action": {"name": "mail", "args": {"what": "c"}}}
    return {"type": "approve"} if name == "charge" else {"type": "reject", "message": "not that"}


def decide_reviewed(shown: Any) -> Any:
    if "action_requests" in shown:
        return {"decisions": [decided_about(request["name"]) for request in shown["action_requests"]]}
    return decided_about(shown["name"])


REVIEWED = Workload("reviewed", build_reviewed, GO, decide=decide_reviewed)
REVIEWED_EACH = Workload("reviewed each", lambda world: build_reviewed(world, "per_call"), GO, decide=decide_reviewed)


def build_bare_asking(world: World) -> Any:
    """A tool node that gets three calls in one task: two ask before they act, one acts without asking."""

    def asking(kind: str) -> BaseTool:
        def call(what: str) -> str:
            answer = world.ask(f"may I {kind} {what}?")
            return world.act(f"{kind} {what}", "02", f"{kind} {what}: {answer}")

        return StructuredTool.from_function(call, name=kind, description=kind)

    def probe(what: str) -> Done[str] | NotDone:
        arrival = world.happened(f"charge {what}")
        return Done(arrival.result) if arrival else NotDone()

    charge = world.declare(asking("charge"), probe=probe)
    mail = world.declare(asking("mail"))
    note = world.declare(
        StructuredTool.from_function(
            lambda what: world.act(f"note {what}", "02", f"noted {what}"), name="note", description="note"
        )
    )
    calls = [
        {"id": call_id, "name": name, "args": {"what": what}}
        for call_id, name, what in (("c", "charge", "a"), ("n", "note", "n"), ("m", "mail", "b"))
    ]

    def begin(state: MessagesState) -> Any:
        with world.unit("node:begin", "01"):
            return {"messages": [AIMessage("", id="asking", tool_calls=calls)]}

    def end(state: MessagesState) -> Any:
        with world.unit("node:end", "03"):
            return {"messages": [AIMessage("ended", id="ended")]}

    graph = StateGraph(MessagesState).add_node("begin", begin).add_node("end", end)
    graph.add_node("tools", ToolNode([charge, mail, note]))
    graph.add_edge(START, "begin").add_edge("begin", "tools").add_edge("tools", "end").add_edge("end", END)
    return graph.compile()


BARE_ASKING = Workload("bare asking", build_bare_asking, GO, decide=lambda shown: f"yes to {shown}")
