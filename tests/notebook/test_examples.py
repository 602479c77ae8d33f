"""The notebooks of examples/ show what they are stored with."""

from __future__ import annotations

import copy
from pathlib import Path

import nbformat
import pytest
from scripts.notebooks import EXAMPLES, differences, execute, normal, read, readable


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda p: p.name)
def test_a_notebook_shows_what_is_stored(path: Path) -> None:
    assert differences(read(path), execute(path)) == []


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda p: p.name)
def test_a_notebook_is_stored_in_its_normal_form(path: Path) -> None:
    stored = read(path)
    nbformat.validate(stored)
    assert normal(copy.deepcopy(stored)) == stored
    shown = [text for texts in readable(stored) for text in texts]
    assert len(shown) > 5
    assert not any("/home/" in text or "/tmp/" in text for text in shown)


def test_a_notebook_that_shows_something_else_is_found_out() -> None:
    stored = read(EXAMPLES / "house.ipynb")
    other = copy.deepcopy(stored)
    cell = next(c for c in other.cells if c.get("outputs"))
    cell.outputs[0].text = "stream climate dropped\n"
    (found,) = differences(stored, other)
    assert "stream climate dropped" in found
    assert "stream climate created" in found
