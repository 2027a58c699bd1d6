"""
Verdicts over histories, and nothing else: a checker reads, it runs nothing.

Each looks at one promise and gives a sentence per breach. `reference` is the history of the same request when nobody
was killed. A unit is *recorded* when the next process found the result of its task, its call or its act in the store;
one that had returned and was not recorded was in flight, and may run again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

from ninelives.chaos.faults import CHECK
from ninelives.chaos.history import Event, History

Checker = Callable[[History, History], list[str]]


# -- checkers ---------------------------------------------------------------------------------------------------


def same_end(history: History, reference: History) -> list[str]:
    """The request is answered, and the thread ends, as if nothing had happened."""
    end, expected = history.last("outcome"), reference.last("outcome")
    if expected is None:
        return ["the reference has no outcome: nothing can be compared with it"]
    if end is None or end.life != history.lives[-1]:
        raised = history.last("raised")
        why = f": {raised['error']}: {raised['text']}" if raised else ""
        return [f"the last process gave no outcome{why}"]
    return [
        f"{part} differ: {end[part]!r}, un-killed {expected[part]!r}"
        for part in ("values", "output")
        if end[part] != expected[part]
    ]


def recorded_once(history: History, reference: History) -> list[str]:
    """P2: what was recorded when a process ended is not run again by any later one."""
    breaches = []
    for found in history.of("found"):
        again = {event["unit"] for event in history.of("enter") if event.life >= found.life}
        breaches += [f"{unit} was recorded, and ran again" for unit in sorted(recorded(history, found) & again)]
    return breaches


def never_back(history: History, reference: History) -> list[str]:
    """P2: a unit that had returned does not run again although a later step had begun."""
    breaches = []
    for unit, life in _ran_again(history):
        begun = [event["step"] for event in history.of("enter") if event.life < life]
        passed = next((step for step in begun if earlier(_step(history, unit), step)), None)
        if passed is not None:
            breaches.append(f"{unit} ran again although step {passed} had begun")
    return breaches


def only_in_flight(history: History, reference: History) -> list[str]:
    """P2: of the units that had returned, only those of tasks in flight run again."""
    breaches = []
    for found in history.of("found"):
        flying = in_flight(history, found)
        again = {unit for unit, life in _ran_again(history) if life == found.life}
        strays = [unit for unit in sorted(again) if not _tasks(history, unit) & flying]
        breaches += [f"{unit} ran again, and its task was not in flight" for unit in strays]
    return breaches


def acts_once(history: History, reference: History) -> list[str]:
    """P3: each declared act arrives once, and all arrive that do when nobody is killed."""
    arrived, expected = _arrivals(history), _arrivals(reference)
    doubled = [f"act {act} arrived {times} times" for act, times in sorted(arrived.items()) if times > expected[act]]
    return doubled + [f"act {act} never arrived" for act in sorted(expected - arrived)]


def keys_once(history: History, reference: History) -> list[str]:
    """P3: no two arrivals bear one idempotency key."""
    keys = Counter(event["key"] for event in history.of("arrived") if event["key"])
    return [f"key {key} arrived {times} times" for key, times in sorted(keys.items()) if times > 1]


def unknown_when_cut_off(history: History, reference: History) -> list[str]:
    """P3: an outcome is called unknown only where the process that asked left no answer."""
    breaches = []
    for unknown in history.of("unknown"):
        left = [found["effects"].get(unknown["key"]) for found in history.of("found") if found.life <= unknown.life]
        if not {"intent", "unknown"} & {*left}:
            breaches.append(f"the outcome of {unknown['name']} was called unknown; the store had {left or 'nothing'}")
    return breaches


def no_fork(history: History, reference: History) -> list[str]:
    """P4: no checkpoint has two children."""
    left = history.last("left")
    if left is None:
        return []
    children = Counter((ns, parent) for ns, _, parent in left["checkpoints"] if parent)
    forked = [(ns, parent, n) for (ns, parent), n in children.items() if n > 1]
    return [f"checkpoint {parent} of namespace {ns!r} has {n} children" for ns, parent, n in forked]


def no_trace(history: History, reference: History) -> list[str]:
    """P4: between its successor's end and its own, a process that was superseded changes nothing in the store."""
    resumed = history.last("continued")
    if resumed is None:
        return []
    before = next((event for event in history.of("left") if event.at_ns < resumed.at_ns), None)
    after = next((event for event in history.of("found") if event.at_ns > resumed.at_ns), None)
    if before is None or after is None:
        return ["the store was not looked at before and after: nothing can be compared"]
    parts = sorted(before["rows"].keys() | after["rows"].keys())
    return [f"{p} changed after the takeover" for p in parts if before["rows"].get(p) != after["rows"].get(p)]


