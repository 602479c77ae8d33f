"""The cases of ``tests/cases/*.cql`` hold on every engine. ``tests.notation`` says how they are written."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.budget import SHARE, paired
from tests.notation import Case, Example, Malformed, read_cases, run
from tests.spark.direct import directly

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = sorted(Path(__file__).parent.glob("*.cql"))
NAMED = [named for file in FILES for named in read_cases(file)]
QUERIES = [
    (f"{named.file.removesuffix('.cql')}: {named.name}", i, named.example, case)
    for named in NAMED
    for i, case in enumerate(named.example.cases, 1)
]
WAYS = [("row by row", True), ("at once", False)]
PLAYED = [
    pytest.param(example, case, one_by_one, id=f"{name}, query {i}, {way}")
    for (name, i, example, case), (way, one_by_one) in paired(QUERIES, WAYS)
]
WAITED = [pytest.param(example, case, id=f"{name}, query {i}") for name, i, example, case in QUERIES]
ON_SPARK = [p for p in WAITED if zlib.crc32(str(p.id).encode()) % 20 == 0] if SHARE < 1 else WAITED
"""A sample that has Spark itself, chosen by name, so that a new case changes nothing for the others."""


@pytest.mark.parametrize(("example", "case", "one_by_one"), PLAYED)
def test_case(example: Example, case: Case, one_by_one: bool, engine: str) -> None:
    run(example, case, engine, one_by_one=one_by_one)


@pytest.mark.parametrize(("example", "case"), WAITED)
def test_case_with_the_trigger_that_users_get(
    example: Example, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Micro-batches run in a thread of their own, and ``fetch`` waits for them."""
    monkeypatch.delenv("PENSTOCK_TRIGGER")
    with directly():
        run(example, case, "spark", one_by_one=True)


@pytest.mark.parametrize(("example", "case"), ON_SPARK)
def test_case_on_spark_with_the_trigger_that_users_get(
    example: Example, case: Case, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PENSTOCK_TRIGGER")
    run(example, case, "spark", one_by_one=True)


def test_the_cases_are_many_and_cover_the_language() -> None:
    assert len(NAMED) >= 120
    assert len(FILES) >= 15
    assert len(ON_SPARK) >= 10


@pytest.mark.parametrize(
    ("text", "line", "complaint"),
    [
        ("", 1, "begins with comment lines"),
        ("-- case: a\n", 1, "begins with comment lines"),
        ("-- About.\n", 1, "there is no case"),
        ("-- About.\nSELECT 1\n-- case: a\n", 2, "no `-- case: NAME` before"),
        ("-- About.\n-- case:\n", 2, "a name of its own"),
        ("-- About.\n-- case: a\nSELECT a FROM s\n=> nothing\n-- case: a\n", 5, "a name of its own"),
        ("-- About.\n\n-- case: a\ns: 5\nSELECT a FROM s\n=> nothing\n", 4, "rows are written in parentheses"),
        ("-- About.\n\n-- case: a\nSELECT a FROM s\n\n=> 5\n", 6, "this is no answer"),
        ("-- About.\n\n-- case: a\nSELECT a\nFROM s\n", 4, "does not end"),
        ("-- About.\n\n-- case: a\nSELECT a\nFROM s\n=> nothing\ns: (1)\n-- case: b\n", 7, "ends without answers"),
    ],
)
def test_a_file_that_is_not_in_the_notation_is_refused_with_its_line(
    text: str, line: int, complaint: str, tmp_path: Path
) -> None:
    file = tmp_path / "odd.cql"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(Malformed) as caught:
        read_cases(file)
    assert str(caught.value).startswith(f"{file}:{line}: ")
    assert complaint in str(caught.value)
