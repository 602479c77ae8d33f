from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize("name", ["show", "rules.fold_constants", "rules.push_filters"])
def test_examples_in_docstrings(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"penstock.plan.{name}"))
    assert result.attempted > 0
    assert result.failed == 0
