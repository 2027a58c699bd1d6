"""
The settings: what there is to set, what is allowed, and where each value comes from.

A value comes from the environment if its variable is set and not empty, else from `ninelives.toml`, else it is the
default written here. `ninelives.toml` is made to be committed, so it never holds a secret. Whatever is wrong is refused
before anything starts, by the name of the file or variable: a setting that is quietly ignored is worse than none.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from ninelives.errors import ConfigError, EncryptionKeyError

FILE_NAME = "ninelives.toml"
ENV_PREFIX = "NINELIVES_"
KEYS_VARIABLE = "NINELIVES_ENCRYPTION_KEYS"
"""Secret, so it is no setting: it is read where a store is opened (`stores/codec/keys.py`), and never from a file."""

_SECRET = re.compile(
    r"(secret|passw(or)?d|passphrase|credential|(^|[._-])(token|auth)|(api|access|private|encryption)[._-]?key)s?$",
    re.IGNORECASE,
)


# -- what is allowed -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """
    What one key may hold: in words, and as a function that gives the value as it is kept.

    The function raises ValueError for what is not allowed, in a table with the name of the entry.
    """

    allowed: str
    accept: Callable[[object], Any]
    is_text: bool = False
    """An environment variable's text is the value itself, not a TOML value."""
    is_list: bool = False
    """An environment variable may list the values with commas between them."""


def _need(holds: bool) -> None:
    if not holds:
        raise ValueError


def _number(low: float, high: float, unit: str) -> Rule:
    def accept(value: object) -> float:
        _need(isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high)
        return float(cast(float, value))

    return Rule(f"a number of {unit} from {low:g} to {high:g}", accept)


def _whole(low: int, high: int) -> Rule:
    def accept(value: object) -> int:
        _need(isinstance(value, int) and not isinstance(value, bool) and low <= value <= high)
        return cast(int, value)

    return Rule(f"a whole number from {low} to {high}", accept)


def _boolean() -> Rule:
    def accept(value: object) -> bool:
        _need(isinstance(value, bool))
        return cast(bool, value)

    return Rule("true or false", accept)


def _text(pattern: str, allowed: str) -> Rule:
    def accept(value: object) -> str:
        _need(isinstance(value, str) and re.fullmatch(pattern, value) is not None)
        return cast(str, value)

    return Rule(allowed, accept, is_text=True)


def _list_of(item: Rule, allowed: str) -> Rule:
    def accept(value: object) -> tuple[Any, ...]:
        _need(isinstance(value, list))
        return tuple(item.accept(entry) for entry in cast(list[object], value))

    return Rule(allowed, accept, is_list=True)


def _table_of(item: Rule, allowed: str) -> Rule:
    def accept(value: object) -> dict[str, Any]:
        _need(isinstance(value, dict))
        return {name: _entry(item, name, entry) for name, entry in cast(dict[str, object], value).items()}

    return Rule(allowed, accept)


def _entry(item: Rule, name: str, value: object) -> Any:
    try:
        return item.accept(value)
    except ValueError:
        raise ValueError(name) from None


def _price() -> Rule:
    amount = _number(0, 1_000_000, "dollars")

    def accept(value: object) -> Price:
        _need(isinstance(value, dict) and value.keys() == {"input", "output"})
        entry = cast(dict[str, object], value)
        return Price(amount.accept(entry["input"]), amount.accept(entry["output"]))

    return Rule("{ input = dollars, output = dollars }", accept)


def _or_word(rule: Rule, word: str) -> Rule:
    def accept(value: object) -> Any:
        return word if value == word else rule.accept(value)

    return Rule(f'{rule.allowed}, or "{word}"', accept)


