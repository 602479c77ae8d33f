"""Grafana's dashboard asks only for what ``/metrics`` of a server that runs gives."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.server.over_http import served

PAGE = Path(__file__).parents[2] / "docs/reference/grafana.json"
WORDS = {
    "sum", "by", "rate", "or", "vector", "histogram_quantile", "label_values", "job", "le", "instance",
}  # fmt: skip
"""Of PromQL, and labels that Prometheus adds to what it scrapes."""
SELECTOR = re.compile(r"([a-z_][a-z0-9_]*)\{([^}]*)\}")


def asked(board: dict[str, Any]) -> list[tuple[str, str]]:
    """Every expression, and the text of its legend."""
    found = [(t["expr"], t["legendFormat"]) for panel in board["panels"] for t in panel.get("targets", ())]
    variables = [v["query"]["query"] for v in board["templating"]["list"] if v["type"] == "query"]
    return found + [(text, "") for text in variables]


def labels_of(expression: str, legend: str) -> set[str]:
    """The labels that an expression names in selectors, ``by`` and its legend."""
    selected = " ".join(inside for _, inside in SELECTOR.findall(expression))
    found = set(re.findall(r"(\w+)\s*(?:=~|!=|=)", selected))
    found |= {each.strip() for group in re.findall(r"by \(([^)]*)\)", expression) for each in group.split(",")}
    found |= set(re.findall(r"\{\{(\w+)\}\}", legend))
    found |= set(re.findall(r"label_values\(.*, (\w+)\)$", expression))
    return found - {"job", "instance"}


def test_every_metric_and_label_is_one_of_the_server() -> None:
    with served() as server, server.client() as client:
        server.sql(
            "CREATE STREAM s (v BIGINT)", "CREATE QUERY q AS SELECT v FROM s",
            "CREATE SUBSCRIPTION mine FOR q FROM START", "INSERT INTO s VALUES (1)",
        )  # fmt: skip
        assert client.get("/api/nothing").status_code == 404
        text = client.get("/metrics").text
    there: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            there.setdefault(sample.name, set()).update(sample.labels)
    expressions = asked(json.loads(PAGE.read_text(encoding="utf-8")))
    used: set[str] = set()
    for expression, legend in expressions:
        plain = re.sub(r'"[^"]*"|\{[^}]*\}|\[[^\]]*\]|by \([^)]*\)', "", expression)
        names = set(re.findall(r"[a-z_][a-z0-9_]{2,}", plain)) - WORDS
        if expression.startswith("label_values"):
            names -= labels_of(expression, "")
        assert names, expression
        assert names <= there.keys(), (expression, names - there.keys())
        labels = set[str]().union(*(there[name] for name in names))
        assert labels_of(expression, legend) <= labels, (expression, labels)
        used |= names
    own = {name for name in there if name.startswith("penstock_") and not name.endswith(("_count", "_sum", "_created"))}
    assert own - used == {"penstock_stream_progress"}, "what the dashboard leaves out"


def test_panels_do_not_overlap_and_have_numbers_of_their_own() -> None:
    panels = json.loads(PAGE.read_text(encoding="utf-8"))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not taken & cells, panel["title"]
        taken |= cells


def test_what_the_process_uses_is_for_administrators() -> None:
    with served() as server:
        token = server.token_of("guest")
        with server.client(token) as guest, server.client() as admin:
            assert "process_resident_memory_bytes" not in guest.get("/metrics").text
            assert "process_resident_memory_bytes" in admin.get("/metrics").text
