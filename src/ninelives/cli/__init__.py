"""
The command line: `ninelives NOUN VERB`. Data goes to stdout, talk to stderr.

Errors end here: what happened and what to do, and an exit code from the one table in `exits`. No traceback, unless
`--debug` asks for it.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import version
from io import TextIOWrapper

from cyclopts import App, CycloptsError

from ninelives.cli import effects, inbox, init, keys, prune, run, runs, threads
from ninelives.cli.exits import Exit, exit_of
from ninelives.cli.render import say
from ninelives.errors import NineLivesError

app = App(
    name="ninelives",
    help="Run LangGraph agents so that being killed stops mattering.",
    version=lambda: version("ninelives"),
    suppress_keyboard_interrupt=False,
)
app.command(run.run)
app.command(threads.app)
app.command(runs.app)
app.command(inbox.app)
app.command(effects.app)
app.command(prune.prune)
app.command(keys.reseal)
app.command(init.init)


def main(arguments: Sequence[str] | None = None) -> int:
    """
    One command line, carried out.

    Args:
        arguments: without the program's name; those of the process by default.

    Returns:
        The exit code.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a letter is no reason to fail
    try:
        code = app(words, exit_on_error=False, print_error=False, result_action="return_value")
        return int(code) if isinstance(code, int) else Exit.DONE
    except CycloptsError as error:
        say(f"ninelives: {error}\nSee: ninelives {' '.join(_command(words))}--help")
        return Exit.USAGE
    except NineLivesError as error:
        if "--debug" in words:
            traceback.print_exc()
        say(f"{type(error).__name__}: {error}")
        return exit_of(error)
    except KeyboardInterrupt:
        say("stopped; nothing had begun to run")
        return Exit.INTERRUPTED
    except BrokenPipeError:
        return Exit.DONE  # whoever read our lines has read enough
    except OSError as error:
        if "--debug" in words:
            traceback.print_exc()
        say(f"ninelives: {error}. Check the folder that this was typed in, and where its output goes.")
        return Exit.SETUP


def _command(words: Sequence[str]) -> list[str]:
    known = {"run", "threads", "runs", "inbox", "effects", "prune", "reseal", "init"}
    known |= {"list", "show", "history", "settle", "approve", "edit", "reject", "respond", "decide"}
    known |= {"continue", "start-over", "abandon", "ask-again"}
    return [f"{word} " for word in words[:2] if word in known]
