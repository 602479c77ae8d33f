"""Which operator binds more tightly: as the documentation of PostgreSQL 15 says, and as DuckDB reads it."""

from __future__ import annotations

import json
import random
from typing import Any

import duckdb
import pytest
from sqlglot import exp
from tests.budget import examples

from penstock.cql.text import format_statement, parse
from penstock.model.errors import CqlSyntaxError

# The table "Operator Precedence" of PostgreSQL 15 (4.1.6) as far as CQL has the operators, from loose to tight.
TABLE = (
    ("OR",),
    ("AND",),
    ("NOT",),
    ("IS NULL", "IS TRUE", "IS DISTINCT FROM"),
    ("=", "<>", "<", "<=", ">", ">="),
    ("BETWEEN", "IN", "LIKE", "ILIKE"),
    ("||",),
    ("+", "-"),
    ("*", "/", "%"),
    ("unary -",),
    ("::",),
)
LEVEL = {operator: level for level, operators in enumerate(TABLE) for operator in operators}
_OPERATORS = (exp.Binary, exp.Not, exp.Neg, exp.In, exp.Between, exp.Like, exp.ILike, exp.Cast)


def expression(text: str) -> exp.Expr:
    found: exp.Expr = parse(f"SELECT {text} FROM s")[0].tree.expressions[0]
    return found


def grouped(tree: exp.Expr) -> exp.Expr:
    """The expression with parentheses around everything that an operator makes, and no others."""
    if isinstance(tree, exp.Paren):
        return grouped(tree.this)
    found = tree.copy()
    for key, value in list(found.args.items()):
        if isinstance(value, list):
            found.set(key, [grouped(item) for item in value])
        elif isinstance(value, exp.Expression):
            found.set(key, grouped(value))
    return exp.Paren(this=found) if isinstance(found, _OPERATORS) else found


def binary(operator: str, left: str, right: str) -> str:
    match operator:
        case "IS NULL" | "IS TRUE":
            return f"{left} {operator}"
        case "BETWEEN":
            return f"{left} BETWEEN {right} AND b"
        case "IN":
            return f"{left} IN ({right})"
        case "::":
            return f"{left}::BOOLEAN"
    return f"{left} {operator} {right}"


PAIRS = [
    (outer, inner)
    for outer in LEVEL
    for inner in LEVEL
    if {outer, inner}.isdisjoint({"NOT", "unary -"}) and LEVEL[outer] < LEVEL[inner]
]


@pytest.mark.parametrize(("outer", "inner"), PAIRS)
def test_the_tighter_operator_takes_its_operands_first(outer: str, inner: str) -> None:
    """``a inner b outer c`` and ``c outer a inner b`` are read as if the inner one had parentheses."""
    tight = binary(inner, "a", "d")
    assert grouped(expression(binary(outer, tight, "c"))) == grouped(expression(binary(outer, f"({tight})", "c")))
    if outer not in ("IS NULL", "IS TRUE", "IN", "BETWEEN", "::"):
        assert grouped(expression(binary(outer, "c", tight))) == grouped(expression(binary(outer, "c", f"({tight})")))


@pytest.mark.parametrize("operator", [o for o in LEVEL if o not in ("NOT", "unary -")])
def test_not_and_minus_stand_where_the_table_says(operator: str) -> None:
    plain = binary(operator, "a", "c")
    loose = f"(NOT a) {plain[2:]}" if LEVEL[operator] < LEVEL["NOT"] else f"NOT ({plain})"
    assert grouped(expression(f"NOT {plain}")) == grouped(expression(loose))
    tight = f"-({plain})" if LEVEL[operator] > LEVEL["unary -"] else f"(-a) {plain[2:]}"
    assert grouped(expression(f"-{plain}")) == grouped(expression(tight))


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("a = 1 IS NULL", "(a = 1) IS NULL"),
        ("b <> c IS NULL", "(b <> c) IS NULL"),
        ("NULL = 1 IS NULL", "(NULL = 1) IS NULL"),
        ("a < b IS NOT NULL", "(a < b) IS NOT NULL"),
        ("a = b IS NOT TRUE", "(a = b) IS NOT TRUE"),
        ("a IS NULL = b", "(a IS NULL) = b"),
        ("a IS NOT NULL = b", "(a IS NOT NULL) = b"),
        ("a = b IS NULL = c", "((a = b) IS NULL) = c"),
        ("a = b IS DISTINCT FROM c", "(a = b) IS DISTINCT FROM c"),
        ("a IS DISTINCT FROM b = c", "a IS DISTINCT FROM (b = c)"),
        ("a IS NOT DISTINCT FROM b IN (c)", "a IS NOT DISTINCT FROM (b IN (c))"),
        ("a IS DISTINCT FROM b IS NULL", "(a IS DISTINCT FROM b) IS NULL"),
        ("a = b NOT IN (c)", "a = (b NOT IN (c))"),
        ("a NOT LIKE b = c", "(a NOT LIKE b) = c"),
        ("a BETWEEN b AND c IS NULL", "(a BETWEEN b AND c) IS NULL"),
        ("a = NOT b = c", "a = (NOT (b = c))"),
        ("NOT a IS NULL", "NOT (a IS NULL)"),
        ("a IN (b) IN (c)", "(a IN (b)) IN (c)"),
        ("a - b - c", "(a - b) - c"),
        ("a / b * c", "(a / b) * c"),
        ("-a::INT", "-(a::INT)"),
    ],
)
def test_reads_as_with_these_parentheses(text: str, means: str) -> None:
    assert grouped(expression(text)) == grouped(expression(means))


