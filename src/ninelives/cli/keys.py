"""`ninelives reseal`: a whole store under its current key."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from ninelives.cli import options, render
from ninelives.cli.exits import Exit
from ninelives.cli.stores import looking
from ninelives.config import KEYS_VARIABLE
from ninelives.errors import EncryptionKeyError, StoreUnavailableError
from ninelives.model import Resealed
from ninelives.store import Store

WALKS_MAX = 5
"""So often values may have come under an older key behind our back before we say that they will not end."""
TELL_EVERY_S = 5.0


@dataclass
class Count:
    """Of one kind: values that the last walk came by, and those that were put under the current key by any."""

    walk: int = 0
    values: int = 0
    resealed: int = 0


@dataclass
class Tally:
    key: str = ""
    walks: int = 0
    counts: dict[str, Count] = field(default_factory=dict)

    def add(self, step: Resealed) -> None:
        count = self.counts.setdefault(step.what, Count())
        count.values = step.values + (count.values if step.walk == count.walk else 0)
        count.resealed += step.resealed
        count.walk = self.walks = step.walk
        self.key = step.key

    @property
    def resealed(self) -> int:
        return sum(count.resealed for count in self.counts.values())


def reseal(
    *,
    store: options.StoreUrl = None,
    json: options.AsJson = False,
    debug: options.Debug = False,
) -> int:
    """
    Put all that an encrypted store holds under its current key, so that older keys are not needed any more.

    First give every process the new key in front of the old one. May be stopped anywhere, and typed again.
    """
    with looking(store) as look:
        if look is None:
            return Exit.NOT_FOUND
        before = look.store.room()
        try:
            tally = _resealed(look.store)
        except KeyboardInterrupt:
            render.say("stopped; what was resealed stays so. Type it again to go on")
            return Exit.INTERRUPTED
        render.say(f"all is under key {tally.key!r}; no older key is needed to read it")
        anew = _written_anew(look.store)
        after = look.store.room()
    if json:
        record = {
            "key": tally.key,
            "walks": tally.walks,
            "values": {what: count.values for what, count in tally.counts.items()},
            "resealed": {what: count.resealed for what, count in tally.counts.items()},
            "written_anew": anew,
            "bytes_before": before.bytes,
            "bytes_after": after.bytes,
        }
        render.put_json(record, indent=2)
    else:
        render.put_table(
            [
                {"WHAT": what, "VALUES": f"{count.values:,}", "RESEALED": f"{count.resealed:,}"}
                for what, count in tally.counts.items()
            ]
        )
    return Exit.DONE if anew else Exit.TRY_LATER


def _resealed(store: Store) -> Tally:
    """Every step, told now and then."""
    tally, told = Tally(), time.monotonic()
    step = store.perform(store.reseal())
    while True:
        tally.add(step)
        if step.after is None:
            return tally
        if step.after.walk > WALKS_MAX:
            raise EncryptionKeyError(
                "values keep coming under an older key: a process that works in the store has another key in front"
                f" than {tally.key!r}. Put it in front in {KEYS_VARIABLE} of every process, then type this again."
            )
        if time.monotonic() - told > TELL_EVERY_S:
            told = time.monotonic()
            values = tally.counts[step.what].values
            render.say(
                f"walk {step.walk}, {step.what}: {values:,} looked at; {tally.resealed:,} values resealed so far"
            )
        step = store.perform(store.reseal(step.after))


def _written_anew(store: Store) -> bool:
    """Room that holds nothing any more holds what was there, still under an older key; so the file is written anew."""
    try:
        room = store.compact(whole=True)
        why = f"A process is reading, which keeps {render.size(room.free)} of it." if room.free else ""
    except StoreUnavailableError as error:
        why = str(error)
    if why:
        render.say(
            "not done yet: what was overwritten or forgotten may lie in free room of the file, under an older key."
            f" {why} Type this again when nothing runs."
        )
    return not why