def refused_late(history: History, reference: History) -> list[str]:
    """
    P4: a superseded process that goes on begins nothing, but for calls that were past their check when it stood still.

    A check is made for one call, and lets that one begin.
    """
    return [
        f"after the takeover it began {event['unit']}, which was not past its check"
        for event in _begun_late(history)
        if not _was_past_its_check(history, event)
    ]


def late_act_unknown(history: History, reference: History) -> list[str]:
    """P4: a declared act that a superseded process still performs was reported unknown to its successor."""
    resumed = history.last("continued")
    if resumed is None:
        return []
    late = [event for event in history.of("arrived", life=resumed.life) if event.at_ns > resumed.at_ns]
    told = {event["key"] for event in history.of("unknown")}
    for seen in history.of("found", "left"):
        told |= {key for key, state in seen["effects"].items() if state == "unknown"}
    return [f"act {e['act']} went out late, and was not reported" for e in late if e["key"] and e["key"] not in told]


def answers_once(history: History, reference: History) -> list[str]:
    """P3: a question is answered once: the answer that was accepted first counts, for every part of the graph."""
    breaches = []
    values: dict[str, list[Any]] = {}
    for event in history.of("told"):
        values.setdefault(event["question"], []).append(event["value"])
    for question, got in sorted(values.items()):
        if any(value != got[0] for value in got):
            breaches.append(f"to {question!r} the graph was told {got}")
    for before, after in pairwise(_decisions(history)):
        breaches += [
            f"the answer to {q} was {before[q]}, and then {after.get(q)}" for q in before if after.get(q) != before[q]
        ]
    end, expected = history.last("left"), reference.last("left")
    if end and expected and len(_decided(end)) != len(_decided(expected)):
        breaches.append(f"{len(_decided(end))} answers are recorded, un-killed {len(_decided(expected))}")
    return breaches


def answers_kept(history: History, reference: History) -> list[str]:
    """P3: once the call that answers was past its commit, the answer is in the store, and nobody is asked again."""
    breaches = []
    for answering in history.of("answering"):
        question, value = answering["question"], answering["value"]
        later = [event for event in history if event.at_ns > answering.at_ns]
        committed = next((e for e in later if e.life == answering.life and _is_answer_committed(e)), None)
        if committed is None:
            continue
        after = [event for event in later if event.at_ns > committed.at_ns]
        seen = [event for event in after if event.kind in ("found", "left")]
        breaches += [f"the answer to {question} was lost" for each in seen[:1] if _decided(each).get(question) != value]
        asked = [e for e in after if e.kind == "answering" and e["question"] == question and not e["again"]]
        breaches += [f"{question} was asked again" for _ in asked]
    return breaches


def approved_first(history: History, reference: History) -> list[str]:
    """
    P6: a tool call acts only after the question about it was answered. An act that is asked for in another way, and
    comes after so many rounds of answers when nobody is killed, never comes after fewer answers.
    """
    needed: dict[str, int] = {}
    for event in reference.of("arrived"):
        rounds = [e for e in reference if e.at_ns < event.at_ns and _is_answer_committed(e)]
        needed.setdefault(event["act"], len(rounds))
    breaches = []
    for event in history.of("arrived"):
        answered = _answered_before(history, event)
        question = _question_about(history, _call_of(history, event))
        enough = question["question"] in answered if question else len(answered) >= needed.get(event["act"], 0)
        if not enough:
            breaches.append(f"act {event['act']} arrived before what it asks for was answered")
    return breaches


