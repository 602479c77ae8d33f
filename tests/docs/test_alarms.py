"""The examples "Alarms first": what they print is due to overtaking, and differs where no row overtakes."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import pytest

import penstock
from tests.docs.fences import DOCS, ROOT
from tests.docs.test_snippets import behind, blocks, matches

EXAMPLES = [
    (ROOT / "README.md", "## Alarms first"),
    (DOCS / "tutorial/alarms.md", "## Rows that matter more"),
    (DOCS / "concepts/runtime.md", "## Alarms first"),
]
GRAPH = 'db.configure(threading="graph"'


def printed(path: Path, heading: str, configured: str) -> list[tuple[str, str]]:
    """Each line that the section's first blocks print up to the first output, beside the line that the page shows."""
    found, replaced = blocks(path), 0
    before = penstock.connect(engine="local")
    names: dict[str, Any] = {"__name__": "__main__", "penstock": penstock, "db": before}
    for i, block in enumerate(found):
        if block.heading != heading or block.language != "python":
            continue
        replaced += block.text.count(GRAPH)
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(block.text.replace(GRAPH, configured), str(path), "exec"), names)
        shown = behind(found, i, "output")
        if shown is not None:
            assert replaced == 1, f"{path.name} sets threading once"
            before.close()
            names["db"].close()
            return list(zip(said.getvalue().splitlines(), shown.splitlines(), strict=True))
    raise AssertionError(f"{path.name} has no output below {heading}")


@pytest.mark.parametrize(("path", "heading"), EXAMPLES, ids=lambda e: e.name if isinstance(e, Path) else "")
def test_rows_overtake(path: Path, heading: str) -> None:
    lines = printed(path, heading, GRAPH)
    assert lines
    assert all(matches(got, shown) for got, shown in lines), lines


@pytest.mark.parametrize(("path", "heading"), EXAMPLES, ids=lambda e: e.name if isinstance(e, Path) else "")
def test_without_overtaking_no_line_is_as_the_page_shows(path: Path, heading: str) -> None:
    lines = printed(path, heading, f'{GRAPH}, mode="normal"')
    assert lines
    assert not any(matches(got, shown) for got, shown in lines), lines
