"""What the page on how Penstock is built, and its pictures, name is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.fences import DOCS, ROOT

PACKAGE = ROOT / "src/penstock"
PARTS = PACKAGE / "hosts/spark/parts"
"""Where modules are that the page names without a folder."""
PAGE = DOCS / "concepts/architecture.md"
_PLACE = re.compile(r"(?<![\w./])(?:[a-z_]+/)*(?:[a-z_]+/(?!\w)|[a-z_]+\.py\b)")
_METHOD = re.compile(r"`([A-Z]\w+)\.(\w+)`")


@pytest.mark.parametrize("path", [PAGE, DOCS / "pictures/architecture.svg"], ids=lambda p: p.name)
def test_files_and_folders_that_it_names_are_there(path: Path) -> None:
    named = set(_PLACE.findall(path.read_text(encoding="utf-8")))
    assert len(named) > 10
    places = (PACKAGE, ROOT, PARTS) if path == PAGE else (PACKAGE,)
    assert {name for name in named if not any((place / name).exists() for place in places)} == set()


def test_methods_that_it_names_are_there() -> None:
    sources = [path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")]
    named = set(_METHOD.findall(PAGE.read_text(encoding="utf-8")))
    assert ("Part", "next_offset") in named
    lacking = {
        (kind, method) for kind, method in named
        if not any(re.search(rf"^class {kind}\b", s, re.MULTILINE) and f"def {method}(" in s for s in sources)
    }  # fmt: skip
    assert lacking == set()
