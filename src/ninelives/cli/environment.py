"""
The `env` of a langgraph.json: a table, or a file of NAME=value lines.

Read as LangGraph's own tools read it: `export`, quotes, comments and `${NAME}` are known, and its values win over those
that the process was started with.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from ninelives.errors import ConfigError

_LINE = re.compile(
    r"""^\s*(?:export\s+)?(?P<name>[^\s=\#'"]+)\s*=[^\S\n]*
        (?:'(?P<literal>(?:\\'|[^'])*)'|"(?P<quoted>(?:\\"|[^"])*)"|(?P<bare>(?!['"])[^\n]*?))
        [^\S\n]*(?:(?:(?<=\s)|(?<=['"]))\#[^\n]*)?$""",
    re.MULTILINE | re.VERBOSE,
)
_NAMED = re.compile(r"\$\{(?P<name>[^}:]+)(?::-(?P<default>[^}]*))?\}")
_ESCAPES = {r"\n": "\n", r"\t": "\t", r"\r": "\r", r"\"": '"', r"\\": "\\"}


def take_environment(env: object, folder: Path) -> None:
    """
    Put the variables of `env` into this process.

    Args:
        env: a table of names and values, or a file relative to `folder`.

    Raises:
        ConfigError: it is neither, or there is no such file.
    """
    if isinstance(env, Mapping):
        os.environ.update({str(name): str(value) for name, value in env.items()})
    elif isinstance(env, str):
        file = folder / env
        if not file.is_file():
            raise ConfigError(f"langgraph.json: env names {env!r}, and there is no such file in {folder}.")
        os.environ.update(parse_environment(file.read_text("utf-8")))
    else:
        raise ConfigError("langgraph.json: env must be a table of variables, or the name of a file of them.")


def parse_environment(text: str) -> dict[str, str]:
    """The variables of a file; later lines may name earlier ones."""
    found: dict[str, str] = {}
    for line in _LINE.finditer(text):
        if line["literal"] is not None:
            found[line["name"]] = _filled(line["literal"].replace(r"\'", "'"), found)
        elif line["quoted"] is not None:
            unescaped = re.sub(r'\\[ntr"\\]', lambda escape: _ESCAPES[escape[0]], line["quoted"])
            found[line["name"]] = _filled(unescaped, found)
        else:
            found[line["name"]] = _filled(line["bare"].strip(), found)
    return found


def _filled(text: str, known: Mapping[str, str]) -> str:
    def value(named: re.Match[str]) -> str:
        name, default = named["name"], named["default"] or ""
        return known.get(name, os.environ.get(name, default))

    return _NAMED.sub(value, text)
