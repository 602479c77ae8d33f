"""VALUES of plain literals: read as the parser reads them, with its errors; the work grows with their length."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

import penstock
from penstock.cql import plain_values, positions
from penstock.cql.plain_values import PlainRows, PlainValues, read_values
from penstock.cql.text import format_statement, parse, parse_rows, position_of
from penstock.model.errors import PenstockError, Position

TYPES = {
    "b": "BOOLEAN", "i": "INT", "l": "BIGINT", "r": "REAL", "x": "DOUBLE", "d": "DECIMAL(6, 2)", "s": "STRING",
    "y": "BINARY", "day": "DATE", "at": "TIMESTAMP", "g": "INTERVAL",
}  # fmt: skip
COLUMNS = ", ".join(f"{name} {dtype}" for name, dtype in TYPES.items())
NAMES = list(TYPES)

LITERALS = {
    "b": ["TRUE", "false", "True", "NULL"],
    "i": ["1", "-1", "0", "007", "2147483647", "-2147483648", "NULL", "null"],
    "l": ["1", "-9223372036854775808", "9223372036854775807", "NULL"],
    "r": ["1.5", "0.1", "-3", "1e3", ".5", "16777217", "NULL"],
    "x": ["1.5", "-0.1", "0.30000000000000004", "12345678901234567890", "1E5",
          "1e-5", "5.", ".25", "1.e2", "-.5e+3", "-0.0", "-0e0", "3"],
    "d": ["1.5", "-12.34", "9999.99", "0.00", "-0.00", "7", "NULL"],
    "s": ["''", "'a'", "'it''s'", "''''", "'(1, ''2'')'", "'a -- b'", "'ä ß\n𝄞'", "'NULL'", "NULL", "' x '", "'\\'"],
    "y": ["NULL"],
    "day": ["'2024-02-29'", "DATE '2024-01-01'", "NULL", "date'1999-12-31'"],
    "at": ["'2024-02-29 10:00:00'", "'2024-02-29'", "TIMESTAMP '2024-01-01T00:00:00.5'", "'2024-01-01 10:00Z'", "NULL"],
    "g": ["'1 hour'", "'00:00:01'", "NULL"],
}
ODD = [
    "1 + 1", "- 1", "--1\n", "/* c */ 2", "(1)", "1 2", "'a' 'b'", "'a' || 'b'", "x", '"x"', "1e400", "0x1F", "nan",
    "inf", "'abc'", "1.005", "99999999999", "1" * 39, "0." + "1" * 40, "INTERVAL '1' DAY", "TIMESTAMP",
    "DATE '2024-13-01'", "upper('a')", "", "TRUE AND FALSE", "CAST(1 AS BIGINT)", "1::BIGINT",
    "NULLS", "e5", "+1", "1.2.3", "1-2",
    "'\u00a0'", "\u00a01", "TIMESTAMP 'x'", "-NULL", "-TRUE", "1e", "1e+", "..", ".", "-", "nul", "truefalse",
    "1null", "'2024-01-01 25:00:00'", "1;", ")", "(", ",", "'",
]  # fmt: skip


def written(choose: random.Random, rows: int, odd: float) -> str:
    """An INSERT, with blanks and line ends at any place where they may stand."""

    def gap() -> str:
        return choose.choice(["", "", "", " ", "\n", "  \t", "\r\n"])

    names = choose.sample(NAMES, choose.randrange(1, len(NAMES) + 1))
    lines = []
    for _ in range(rows):
        fields = [choose.choice(ODD if choose.random() < odd else LITERALS[name]) for name in names]
        if choose.random() < odd / 4:
            fields.pop()
        lines.append(gap() + "(" + ",".join(gap() + field + gap() for field in fields) + ")" + gap())
    end = choose.choice(["", " ", ";", "\n;\n", " AT 5", " AT 5;", "; SELECT s FROM t", " -- end", " x"])
    return f"INSERT INTO t ({', '.join(names)}) VALUES{gap()}" + ",".join(lines) + end


def outcome(text: str) -> tuple[object, ...]:
    with penstock.connect(engine="reference") as db:
        db.execute(f"CREATE RELATION t ({COLUMNS})")
        query = db.query("SELECT * FROM t")
        try:
            db.execute(text)
        except PenstockError as error:
            return type(error), str(error)
        db.settle()
        return tuple(map(repr, query.current().to_pylist()))


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_values, "SHORT", -1)
    monkeypatch.setattr(plain_values, "_FIRST_PIECE", 7)


@pytest.mark.parametrize("seed", range(8))
def test_values_and_errors_are_those_of_the_parser(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    choose = random.Random(seed)
    plain = 0
    for _ in range(60):
        text = written(choose, choose.randrange(1, 9), choose.choice([0, 0, 0.02, 0.2]))
        monkeypatch.setattr(plain_values, "SHORT", sys.maxsize)
        expected = outcome(text)
        monkeypatch.setattr(plain_values, "SHORT", -1)
        monkeypatch.setattr(plain_values, "_FIRST_PIECE", choose.choice([1, 2, 5, 40, 1 << 14]))
        assert outcome(text) == expected, text
        plain += len(list(plain_values.plain_values(text)))
    assert plain > 15


def rows_of(text: str) -> PlainValues | None:
    found: list[Any] = parse(text)[0].tree.args["rows"]
    return found[0].this if isinstance(found[0], PlainRows) else None


@pytest.mark.usefixtures("always")
def test_where_plain_rows_end() -> None:
    values = rows_of("INSERT INTO s VALUES (1, 'a'), (2, ')''(') AT 7")
    assert values is not None
    assert list(values.rows()) == [("1", "'a'"), ("2", "')''('")]
    assert values.text[values.end :] == " AT 7"


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO s VALUES (1, 2), (3)",
        "INSERT INTO s VALUES (1, 2), (3, a)",
        "INSERT INTO s VALUES (1, 2),\n(3, -- c\n 4)",
        "INSERT INTO s VALUES (1, 2), (3, 4 + 4)",
        "INSERT INTO s VALUES ((1), 2)",
        "INSERT INTO s VALUES (1, 'a' 'b')",
    ],
)
def test_what_is_not_plain_is_left_to_the_parser(text: str) -> None:
    assert read_values(text, text.index("(")) is None


def test_statements_around_them_are_read_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "-- first; INSERT INTO s VALUES (9)\nSELECT ';' AS \"a;b\" FROM s;\nINSERT INTO s VALUES (1), (2);\n"
        "/* ; */ INSERT INTO \"S t\" (a, b) VALUES (TRUE, 'x;');\nINSERT INTO s VALUES (now());\nSELECT nowhere FROM s"
    )
    expected = parse(text)
    monkeypatch.setattr(plain_values, "SHORT", -1)
    statements = parse(text)
    assert [format_statement(s.tree) for s in statements] == [format_statement(s.tree) for s in expected]
    assert [position_of(s.tree) for s in statements] == [position_of(s.tree) for s in expected]
    assert [type(s.tree.args["rows"][0]) for s in statements[1:3]] == [PlainRows, PlainRows]
    assert position_of(statements[-1].tree.expressions[0]) == Position(6, 8, 7)
    assert position_of(statements[1].tree.args["rows"][0]) == Position(3, 22, 1)


@pytest.mark.usefixtures("always")
def test_printed_and_read_again_they_are_the_same() -> None:
    tree = parse("INSERT INTO s VALUES (1, null, 'it''s'), (-2.5, true, TIMESTAMP '2024-01-01')")[0].tree
    text = format_statement(tree)
    assert text == "INSERT INTO s VALUES (1, NULL, 'it''s'), (-2.5, TRUE, TIMESTAMP '2024-01-01')"
    assert parse(text)[0].tree == tree
    values = rows_of(text)
    assert values is not None
    assert [[format_statement(v) for v in row.expressions] for row in parse_rows(values)] == [
        ["1", "NULL", "'it''s'"], ["-2.5", "TRUE", "TIMESTAMP '2024-01-01'"],
    ]  # fmt: skip


@pytest.mark.parametrize(("engine", "count"), [("reference", 150), ("local", 5_000)])
def test_many_rows_arrive_whole(engine: str, count: int) -> None:
    lines = ",\n".join(f"({i}, 'it''s {i}', {i}.25, {'NULL' if i % 7 == 0 else i})" for i in range(count))
    with penstock.connect(engine=engine) as db:
        db.execute("CREATE STREAM s (t BIGINT, g STRING, v DOUBLE, d DECIMAL(10, 2)) TIMESTAMP BY t")
        query = db.query("SELECT count(*) AS n, sum(v) AS v, sum(d) AS d, max(g) AS g FROM s")
        assert db.execute(f"INSERT INTO s VALUES\n{lines}").message == f"{count} rows into s"
        db.settle()
        total = sum(range(count))
        expected = sum(i for i in range(count) if i % 7)
        assert query.current().to_pylist() == [
            {
                "n": count,
                "v": total + count / 4,
                "d": Decimal(expected).quantize(Decimal("0.01")),
                "g": max(f"it's {i}" for i in range(count)),
            }
        ]


def test_a_bad_value_among_many_is_pointed_at() -> None:
    lines = [f"({i}, {i}.5)" for i in range(3_000)]
    lines[2_222] = "(5, 'five')"
    with penstock.connect(engine="reference") as db:
        db.execute("CREATE RELATION t (i INT, x DOUBLE)")
        query = db.query("SELECT * FROM t")
        with pytest.raises(PenstockError) as caught:
            db.execute("INSERT INTO t VALUES\n" + ",\n".join(lines))
        assert caught.value.position == Position(2_224, 5, 6)
        assert caught.value.one_line == "line 2224, column 5: `x` is DOUBLE, this is STRING"
        assert query.current().num_rows == 0


# -- the work grows with the text ---------------------------------------------------------------------------


def characters_split(monkeypatch: pytest.MonkeyPatch, text: str) -> int:
    """How many characters are looked through for the ends of lines while the text is parsed."""
    seen = 0
    look: Callable[[positions.Lines, int], None] = positions.Lines._look

    def counted(self: positions.Lines, upto: int) -> None:
        nonlocal seen
        before = self._known
        look(self, upto)
        seen += self._known - before

    with monkeypatch.context() as patch:
        patch.setattr(positions.Lines, "_look", counted)
        parse(text)
    return seen


SCRIPTS: dict[str, Callable[[int], str]] = {
    "rows": lambda n: "INSERT INTO s VALUES\n" + ",\n".join(f"({i}, 'a', upper('b'))" for i in range(n)),
    "plain rows": lambda n: "INSERT INTO s VALUES\n" + ",\n".join(f"({i}, 'a', {i}.5)" for i in range(n)),
    "statements": lambda n: ";\n".join(f"INSERT INTO s VALUES ({i}, 'a')" for i in range(n)),
    "columns": lambda n: "SELECT\n" + ",\n".join(f"a + {i} AS c{i}" for i in range(n)) + "\nFROM s",
    "conditions": lambda n: "SELECT a FROM s WHERE a IN (" + ",\n".join(map(str, range(n))) + ")",
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=list(SCRIPTS))
def test_a_text_is_looked_through_once_for_its_lines(
    script: Callable[[int], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = script(600)
    assert characters_split(monkeypatch, text) <= len(text) + positions._LEAST


def calls(text: str) -> int:
    """How many functions are called, of Python and of C, while the text is parsed."""
    count = 0

    def counted(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        parse(text)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=list(SCRIPTS))
def test_twice_the_text_is_twice_the_work(script: Callable[[int], str]) -> None:
    parse(script(1_000))
    assert calls(script(2_000)) <= 2.1 * calls(script(1_000)) + 1_000


def test_plain_rows_are_no_work_for_the_parser() -> None:
    text = SCRIPTS["plain rows"](2_000)
    parse(text)
    assert calls(text) < 2_000
