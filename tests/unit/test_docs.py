"""
The documents are true: their code runs and prints what they show, their links lead somewhere, their lists are complete.

How a page is read. Its blocks run in order, in one folder and one process of their own:

- `python`: runs in the page's one namespace; with `# name.py` as its first line it is written to that file instead.
- `toml` that begins with `# name.toml` is written to that file.
- `text` right after a `python` block is what that block prints; where it ends with an exception, its class and text.
- `console` that begins with `$ ninelives` or `$ python`: each command is run, the lines below it are what it prints to
  standard output. Lines below a command may be left out; then it must end well, and nothing is compared.
- `…` in an expected text stands for anything, lines included.
- `<!-- not run: reason -->` above a block leaves it alone.
"""

from __future__ import annotations

import ast
import io
import json
import os
import re
import signal
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
README, README_ZH = ROOT / "README.md", ROOT / "README.zh-CN.md"
PAGES = [README, README_ZH, ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]
HANGS_S = 120

FENCE = re.compile(r"(?P<above><!--.*?-->\n+)?^```(?P<kind>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"<!-- not run: \S.*-->")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: the line that it begins at, its language, what is in it, and what is said above it."""

    line: int
    kind: str
    body: str
    above: str = ""

    @property
    def file(self) -> str | None:
        found = re.match(r"# ([\w./-]+\.(?:py|toml))\n", self.body)
        return found[1] if found else None


@dataclass(frozen=True)
class Step:
    """Something to do, and what it must print; None: that is not looked at."""

    line: int
    do: str
    what: str
    expected: str | None = None
    file: str | None = None


def blocks_of(text: str) -> list[Block]:
    return [
        Block(text.count("\n", 0, m.start("kind")) + 1, m["kind"], m["body"], (m["above"] or "").strip())
        for m in FENCE.finditer(text)
    ]


def steps_of(blocks: list[Block]) -> list[Step]:
    steps: list[Step] = []
    for place, block in enumerate(blocks):
        if NOT_RUN.fullmatch(block.above):
            continue
        if block.kind in ("python", "toml") and block.file:
            steps.append(Step(block.line, "write", block.body, file=block.file))
        elif block.kind == "python":
            below = blocks[place + 1 : place + 2]
            expected = below[0].body if below and below[0].kind == "text" else None
            steps.append(Step(block.line, "python", block.body, expected))
        elif block.kind == "console" and re.match(r"\$ (\w+=\S+ )*(ninelives|python) ", block.body):
            steps += _commands(block)
    return steps


def _commands(block: Block) -> list[Step]:
    steps, lines = [], block.body.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        told = "\n".join(lines[start + 1 : end])
        steps.append(Step(block.line + start + 1, "console", lines[start].removeprefix("$ "), told or None))
    return steps


def fits(expected: str, printed: str) -> bool:
    """Whether it was printed, with `…` for anything."""
    parts = map(re.escape, expected.strip().split("…"))
    return re.fullmatch(".*".join(parts), printed.strip(), re.DOTALL) is not None


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


# -- the code -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [page for page in PAGES if steps_of(blocks_of(page.read_text()))], ids=name_of)
def test_the_code_of_a_page_runs_and_prints_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    """What a reader types does what the page says."""
    steps = steps_of(blocks_of(page.read_text()))

    printed = _played(steps, tmp_path)

    wrong = [
        f"{name_of(page)}:{step.line}: expected\n{step.expected}\nprinted\n{out}"
        for step, out in zip(steps, printed, strict=False)
        if not fits(step.expected if step.expected is not None else "…", out)
    ]
    assert not wrong, "\n\n".join(wrong)
    assert len(printed) == len(steps), f"{name_of(page)}:{steps[len(printed) - 1].line}: {printed[-1]}"


def _played(steps: list[Step], folder: Path) -> list[str]:
    """What each step printed, carried out in one process; ends early with the traceback of one that failed."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("NINELIVES_")}
    done = subprocess.run(
        [sys.executable, __file__],
        input=json.dumps([asdict(step) for step in steps]),
        env={**clean, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=HANGS_S,
    )
    assert done.returncode == 0, done.stderr
    printed: list[str] = json.loads(done.stdout)
    return printed


def test_what_is_not_run_says_why() -> None:
    """A block is left alone only for a stated reason, and few are."""
    marks = [(page, block) for page in PAGES for block in blocks_of(page.read_text()) if "not run" in block.above]

    assert all(NOT_RUN.fullmatch(block.above) for _, block in marks)
    assert max(Counter(page for page, _ in marks).values()) <= 3


# -- links and names --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    """A relative link names a file that is there, and a heading that is in it."""
    broken = []
    for target in LINK.findall(page.read_text()):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        aim = (page.parent / path).resolve() if path else page
        anchors = {slug(heading) for _, heading in _headings(aim.read_text())} if aim.is_file() else set()
        if not aim.exists() or (anchor and anchor not in anchors):
            broken.append(target)

    assert not broken


def test_every_page_is_found_from_the_readme() -> None:
    """Whoever starts at the README comes to each page."""
    reached, waiting = {README}, [README]
    while waiting:
        page = waiting.pop()
        targets = [target.partition("#")[0] for target in LINK.findall(page.read_text()) if "://" not in target]
        found = {(page.parent / target).resolve() for target in targets if target.endswith(".md")} - reached
        reached |= found
        waiting += [page for page in found if page.exists()]

    assert {name_of(page) for page in PAGES} <= {name_of(page) for page in reached}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_page_knows_the_machine_it_was_written_on(page: Path) -> None:
    """No path of a machine is in a document."""
    assert not re.findall(r"(?<![\w.])/(?:home|root|tmp|work|Users|private)/\S*", page.read_text())


def test_the_two_readmes_are_in_step() -> None:
    """The Chinese README has the same code, the same links and as many headings of each level."""
    english, chinese = README.read_text(), README_ZH.read_text()

    assert _without_comments(chinese) == _without_comments(english)
    assert Counter(len(marks) for marks, _ in _headings(chinese)) == Counter(len(m) for m, _ in _headings(english))
    assert _links(chinese) - {"README.md"} == _links(english) - {"README.zh-CN.md"}


def _without_comments(text: str) -> list[tuple[str, str]]:
    """The code blocks, less what is said in comments, which are translated."""
    return [(block.kind, re.sub(r" *# .*", "", block.body)) for block in blocks_of(text)]


def _headings(text: str) -> list[tuple[str, str]]:
    return HEADING.findall(FENCE.sub("", text))


def _links(text: str) -> set[str]:
    return set(LINK.findall(text))


# -- the lists of the reference ---------------------------------------------------------------------------------------


def settings_table() -> str:
    """The table of `docs/reference/settings.md`, made from the keys themselves."""
    from ninelives.config import KEYS, rule_of, variable_of

    lines = ["| key | variable | default | allowed | |", "|---|---|---|---|---|"]
    for name, key in sorted(KEYS.items(), key=lambda item: "." in item[0]):
        section, _, own = name.rpartition(".")
        shown = f"`[{section}]` `{own}`" if section else f"`{own}`"
        default = f"`{json.dumps(key.default)}`" if isinstance(key.default, str | int | float) else "not set"
        cells = (shown, f"`{variable_of(name)}`", default, rule_of(key).allowed, key.metadata["why"])
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def test_the_page_of_settings_tells_every_key() -> None:
    """Every key is there with its variable, default and rule."""
    assert settings_table() in (ROOT / "docs/reference/settings.md").read_text()


def test_the_page_of_errors_tells_every_error() -> None:
    """Every error class has a heading of its own, and no heading is of one that is gone."""
    import ninelives.errors
    from ninelives.errors import NineLivesError

    classes = {n for n, c in vars(ninelives.errors).items() if isinstance(c, type) and issubclass(c, NineLivesError)}
    text = (ROOT / "docs/reference/errors.md").read_text()

    assert {heading for marks, heading in _headings(text) if marks == "###"} == classes


def test_the_page_of_the_library_tells_every_public_name() -> None:
    """Every name of `ninelives` and every argument of `protect` and `effect` is in the reference."""
    import inspect

    import ninelives

    text = (ROOT / "docs/reference/library.md").read_text()
    functions: list[Callable[..., Any]] = [ninelives.protect, ninelives.effect, ninelives.open_store]
    arguments = [argument for function in functions for argument in inspect.signature(function).parameters]

    assert [name for name in [*ninelives.__all__, *arguments] if f"`{name}" not in text] == []


def test_the_page_of_crash_testing_tells_every_checker() -> None:
    """Every checker of the harness is in the table, and none that is gone."""
    from ninelives.chaos import checkers

    table = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/internals/crash-testing.md").read_text(), re.MULTILINE)
    kinds = (checkers.KILLED, checkers.STOPPED, checkers.BESIDE, checkers.CLICKED)
    known = {check.__name__ for checks in kinds for check in checks}

    assert {name for name in table if hasattr(checkers, name)} == known


def test_every_promise_names_tests_that_exist() -> None:
    """A promise is shown by a test, and the test is there."""
    text = (ROOT / "docs/promises.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text)

    missing = [f"{file}::{test}" for file, test in named if not _has_test(ROOT / file, test)]

    assert not missing
    assert len(named) >= 10


def _has_test(file: Path, test: str) -> bool:
    if not file.is_file():
        return False
    nodes = ast.walk(ast.parse(file.read_text()))
    functions = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    return not test or test in functions


# -- the process of a page --------------------------------------------------------------------------------------------


def _play(steps: list[dict[str, Any]]) -> list[str]:
    page = ModuleType("__main__")
    sys.modules["__main__"] = page  # so that the classes of a page are found where they say they are
    sys.path.insert(0, os.getcwd())
    printed: list[str] = []
    for step in steps:
        try:
            printed.append(_carried_out(Step(**step), page))
        except BaseException:
            return [*printed, traceback.format_exc()]
    return printed


def _carried_out(step: Step, page: ModuleType) -> str:
    if step.do == "write":
        assert step.file is not None
        Path(step.file).write_text(step.what)
        return ""
    return _console(step) if step.do == "console" else _python(step, page)


def _console(step: Step) -> str:
    """What it printed to standard output. A command that shows none must end well, or be killed as it was told to."""
    done = subprocess.run(step.what, shell=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if step.expected is None and done.returncode not in (0, -signal.SIGKILL, 128 + signal.SIGKILL):
        raise RuntimeError(f"$ {step.what}\n{done.stderr}")
    told = step.expected is None or fits(step.expected, done.stdout)
    return done.stdout if told else done.stdout + done.stderr


def _python(step: Step, page: ModuleType) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        try:
            exec(compile(step.what, f"line {step.line}", "exec", dont_inherit=True), vars(page))
        except Exception as error:
            if step.expected is None:
                raise
            print(f"{type(error).__name__}: {error}")
    return out.getvalue()


if __name__ == "__main__":
    answer = _play(json.load(sys.stdin))
    sys.__stdout__.write(json.dumps(answer))  # type: ignore[union-attr]
    sys.__stdout__.flush()  # type: ignore[union-attr]
    os._exit(0)  # threads of a page that still wait are no concern
