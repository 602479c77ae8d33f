"""The graph as text, JSON, Mermaid and a picture."""

from __future__ import annotations

import doctest
import json
import math
import random
import re
from dataclasses import replace
from itertools import combinations
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from penstock.graph.draw import common
from penstock.graph.draw.style import CELLS
from penstock.graph.view import BufferView, EdgeView, GraphView, PartitionView, QueryView
from tests.budget import examples
from tests.graph.views import anyhow, graph, many, operator, shops

NASTY = "<b>\"&'|#;`[](){}%% end\n\x00\x1b[31m 温度センサー ünï 🌊 --> </svg>"
EMPTY = GraphView("local", "direct", 0, (), (), (), ())
GRAPHS = [shops(), many(5), many(5, partitions=False), EMPTY, *(anyhow(random.Random(i), 30, i) for i in range(11))]
Rect = tuple[float, float, float, float]
SVG = "{http://www.w3.org/2000/svg}"


# -- text ---------------------------------------------------------------------------------------------------


def test_text() -> None:
    assert shops().text() == str(shops())
    assert shops().text().splitlines() == [
        "engine local · threading hybrid · 2 workers · 2 queries · 9 operators · 3 virtual operators",
        "",
        "queries",
        "  large    running, priority 7, 1,234 answers by 7  SELECT ISTREAM city, amount FROM orders [NOW] J…",
        "  by_city  failed: no function f, 40 answers by 9   SELECT city, count(*) FROM …",
        "",
        "     operator                                    from        in → out     cost  state",
        "virtual operator 0 · worker w0 · chain · capacity 1.00 ms",
        "  1  source    orders                                   1.25M → 1.25M  1.50 µs",
        "     shared by large, by_city",
        "  3  filter    amount > 10 AND shop <> 'none'…   1         3,000 → 30  1.50 µs",
        "     shared by large, by_city",
        "  4  window    [RANGE 10 SECONDS SLIDE 1 SECON…  3         4,000 → 40  1.50 µs  12,345 rows, 1.60 MB",
        "     shared by large, by_city",
        "virtual operator 1 · worker w1 · chain · capacity 2.00 ms",
        "  2  relation  shops                                       2,000 → 20  1.50 µs  200 rows, 18.0 KB",
        "     shared by large, by_city",
        "  5  join      orders.shop = shops.shop          4*, 2     5,000 → 50  1.50 µs  12,545 rows, 2.10 MB",
        "     shared by large, by_city; running; saves 1.60 MB",
        "     * 17 from 4 waiting (1.23 KB), at most 40; 120 messages passed",
        "  6  filter    amount > 100                      5         6,000 → 60  1.50 µs",
        "  7  query     large                             6         7,000 → 70  1.50 µs",
        "     priority 7",
        "virtual operator 2 · worker w0 · chain · capacity 3.00 ms",
        "  8  aggregate count(*), avg(amount) GROUP BY…   5*        8,000 → 80        –  40 rows, 4.00 KB",
        "     * 123,456 from 5 waiting (9.88 MB), at most 200,000; 77 messages passed",
        "  9  query     by_city                           8         9,000 → 90  1.50 µs",
        "     suspended",
    ]


@pytest.mark.parametrize("view", GRAPHS)
def test_text_has_every_operator_once_in_100_columns(view: GraphView) -> None:
    lines = view.text().splitlines()
    assert max(map(cell_len, lines)) <= 100
    first = [match[1] for line in lines if (match := re.match(r" +(\d+)  \w", line))]
    assert sorted(map(int, first)) == sorted(o.id for o in view.operators)


def test_senders_come_before_receivers_within_a_virtual_operator() -> None:
    view = anyhow(random.Random(7), 40, 10)
    order = [o.id for o in common.flow_order(view)]
    assert all(order.index(edge.source) < order.index(edge.target) for edge in view.edges)


