"""
English prose and Python code that every machine with our dependencies has: the text of the measured chats.

Code is the source of the standard library; prose is Python's help topics and the docstrings of the standard library
and of a few libraries. Nothing of this repository is in it: our compression dictionary is made of that. A text is built
once and kept in the system's temporary folder.
"""

from __future__ import annotations

import hashlib
import os
import platform
import random
import re
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

BUILDER = 1
"""Grows with every change of what is built, so that an older text is not taken for it."""
LIBRARIES = ("langchain_core", "langchain", "langgraph", "langsmith", "pydantic", "deepagents", "anthropic", "httpx")
NOT_EVERYWHERE = {"site-packages", "test", "tests", "idlelib", "lib2to3", "ensurepip", "turtledemo", "__pycache__"}
"""Parts of a standard library that some systems leave out or pack elsewhere."""

DOCSTRING = re.compile(r'"""(.{200,4000}?)"""', re.DOTALL)
PARAGRAPH_CHARS = range(120, 2500)
LETTERS_MIN = 0.88
"""Of a paragraph's characters so many are letters and spaces, or it is a table, an example or a signature."""


@dataclass(frozen=True)
class Corpus:
    prose: str
    code: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(f"{self.prose}\0{self.code}".encode()).hexdigest()[:16]


def load_corpus() -> Corpus:
    """The corpus of this installation; built when it is not there yet, which takes some seconds."""
    folder = Path(tempfile.gettempdir()) / f"ninelives-bench-corpus-{_installation()}"
    parts = [folder / name for name in ("prose.txt", "code.txt")]
    if not all(part.exists() for part in parts):
        folder.mkdir(parents=True, exist_ok=True)
        for part, text in zip(parts, (_prose(), _code()), strict=True):
            _write(part, text)
    return Corpus(*(part.read_text("utf-8") for part in parts))


def _installation() -> str:
    """A new version of any of the sources is another corpus."""
    versions = [f"{d.name} {d.version}" for d in metadata.distributions() if d.name.replace("-", "_") in LIBRARIES]
    told = f"{BUILDER} {platform.python_version()} {sorted(versions)}"
    return hashlib.sha256(told.encode()).hexdigest()[:12]


def _write(path: Path, text: str) -> None:
    """Whole or not at all: another process may be looking for it."""
    whole = path.with_suffix(f".{os.getpid()}")
    whole.write_text(text, "utf-8")
    whole.replace(path)


def _prose() -> str:
    """Paragraphs, each once, in an order that does not keep a library's together."""
    from pydoc_data.topics import topics

    texts = [*topics.values(), *(found for source in _sources(*_library_folders()) for found in _docstrings(source))]
    paragraphs = list(dict.fromkeys(paragraph for text in texts for paragraph in _paragraphs(text)))
    random.Random(1).shuffle(paragraphs)
    return "\n\n".join(paragraphs)


def _code() -> str:
    files = [source for source in _sources(_standard_library()) if len(source) > 400]
    random.Random(2).shuffle(files)
    return "\n".join(files)


def _docstrings(source: str) -> list[str]:
    return DOCSTRING.findall(source)


def _paragraphs(text: str) -> Iterator[str]:
    for found in re.split(r"\n\s*\n", text):
        paragraph = " ".join(found.split())
        letters = sum(char.isalpha() or char == " " for char in paragraph)
        if len(paragraph) in PARAGRAPH_CHARS and letters >= LETTERS_MIN * len(paragraph):
            yield paragraph


def _standard_library() -> Path:
    return Path(sysconfig.get_paths()["stdlib"])


def _library_folders() -> list[Path]:
    site = Path(sysconfig.get_paths()["purelib"])
    return [_standard_library(), *(site / name for name in LIBRARIES if (site / name).is_dir())]


def _sources(*folders: Path) -> Iterator[str]:
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            if not NOT_EVERYWHERE & set(path.relative_to(folder).parts):
                yield path.read_text("utf-8", "ignore")
