"""``penstock graph``."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from penstock.cli.main import main

SCRIPT = """
CREATE STREAM s (k BIGINT, at BIGINT) TIMESTAMP BY at;
CREATE QUERY sums AS SELECT k, count(*) AS n FROM s [RANGE 10] WHERE k > 1 GROUP BY k;
CREATE QUERY rows AS SELECT k FROM s [RANGE 10] WHERE k > 1;
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "q.cql"
    file.write_text(SCRIPT)
    (tmp_path / "s.csv").write_text("k,at\n1,1\n2,2\n3,3\n3,4\n")
    return file


def shown(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["graph", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_text_by_default(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, script)
    assert "2 queries" in text.splitlines()[0]
    assert "  sums " in text
    assert "  rows " in text


def test_numbers_after_the_inputs(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = script.with_name("s.csv")
    graph = json.loads(shown(capsys, script, "--input", f"S={data}", "--format", "json"))
    source = next(o for o in graph["operators"] if o["kind"] == "source")
    assert source["elements_in"] == 4
    assert set(source["queries"]) == {"sums", "rows"}
    assert {q["name"] for q in graph["queries"]} == {"sums", "rows"}
    assert all(q["answered"] > 0 for q in graph["queries"])
    assert all(o["interarrival"] is None or o["interarrival"] > 0 for o in graph["operators"])
    assert sum(o["rows"] for o in graph["operators"]) > 0, "windows hold what came"


@pytest.mark.parametrize("options", [["--format", "svg"], []])
def test_a_picture_in_a_file(script: Path, options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    picture = script.with_name("graph.svg")
    assert shown(capsys, script, "--output", picture, *options) == ""
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")


def test_mermaid(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, script, "--format", "mermaid").startswith("flowchart LR\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--output", "graph.png"], "graph.png names no format; give --format, or a name ending in .txt, .json,"),
        (["--output", "/nowhere/graph.svg"], "cannot write /nowhere/graph.svg: No such file or directory"),
        (["--format", "dot"], "'dot' is not one of 'text', 'json', 'mermaid', 'svg'"),
        (["--input", "s"], "--input s is not NAME=PATH"),
        (["--input", "t=t.csv"], "there is no stream or relation `t`"),
    ],
)
def test_wrong_usage(
    script: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["graph", str(script), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_file_without_queries(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "q.cql"
    file.write_text("CREATE STREAM s (k BIGINT, at BIGINT) TIMESTAMP BY at;")
    assert main(["graph", str(file)]) == 2
    assert capsys.readouterr().err == f"penstock: error: {file} has no query to show\n"
