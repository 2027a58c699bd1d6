"""Thread ids: made from what stays the same, and a word when they never come back."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents import Home, Log, asks, chain
from ninelives import MissingThreadError, thread_id
from ninelives.protect.identity import MADE_WITHOUT_REUSE_MAX


@pytest.fixture
def agent(home: Home) -> object:
    def a(state: Log) -> Log:
        return {"log": ["a"]}

    return home.protect(chain(a))


def test_an_id_is_made_of_its_parts() -> None:
    """Readable, in order, and the same in every process."""
    assert thread_id("user", 42, "s 1") == "user:42:s 1"


@given(st.lists(st.text(min_size=1), min_size=1), st.lists(st.text(min_size=1), min_size=1))
def test_different_parts_never_share_an_id(one: list[str], other: list[str]) -> None:
    """Also when a part holds the sign that stands between parts."""
    assert (thread_id(*one) == thread_id(*other)) == (one == other)


@pytest.mark.parametrize("parts", [(), ("user", None), ("user", "")])
def test_a_missing_part_is_refused(parts: tuple[object, ...]) -> None:
    """Everybody who is not logged in would share one conversation."""
    with pytest.raises(MissingThreadError, match="every part must be given"):
        thread_id(*parts)


def test_threads_that_never_come_back_are_noticed_once(agent: object) -> None:
    """An id made anew for each call gives each call an empty memory, and nothing else would say so."""
    call = agent.invoke  # type: ignore[attr-defined]
    for n in range(MADE_WITHOUT_REUSE_MAX - 1):
        call(asks(), thread=f"request-{n}")

    with pytest.warns(UserWarning, match=r"none was used a second time.*thread_id"):
        call(asks(), thread="request-last")
    call(asks(), thread="another")


def test_one_thread_that_comes_back_is_enough(agent: object) -> None:
    """And threads that are meant to be used once are named so."""
    call = agent.invoke  # type: ignore[attr-defined]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(MADE_WITHOUT_REUSE_MAX + 1):
            call(asks(), thread="new")
        call(asks(), thread="regular")
        call(asks(), thread="regular")
        for n in range(MADE_WITHOUT_REUSE_MAX + 1):
            call(asks(), thread=f"request-{n}")
