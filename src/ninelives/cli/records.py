"""Records of the store as the command line shows them: for scripts, and in words."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ninelives.cli import render
from ninelives.config import Price
from ninelives.model import Effect, Event, Interrupt, Run, RunStatus, Unreadable, Usage


def state_of(run: Run, questions: Collection[Interrupt] | None = None, *, newest: bool = True) -> str:
    """
    How a run stands, in words.

    Args:
        questions: what it waits with; None if that is not known.
        newest: of its thread; a question of an older run has been answered.
    """
    if run.held:
        return "running"
    if run.ready:
        return "ready to go on"
    if run.cut_off:
        return "cut off"
    if run.status is RunStatus.INTERRUPTED:
        if run.cause == "effect_unknown":
            return "outcome unknown"
        if not newest:
            return "answered"
        return "waits" if questions is None else "waits for an answer" if questions else "paused"
    return str(run.status)


def run_record(run: Run) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "owner": run.owner,
        "thread_id": run.thread_id,
        "graph": run.graph,
        "status": str(run.status),
        "held": run.held,
        "cut_off": run.cut_off,
        "cause": run.cause,
        "driver": run.driver,
        "attempt": run.attempt,
        "idempotency_key": run.key,
        "chain": run.chain,
        "continues": run.continues,
        "replaces": run.replaces,
        "last_checkpoint": run.last_checkpoint,
        "usage": run.usage,
        "created_at": render.moment(run.created_at),
        "updated_at": render.moment(run.updated_at),
    }


def interrupt_record(question: Interrupt) -> dict[str, Any]:
    return {
        "interrupt_id": question.interrupt_id,
        "ask_no": question.ask_no,
        "state": str(question.state),
        "payload": question.payload,
        "asked_at": render.moment(question.asked_at),
    }


def effect_record(effect: Effect) -> dict[str, Any]:
    return {
        "key": effect.key,
        "name": effect.name,
        "state": str(effect.state),
        "result": None if isinstance(effect.result, Unreadable) else effect.result,
        "unreadable": str(effect.result.error) if isinstance(effect.result, Unreadable) else None,
        "attempt": effect.attempt,
        "owner": effect.owner,
        "thread_id": effect.thread_id,
        "node": effect.node,
        "tool_call_id": effect.call_id,
        "run_id": effect.run_id,
        "inherits": effect.inherits,
        "by": effect.by,
        "why": effect.why,
        "created_at": render.moment(effect.created_at),
        "deadline_at": None if effect.deadline_at is None else render.moment(effect.deadline_at),
        "settled_at": None if effect.settled_at is None else render.moment(effect.settled_at),
    }


def event_record(event: Event) -> dict[str, Any]:
    return {
        "seq": event.seq,
        "at": render.moment(event.at),
        "kind": event.kind,
        "attempt": event.attempt,
        "ref": event.ref or None,
    }


def usage_in_words(usage: Usage, prices: Mapping[str, Price]) -> str:
    """`7 steps, 3 model calls, 0 tool calls, 1,204 tokens, 2.1 s`, and what that cost where prices are known."""
    words = [
        render.count(usage.steps, "step"),
        render.count(usage.model_calls, "model call"),
        render.count(usage.tool_calls, "tool call"),
        render.count(usage.tokens_in + usage.tokens_out, "token"),
        f"{usage.active_s:.1f} s",
    ]
    if money := money_in_words(usage, prices):
        words.append(money)
    return ", ".join(words)


def money_in_words(usage: Usage, prices: Mapping[str, Price]) -> str:
    """What the models with a price have cost; those without one are named, not guessed. Nothing without any price."""
    if not prices or not usage.by_model:
        return ""
    priced = {name: prices[name] for name in usage.by_model if name in prices}
    cost = sum(
        (usage.by_model[name][1] * price.input + usage.by_model[name][2] * price.output) / 1e6
        for name, price in priced.items()
    )
    unpriced = sorted(usage.by_model.keys() - priced.keys())
    if usage.model_calls > sum(calls for calls, _, _ in usage.by_model.values()):
        unpriced.append("a model without a name")
    words = [f"${cost:.4f}"] if priced else []
    return " + ".join([*words, *(f"{name} (no price)" for name in unpriced)])
