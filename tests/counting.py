"""Count the cases of generated tests, for ``scripts/fuzz.py``: each process leaves its number in a file of its own."""

from __future__ import annotations

import functools
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FOLDER = os.environ.get("PENSTOCK_COUNT_CASES")

_cases = 0


@contextmanager
def counted(item: pytest.Item) -> Iterator[None]:
    """Count the cases of a generated test while it runs."""
    generated = getattr(getattr(item, "obj", None), "hypothesis", None)
    if FOLDER is None or generated is None:
        yield
        return
    test = generated.inner_test

    @functools.wraps(test)
    def counting(*args: Any, **kwargs: Any) -> Any:
        global _cases
        _cases += 1
        return test(*args, **kwargs)

    generated.inner_test = counting
    try:
        yield
    finally:
        generated.inner_test = test


def write() -> None:
    """Leave the number of this process where ``scripts/fuzz.py`` finds it."""
    if FOLDER is not None and _cases:
        (Path(FOLDER) / uuid.uuid4().hex).write_text(str(_cases))
