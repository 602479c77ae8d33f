"""Snapshots on terminals of several sizes, and as lines."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console
from rich.screen import Screen

from penstock.demo import plain, script, tree, words
from penstock.demo.figures import Compared
from penstock.demo.snapshot import Event, Snapshot
from penstock.demo.terminal import Terminal
from penstock.demo.view import View
from tests.demo.test_run import played

BURST = Compared(
    rows=200_000, alarms=3, others=9_000, answered=9_003, alarms_answered=3, alarm_longest=0.012, other_longest=0.9,
    neighbours=0.36,
)  # fmt: skip
ABOUTS = [(name, about.kind, about.sentence) for name, about in script.abouts().items()]


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    return replace(played("local")[1][-1], burst=BURST)


def screen(snapshot: Snapshot, width: int, height: int, **settings: object) -> list[str]:
    out = io.StringIO()
    console = Console(
        file=out, width=width, height=height, force_terminal=True, record=True, **settings  # type: ignore[arg-type]
    )
    console.print(Screen(View(snapshot)))
    return console.export_text().splitlines()


SIZES = [(50, 16), (80, 24), (160, 18), (100, 30), (120, 40), (200, 60), (300, 90)]


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_every_size_has_every_query_and_no_more_lines_than_the_screen(
    snapshot: Snapshot, width: int, height: int
) -> None:
    lines = screen(snapshot, width, height)
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
    for query in snapshot.queries:
        assert any(line.startswith(query.name) for line in lines), query.name
    assert any("alarms: 3 answered within 12.0 ms" in line for line in lines)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (200, 60)])
def test_from_the_usual_size_on_there_are_latencies_answers_and_the_graph(
    snapshot: Snapshot, width: int, height: int
) -> None:
    text = "\n".join(screen(snapshot, width, height))
    for word in ("rows in", "answers/s", "p50", "p99", "memory", "query graph", "virtual operators"):
        assert word in text
    for query in snapshot.queries:
        assert query.latest[-1] in text
    assert "shared by 2" in text
    if height >= 40:
        assert all(about.kind in text for about in script.abouts().values())


def test_a_wide_screen_has_all_events_and_bars(snapshot: Snapshot) -> None:
    text = "\n".join(screen(snapshot, 200, 60))
    for event in snapshot.events:
        assert event.text[:60] in text
    assert "readings next to them" in text
    assert "█" in text


def test_lines_stay_where_they_are_when_alarms_are_compared(snapshot: Snapshot) -> None:
    before = screen(replace(snapshot, burst=None), 80, 24)
    after = screen(snapshot, 80, 24)
    assert [line[:14] for line in before[4:]] == [line[:14] for line in after[4:]]


def test_without_colours_there_are_none(snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    out = io.StringIO()
    Console(file=out, width=80, height=24, force_terminal=True).print(Screen(View(snapshot)))
    assert "\x1b[36m" not in out.getvalue()
    assert "\x1b[1;36m" not in out.getvalue()
    assert "room_climate" in out.getvalue()


def test_the_tree_names_each_query_and_a_join_of_two_streams_at_both(snapshot: Snapshot) -> None:
    assert snapshot.graph is not None
    lines = tree.text(tree.tree(snapshot.graph))
    for query in snapshot.queries:
        assert any(line.endswith(query.name) for line in lines), query.name
    assert any(line.startswith("motion") and line.endswith("⋈ ─ busy_home") for line in lines)
    assert any(line.endswith("⋈ of busy_home") for line in lines)
    assert any("shared by 2" in line for line in lines)
    assert not any("  " in line.partition("  shared")[0].lstrip("│ ") for line in lines)
    compact = tree.text(tree.compact(snapshot.graph))
    assert all(any(query.name in line for line in compact) for query in snapshot.queries)


def test_words_about_the_burst_are_true_at_any_time() -> None:
    assert words.compared(None) == ""
    assert words.verdict(None) == "The run ended before the burst."
    waits = replace(
        BURST, answered=0, alarms_answered=0, alarm_longest=None, other_longest=None, neighbours=None
    )
    assert words.compared(waits) == ""
    assert "not all alarms had been answered" in words.verdict(waits)
    some = replace(waits, answered=2, alarms_answered=2, alarm_longest=0.02)
    assert words.compared(some).startswith("alarms: 2 of 3 answered within 20.0 ms")
    assert "not all alarms had been answered" in words.verdict(some)
    half = replace(BURST, answered=100)
    assert "still wait" in words.compared(half)
    assert "others still waited" in words.verdict(half)
    assert "ordinary readings next to them took 360 ms, 30 times as long" in words.verdict(BURST)
    even = words.verdict(replace(BURST, neighbours=0.012))
    assert "times as long" not in even
    assert "overtook" not in even
    assert "overtook" in words.verdict(BURST)


def test_lines_have_events_once_figures_now_and_then_and_the_summary(snapshot: Snapshot) -> None:
    out = io.StringIO()
    lines = plain.Lines(out)
    lines.introduce(ABOUTS)
    with lines.busy("starting", "started"):
        pass
    first = replace(snapshot, seconds=0.2, events=(Event(0.0, "it begins"),))
    with lines.live() as show:
        show(first)
        show(replace(first, seconds=1.0))
        show(replace(first, seconds=plain.EVERY, events=(*first.events, Event(3.0, "it goes on"))))
    lines.summarize(snapshot)
    text = out.getvalue()
    assert "\x1b" not in text
    assert text.count("it begins") == text.count("it goes on") == 1
    assert text.count(" answers/s ") == len(snapshot.queries)
    assert "started: 0.0 s" in text
    assert words.NEXT[-1][1] in text.splitlines()[-1]
    assert "In a burst of 200,000 readings at once the 3 alarms" in text
    for query in snapshot.queries:
        assert f"\n{query.name} " in text


def test_a_terminal_shows_and_keeps_the_summary(snapshot: Snapshot) -> None:
    out = io.StringIO()
    terminal = Terminal(Console(file=out, width=80, height=24, force_terminal=True, highlight=False, color_system=None))
    assert terminal.is_able
    terminal.introduce(ABOUTS)
    with terminal.busy("starting", "started"):
        pass
    with terminal.live() as show:
        show(snapshot)
    terminal.summarize(snapshot)
    shown, _, kept = out.getvalue().partition("\x1b[?1049l")
    assert "started" in shown
    assert "query graph" in shown
    assert "In a burst of 200,000 readings at once" in kept
    for name, _, _ in ABOUTS:
        assert name in kept
    for command, _ in words.NEXT:
        assert command in kept
