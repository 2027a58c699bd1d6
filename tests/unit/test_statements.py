"""Statements and schema of the SQLite store: each has a use, a plan, and one truth."""

from __future__ import annotations

import ast
import re
import sqlite3
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

import ninelives.stores.procedures as procedures
from ninelives.clock import system_clock
from ninelives.stores.procedures.keys import TABLES, Table
from ninelives.stores.sqlite.database import Database, migrate, schema
from ninelives.stores.sqlite.statements import STATEMENTS, migrations, split

SCANS = {
    "list_checkpoints": "all threads, by seq, no more than a page",
    "list_runs": "all threads, by run_no, no more than a page",
    "list_effects": "an operator asks for all",
    "list_threads": "one row per thread is what is asked for",
    "list_questions": "of all threads, by an index of those that wait",
    "list_all_queued_inputs": "of all threads, those that wait for their turn",
    "list_workers": "as many rows as processes",
    "add_thread": "SQLite's check of parent_thread, which is skipped unless a reference is open",
}
"""Statements that may read a whole table, and why."""

GIVEN = {"json_each", "j", "wanted", "chain", "CONSTANT", "mine", "began", "up", "this"}
"""What is no table: the values that a statement was given, and its own steps."""


@pytest.fixture
def conn() -> Iterator[sqlite3.Connection]:
    database = Database(":memory:", clock=lambda: system_clock, synchronous="FULL", busy_timeout_s=1)
    conn = database.connect()
    migrate(conn, "memory", wal=False)
    yield conn
    conn.close()


def used_names() -> set[str]:
    """Every literal that a `Query` could be named by: strings, and `f"prefix_{x}"` with the strings beside it."""
    names: set[str] = set()
    for path in Path(procedures.__file__).parent.glob("*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef):
                nodes = [*ast.walk(function)]
                texts = {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
                names |= texts | {f"{a}{b}" for a in texts if a.endswith("_") for b in texts}
    return names | {f"list_{what}" for what in WHAT} | {f"list_thread_{what}" for what in WHAT}


WHAT = ("runs", "effects")


def named_in_queries() -> set[str]:
    """The names in every `Query("name", …)` of the procedures."""
    names: set[str] = set()
    for path in Path(procedures.__file__).parent.glob("*.py"):
        names |= set(re.findall(r'Query\(\s*"(\w+)"', path.read_text()))
    return names


def test_every_statement_is_used() -> None:
    """None is left behind when the act that needed it goes."""
    assert STATEMENTS.keys() - used_names() == set()


def test_every_use_has_a_statement() -> None:
    """A name that is spelt wrong is found here, not at night."""
    named = named_in_queries()

    assert len(named) > 50
    assert named - STATEMENTS.keys() == set()


@pytest.mark.parametrize("name", STATEMENTS)
def test_no_statement_reads_a_whole_table(conn: sqlite3.Connection, name: str) -> None:
    """Each finds its rows by an index, but for those that have a reason not to."""
    lists = dict.fromkeys(("keys", "ranges", "seqs"), "[]")
    params = {param: lists.get(param, 1) for param in re.findall(r":(\w+)", STATEMENTS[name])}

    plan = [row["detail"] for row in conn.execute(f"explain query plan {STATEMENTS[name]}", params)]

    scanned = {line.split()[1] for line in plan if line.startswith("SCAN")} - GIVEN
    assert not scanned or name in SCANS, plan


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("move_tip", "PRIMARY KEY (thread_no=? AND ns=? AND seq=?)"),
        ("find_head", "PRIMARY KEY (thread_no=? AND seq=?)"),
        ("newest_checkpoint", "PRIMARY KEY (thread_no=? AND seq=?)"),
        ("one_checkpoint", "checkpoint_by_id"),
        ("find_place", "checkpoint_by_id"),
        ("ancestors", "PRIMARY KEY (thread_no=? AND seq=?)"),
        ("find_held_run", "run_one_running"),
        ("find_run_by_key", "run_key"),
        ("find_newest_run", "run_of_thread"),
        ("writes_of", "PRIMARY KEY (thread_no=? AND ns=? AND place=?)"),
        ("get_packs", "INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        ("get_writes", "PRIMARY KEY (thread_no=? AND ns=? AND place=? AND task_id=?)"),
    ],
)
def test_what_every_step_asks_goes_by_its_index(conn: sqlite3.Connection, name: str, index: str) -> None:
    """The statements of a superstep cost the same however old the thread and however many there are."""
    params = {param: 1 for param in re.findall(r":(\w+)", STATEMENTS[name])} | {"keys": "[]", "ranges": "[]"}

    plan = " ".join(row["detail"] for row in conn.execute(f"explain query plan {STATEMENTS[name]}", params))

    assert index in plan
    assert name in ("writes_of", "ancestors") or "TEMP B-TREE" not in plan


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.what)
def test_a_walk_through_all_values_goes_by_primary_keys(conn: sqlite3.Connection, table: Table) -> None:
    """A page costs the same wherever it is, nothing is sorted for it, and one row is written back by its key."""
    for name in (table.page, table.set):
        params = {param: 1 for param in re.findall(r":(\w+)", STATEMENTS[name])}

        plan = [row["detail"] for row in conn.execute(f"explain query plan {STATEMENTS[name]}", params)]

        assert len(plan) == 1
        assert "PRIMARY KEY" in plan[0]
        assert plan[0].startswith("SEARCH")


NOT_SEALED = {
    "effect.args_digest": "a digest, keyed with the store's secret",
    "run.request": "likewise",
    "interrupt.digest": "likewise",
    "decision.digest": "likewise",
    "queued_input.request": "likewise",
    "checkpoint.checkpoint_id": "an id, as are all that follow",
    **dict.fromkeys(("checkpoint.parent", "checkpoint.run_ref", "decision.run_id", "event.ref"), ""),
    **dict.fromkeys(
        ("run.run_id", "run.chain", "run.continues", "run.replaces", "run.base", "run.last_checkpoint"), ""
    ),
    **dict.fromkeys(("write.place", "write.task_id"), ""),
    "meta.value": "the secret, which goes last, and numbers",
}
"""Columns that may hold bytes, and why they are under no key."""


def test_every_column_that_is_sealed_is_resealed(conn: sqlite3.Connection) -> None:
    """What may hold bytes is put under a new key, or has a reason not to be: a new column must find its place."""
    tables = [row["name"] for row in conn.execute("select name from sqlite_master where type = 'table'")]
    may_hold_bytes = {
        f"{table}.{column['name']}"
        for table in tables
        for column in conn.execute(f"pragma table_info({table})")
        if column["type"].lower() in ("blob", "any") and not table.startswith("sqlite_")
    }

    sealed = {f"{table.page.removeprefix('sealed_')}.{column}" for table in TABLES for column in table.sealed}

    assert may_hold_bytes == sealed | NOT_SEALED.keys()


def test_the_printed_schema_is_what_migrations_make(conn: sqlite3.Connection) -> None:
    """A store that grew through every release equals the schema that one can read."""
    printed = (files("ninelives.stores.sqlite") / "schema.sql").read_text()

    assert schema(conn) == printed.partition("\n\n")[2]


def test_migrations_are_numbered_without_gaps() -> None:
    """Each brings the store one version on."""
    assert [number for number, _ in migrations()] == list(range(1, len(migrations()) + 1))


def test_a_script_is_split_at_its_statements() -> None:
    """Semicolons in strings and comments end nothing."""
    script = "create table a (b text default ';'); -- x; y\ninsert into a\nvalues (';');\n"

    assert len([*split(script)]) == 2
