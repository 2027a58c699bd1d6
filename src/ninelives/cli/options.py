"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

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