def as_decided(history: History, reference: History) -> list[str]:
    """P6: a tool call that people are asked about acts only if they approved it, and that is in the store."""
    breaches = []
    for arrived in history.of("arrived"):
        call = _call_of(history, arrived)
        question = _question_about(history, call) or _question_about(reference, call)
        if call is None or question is None:
            continue
        looks = [_decided(e) for e in history.of("found", "left") if e.at_ns > arrived.at_ns]
        verdict = _verdict(looks[0].get(question["question"]), question["calls"].index(call)) if looks else None
        if verdict not in ("approve", "edit"):
            breaches.append(f"act {arrived['act']} arrived; what is recorded about {call} is {verdict or 'nothing'}")
    return breaches


def comes_to_an_end(history: History, reference: History) -> list[str]:
    """The last process gives an outcome, and nothing is asked any more."""
    end = history.last("outcome")
    if end is None or end.life != history.lives[-1]:
        raised = history.last("raised")
        return [f"the last process gave no outcome{': ' + raised['text'] if raised else ''}"]
    return [f"{e['question']} is still asked" for e in history.of("asked", life=end.life)]


def never_twice(history: History, reference: History) -> list[str]:
    """P3: no declared act arrives twice."""
    return [f"act {act} arrived {times} times" for act, times in sorted(_arrivals(history).items()) if times > 1]


def one_decided(history: History, reference: History) -> list[str]:
    """P6: of several who answer a question one is taken; the others are told who that was, or that it is going on."""
    breaches = []
    last = history.last("left")
    decided = _decided(last) if last else {}
    for question in sorted({event["question"] for event in history.of("answering")}):
        tried = [e for e in history.of("answering") if e["question"] == question]
        told = {e.life: e for e in history.of("refused") if e["question"] == question}
        taken = [e["value"] for e in tried if e.life not in told]
        if taken != [decided.get(question)]:
            breaches.append(
                f"of {len(tried)} answers to {question} {taken} were taken; {decided.get(question)} is kept"
            )
        blind = [e for e in told.values() if not e["first"] and e["error"] != "ThreadBusyError"]
        breaches += [f"who answered {question} was not told who was first: {e['text']}" for e in blind]
    return breaches


def one_ran(history: History, reference: History) -> list[str]:
    """P4: of two processes on one thread one runs; the other is told that the thread is busy, or answered after it."""
    times = Counter(event["unit"] for event in history.of("enter"))
    expected = Counter(event["unit"] for event in reference.of("enter"))
    breaches = [f"{unit} ran {n} times" for unit, n in sorted(times.items()) if n != expected[unit]]
    for raised in history.of("raised"):
        if raised["error"] != "ThreadBusyError":
            breaches.append(f"process {raised.life} ended with {raised['error']}: {raised['text']}")
    return breaches


KILLED: tuple[Checker, ...] = (
    same_end,
    recorded_once,
    never_back,
    only_in_flight,
    acts_once,
    keys_once,
    unknown_when_cut_off,
    no_fork,
    answers_once,
    answers_kept,
    approved_first,
    as_decided,
)
"""What must hold after any number of kills."""

STOPPED: tuple[Checker, ...] = (
    same_end,
    recorded_once,
    never_back,
    acts_once,
    keys_once,
    no_fork,
    no_trace,
    refused_late,
    late_act_unknown,
)
"""What must hold when a process stood still for longer than its lease, and was superseded."""

BESIDE: tuple[Checker, ...] = (same_end, one_ran, acts_once, keys_once, no_fork)
"""What must hold when two live processes ask for one thread."""