def test_a_label_does_not_repeat_the_kind() -> None:
    view = graph([operator(1, "filter", "Filter a > 1"), operator(2, "source", "stream s")], [])
    assert "filter    a > 1" in view.text()
    assert "source    stream s" in view.text()
    assert "a #62; 1" in view.mermaid()
    assert "Filter" not in view.mermaid()
    assert "a > 1" in Picture(view.svg()).texts


def test_many_who_share_are_counted() -> None:
    names = tuple(f"q{i}" for i in range(100))
    assert "shared by 100 queries" in graph([operator(1, "source", "s", queries=names)], []).text()


def test_nothing_moves_the_terminals_pen() -> None:
    view = nasty()
    assert all(c.isprintable() or c == "\n" for c in view.text())


def test_what_is_on_disk_is_said() -> None:
    operators = [operator(1, "source", "s"), operator(2, "filter", "f", 1)]
    buffer = BufferView(1_000, 2_000_000, 4_000, 5, 0, 600, 1_500_000, 70, 2.5)
    view = graph(operators, [EdgeView(1, 2, 0, buffer)])
    waits = "* 1,000 from 1 waiting (2.00 MB, 1.50 MB on disk) for 2.50 s, at most 4,000; 5 messages passed; 70 dropped"
    assert waits[:90] in view.text()
    assert "1.50 MB of it on disk" in view.svg()
    assert "70 dropped" in view.svg()
    waiting = graph(operators, [EdgeView(1, 2, 0, replace(buffer, spilled=0, spilled_bytes=0, dropped=0))])
    assert "disk" not in waiting.text() + waiting.svg()
    assert "dropped" not in waiting.text() + waiting.svg()


# -- JSON ---------------------------------------------------------------------------------------------------


def test_json_is_the_view() -> None:
    read = json.loads(shops().json())
    assert read == shops().to_json()
    assert list(read) == ["engine", "threading", "workers", "operators", "edges", "partitions", "queries", "memory",
                          "dropped"]
    assert read["edges"][2]["buffer"] == {
        "elements": 17, "bytes": 1234, "peak": 40, "passed": 120, "overtook": 0, "spilled": 0, "spilled_bytes": 0,
        "dropped": 0, "lag": None,
    }  # fmt: skip
    assert read["operators"][0]["queries"] == ["large", "by_city"]
    assert list(read["operators"][0])[:4] == ["id", "kind", "label", "queries"]


def test_json_has_no_infinity() -> None:
    view = graph([operator(1, "source", "s", cost=math.nan)], [])
    idle = replace(view, partitions=(replace(view.partitions[0], capacity=math.inf),))
    read = json.loads(idle.json(), parse_constant=pytest.fail)
    assert read["partitions"][0]["capacity"] is None
    assert read["operators"][0]["cost"] is None


# -- Mermaid ------------------------------------------------------------------------------------------------


def test_mermaid() -> None:
    lines = shops().mermaid().splitlines()
    assert lines[0] == "flowchart LR"
    assert '    o4 -.->|"17 waiting"| o5' in lines
    assert "    o1 --> o3" in lines
    assert sum(line.startswith("    subgraph ") for line in lines) == lines.count("    end") == 3
    assert '        o6["filter 6<br/>amount #62; 100<br/>6,000 → 60, 1.50 µs"]' in lines


def test_mermaid_escapes_names() -> None:
    for line in nasty().mermaid().splitlines():
        labels = re.findall(r'"([^"]*)"', line)
        assert line.count('"') == 2 * len(labels)
        for label in labels:
            assert not re.search(r"[<>\"`\[\]{}()|\x00\x1b]", label.replace("<br/>", ""))
            assert "#" not in re.sub(r"#\d+;", "", label)


def test_mermaid_names_queries_that_have_no_operator_of_their_own() -> None:
    view = graph([operator(1, "filter", "a")], [], [QueryView("mine", "", 1, 5, "running", 1)])
    assert '    q0(["mine: 1 answer"])' in view.mermaid()
    assert "    o1 --> q0" in view.mermaid()


# -- the picture --------------------------------------------------------------------------------------------


