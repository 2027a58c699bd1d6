"""The settings: where a value comes from, and what is refused by name."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from ninelives.config import (
    KEYS,
    KEYS_VARIABLE,
    ApprovalsSettings,
    EffectRule,
    GraphStateSettings,
    LeaseSettings,
    Price,
    QuestionsSettings,
    Settings,
    ToolApproval,
    default_text,
    variable_of,
    write_default,
)
from ninelives.errors import ConfigError, EncryptionKeyError

EVERYTHING = """
store = "sqlite:////var/agents.db"
production = true

[lease]
ttl_s = 12
heartbeat_s = 2.5

[sqlite]
synchronous = "NORMAL"
busy_timeout_s = 1

[run]
sync_threads = 4
recursion_limit = 80

[state]
allow = ["shop.models:Order"]
fidelity = "strict"
replay_max = 900

[state.researcher]
snapshot_frequency = 20

[state."the clerk"]
snapshot_frequency = "full"

[config]
store = ["user_id"]
supply = { api_key = "shop.secrets:api_key" }

[encryption]
required = true

[approvals]
auto_approve = true

[approvals.tools]
read = "shadow"

[approvals.tools.charge]
policy = "ask"
deadline_s = 60
at_deadline = "reject"

[questions]
deadline_s = 86400
at_deadline = "escalate"
text = "too late"
to = ["ann", "the office"]
remind_s = 3600
on_input = "queue"

[effects]
model = "recorded"

[effects.tools.charge]
unknown = "repeat"
timeout_s = 30

[effects.tools.mail]
probe = "shop.mail:was_sent"
key = "message_id"
on_fork = "ask"

[prices."big-model"]
input = 3
output = 15.5
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder as the current one; the top of a repository, so that nothing above it is looked at."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load(here: Path, text: str, env: dict[str, str] | None = None) -> Settings:
    """The settings of a file with this text in the current folder."""
    (here / "ninelives.toml").write_text(text)
    return Settings.load(env=env or {})


# -- where a value comes from ----------------------------------------------------------------------------------


def test_without_file_and_variables_the_defaults_hold(here: Path) -> None:
    """Nothing needs to be set."""
    settings = Settings.load(env={})

    assert settings == Settings()
    assert settings.store == "sqlite:///ninelives.db"
    assert (settings.lease.ttl_s, settings.lease.heartbeat_s) == (6.0, 1.5)
    assert (settings.sqlite.synchronous, settings.sqlite.busy_timeout_s) == ("FULL", 3.0)
    assert settings.path is None


def test_every_key_is_read_from_the_file(here: Path) -> None:
    """A file may set every key there is."""
    settings = load(here, EVERYTHING, {KEYS_VARIABLE: "set"})

    assert settings.store == "sqlite:////var/agents.db"
    assert settings.production is True
    assert (settings.lease.ttl_s, settings.lease.heartbeat_s) == (12.0, 2.5)
    assert (settings.sqlite.synchronous, settings.sqlite.busy_timeout_s) == ("NORMAL", 1.0)
    assert (settings.run.sync_threads, settings.run.recursion_limit) == (4, 80)
    assert settings.state.allow == ("shop.models:Order",)
    assert (settings.state.fidelity, settings.state.replay_max) == ("strict", 900)
    assert settings.state.of("researcher") == GraphStateSettings(20)
    assert settings.state.of("the clerk") == GraphStateSettings("full")
    assert settings.state.of("somebody else") == GraphStateSettings(None)
    assert settings.config.store == ("user_id",)
    assert settings.config.supply == {"api_key": "shop.secrets:api_key"}
    assert settings.encryption.required is True
    assert settings.effects.model == "recorded"
    assert settings.effects.tools == {
        "charge": EffectRule(unknown="repeat", timeout_s=30.0),
        "mail": EffectRule(probe="shop.mail:was_sent", key="message_id", on_fork="ask"),
    }
    assert settings.prices == {"big-model": Price(3.0, 15.5)}
    assert settings.path == here / "ninelives.toml"


