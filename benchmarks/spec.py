"""What is measured: the words that the plan, the goals and the measuring process share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

Saver: TypeAlias = Literal["nosaver", "stock", "stock-zstd", "stock-async", "ninelives"]
Workload: TypeAlias = Literal[
    "chat", "head", "turn", "load", "history", "threads", "fanout", "files", "constant", "disk"
]
Text: TypeAlias = Literal["corpus", "random"]
Measured: TypeAlias = dict[str, Any]
"""The figures of one process, by name: plain numbers, or numbers by turn. Seconds end in `_s`, bytes in `bytes`."""

SAVERS, WORKLOADS, TEXTS = get_args(Saver), get_args(Workload), get_args(Text)

ON_A_KEPT_DATABASE: frozenset[Workload] = frozenset({"turn", "load", "history"})
OF_A_CHAT: frozenset[Workload] = ON_A_KEPT_DATABASE | {"chat", "head"}

STOCK_TURNS_MAX = 200
"""Beyond these, all of a chat in stock's plain form would take tens of gigabytes."""


@dataclass(frozen=True)
class Spec:
    """
    One kind of measurement.

    Attributes:
        turns: of the chat; of the one that is there already, for what begins with a kept database.
        delta: `snapshot_frequency` of a DeltaChannel; 0 is the plain reducer.
        text: "random" has random bytes instead of text, which nothing can make smaller.
    """

    workload: Workload
    saver: Saver
    turns: int = 0
    delta: int = 0
    text: Text = "corpus"

    @property
    def key(self) -> str:
        options = (("turns", self.turns), ("delta", self.delta), ("text", self.text * (self.text != "corpus")))
        return " ".join([self.workload, self.saver, *(f"{name}={value}" for name, value in options if value)])

    @property
    def kind(self) -> tuple[Any, ...]:
        """Equal for measurements that differ in the saver alone, and are therefore made in turns."""
        return self.workload, self.turns, self.delta, self.text

    @property
    def base(self) -> Spec | None:
        """What leaves the database that this one begins with."""
        if self.workload not in ON_A_KEPT_DATABASE:
            return None
        saver: Saver = "stock" if self.saver == "nosaver" else self.saver
        last_state_only = saver == "stock" and not self.delta and self.turns > STOCK_TURNS_MAX
        return Spec("head" if last_state_only else "chat", saver, self.turns, self.delta, self.text)