_PLACE = _text(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", '"module:name"')
_NAME = _text(r"\S+", "a name")
_OUTCOME = _text("reject|approve|respond|escalate|fail", '"reject", "approve", "respond", "escalate" or "fail"')
_SECONDS = _number(0.001, 31_536_000 * 10, "seconds")


def _effect_rule() -> Rule:
    accepts = {
        "unknown": _text("ask|repeat|skip", '"ask", "repeat" or "skip"'),
        "probe": _PLACE,
        "key": _text(r"\w+", "the name of an argument"),
        "timeout_s": _number(0.001, 31_536_000, "seconds"),
        "on_fork": _text("recorded|live|ask", '"recorded", "live" or "ask"'),
    }

    def accept(value: object) -> EffectRule:
        if isinstance(value, EffectRule):
            return value
        _need(isinstance(value, dict) and value.keys() <= accepts.keys())
        entry = cast(dict[str, object], value)
        return EffectRule(**{name: accepts[name].accept(one) for name, one in entry.items()})

    return Rule(
        f"{{ {', '.join(f'{name} = {rule.allowed}' for name, rule in accepts.items())} }}, all optional", accept
    )


def _tool_approval() -> Rule:
    accepts = {
        "policy": _text("ask|shadow|graph", '"ask", "shadow" or "graph"'),
        "auto": _PLACE,
        "deadline_s": _SECONDS,
        "at_deadline": _OUTCOME,
        "text": _text(r"(?s).+", "a text"),
        "to": _list_of(_text(r".+", "an actor"), "a list of actors"),
        "remind_s": _SECONDS,
    }

    def accept(value: object) -> ToolApproval:
        if isinstance(value, ToolApproval):
            return value
        if isinstance(value, str):
            value = {"policy": value}
        _need(isinstance(value, dict) and len(value) > 0 and value.keys() <= accepts.keys())
        entry = cast(dict[str, object], value)
        return ToolApproval(**{name: accepts[name].accept(one) for name, one in entry.items()})

    return Rule(
        '"ask", "shadow", "graph", { auto = "module:rule" }, or a table of policy, auto, deadline_s, at_deadline, text,'
        " to, remind_s",
        accept,
    )


def _graph_state() -> Rule:
    frequency = _or_word(_whole(1, 1_000_000), "full")

    def accept(value: object) -> GraphStateSettings:
        _need(isinstance(value, dict) and value.keys() <= {"snapshot_frequency"})
        entry = cast(dict[str, object], value)
        return GraphStateSettings(**{name: frequency.accept(one) for name, one in entry.items()})

    return Rule(f"snapshot_frequency = {frequency.allowed}", accept)


# -- what there is to set --------------------------------------------------------------------------------------


def _key(default: Any, rule: Rule, why: str, *, shown: str = "") -> Any:
    """
    One setting.

    Args:
        default: its value unless set; a dict stands for an empty table.
        why: one line for whoever edits the file.
        shown: how the default file shows it, as TOML; needed where the default says too little.
    """
    metadata = {"rule": rule, "why": why, "shown": shown}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Price:
    """What a model costs, in dollars for a million tokens."""

    input: float
    output: float


@dataclass(frozen=True)
class LeaseSettings:
    """How long a worker is believed alive without a word from it."""

    ttl_s: float = _key(6.0, _number(0.1, 3600, "seconds"), "A worker that was not heard of for so long is replaced.")
    heartbeat_s: float = _key(
        1.5, _number(0.01, 1200, "seconds"), "A worker reports so often. Three reports must fit into ttl_s."
    )

    def __post_init__(self) -> None:
        if self.heartbeat_s * 3 > self.ttl_s:
            raise ConfigError(
                f"[lease] heartbeat_s = {self.heartbeat_s:g} leaves no room for three beats in ttl_s = {self.ttl_s:g};"
                f" allowed: heartbeat_s up to {self.ttl_s / 3:g}, or a longer ttl_s."
            )


@dataclass(frozen=True)
class SqliteSettings:
    """How a SQLite store is opened."""

    synchronous: str = _key(
        "FULL",
        _text("FULL|NORMAL", '"FULL" or "NORMAL"'),
        "FULL: what was acknowledged outlives a power cut. NORMAL: it outlives a kill, and is faster.",
    )
    busy_timeout_s: float = _key(3.0, _number(0, 600, "seconds"), "So long a write waits for another process's.")


@dataclass(frozen=True)
class RunSettings:
    """How a run is driven."""

    sync_threads: int = _key(32, _whole(1, 1024), "So many nodes and tools that are not async may run at once.")
    recursion_limit: int | None = _key(
        None, _whole(1, 1_000_000), "Supersteps that a run may take. Not set: what the graph says.", shown="200"
    )


@dataclass(frozen=True)
class EffectRule:
    """
    What is declared about a tool that is an outside act, without a change of its code.

    Attributes:
        unknown: what becomes of one whose outcome nobody knows; as of `effect`. None: what its probe says, or a person.
        probe: `module:function` that takes the tool's arguments and finds out; the function itself, once imported.
        key: the argument whose value is the act's business key.
    """

    unknown: Literal["ask", "repeat", "skip"] | None = None
    probe: Any = None
    key: str | None = None
    timeout_s: float | None = None
    on_fork: Literal["recorded", "live", "ask"] = "recorded"

    def __post_init__(self) -> None:
        if self.probe is not None and self.unknown is not None:
            raise ConfigError(f"[effects.tools] a probe finds out, so unknown = {self.unknown!r} has no say.")


@dataclass(frozen=True)
class EffectsSettings:
    """Which tools are outside acts, beside those that the code marks; and whether model calls are recorded."""

    model: str = _key(
        "paid",
        _text("paid|recorded", '"paid" or "recorded"'),
        "recorded: a model call is kept at once, so that a node which was killed behind it does not pay for it again.",
    )
    tools: Mapping[str, EffectRule] = _key(
        {},
        _table_of(_effect_rule(), f"tables by tool name: {_effect_rule().allowed}"),
        "Tools that are outside acts, by name: what becomes of one whose outcome is unknown.",
        shown='{ charge = { unknown = "ask", timeout_s = 30 } }',
    )


@dataclass(frozen=True)
class ToolApproval:
    """
    How calls of one tool are approved.

    Attributes:
        policy: "ask": each call asks, whatever the graph says. "shadow": none does, and what would have been asked is
            recorded. "graph": as the graph says.
        auto: a function of name and arguments that decides, or leaves it to a person by returning None.
        deadline_s, at_deadline, text, to, remind_s: as those of `QuestionsSettings`, which hold where they are not set.
    """

    policy: Literal["ask", "shadow", "graph"] = "graph"
    auto: str | None = None
    deadline_s: float | None = None
    at_deadline: str | None = None
    text: str | None = None
    to: tuple[str, ...] | None = None
    remind_s: float | None = None

    def __post_init__(self) -> None:
        if self.policy not in ("ask", "shadow", "graph"):
            raise ConfigError(f"[approvals] policy = {self.policy!r} is none. Allowed: ask, shadow, graph.")
        if self.policy == "shadow" and self.auto is not None:
            raise ConfigError("[approvals] a tool is approved by a rule or only watched (shadow), not both.")
        _outcome_must_hold(self.at_deadline, self.text, self.to, "[approvals.tools]")


def _outcome_must_hold(outcome: str | None, text: str | None, to: Sequence[str] | None, where: str) -> None:
    """
    Raises:
        ConfigError: no such outcome, or one that lacks what it needs.
    """
    try:
        if outcome is not None:
            _OUTCOME.accept(outcome)
    except ValueError:
        raise ConfigError(f"{where} at_deadline = {outcome!r} is not allowed. Allowed: {_OUTCOME.allowed}.") from None
    if outcome == "respond" and not text:
        raise ConfigError(f'{where} at_deadline = "respond" needs text, which is what is answered then.')
    if outcome == "escalate" and not to:
        raise ConfigError(f'{where} at_deadline = "escalate" needs to = [...], who is asked next.')


@dataclass(frozen=True)
class ApprovalsSettings:
    """Which tool calls ask for leave, beside those that the graph itself has asked about; and who gives it."""

    tools: Mapping[str, ToolApproval] = _key(
        {},
        _table_of(_tool_approval(), f"by tool name: {_tool_approval().allowed}"),
        "By tool, also as a table [approvals.tools.name]: ask for every call, decide by a rule, or only watch.",
        shown='{ charge = "ask", mail = { auto = "my_app.rules:small" }, read = "shadow" }',
    )
    auto_approve: bool = _key(
        False, _boolean(), "Approve every tool call that asks, as a script does. Other questions still wait."
    )

    def __post_init__(self) -> None:
        rule = _tool_approval()
        try:
            tools = {name: _entry(rule, name, entry) for name, entry in self.tools.items()}
        except ValueError as wrong:
            raise ConfigError(f"[approvals] tools: {str(wrong)!r} is not allowed. Allowed: {rule.allowed}.") from None
        object.__setattr__(self, "tools", tools)


@dataclass(frozen=True)
class QuestionsSettings:
    """How long questions wait, and what becomes of them then."""

    deadline_s: float | None = _key(
        None, _SECONDS, "So long a question waits for an answer. Not set: for ever.", shown="86400"
    )
    at_deadline: str = _key(
        "fail",
        _OUTCOME,
        "What becomes of it then: decided in nobody's name, asked of the next actor, or its run expires.",
    )
    text: str = _key("", _text(r"(?s).*", "a text"), "The reason of a rejection, or what is answered, at a deadline.")
    to: tuple[str, ...] = _key(
        (),
        _list_of(_text(r".+", "an actor"), "a list of actors"),
        "Who is asked next, one after the other, each for as long again; then it fails.",
        shown='["ann", "the office"]',
    )
    remind_s: float | None = _key(
        None, _SECONDS, "So long after it was asked watchers are reminded of a question, once.", shown="3600"
    )
    on_input: str = _key(
        "refuse",
        _text("refuse|answer|queue|replace", '"refuse", "answer", "queue" or "replace"'),
        "What becomes of plain input on a thread that waits for an answer.",
    )

    def __post_init__(self) -> None:
        _outcome_must_hold(self.at_deadline, self.text, self.to, "[questions]")


@dataclass(frozen=True)
class GraphStateSettings:
    """How one graph's state is kept. `snapshot_frequency` None: what the graph's channels say."""

    snapshot_frequency: int | Literal["full"] | None = None


@dataclass(frozen=True)
class StateSettings:
    """What may be in a graph's state beside the types that its schema names, and how it is kept."""

    allow: tuple[str, ...] = _key(
        (),
        _list_of(_PLACE, 'a list of "module:Class"'),
        "More types that may be stored and loaded again.",
        shown='["my_app.models:Order"]',
    )
    fidelity: str = _key(
        "report",
        _text("report|strict", '"report" or "strict"'),
        "report: what would come back changed is named in the log. strict: it is refused; each value is read back.",
    )
    replay_max: int = _key(
        5000, _whole(1, 10_000_000), "So many updates a DeltaChannel may be rebuilt from when a thread is loaded."
    )
    graphs: Mapping[str, GraphStateSettings] = _key(
        {},
        _table_of(_graph_state(), f"tables [state.graph-name] of {_graph_state().allowed}"),
        "By graph, also as a table [state.name] of its own: how often its DeltaChannels are stored whole.",
        shown='{ "graph-name" = { snapshot_frequency = 20 } }',
    )

    def of(self, graph: str) -> GraphStateSettings:
        """What is set for one graph."""
        return self.graphs.get(graph) or GraphStateSettings()


@dataclass(frozen=True)
class ConfigEntriesSettings:
    """What becomes of a call's `configurable` and `context` entries when another process takes the run over."""

    store: tuple[str, ...] = _key(
        (),
        _list_of(_NAME, "a list of names"),
        "Entries that are stored with the run. Not for secrets.",
        shown='["user_id", "language"]',
    )
    supply: Mapping[str, str] = _key(
        {},
        _table_of(_PLACE, 'a table of name = "module:function"'),
        "Entries that a function of yours gives anew in each process: the place for secrets.",
        shown='{ api_key = "my_app.secrets:api_key" }',
    )

    def __post_init__(self) -> None:
        if twice := sorted(set(self.store) & set(self.supply)):
            raise ConfigError(
                f"[config] store and supply both name {', '.join(map(repr, twice))};"
                " allowed: an entry is stored or supplied anew, not both."
            )


@dataclass(frozen=True)
class EncryptionSettings:
    """What is asked of encryption. The keys themselves come from `NINELIVES_ENCRYPTION_KEYS` alone."""

    required: bool = _key(
        False,
        _boolean(),
        f"Refuse to start without {KEYS_VARIABLE}, so that no store is made in plain because it was forgotten.",
    )


@dataclass(frozen=True)
class Settings:
    """
    Every setting, checked. `Settings()` is the defaults.

    `path` is the file that was read, None if there was none; it takes no part in comparison.
    """

    store: str = _key(
        "sqlite:///ninelives.db",
        _text(r"[a-z][a-z0-9+]*://.*", 'a URL such as "sqlite:///ninelives.db"'),
        "Where threads and runs are kept.",
    )
    production: bool = _key(False, _boolean(), "Refuse what is meant for trying out, such as a store in memory.")
    lease: LeaseSettings = field(default_factory=LeaseSettings)
    sqlite: SqliteSettings = field(default_factory=SqliteSettings)
    run: RunSettings = field(default_factory=RunSettings)
    state: StateSettings = field(default_factory=StateSettings)
    config: ConfigEntriesSettings = field(default_factory=ConfigEntriesSettings)
    encryption: EncryptionSettings = field(default_factory=EncryptionSettings)
    effects: EffectsSettings = field(default_factory=EffectsSettings)
    approvals: ApprovalsSettings = field(default_factory=ApprovalsSettings)
    questions: QuestionsSettings = field(default_factory=QuestionsSettings)
    prices: Mapping[str, Price] = _key(
        {},
        _table_of(_price(), 'tables [prices."model-name"] of input and output, in dollars for a million tokens'),
        "What a model costs, in dollars for a million tokens.",
        shown='{ "model-name" = { input = 3.0, output = 15.0 } }',
    )
    path: Path | None = field(default=None, compare=False)

    @classmethod
    def load(cls, path: Path | None = None, env: Mapping[str, str] = os.environ) -> Settings:
        """
        Read the settings.

        Args:
            path: the file to read; None: `ninelives.toml` in the current folder or the nearest one above it that has
                one, not above a repository (`.git`) or the home folder. None found: the defaults.
            env: the environment variables.

        Returns:
            The settings. With a file in another folder, a relative SQLite store, the default too, is beside that file,
            so that the same threads are found from every folder below.

        Raises:
            ConfigError: a key or variable is unknown, or has a wrong value; the file cannot be read, or holds a secret.
            EncryptionKeyError: there is no key, and `[encryption] required` asks for one.
        """
        path = path or _find_file(Path.cwd())
        from_file = _read_file(path) if path else {}
        where = str(path) if path else "the environment"
        try:
            settings = _build(from_file, _read_env(env))
        except ConfigError as wrong:
            raise ConfigError(f"{where}: {wrong}") from None
        if settings.encryption.required and not env.get(KEYS_VARIABLE):
            raise EncryptionKeyError(
                f"{where}: [encryption] required = true, and {KEYS_VARIABLE} is not set; nothing was opened. Set it."
            )
        if path and not env.get(variable_of("store")):
            settings = replace(settings, store=_store_beside(path, settings.store))
        return replace(settings, path=path)


# -- reading ---------------------------------------------------------------------------------------------------

_Values = dict[str, Any]
"""Accepted values by key, those of a section by `section.key`."""


def _find_file(start: Path) -> Path | None:
    for folder in (start, *start.parents):
        if (folder / FILE_NAME).is_file():
            return folder / FILE_NAME
        if (folder / ".git").exists() or folder == Path.home():
            return None
    return None


def _read_file(path: Path) -> _Values:
    try:
        tables = tomllib.loads(path.read_text("utf-8"))
    except OSError as wrong:
        raise ConfigError(f"{path}: cannot be read ({wrong.strerror}).") from wrong
    except ValueError as wrong:
        raise ConfigError(f"{path}: is not TOML: {wrong}.") from wrong
    values: _Values = {}
    for name, value in _flat(tables, path):
        values[name] = _accept(name, value, f"{path}: {_as_written(name)}")
    _refuse_password(values.get("store", ""), path)
    return values


def _read_env(env: Mapping[str, str]) -> _Values:
    _refuse_unknown_variables(env)
    return {
        name: _accept(name, _env_value(KEYS[name], text), variable)
        for name in KEYS
        if (text := env.get(variable := variable_of(name), ""))
    }


def _build(*layers: _Values) -> Settings:
    """Settings of the layers' values, later layers first."""
    values: _Values = {}
    for layer in layers:
        values |= layer
    top = {name: value for name, value in values.items() if "." not in name}
    for section, kind in SECTIONS.items():
        begin = f"{section}."
        top[section] = kind(**{k.removeprefix(begin): v for k, v in values.items() if k.startswith(begin)})
    return Settings(**top)


def _flat(tables: Mapping[str, Any], path: Path) -> Iterator[tuple[str, Any]]:
    """Each key of a file with its value, a section's as `section.key`; refuses what is no key."""
    for name, value in tables.items():
        if name in SECTIONS and isinstance(value, dict):
            for key, entry in _by_key(name, value).items():
                yield _known(f"{name}.{key}", path), entry
        else:
            yield _known(name, path), value


def _by_key(section: str, table: Mapping[str, Any]) -> Mapping[str, Any]:
    """A section's entries, the tables [state.name] put where they belong: under `graphs`."""
    if section != "state":
        return table
    graphs = {key: entry for key, entry in table.items() if isinstance(entry, dict) and f"state.{key}" not in KEYS}
    keys = {key: entry for key, entry in table.items() if key not in graphs}
    if not graphs or not isinstance(keys.get("graphs", {}), dict):
        return keys
    return {**keys, "graphs": {**graphs, **keys.get("graphs", {})}}


def _known(name: str, path: Path) -> str:
    if name in KEYS:
        return name
    if _SECRET.search(name):
        raise ConfigError(
            f"{path}: {_as_written(name)} looks like a secret, and this file is made to be committed. Take it out;"
            " allowed: secrets in the environment, or a function named in [config.supply]."
        )
    if name in SECTIONS:
        raise ConfigError(f"{path}: {name} is not a section here; allowed: a table [{name}].")
    raise ConfigError(f"{path}: {_as_written(name)} is not a setting.{_near(name)} Allowed: {_beside(name)}.")


def _near(name: str) -> str:
    near = difflib.get_close_matches(name, [*KEYS, *SECTIONS], n=1)
    return f" Did you mean {_as_written(near[0])}?" if near else ""


def _beside(name: str) -> str:
    """What may stand where a name stands: the keys of its section, or the top-level keys and the sections."""
    section = name.rpartition(".")[0]
    keys = [key for key in KEYS if key.rpartition(".")[0] == section]
    tables = [] if section else [f"[{table}]" for table in SECTIONS]
    return ", ".join([*map(_as_written, keys), *tables])


def _refuse_password(url: str, path: Path) -> None:
    if urlsplit(url).password:
        raise ConfigError(
            f"{path}: store has a password in it, and this file is made to be committed. Take it out;"
            f" allowed: the whole URL in the environment, {variable_of('store')}."
        )


def _refuse_unknown_variables(env: Mapping[str, str]) -> None:
    """A misspelt variable of a section is refused. Others may be somebody else's, and are left alone."""
    known = {KEYS_VARIABLE, *(variable_of(name) for name in KEYS)}
    for section in SECTIONS:
        begin = f"{ENV_PREFIX}{section.upper()}_"
        for variable in sorted(env):
            if variable.startswith(begin) and variable not in known:
                allowed = ", ".join(sorted(name for name in known if name.startswith(begin)))
                raise ConfigError(f"{variable} is not a setting. Allowed: {allowed}.")


def _accept(name: str, value: object, where: str) -> Any:
    rule = rule_of(KEYS[name])
    try:
        return rule.accept(value)
    except ValueError as wrong:
        # The value is not repeated: what stands at the wrong place may be a secret.
        at = f" at {str(wrong)!r}" if str(wrong) else ""
        raise ConfigError(f"{where} has a value that is not allowed{at}. Allowed: {rule.allowed}.") from None


def _env_value(key: Field[Any], text: str) -> object:
    """A variable's text as the value that the file would hold."""
    rule = rule_of(key)
    if rule.is_text:
        return text
    if rule.is_list and not text.lstrip().startswith("["):
        return [entry.strip() for entry in text.split(",")]
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        return text


def _store_beside(path: Path, store: str) -> str:
    """A store URL as seen from the current folder, if it names a file relative to the settings file."""
    scheme, _, name = store.partition(":///")
    folder = path.resolve().parent
    if scheme != "sqlite" or not name or name.startswith("/") or folder == Path.cwd():
        return store
    return f"sqlite:///{folder / name}"


# -- names -----------------------------------------------------------------------------------------------------


def _list_keys() -> Iterator[tuple[str, Field[Any]]]:
    for top in fields(Settings):
        if top.name in SECTIONS:
            yield from ((f"{top.name}.{key.name}", key) for key in fields(SECTIONS[top.name]))
        elif top.metadata:
            yield top.name, top


def rule_of(key: Field[Any]) -> Rule:
    """What a key may hold."""
    return cast(Rule, key.metadata["rule"])


def variable_of(name: str) -> str:
    """The environment variable of a key: `lease.ttl_s` is `NINELIVES_LEASE_TTL_S`."""
    return ENV_PREFIX + name.replace(".", "_").upper()


def _as_written(name: str) -> str:
    """A key as it stands in the file: `lease.ttl_s` is `[lease] ttl_s`."""
    section, _, key = name.rpartition(".")
    return f"[{section}] {key}" if section else key


SECTIONS: dict[str, type[Any]] = {
    top.name: cast(type[Any], top.default_factory)
    for top in fields(Settings)
    if isinstance(top.default_factory, type) and is_dataclass(top.default_factory)
}
"""The sections of the file, each with what its keys are read into."""

KEYS: dict[str, Field[Any]] = dict(_list_keys())
"""Every key there is, those of a section as `section.key`, in the order of the file."""


# -- the default file ------------------------------------------------------------------------------------------


def write_default(path: Path) -> None:
    """
    Write a settings file that changes nothing and shows everything.

    Raises:
        ConfigError: there is a file already; it is left as it is.
    """
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(default_text())
    except FileExistsError:
        raise ConfigError(f"{path}: is there already and was left as it is. Move it away to have a new one.") from None


def default_text() -> str:
    """The default file: each key commented out, with its default or an example, its reason and its variable."""
    lines = [
        "# Settings of ninelives. Made to be committed: secrets go into the environment, never in here.",
        "# Take the '#' off a line to change it. The environment variable of a key, if set, wins.",
    ]
    section = ""
    # A top-level key after a section would belong to that section, so those come first.
    for name, key in sorted(KEYS.items(), key=lambda item: "." in item[0]):
        if (begins := name.rpartition(".")[0]) != section:
            section = begins
            lines += ["", f"[{section}]"]
        lines += ["", f"# {key.metadata['why']}", f"# Variable: {variable_of(name)}", f"# {key.name} = {_shown(key)}"]
    return "\n".join(lines) + "\n"


def _shown(key: Field[Any]) -> str:
    if key.metadata["shown"]:
        return str(key.metadata["shown"])
    if isinstance(key.default, bool):
        return str(key.default).lower()
    return f'"{key.default}"' if isinstance(key.default, str) else str(key.default)