def test_every_variable_wins_over_the_file(here: Path) -> None:
    """Each key has a variable that overrides the file."""
    env = {
        "NINELIVES_STORE": "sqlite:///other.db",
        "NINELIVES_PRODUCTION": "false",
        "NINELIVES_LEASE_TTL_S": "30",
        "NINELIVES_LEASE_HEARTBEAT_S": "3.5",
        "NINELIVES_SQLITE_SYNCHRONOUS": "FULL",
        "NINELIVES_SQLITE_BUSY_TIMEOUT_S": "9",
        "NINELIVES_RUN_SYNC_THREADS": "8",
        "NINELIVES_RUN_RECURSION_LIMIT": "90",
        "NINELIVES_STATE_ALLOW": "shop.models:Cart, shop.models:Item",
        "NINELIVES_STATE_FIDELITY": "report",
        "NINELIVES_STATE_REPLAY_MAX": "70",
        "NINELIVES_STATE_GRAPHS": '{ researcher = { snapshot_frequency = "full" } }',
        "NINELIVES_CONFIG_STORE": '["language"]',
        "NINELIVES_CONFIG_SUPPLY": '{ token = "shop.secrets:token" }',
        "NINELIVES_ENCRYPTION_REQUIRED": "false",
        "NINELIVES_APPROVALS_TOOLS": '{ charge = "shadow" }',
        "NINELIVES_APPROVALS_AUTO_APPROVE": "false",
        "NINELIVES_QUESTIONS_DEADLINE_S": "60",
        "NINELIVES_QUESTIONS_AT_DEADLINE": "reject",
        "NINELIVES_QUESTIONS_TEXT": "nobody was there",
        "NINELIVES_QUESTIONS_TO": "dan",
        "NINELIVES_QUESTIONS_REMIND_S": "30",
        "NINELIVES_QUESTIONS_ON_INPUT": "answer",
        "NINELIVES_EFFECTS_MODEL": "paid",
        "NINELIVES_EFFECTS_TOOLS": '{ mail = { unknown = "skip" } }',
        "NINELIVES_PRICES": '{ "small-model" = { input = 0, output = 1 } }',
    }

    settings = load(here, EVERYTHING, env)

    assert set(env) == {variable_of(name) for name in KEYS}
    assert (settings.store, settings.production) == ("sqlite:///other.db", False)
    assert (settings.lease.ttl_s, settings.lease.heartbeat_s) == (30.0, 3.5)
    assert (settings.sqlite.synchronous, settings.sqlite.busy_timeout_s) == ("FULL", 9.0)
    assert (settings.run.sync_threads, settings.run.recursion_limit) == (8, 90)
    assert settings.state.allow == ("shop.models:Cart", "shop.models:Item")
    assert (settings.state.fidelity, settings.state.replay_max) == ("report", 70)
    assert settings.state.graphs == {"researcher": GraphStateSettings("full")}
    assert settings.config.store == ("language",)
    assert settings.config.supply == {"token": "shop.secrets:token"}
    assert settings.encryption.required is False
    assert settings.approvals == ApprovalsSettings(tools={"charge": ToolApproval(policy="shadow")})
    assert settings.questions == QuestionsSettings(60.0, "reject", "nobody was there", ("dan",), 30.0, "answer")
    assert (settings.effects.model, settings.effects.tools) == ("paid", {"mail": EffectRule(unknown="skip")})
    assert settings.prices == {"small-model": Price(0.0, 1.0)}


def test_an_empty_variable_counts_as_not_set(here: Path) -> None:
    """`NINELIVES_STORE=` in a shell or a compose file changes nothing."""
    assert load(here, 'store = "sqlite:////a.db"', {"NINELIVES_STORE": ""}).store == "sqlite:////a.db"


def test_variables_of_others_are_left_alone(here: Path) -> None:
    """Only the names under our sections are ours to judge."""
    assert Settings.load(env={"NINELIVES_EXAMPLE_PACE_S": "x", "HOME": "/"}) == Settings()


