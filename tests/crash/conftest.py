"""The harness as a fixture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from crash.harness import Found, run_chaos

Chaos = Callable[..., Found]


@pytest.fixture
def chaos(request: pytest.FixtureRequest) -> Chaos:
    def run(*args: Any, **kwargs: Any) -> Found:
        found = run_chaos(*args, **kwargs)
        request.node.user_properties.append(("chaos", found.line))
        return found

    return run
