"""`ninelives init`: settings to commit, and an agent to try them on."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ninelives.cli import options
from ninelives.cli.exits import Exit
from ninelives.cli.render import put, say
from ninelives.config import FILE_NAME, write_default
from ninelives.errors import ConfigError

EXAMPLE = "agent.py"


def init(
    folder: Annotated[Path, Parameter(help="Where to; made if missing.", show_default=False)] = Path(),
    /,
    *,
    debug: options.Debug = False,
) -> int:
    """Write ninelives.toml, made to be committed, and a small agent.py that needs no key. Overwrites nothing."""
    settings, example = folder / FILE_NAME, folder / EXAMPLE
    for path in (settings, example):
        if path.exists():
            raise ConfigError(f"{path}: is there already; nothing was written. Move it away, or name another folder.")
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder}: is a file, not a folder; nothing was written. Name a folder, or none.")
    folder.mkdir(parents=True, exist_ok=True)
    write_default(settings)
    with example.open("x", encoding="utf-8") as file:
        file.write(files("ninelives.cli").joinpath("starter.py").read_text("utf-8"))
    for path in (settings, example):
        put(str(path))
    into = "" if folder == Path() else f"cd {folder} && "
    say(f'Next: {into}ninelives run {EXAMPLE}:agent "Ada" --thread demo')
    return Exit.DONE