def test_nearest_file_above_is_found_and_its_store_is_beside_it(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From any folder below, the same file and the same store are meant."""
    (here / "ninelives.toml").write_text("")
    (here / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(here / "deep" / "er")

    settings = Settings.load(env={})

    assert settings.path == here / "ninelives.toml"
    assert settings.store == f"sqlite:///{here.resolve()}/ninelives.db"
    assert Settings.load(env={"NINELIVES_STORE": "sqlite:///mine.db"}).store == "sqlite:///mine.db"


def test_search_ends_at_the_repository(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file outside the repository is not ours."""
    (here / "ninelives.toml").write_text("production = true")
    (here / "repo" / ".git").mkdir(parents=True)
    monkeypatch.chdir(here / "repo")

    assert Settings.load(env={}).path is None


def test_a_graph_may_have_the_name_of_a_setting(here: Path) -> None:
    """Under `graphs` any name is one of a graph."""
    settings = load(here, "[state]\nallow = []\n[state.graphs.allow]\nsnapshot_frequency = 3")

    assert settings.state.of("allow").snapshot_frequency == 3
    assert settings.state.allow == ()


def test_a_named_file_is_read_wherever_it_is(here: Path) -> None:
    """`path` goes before the search."""
    (here / "other.toml").write_text("production = true")

    assert Settings.load(here / "other.toml", env={}).production is True


# -- what is refused -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "key", "allowed"),
    [
        ("production = 1", "production", "true or false"),
        ("store = 3", "store", "a URL"),
        ('store = "agents.db"', "store", "a URL"),
        ("[lease]\nttl_s = 0", "[lease] ttl_s", "from 0.1 to 3600"),
        ("[lease]\nttl_s = nan", "[lease] ttl_s", "a number of seconds"),
        ("[lease]\nttl_s = true", "[lease] ttl_s", "a number of seconds"),
        ("[lease]\nheartbeat_s = '1'", "[lease] heartbeat_s", "a number of seconds"),
        ("[lease]\nheartbeat_s = 2.1", "[lease] heartbeat_s", "up to 2"),
        ("[sqlite]\nsynchronous = 'OFF'", "[sqlite] synchronous", '"FULL" or "NORMAL"'),
        ("[run]\nsync_threads = 0", "[run] sync_threads", "from 1 to 1024"),
        ("[run]\nsync_threads = 1.5", "[run] sync_threads", "a whole number"),
        ("[state]\nallow = 'a:B'", "[state] allow", '"module:Class"'),
        ("[state]\nallow = ['a.B']", "[state] allow", '"module:Class"'),
        ("[state]\nfidelity = 'loose'", "[state] fidelity", '"report" or "strict"'),
        ("[state]\nreplay_max = 0", "[state] replay_max", "from 1 to"),
        (
            "[state.clerk]\nsnapshot_frequency = 0",
            "[state] graphs has a value that is not allowed at 'clerk'",
            '"full"',
        ),
        ("[state.clerk]\nfrequency = 3", "[state] graphs has a value that is not allowed at 'clerk'", "snapshot_freq"),
        ("[state]\ngraphs = 3\n[state.clerk]\nsnapshot_frequency = 3", "[state] graphs", "tables"),
        ("[config]\nstore = [1]", "[config] store", "a list of names"),
        (
            "[config]\nsupply = { who = 'os' }",
            "[config] supply has a value that is not allowed at 'who'",
            "module:func",
        ),
        ("[config]\nstore = ['a']\nsupply = { a = 'b:c' }", "'a'", "not both"),
        ("[prices.m]\ninput = 1", "prices has a value that is not allowed at 'm'", "input and output"),
        ("lease = 3", "lease", "a table [lease]"),
        ("[lease]\nttl = 3", "[lease] ttl is not a setting. Did you mean [lease] ttl_s?", "[lease] heartbeat_s"),
        ("colour = 3", "colour is not a setting", "store, production, prices, [lease]"),
        ("store = \nproduction = true", "is not TOML", "line 1"),
    ],
)
def test_wrong_file_is_refused_by_name(here: Path, text: str, key: str, allowed: str) -> None:
    """The error names the file, the key and what is allowed."""
    with pytest.raises(ConfigError) as refused:
        load(here, text)

    said = str(refused.value)
    assert str(here / "ninelives.toml") in said
    assert key in said
    assert allowed in said


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("NINELIVES_PRODUCTION", "yes", "true or false"),
        ("NINELIVES_LEASE_TTL_S", "soon", "a number of seconds"),
        ("NINELIVES_SQLITE_SYNCHRONOUS", "off", '"FULL" or "NORMAL"'),
        ("NINELIVES_CONFIG_SUPPLY", "token", "module:function"),
        ("NINELIVES_LEASE_TTL", "6", "NINELIVES_LEASE_TTL_S"),
    ],
)
def test_wrong_variable_is_refused_by_name(here: Path, variable: str, value: str, allowed: str) -> None:
    """The error names the variable and what is allowed, a misspelt name as much as a wrong value."""
    with pytest.raises(ConfigError, match=re.escape(variable)) as refused:
        Settings.load(env={variable: value})

    assert allowed in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        'api_key = "s3cret"',
        '[lease]\npassword = "s3cret"',
        '[config]\naccess-token = "s3cret"',
        'store = "postgresql://app:s3cret@db/agents"',
        '[config]\nsupply = { api_key = "s3cret" }',
        '[encryption]\nkeys = "s3cret"',
        'encryption_key = "s3cret"',
    ],
)
def test_secret_in_the_file_is_refused_and_not_repeated(here: Path, text: str) -> None:
    """What looks like a secret is named, told where to go instead, and never printed."""
    with pytest.raises(ConfigError) as refused:
        load(here, text)

    assert "llowed: " in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_secret_in_a_variable_is_fine(here: Path) -> None:
    """The environment is where a store's password belongs."""
    url = "postgresql://app:s3cret@db/agents"

    assert Settings.load(env={"NINELIVES_STORE": url}).store == url


