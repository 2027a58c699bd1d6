"""GRAPH on the command line: what is found, under which name, and what is said where it is not."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ninelives import protect
from ninelives.cli.environment import parse_environment
from ninelives.cli.graphs import load_graph, protected
from ninelives.config import Settings
from ninelives.errors import ConfigError

GRAPH = """
from langgraph.graph import START, MessagesState, StateGraph
builder = StateGraph(MessagesState)
builder.add_node("only", lambda state: {})
builder.add_edge(START, "only")
graph = builder.compile()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder; path, modules and environment are as before when the test ends."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    known, environment = set(sys.modules), dict(os.environ)
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]
    os.environ.clear()
    os.environ.update(environment)


def refusal(place: str) -> str:
    with pytest.raises(ConfigError) as refused:
        load_graph(place)
    return str(refused.value)


def test_file_brings_its_folder_along(folder: Path) -> None:
    """A file imports its neighbours, and is imported under its own name, once."""
    (folder / "deep").mkdir()
    (folder / "deep" / "next_door.py").write_text(GRAPH)
    (folder / "deep" / "cli_agent.py").write_text("import next_door\nclass Mine: ...\ngraph = next_door.graph\n")

    loaded = load_graph("deep/cli_agent.py:graph")

    assert loaded.name == "graph"
    assert loaded.graph is sys.modules["next_door"].graph
    assert sys.modules["cli_agent"].Mine.__module__ == "cli_agent"


def test_file_named_as_something_known_is_still_that_file(folder: Path) -> None:
    """A file whose name a module of Python has is loaded, and that module stays what it was."""
    (folder / "json.py").write_text(GRAPH)

    loaded = load_graph("json.py:graph")

    assert list(loaded.graph.nodes) == ["__start__", "only"]
    assert sys.modules["json"] is json


def test_module_is_found_from_the_current_folder(folder: Path) -> None:
    """`package.module:attr` is looked for in the current folder, too."""
    (folder / "cli_package").mkdir()
    (folder / "cli_package" / "inner.py").write_text(GRAPH)

    assert load_graph("cli_package.inner:graph").name == "graph"


def test_builders_and_functions_are_made_into_graphs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A StateGraph is compiled, and that is said; functions are called, with a config where they take one."""
    more = "def make(): return graph\ndef make_of(config): return builder\nasync def make_later(): return graph\n"
    (folder / "cli_made.py").write_text(GRAPH + more)

    names = [load_graph(f"cli_made.py:{name}").name for name in ("builder", "make", "make_of", "make_later")]

    assert names == ["builder", "make", "make_of", "make_later"]
    assert "cli_made.py:builder is a StateGraph" in capsys.readouterr().err


def test_protected_graph_is_used_as_it_is(folder: Path) -> None:
    """A graph that its own code protects keeps its store and name; another --store is refused."""
    (folder / "cli_own.py").write_text(GRAPH)
    graph = protect(load_graph("cli_own.py:graph").graph, "sqlite:///own.db", name="own", settings=Settings())
    sys.modules["cli_own"].graph = graph  # type: ignore[attr-defined]

    loaded = load_graph("cli_own.py:graph")

    assert protected(loaded, None, Settings()) is graph
    assert protected(loaded, "sqlite:///own.db", Settings()) is graph
    with pytest.raises(ConfigError, match=r"own\.db; leave --store out"):
        protected(loaded, "sqlite:///other.db", Settings())
    vars(graph)["_ninelives"].keeper.close()
    vars(graph)["_ninelives"].store.close()


def test_langgraph_json_names_graphs(folder: Path) -> None:
    """A name in langgraph.json is the graph's name; its env wins over what is there, its folders are on the path."""
    (folder / "src").mkdir()
    (folder / "src" / "cli_named.py").write_text(GRAPH + "import os\nassert os.environ['CLI_COLOUR'] == 'blue'\n")
    (folder / "vars").write_text("CLI_COLOUR=blue\n")
    os.environ["CLI_COLOUR"] = "red"
    graphs = {"helper": "./src/cli_named.py:graph", "other": {"path": "cli_named:graph"}}
    (folder / "langgraph.json").write_text(json.dumps({"graphs": graphs, "env": "vars", "dependencies": ["./src"]}))

    assert [load_graph(name).name for name in graphs] == ["helper", "other"]


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("nowhere.py:graph", "there is no file 'nowhere.py'"),
        ("nowhere.at_all:graph", "there is no module 'nowhere.at_all'"),
        ("agent", "there is no langgraph.json"),
        ("cli_wrong.py:graff", "no 'graff'. Did you mean cli_wrong.py:graph? Graphs there: builder, graph."),
        ("cli_wrong.py", "cli_wrong.py:builder or cli_wrong.py:graph"),
        ("cli_wrong.py:number", "cli_wrong.py:number is a int; wanted: a compiled graph"),
        ("cli_wrong.py:greedy", "takes 2 arguments"),
        ("cli_wrong.py:fails", 'File "{folder}/cli_wrong.py", line 10, in fails\n    return 1 / 0'),
        ("cli_broken.py:graph", 'File "{folder}/cli_broken.py", line 2, in <module>\n    import not_installed'),
        ("cli_syntax.py:graph", 'File "{folder}/cli_syntax.py", line 1\n    def ('),
        ("cli_exits.py:graph", "could not be imported: SystemExit: 3"),
    ],
)
def test_what_is_not_there_is_said(folder: Path, place: str, said: str) -> None:
    """Each way to be wrong has its own words, and the user's own line where their code failed."""
    (folder / "cli_wrong.py").write_text(
        GRAPH + "number = 3\ndef greedy(one, two): ...\ndef fails():\n    return 1 / 0\n"
    )
    (folder / "cli_broken.py").write_text("import json\nimport not_installed\n")
    (folder / "cli_syntax.py").write_text("def (\n")
    (folder / "cli_exits.py").write_text("raise SystemExit(3)\n")

    assert said.format(folder=folder) in refusal(place)


def test_compiled_in_saver_is_left_aside_aloud(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A graph with a checkpointer of its own runs on our store, and that is said."""
    saver = "from langgraph.checkpoint.memory import InMemorySaver\nsaved = builder.compile(InMemorySaver())\n"
    (folder / "cli_saved.py").write_text(GRAPH + saver)

    agent = protected(load_graph("cli_saved.py:saved"), "sqlite:///t.db", Settings())

    assert "the InMemorySaver that is compiled into the graph is left aside" in capsys.readouterr().err
    vars(agent)["_ninelives"].keeper.close()
    vars(agent)["_ninelives"].store.close()


def test_environment_file_is_read_as_dotenv_reads_it() -> None:
    """Quotes, comments, `export`, escapes and names of earlier lines, as in the library that LangGraph's tools use."""
    text = (
        '# a comment\nexport A=1\nB = two words # said so\nC=\'as $A ${A} is#\'\nD="line\\nend \\"q\\"" # more\n'
        "E=${A}-${B}-${MISSING:-none}\nF=\nG=a#b\n\nnonsense\n"
    )

    found = parse_environment(text)

    assert found == {
        "A": "1",
        "B": "two words",
        "C": "as $A 1 is#",
        "D": 'line\nend "q"',
        "E": "1-two words-none",
        "F": "",
        "G": "a#b",
    }