class Picture:
    """What is in an SVG, by what it is for."""

    def __init__(self, text: str) -> None:
        self.root = ElementTree.fromstring(text)
        self.size: Rect = (0.0, 0.0, float(self.root.get("width", "")), float(self.root.get("height", "")))
        self.boxes = {
            (box.findtext(f"{SVG}title") or "").split(":")[0]: rect(box) for box in self.root.findall(f"{SVG}svg")
        }
        shapes = list(self.root.iter(f"{SVG}rect"))
        self.frames = [rect(r) for r in shapes if r.get("class") == "frame"]
        self.queues = [rect(r) for r in shapes if r.get("class") == "queue"]
        self.lines = [p.get("d", "") for p in self.root.iter(f"{SVG}path") if p.get("class") == "line"]
        self.texts = [t.text or "" for t in self.root.iter(f"{SVG}text")]


def rect(element: ElementTree.Element) -> Rect:
    x, y, width, height = (float(element.get(name, "")) for name in ("x", "y", "width", "height"))
    return x, y, x + width, y + height


def overlap(a: Rect, b: Rect) -> bool:
    return a[0] < b[2] - 0.01 and b[0] < a[2] - 0.01 and a[1] < b[3] - 0.01 and b[1] < a[3] - 0.01


def within(a: Rect, b: Rect) -> bool:
    return b[0] <= a[0] and b[1] <= a[1] and a[2] <= b[2] and a[3] <= b[3]


def points(d: str) -> list[tuple[float, float]]:
    """Points along a line of the picture."""
    found: list[tuple[float, float]] = []
    for command, numbers in re.findall(r"([MCH])([^MCH]*)", d):
        n = [float(x) for x in re.findall(r"-?[\d.]+(?:e-?\d+)?", numbers)]
        if command == "M":
            found.append((n[0], n[1]))
            continue
        (x, y), end = found[-1], (n[-2], n[-1]) if command == "C" else (n[0], found[-1][1])
        middle = (x + end[0]) / 2
        for i in range(1, 21):
            t = i / 20
            curved = (1 - t) ** 3 * x + 3 * (1 - t) * t * middle + t**3 * end[0]
            across = curved if command == "C" else x + t * (end[0] - x)
            down = (1 - t) ** 3 + 3 * (1 - t) ** 2 * t
            found.append((across, down * y + (1 - down) * end[1]))
    return found


def check(view: GraphView) -> Picture:
    picture = Picture(view.svg())
    boxes = list(picture.boxes.values())
    own = {o.id: f"{o.kind} {o.id}" for o in view.operators}
    assert {name for name in picture.boxes if re.fullmatch(r"\w+ \d+", name)} >= set(own.values())
    assert len(picture.frames) == len(view.partitions)
    assert len(picture.queues) == sum(edge.buffer is not None for edge in view.edges)
    for kind in (boxes, picture.frames, picture.queues):
        assert not any(overlap(a, b) for a, b in combinations(kind, 2))
        assert all(within(a, picture.size) for a in kind)
    assert not any(overlap(queue, box) for queue in picture.queues for box in boxes)
    for id, frame in zip([p.id for p in order(view)], picture.frames, strict=True):
        inside = {name for name, box in picture.boxes.items() if overlap(box, frame)}
        assert inside == {own[o.id] for o in view.operators if o.partition == id}
        assert all(within(picture.boxes[name], frame) for name in inside)
    for line in picture.lines:
        for x, y in points(line):
            assert not any(b[0] < x < b[2] and b[1] < y < b[3] for b in boxes), "a line goes through a box"
    return picture


def order(view: GraphView) -> list[PartitionView]:
    return [partition for partition, _ in common.by_partition(view) if partition is not None]


def test_operators_that_are_in_no_virtual_operator() -> None:
    """An engine may not say who runs them."""
    view = replace(shops(), partitions=())
    picture = Picture(view.svg())
    assert not picture.frames
    assert len(picture.boxes) == 9
    assert not any(overlap(a, b) for a, b in combinations(picture.boxes.values(), 2))
    assert "\noperators\n" in view.text()
    assert "subgraph" not in view.mermaid()


