"""
GRAPH on the command line: `file.py:attr`, `module:attr`, or a name in langgraph.json.

A file is imported as Python would import it when run from its folder: under its own name, its folder first on the path.
So what it defines has the same name here as for its neighbours, and as in the next process.
"""

from __future__ import annotations

import asyncio
import difflib
import importlib
import importlib.util
import inspect
import json
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from langgraph.graph import StateGraph
from langgraph.pregel import Pregel

from ninelives import protect
from ninelives.cli.environment import take_environment
from ninelives.cli.render import say
from ninelives.config import Settings
from ninelives.errors import ConfigError
from ninelives.protect.admission import Protection
from ninelives.protect.graph import ATTRIBUTE
from ninelives.stores import absolute

LANGGRAPH_JSON = "langgraph.json"


@dataclass(frozen=True)
class Loaded:
    """A compiled graph and the name that its threads know it by."""

    name: str
    graph: Pregel[Any, Any, Any, Any]


def load_graph(place: str, folder: Path | None = None) -> Loaded:
    """
    Find the graph that a command line names.

    Args:
        place: GRAPH, as it was typed.
        folder: where relative paths and langgraph.json are looked for; the current folder by default.

    Raises:
        ConfigError: there is no such file, module, name or graph, or its code failed; says where.
    """
    folder = folder or Path.cwd()
    where, colon, attribute = place.rpartition(":")
    if colon:
        return _loaded(where, attribute, attribute, folder)
    if place.endswith(".py"):
        raise _without_attribute(place, folder)
    return _named(place, folder)


def protected(loaded: Loaded, store: str | None, settings: Settings) -> Any:
    """
    The graph, protected; one that its own code protects is used as it is.

    Raises:
        ConfigError: `--store` names another store than the graph's own code does; or as `protect`.
    """
    if ATTRIBUTE in vars(loaded.graph):
        own = protection_of(loaded.graph)
        if store and absolute(store) != own.store.url:
            raise ConfigError(
                f"the graph is protected already and keeps its threads in {own.store.url}; leave --store out."
            )
        return loaded.graph
    saver = loaded.graph.checkpointer
    if saver not in (None, False):
        say(f"note: the {type(saver).__name__} that is compiled into the graph is left aside here")
    return protect(
        loaded.graph, store or settings.store, name=loaded.name, settings=settings, replace_saver=saver is not None
    )


def owner_of(loaded: Loaded) -> str:
    """Whose threads it runs here: of the one user, unless its own code says another."""
    return protection_of(loaded.graph).owner if ATTRIBUTE in vars(loaded.graph) else ""


def protection_of(agent: Any) -> Protection:
    found: Protection = vars(agent)[ATTRIBUTE]
    return found


# -- langgraph.json --------------------------------------------------------------------------------------------


def _named(name: str, folder: Path) -> Loaded:
    file = folder / LANGGRAPH_JSON
    if not file.is_file():
        raise ConfigError(
            f"GRAPH {name!r}: there is no {LANGGRAPH_JSON} in {folder} that could name it. Name the graph itself:"
            " file.py:attribute or module:attribute."
        )
    config = _read(file)
    graphs = config.get("graphs") or {}
    if name not in graphs:
        raise ConfigError(f"GRAPH {name!r} is not in {file}. There: {', '.join(map(repr, graphs)) or 'none'}.")
    entry = graphs[name]
    place = entry.get("path") if isinstance(entry, Mapping) else entry
    where, colon, attribute = str(place).rpartition(":")
    if not colon:
        raise ConfigError(f'{file}: graph {name!r} must be "./file.py:attribute" or "module:attribute", not {place!r}.')
    if config.get("env"):
        take_environment(config["env"], folder)
    for dependency in [".", *(config.get("dependencies") or ())]:
        if (folder / dependency).is_dir():
            sys.path.append(str((folder / dependency).resolve()))
    return _loaded(where, attribute, name, folder)


def is_named(name: str, folder: Path | None = None) -> bool:
    """Whether langgraph.json says where this graph is; nothing is loaded."""
    file = (folder or Path.cwd()) / LANGGRAPH_JSON
    try:
        return file.is_file() and name in (_read(file).get("graphs") or {})
    except ConfigError:
        return False


def _read(file: Path) -> Mapping[str, Any]:
    try:
        config = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as wrong:
        raise ConfigError(f"{file}: cannot be read: {wrong}.") from wrong
    if not isinstance(config, Mapping) or not isinstance(config.get("graphs", {}), Mapping):
        raise ConfigError(f"{file}: graphs must be a table of name and place.")
    return config


# -- importing -------------------------------------------------------------------------------------------------


def _loaded(where: str, attribute: str, name: str, folder: Path) -> Loaded:
    module = _module(where, folder)
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise _no_attribute(where, attribute, module)
        found = getattr(found, part)
    return Loaded(name, _compiled(found, f"{where}:{attribute}"))