CLICKED: tuple[Checker, ...] = (
    comes_to_an_end,
    never_twice,
    keys_once,
    no_fork,
    approved_first,
    as_decided,
    one_decided,
)
"""What must hold when two live processes answer one question."""


# -- counting ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Counts:
    """
    What kills cost, added up over cases.

    Attributes:
        returned_again: units that had returned, were not recorded, and ran again.
        in_flight: tasks in flight at the kills.
        recorded_again: recorded units that ran again.
        back: units that ran again although a later step had begun.
        doubled: arrivals of declared acts beyond the first of each.
        calls_again: arrivals of calls that nobody declared, beyond the first of each.
        unknown: outcomes called unknown.
        superseded: processes that went on after another had taken their run, and were refused.
        busy: processes that were told that the thread is busy.
        late_tools: tool calls that a superseded process began after it had gone on.
        ran_again: units that had returned, recorded or not, and ran again.
        answers_again: questions that a second process answered: the first died before its answer was in the store.
        refused: answers that were not taken, since another was first.
    """

    kills: int = 0
    returned_again: int = 0
    in_flight: int = 0
    recorded_again: int = 0
    back: int = 0
    doubled: int = 0
    calls_again: int = 0
    unknown: int = 0
    superseded: int = 0
    busy: int = 0
    late_tools: int = 0
    ran_again: int = 0
    answers_again: int = 0
    refused: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Counts)))


def count(history: History, reference: History) -> Counts:
    found = history.of("found")
    kept = {unit for each in found for unit in recorded(history, each)}
    again = [unit for unit, _ in _ran_again(history) if not unit.startswith("act:")]
    answers = Counter(event["question"] for event in history.of("answering"))
    return Counts(
        kills=len([e for e in history if e["fatal"]]) - len(history.of("stopped")),
        returned_again=len([unit for unit in again if unit not in kept]),
        in_flight=sum(len(in_flight(history, each)) for each in found),
        recorded_again=len(recorded_once(history, reference)),
        back=len(never_back(history, reference)),
        doubled=(_arrivals(history) - _arrivals(reference)).total(),
        calls_again=(_arrivals(history, declared=False) - _arrivals(reference, declared=False)).total(),
        unknown=len(history.of("unknown")),
        superseded=_raised(history, "LeaseLostError"),
        busy=_raised(history, "ThreadBusyError"),
        late_tools=len([event for event in _begun_late(history) if str(event["unit"]).startswith("tool:")]),
        ran_again=len(again),
        answers_again=answers.total() - len(answers),
        refused=len(history.of("refused")),
    )


def _raised(history: History, error: str) -> int:
    return len([event for event in history.of("raised") if event["error"] == error])


def _arrivals(history: History, *, declared: bool = True) -> Counter[str]:
    return Counter(event["act"] for event in history.of("arrived") if event["declared"] is declared)


# -- reading a history --------------------------------------------------------------------------------------------


def recorded(history: History, found: Event) -> set[str]:
    """Names of the units, begun before this look at the store, whose result it found there."""
    done = {key for key, state in found["effects"].items() if state == "done"}
    calls = {tuple(call) for call in found["calls"] or ()}
    return {
        event["unit"]
        for event in history.of("enter")
        if event.life < found.life
        and (event["task"] in found["tasks"] or event["key"] in done or (event["task"], event["call"]) in calls)
    }


def in_flight(history: History, found: Event) -> set[str]:
    """Ids of the tasks that had begun in the newest step of the process before, and were not recorded."""
    before = [event for event in history.of("enter") if event.life < found.life]
    steps = {event["step"] for event in before}
    newest = {step for step in steps if not any(earlier(step, other) for other in steps)}
    return {e["task"] for e in before if e["step"] in newest and e["task"] not in found["tasks"]}


def earlier(step: str, other: str) -> bool:
    """Whether a step comes before another; one inside the other comes neither before nor after it."""
    for mine, theirs in zip(step.split("."), other.split("."), strict=False):
        if mine != theirs:
            return int(mine) < int(theirs)
    return False