@pytest.mark.parametrize(
    ("worker", "said"),
    [("penstock-worker-3", " · worker-3 · "), ("spare", " · worker spare · "), (None, " · in the pushing thread · ")],
)
def test_who_runs_it(worker: str | None, said: str) -> None:
    view = shops()
    view = replace(view, partitions=tuple(replace(p, worker=worker) for p in view.partitions))
    assert said in view.text()


@pytest.mark.parametrize("view", GRAPHS)
def test_nothing_overlaps(view: GraphView) -> None:
    check(view)


@given(st.integers(0, 10**6), st.integers(0, 40), st.integers(0, 10))
@settings(max_examples=examples(40))
def test_nothing_overlaps_in_any_graph(seed: int, count: int, together: int) -> None:
    check(anyhow(random.Random(seed), count, together))


@pytest.mark.parametrize("view", [many(150), many(150, partitions=False), anyhow(random.Random(5), 300, 6)])
def test_large_graphs(view: GraphView) -> None:
    check(view)


def test_sources_are_left_of_what_they_send_to() -> None:
    view = anyhow(random.Random(11), 30, 5)
    boxes = Picture(view.svg()).boxes
    kinds = {o.id: f"{o.kind} {o.id}" for o in view.operators}
    assert all(boxes[kinds[e.source]][2] < boxes[kinds[e.target]][0] for e in view.edges)


def test_numbers_in_the_picture() -> None:
    picture = check(shops())
    for said in ("1.25M → 1.25M · 1.50 µs", "12,345 rows, 1.60 MB", "17", "123k", "query 7 p7", "1,234 answers"):
        assert said in picture.texts
    assert any("failed: no function f" in said for said in picture.texts)


def nasty() -> GraphView:
    """Names that mean something to those who read the pictures."""
    view = graph(
        [operator(1, "source", NASTY, queries=(NASTY, "b")), operator(2, "filter", NASTY * 5, 1)],
        [EdgeView(1, 2, 0, BufferView(1, 1, 1, 1))],
        [QueryView(NASTY, NASTY, 2, 5, NASTY, 1)],
    )
    partitions = tuple(replace(p, worker=NASTY, strategy=NASTY) for p in view.partitions)
    return replace(view, partitions=partitions, engine=NASTY)


def test_any_name_is_well_formed_and_fits() -> None:
    text = nasty().svg()
    picture = check(nasty())
    boxes = [t.text or "" for box in picture.root.findall(f"{SVG}svg") for t in box.iter(f"{SVG}text")]
    assert boxes
    assert all(cell_len(said) <= CELLS for said in boxes)
    assert any("温度センサー" in (title.text or "") for title in picture.root.iter(f"{SVG}title"))
    assert "\x00" not in text
    assert not picture.root.findall(f".//{SVG}b")


def test_a_picture_needs_nothing_else() -> None:
    text = shops().svg()
    assert not re.search(r"href|url\(|@import|<script", text)
    assert "prefers-color-scheme:dark" in text
    assert text in shops()._repr_html_()


def test_drawing_again_gives_the_same() -> None:
    assert anyhow(random.Random(4), 40, 5).svg() == anyhow(random.Random(4), 40, 5).svg()


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0"), (999, "999"), (1000, "1k"), (12_345, "12.3k"), (999_999, "1000k"), (10**9, "1G")]
)
def test_queues_have_room_for_five_characters(number: int, said: str) -> None:
    assert common.short(number) == said
    assert len(said) <= 5


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.0, "0 s"), (5e-10, "0.5 ns"), (0.9999e-3, "1.00 ms"), (12.34, "12.3 s"), (math.inf, "∞"), (math.nan, "–")],
)
def test_durations(seconds: float, said: str) -> None:
    assert common.duration(seconds) == said


def test_doctests() -> None:
    assert doctest.testmod(common).failed == 0