def _module(where: str, folder: Path) -> ModuleType:
    path = folder / where
    if where.endswith(".py") or "/" in where:
        if not path.is_file():
            raise ConfigError(f"GRAPH: there is no file {where!r} in {folder}.")
        return _guarded(where, lambda: _import_file(path.resolve()))
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    return _guarded(where, lambda: importlib.import_module(where))


def _import_file(path: Path) -> ModuleType:
    if str(path.parent) not in sys.path[:1]:
        sys.path.insert(0, str(path.parent))
    if path.stem.isidentifier() and _is_at(path.stem, path):
        return importlib.import_module(path.stem)
    # Something else has that name, or nothing may have it.
    name = f"{path.parent.name}__{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _is_at(name: str, path: Path) -> bool:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None and Path(spec.origin).resolve() == path


def _guarded(where: str, load: Callable[[], ModuleType]) -> ModuleType:
    try:
        return load()
    except ConfigError:
        raise  # a protect() in that file says it better
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name == where.partition(".")[0]:
            raise ConfigError(f"GRAPH: there is no module {where!r}, on Python's path or in this folder.") from error
        raise ConfigError(f"GRAPH: {where} could not be imported: {in_user_code(error)}") from error


def in_user_code(error: BaseException) -> str:
    """An error with the last line of the user's own code that it passed: not ours, not an installed package's."""
    said = f"{type(error).__name__}: {error}".rstrip(": ")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename)]
    if isinstance(error, SyntaxError) and error.filename:
        return f'{said}\n  File "{error.filename}", line {error.lineno}\n    {(error.text or "").strip()}'
    if not frames:
        return said
    last = frames[-1]
    return f'{said}\n  File "{last.filename}", line {last.lineno}, in {last.name}\n    {last.line}'


_OURS = str(Path(__file__).parents[1])


def _is_users(file: str) -> bool:
    return not (file.startswith((_OURS, "<")) or f"{Path('/site-packages/')}/" in file or file.startswith(_PYTHONS))


_PYTHONS = str(Path(inspect.__file__).parent)


# -- from what was found to a compiled graph -------------------------------------------------------------------


def _compiled(found: Any, place: str) -> Pregel[Any, Any, Any, Any]:
    if isinstance(found, StateGraph):
        say(f"note: {place} is a StateGraph; it is compiled here")
        found = _guarded_call(found.compile, place)
    elif not isinstance(found, Pregel) and callable(found):
        made = _guarded_call(lambda: _made(found, place), place)
        return _compiled(made, place) if isinstance(made, StateGraph) else _must_be_graph(made, f"{place}()")
    return _must_be_graph(found, place)


def _made(factory: Callable[..., Any], place: str) -> Any:
    """What a function makes: called with nothing, or with an empty config, as LangGraph's own tools call it."""
    parameters = inspect.signature(factory).parameters.values()
    needed = [p for p in parameters if p.default is p.empty and p.kind <= p.POSITIONAL_OR_KEYWORD]
    if len(needed) > 1:
        raise ConfigError(f"GRAPH: {place} takes {len(needed)} arguments; a function that makes a graph takes none.")
    made = factory({"configurable": {}}) if needed else factory()
    return asyncio.run(_awaited(made)) if inspect.iscoroutine(made) else made


async def _awaited(made: Any) -> Any:
    return await made


def _guarded_call(make: Callable[[], Any], place: str) -> Any:
    try:
        return make()
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"GRAPH: {place} failed: {in_user_code(error)}") from error


def _must_be_graph(found: Any, place: str) -> Pregel[Any, Any, Any, Any]:
    if not isinstance(found, Pregel):
        raise ConfigError(
            f"GRAPH: {place} is a {type(found).__name__}; wanted: a compiled graph, a StateGraph, or a function that"
            " returns one."
        )
    return found


# -- what to say when it is not there --------------------------------------------------------------------------


def _no_attribute(where: str, attribute: str, module: ModuleType) -> ConfigError:
    graphs = _graphs_in(module)
    near = difflib.get_close_matches(attribute, graphs or [*vars(module)], n=1)
    hint = f" Did you mean {where}:{near[0]}?" if near else ""
    there = f" Graphs there: {', '.join(graphs)}." if graphs else " There is no graph in it."
    return ConfigError(f"GRAPH: {where} has no {attribute!r}.{hint}{there}")


def _without_attribute(place: str, folder: Path) -> ConfigError:
    graphs = _graphs_in(_module(place, folder)) or ["agent"]
    return ConfigError(f"GRAPH: say which graph of {place} it is: {' or '.join(f'{place}:{name}' for name in graphs)}")


def _graphs_in(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if isinstance(value, Pregel | StateGraph)]
