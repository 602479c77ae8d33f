"""Runtimes for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.runtime.run import Runtime
from penstock.runtime.settings import Settings


@pytest.fixture
def runtimes() -> Iterator[Callable[..., Runtime]]:
    """Makes runtimes, closes them, and looks that no thread of theirs is left."""
    made: list[Runtime] = []

    def make(on_error: Any = None, **settings: Any) -> Runtime:
        made.append(Runtime(Settings(**settings), on_error))
        return made[-1]

    yield make
    for runtime in made:
        runtime.close()
        assert runtime.threads == 0
