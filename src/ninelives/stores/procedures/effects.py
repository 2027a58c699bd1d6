"""Outside acts: the intent before, the outcome after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ninelives.errors import InvalidDecisionError, NoCheckpointFoundError, UnknownTypeError
from ninelives.model import (
    Effect,
    EffectState,
    Lease,
    NewEffect,
    Scope,
    Unreadable,
)
from ninelives.store import Act, Query, Row, Steps, act, reading
from ninelives.stores.procedures.base import Procedures, event, fenced, held, one, unpacked
from ninelives.stores.procedures.threads import of_thread_or_all, thread_row


class EffectActs(Procedures):
    @act
    def open_effect(self, lease: Lease, new: NewEffect) -> Steps[Effect]:
        found = yield from self._effect(Scope(lease.owner), new.key)
        claim = {**_claim(lease), "timeout_s": new.timeout_s}
        if found is None:
            fresh = yield from self._first(lease, new, {**_fields(new), **claim, "owner": lease.owner})
        elif found.state is EffectState.NOT_DONE:
            yield Query("reopen_effect", {"effect_no": found.effect_no, **claim})
            yield event(lease.thread_no, "effect_intent", lease=lease, ref=new.key)
            fresh = True
        else:
            fresh = False
            if found.state is EffectState.INTENT and not found.claim_stands:
                yield Query("set_effect_unknown", {"effect_no": found.effect_no})
                yield event(lease.thread_no, "effect_unknown", lease=lease, ref=new.key)
        yield from held(lease)
        effect = yield from self._effect(Scope(lease.owner), new.key, fresh=fresh)
        assert effect is not None
        return effect

    def _first(self, lease: Lease, new: NewEffect, row: Mapping[str, Any]) -> Steps[bool]:
        """An act under a key that is not known: its own, or one that another branch has begun. Whether it may act."""
        original = None
        if new.on_fork != "live":
            original = one((yield Query("find_inheritable", row)))
        if original is None:
            yield Query("add_effect", row)
            yield event(lease.thread_no, "effect_intent", lease=lease, ref=new.key)
            return True
        if original["state"] == EffectState.DONE and new.on_fork == "recorded":
            state, why = EffectState.DONE, "it was done on another branch"
        else:
            state, why = EffectState.UNKNOWN, f"on another branch it is {original['state']}"
        inherited = {"original": original["effect_no"], "state": state.value, "why": self.private(why)}
        yield Query("inherit_effect", {**row, **inherited})
        yield event(lease.thread_no, "effect_inherited", lease=lease, ref=new.key)
        return False

    def finish_effect(
        self,
        lease: Lease,
        effect: Effect,
        state: EffectState,
        result: Any,
        *,
        why: str | None = None,
        cut_off: bool = False,
    ) -> Act[Effect]:
        by = None if cut_off else lease.worker_id
        return self._finish_effect(lease, effect, self._ending(effect, state, self.encode(result), by=by, why=why))

    @act
    def _finish_effect(self, lease: Lease, effect: Effect, ending: Mapping[str, Any]) -> Steps[Effect]:
        yield Query("finish_effect", {**ending, "attempt": effect.attempt, "epoch": effect.epoch})
        yield event(lease.thread_no, f"effect_{ending['state']}", lease=lease, ref=effect.key)
        yield from fenced(lease)
        done = yield from self._effect(Scope(lease.owner), effect.key)
        assert done is not None
        return done

    def settle_effect(
        self, scope: Scope, key: str, state: EffectState, result: Any, *, by: str, why: str
    ) -> Act[Effect]:
        return self._settle_effect(scope, key, state, self.encode(result), by, why)

    @act
    def _settle_effect(
        self, scope: Scope, key: str, state: EffectState, result: bytes, by: str, why: str
    ) -> Steps[Effect]:
        effect = yield from self._effect(scope, key)
        if effect is None:
            raise NoCheckpointFoundError(key, what="effect", why="is not known here")
        if state not in (EffectState.DONE, EffectState.NOT_DONE):
            raise InvalidDecisionError(f"an effect is settled as done or not done, not {state}", None)
        if not effect.over and (effect.state is EffectState.INTENT or state is EffectState.NOT_DONE):
            raise InvalidDecisionError(f"the process that asked for effect {key!r} may still be at it", None)
        if effect.state not in (EffectState.INTENT, EffectState.UNKNOWN):
            raise InvalidDecisionError(f"the outcome of effect {key!r} is known: {effect.state}", None)
        ending = self._ending(effect, state, result, by=by, why=why)
        yield Query("settle_branches", ending)
        yield Query("settle_effect", ending)
        thread = yield from thread_row(Scope(effect.owner), effect.thread_id)
        if thread:
            yield event(thread["thread_no"], f"effect_{state}", ref=key)
        settled = yield from self._effect(scope, key)
        assert settled is not None
        return settled

    @reading
    def list_effects(
        self, scope: Scope, *, thread_id: str | None = None, state: EffectState | None = None
    ) -> Steps[list[Effect]]:
        params = {"owner": scope.owner, "thread_id": thread_id, "state": state and state.value}
        rows = yield from of_thread_or_all("effects", scope, thread_id, params)
        return [self._effect_record(row, listed=True) for row in rows]

    def _ending(
        self, effect: Effect, state: EffectState, result: bytes, *, by: str | None, why: str | None
    ) -> Mapping[str, Any]:
        return {
            "effect_no": effect.effect_no,
            "state": state.value,
            "result": result,
            "by": by,
            "why": self.private(why),
        }

    def _effect(self, scope: Scope, key: str, *, fresh: bool = False) -> Steps[Effect | None]:
        row = one((yield Query("find_effect", {"owner": scope.owner or "", "key": key})))
        return self._effect_record(row, fresh=fresh) if row else None

    def _effect_record(self, row: Row, *, fresh: bool = False, listed: bool = False) -> Effect:
        values = unpacked(row, "run_id")
        try:
            values["result"] = None if values["result"] is None else self.decode(values["result"])
        except UnknownTypeError as error:
            if not listed:
                raise
            values["result"] = Unreadable(error)
        values["state"], values["why"] = EffectState(values["state"]), self.public(values["why"])
        values["overdue"] = bool(values["overdue"])
        values["holder_alive"], values["claim_stands"] = bool(values["holder_alive"]), bool(values["claim_stands"])
        return Effect(fresh=fresh, **values)


def _fields(new: NewEffect) -> dict[str, Any]:
    return {name: getattr(new, name) for name in NewEffect.__slots__ if name != "on_fork"}


def _claim(lease: Lease) -> dict[str, Any]:
    return {
        "thread_no": lease.thread_no,
        "run_no": lease.run_no,
        "epoch": lease.epoch,
        "worker": lease.worker_id,
    }