def _ran_again(history: History) -> Iterator[tuple[str, int]]:
    """`(unit, life)`: it had returned in an earlier life (and the kill was not at its very end), and began in this."""
    returned: dict[str, int] = {}
    for event in history.of("enter", "exit"):
        unit = event["unit"]
        if event.kind == "exit" and not event["fatal"]:
            returned.setdefault(unit, event.life)
        elif event.kind == "enter" and returned.get(unit, event.life) < event.life:
            yield unit, event.life


def _step(history: History, unit: str) -> str:
    return str(next(event["step"] for event in history.of("enter") if event["unit"] == unit))


def _tasks(history: History, unit: str) -> set[str]:
    return {event["task"] for event in history.of("enter") if event["unit"] == unit}


def _begun_late(history: History) -> list[Event]:
    """What a process that had stood still began after it had gone on; an act is a part of what contains it."""
    resumed = history.last("continued")
    if resumed is None:
        return []
    return [e for e in history.of("enter", life=resumed.life) if e.at_ns > resumed.at_ns and not _is_act(e)]


def _was_past_its_check(history: History, late: Event) -> bool:
    """The newest check of it was passed before the stop, and no call of it began since: each attempt has its own."""
    stopped = history.last("stopped")
    assert stopped is not None
    mine = [e for e in history.of("point", "enter", life=late.life) if e.at_ns < late.at_ns]
    passed = [e.at_ns for e in mine if _is_check(e) and e["of"] == _checked_as(late)]
    begun = [e.at_ns for e in mine if _is_call(e) and e["unit"] == late["unit"]]
    return max(begun, default=-1) < max(passed, default=-1) < stopped.at_ns


def _checked_as(call: Event) -> Any:
    """A tool is checked as the call that it is, everything else as its task; the history knows both by their ids."""
    return call["call"] if str(call["unit"]).startswith("tool:") else call["task"]


def _is_act(event: Event) -> bool:
    return str(event["unit"]).startswith("act:")


def _is_call(event: Event) -> bool:
    return event.kind == "enter" and not _is_act(event)


def _is_check(event: Event) -> bool:
    """The lease was looked at, and stood."""
    point = str(event["point"])
    return point.startswith(f"{CHECK}#") and point.endswith(".after")


def _is_answer_committed(event: Event) -> bool:
    point = str(event["point"])
    return point.startswith("answer#") and point.endswith(".commit.after")


def _answered_before(history: History, arrived: Event) -> set[str]:
    """The questions whose answers were in the store when an act arrived."""
    answered: set[str] = set()
    waiting: dict[int, set[str]] = {}
    for event in history:
        if event.at_ns >= arrived.at_ns:
            break
        if event.kind == "answering":
            waiting.setdefault(event.life, set()).add(event["question"])
        elif _is_answer_committed(event):
            answered |= waiting.pop(event.life, set())
    return answered


def _call_of(history: History, arrived: Event) -> Any:
    """The tool call that an act was made for; where the outside does not know it, by the act's key."""
    if arrived["call"]:
        return arrived["call"]
    same = [e["call"] for e in history.of("enter") if arrived["key"] and e["key"] == arrived["key"]]
    return same[0] if same else None


def _question_about(history: History, call: Any) -> Event | None:
    return next((event for event in history.of("asked") if call in event["calls"]), None)


def _verdict(answer: Any, place: int) -> Any:
    """What an answer says about one of the tool calls that were asked about."""
    decisions = answer.get("decisions", [answer]) if isinstance(answer, dict) else []
    return decisions[place]["type"] if place < len(decisions) else None


def _decisions(history: History) -> list[dict[str, Any]]:
    """The answers that were recorded, by question, at each look at the store."""
    return [_decided(event) for event in history.of("found", "left")]


def _decided(look: Event) -> dict[str, Any]:
    return dict(look["decisions"] or [])