def test_required_keys_that_are_not_set_stop_the_start(here: Path) -> None:
    """A deploy that forgot the keys does not go on in plain."""
    with pytest.raises(EncryptionKeyError, match=f"{KEYS_VARIABLE} is not set"):
        load(here, "[encryption]\nrequired = true")

    assert load(here, "[encryption]\nrequired = true", {KEYS_VARIABLE: "set"}).encryption.required


def test_file_and_variable_are_checked_together(here: Path) -> None:
    """A heartbeat from the file must fit into a lease from the environment."""
    with pytest.raises(ConfigError, match="no room for three beats"):
        load(here, "[lease]\nheartbeat_s = 1.9", {"NINELIVES_LEASE_TTL_S": "5"})


def test_settings_made_in_code_are_checked_too() -> None:
    """The rule on beats holds whoever makes the settings."""
    with pytest.raises(ConfigError, match="up to 1"):
        LeaseSettings(ttl_s=3, heartbeat_s=2)


def test_a_named_file_that_is_missing_is_an_error(here: Path) -> None:
    """Only the search may find nothing."""
    with pytest.raises(ConfigError, match=r"gone\.toml: cannot be read"):
        Settings.load(here / "gone.toml", env={})


# -- the default file ------------------------------------------------------------------------------------------


def test_default_file_changes_nothing(here: Path) -> None:
    """What `init` writes reads back as the defaults."""
    write_default(here / "ninelives.toml")

    settings = Settings.load(env={})

    assert settings == Settings()
    assert settings.path == here / "ninelives.toml"


def test_default_file_shows_every_key_where_it_belongs(here: Path) -> None:
    """With each '#' taken off, the file holds every key there is, and only values that are allowed."""
    text = re.sub(r"^# (\w+ = )", r"\1", default_text(), flags=re.MULTILINE)

    load(here, text)

    tables = tomllib.loads(text)
    for top in fields(Settings):
        held = getattr(Settings(), top.name)
        if is_dataclass(held):
            assert tables[top.name].keys() == {key.name for key in fields(held)}
        elif top.name != "path":
            assert top.name in tables


def test_default_file_names_every_variable() -> None:
    """A reader of the file learns how to override each key."""
    assert [name for name in KEYS if variable_of(name) not in default_text()] == []


def test_a_file_that_is_there_is_left_alone(here: Path) -> None:
    """`init` never overwrites settings."""
    (here / "ninelives.toml").write_text("production = true")

    with pytest.raises(ConfigError, match="is there already"):
        write_default(here / "ninelives.toml")

    assert (here / "ninelives.toml").read_text() == "production = true"
