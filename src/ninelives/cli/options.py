"""Options that several commands have."""

from __future__ import annotations

import getpass
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from ninelives.model import Scope

StoreUrl = Annotated[
    str | None,
    Parameter(
        name="--store",
        help="Where threads are kept. [env: NINELIVES_STORE] [default: store in ninelives.toml, sqlite:///ninelives.db]",
        show_default=False,
    ),
]
AsJson = Annotated[bool, Parameter(name="--json", negative="", show_default=False, help="JSON on stdout.")]
Debug = Annotated[
    bool, Parameter(name="--debug", negative="", show_default=False, help="The traceback of an error, too.")
]
Plain = Annotated[
    bool,
    Parameter(
        name="--plain",
        negative="",
        show_default=False,
        help="Lines instead of a live view. So too where NO_COLOR is set or stderr is no terminal.",
    ),
]
Owner = Annotated[str, Parameter(name="--owner", show_default=False, help="Whose threads. [default: '', the one user]")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Common:
    """What every command has that looks into a store."""

    owner: Owner = ""
    store: StoreUrl = None
    as_json: AsJson = False
    debug: Debug = False

    @property
    def scope(self) -> Scope:
        return Scope(self.owner)

    @property
    def store_words(self) -> tuple[str, ...]:
        """As they were typed, for a command that is to be copied."""
        return ("--store", self.store) if self.store else ()


DEFAULT = Common()
"""Without any option."""


def who(name: str | None) -> str:
    """Whoever is at the keyboard, unless they say who they are."""
    if name:
        return name
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "somebody"
