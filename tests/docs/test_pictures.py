"""The pictures of the docs are what Penstock does now: each is drawn again, and must be the file that is there."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from scripts.pictures import FOLDER, PICTURES, progress, write
from scripts.pictures.alarms import ALARMS, BURST, heard
from scripts.pictures.windows import ROWS, WINDOWS, Held, Window, run

from tests.docs.fences import DOCS

AGAIN = "python -m scripts.pictures"


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_what_penstock_does(name: str) -> None:
    text = PICTURES[name]()
    assert (FOLDER / f"{name}.svg").read_text(encoding="utf-8") == text, f"make it anew: {AGAIN}"


def test_there_are_no_others_and_every_page_finds_its_own() -> None:
    assert {path.stem for path in FOLDER.glob("*.svg")} == set(PICTURES)
    shown = {
        (page.parent / target).resolve()
        for page in DOCS.rglob("*.md")
        for target in re.findall(r"!\[[^\]]+\]\(([^)]+\.svg)\)", page.read_text(encoding="utf-8"))
    }
    assert {path for path in shown if not path.exists()} == set()
    assert {path.resolve() for path in FOLDER.glob("*.svg")} <= shown


@pytest.mark.parametrize("path", sorted([*FOLDER.glob("*.svg"), *FOLDER.glob("grammar/*.svg")]), ids=lambda p: p.stem)
def test_a_picture_is_small_and_needs_nothing_else(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text) < 60_000
    root = ElementTree.fromstring(text)
    assert root.find("{http://www.w3.org/2000/svg}title") is not None
    assert "prefers-color-scheme:dark" in text
    assert not re.search(r"href|@import|url\(|<script|<image", text)


@pytest.mark.parametrize("window", WINDOWS, ids=lambda w: w.name)
def test_windows_hold_the_same_on_the_engine_that_defines_them(window: Window) -> None:
    assert run(window, "reference") == run(window, "local")


def test_windows_hold_what_the_words_beside_them_say() -> None:
    held = {window.name: run(window, "reference") for window in WINDOWS}
    names = [name for name, _, _ in ROWS]
    for now in held["rows"]:
        came = [name for name, second, _ in ROWS if second <= now.at]
        assert list(now.rows) == came[-3:]
    for now in held["range"]:
        assert list(now.rows) == [name for name, second, _ in ROWS if now.at - 4 < second <= now.at]
    for now in held["unbounded"]:
        assert list(now.rows) == [name for name, second, _ in ROWS if second <= now.at]
    assert [name for now in held["now"] for name in now.rows] == names
    assert held["snapshot"] == [Held(10, ("b", "c", "d", "e", "f"), (2, 10))]
    for kind in ("tumbling", "hopping", "landmark", "forward", "reverse"):
        for now in held[kind]:
            assert now.bounds is not None
            assert list(now.rows) == [name for name, second, _ in ROWS if now.bounds[0] <= second < now.bounds[1]]


def test_progress_follows_the_newest_row_by_the_slack() -> None:
    arrivals = progress.run()
    assert arrivals == progress.run("reference")
    newest = 0
    for row in arrivals:
        assert row.is_late == (row.at < newest - progress.SLACK)
        newest = max(newest, row.at)
        assert row.progress == newest - progress.SLACK
    given = [at for row in arrivals for at in row.released]
    assert given == sorted(row.at for row in arrivals if not row.is_late and row.at <= arrivals[-1].progress)


def test_alarms_overtake_and_nothing_is_lost() -> None:
    numbers = list(range(1, BURST + 1))
    assert heard("") == numbers
    assert heard("PRIORITY BY alarm") == [*ALARMS, *(n for n in numbers if n not in ALARMS)]


def test_all_are_written_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scripts.pictures.PICTURES", {"one": lambda: "<svg/>\n", "two": lambda: "<svg></svg>\n"})
    write(tmp_path / "new")
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["one.svg", "two.svg"]
