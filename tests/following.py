"""Coverage follows a part of the suite, because following doubles what a test costs.

It follows the first examples of a generated test and the first cases of one with many, and a sample of the rest.
So what it counts as run was run; what it does not may have been.
"""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from coverage import Coverage

EXAMPLES = 5
"""So many of a generated test, which are small ones, ..."""
ONE_EXAMPLE_OF = 8 if os.environ.get("NUMBA_DISABLE_JIT", "0") == "0" else 1
"""... and one of so many after those; all where they are run for it (test_as_python.py)."""
CASES = 20
"""So many of a test with parameters ..."""
ONE_CASE_OF = 5
"""... and one of so many after those."""

_UNSEEN = pytest.StashKey[bool]()


def choose(items: Sequence[pytest.Item]) -> None:
    """Say which tests are followed."""
    cases: Counter[str] = Counter()
    for item in items:
        test = item.nodeid.partition("[")[0]
        item.stash[_UNSEEN] = cases[test] >= CASES and cases[test] % ONE_CASE_OF != 0
        cases[test] += 1


@contextmanager
def unfollowed(item: pytest.Item) -> Iterator[None]:
    """Coverage rests during a test that is not followed."""
    coverage = Coverage.current()
    if coverage is None or not item.stash[_UNSEEN]:
        yield
        return
    coverage.stop()
    try:
        yield
    finally:
        coverage.start()


@contextmanager
def by_example(item: pytest.Item) -> Iterator[None]:
    """Coverage rests during most examples of a generated test."""
    generated = getattr(getattr(item, "obj", None), "hypothesis", None)
    coverage = Coverage.current()
    if generated is None or coverage is None:
        yield
        return
    test, calls, follows = generated.inner_test, 0, True

    @functools.wraps(test)
    def followed(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls, follows
        calls += 1
        if follows != (calls <= EXAMPLES or calls % ONE_EXAMPLE_OF == 0):
            follows = not follows
            (coverage.start if follows else coverage.stop)()
        return test(*args, **kwargs)

    generated.inner_test = followed
    try:
        yield
    finally:
        generated.inner_test = test
        if not follows:
            coverage.start()