@pytest.mark.parametrize(
    ("text", "at"),
    [("a = b = c", 7), ("a < b < c", 7), ("a = b < c", 7), ("1 < a <= 5 AND b", 7), ("NOT a = b <> c", 11)],
)
def test_comparisons_do_not_chain(text: str, at: int) -> None:
    with pytest.raises(CqlSyntaxError, match="comparisons do not chain") as caught:
        expression(text)
    assert caught.value.position is not None
    assert caught.value.position.column == len("SELECT ") + at


@pytest.mark.parametrize("text", ["NOT a IN (b) || c", "NOT a IS NULL + b", "a = NOT b IS NULL - c"])
def test_what_not_reaches_to_is_not_taken_apart(text: str) -> None:
    with pytest.raises(CqlSyntaxError, match="parentheses"):
        expression(text)


@pytest.mark.parametrize("text", ["a LIKE b LIKE c", "a LIKE b NOT IN (c)", "a BETWEEN b AND c BETWEEN d AND e"])
def test_what_like_and_between_end_with_belongs_to_one(text: str) -> None:
    with pytest.raises(CqlSyntaxError, match="parentheses"):
        expression(text)


def ours_or_none(text: str) -> exp.Expr | None:
    try:
        return grouped(expression(text))
    except CqlSyntaxError:
        return None


def duckdb_reads(text: str) -> Any:
    """The tree that DuckDB makes of an expression; None where it refuses it."""
    answer = json.loads(duckdb.execute("SELECT json_serialize_sql(?)", [f"SELECT {text} FROM s"]).fetchall()[0][0])
    return None if answer["error"] else _without_places(answer["statements"][0]["node"]["select_list"][0])


def _without_places(node: Any) -> Any:
    if isinstance(node, list):
        return [_without_places(item) for item in node]
    if not isinstance(node, dict):
        return node
    found = {key: _without_places(value) for key, value in node.items() if not key.startswith("query_location")}
    negated = {"OPERATOR_IS_NOT_NULL": "OPERATOR_IS_NULL", "COMPARE_NOT_IN": "COMPARE_IN"}.get(found.get("type", ""))
    if negated is not None:
        return {"class": "OPERATOR", "type": "OPERATOR_NOT", "alias": "", "children": [{**found, "type": negated}]}
    if found.get("type") == "COMPARE_NOT_DISTINCT_FROM":
        inner = {**found, "type": "COMPARE_DISTINCT_FROM"}
        return {"class": "OPERATOR", "type": "OPERATOR_NOT", "alias": "", "children": [inner]}
    return found


SUFFIXES = [
    "IS NULL", "IS NOT NULL", "= {}", "<> {}", "< {}", ">= {}", "IN ({}, c)", "NOT IN (c)", "BETWEEN {} AND {}",
    "LIKE {}", "IS DISTINCT FROM {}", "|| {}", "+ {}", "- {}", "* {}", "% {}", "AND {}", "OR {}", "::INT",
]  # fmt: skip


def chain(choose: random.Random) -> str:
    def operand() -> str:
        return choose.choice(["a", "b", "c", "a", "b", "-a", "NOT b"])

    text = operand()
    for _ in range(choose.randrange(1, 6)):
        suffix = choose.choice(SUFFIXES)
        text += (" " if suffix[0] != ":" else "") + suffix.format(*(operand() for _ in range(suffix.count("{}"))))
    return text


def test_generated_expressions_are_read_as_duckdb_reads_them() -> None:
    choose, compared = random.Random(5), 0
    for _ in range(examples(3000)):
        text = chain(choose)
        ours, theirs = ours_or_none(text), duckdb_reads(text)
        if ours is None or theirs is None:
            # DuckDB refuses more (IN behind IS NULL), CQL no more than PostgreSQL does.
            continue
        compared += 1
        shown = format_statement(ours)
        assert duckdb_reads(shown) == theirs, (text, shown)
        assert ours_or_none(shown) == ours, (text, shown)
    assert compared > examples(1000)


def test_what_is_printed_is_read_the_same() -> None:
    choose = random.Random(6)
    for _ in range(examples(3000)):
        text = chain(choose)
        if ours_or_none(text) is not None:
            tree = expression(text)
            assert expression(format_statement(tree)) == tree, text
