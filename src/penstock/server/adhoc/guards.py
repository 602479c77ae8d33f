"""What keeps one statement from holding the whole server: texts, patterns and values that cost too much are refused.

DuckDB bounds its own memory and can be interrupted. Its parser cannot, and neither can CQL's functions, which run in
Python.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from penstock.model.errors import BindError, CqlSyntaxError, LimitExceeded

LONGEST = 100_000
"""Characters of an ad-hoc statement."""
DEEPEST = 100
"""Parentheses in parentheses; deeper ones end DuckDB's parser, and with it the process."""
_NESTED = 400
"""Levels of the parsed statement: some 100 of expressions in expressions."""
_STEPS = 10**8
"""What matching one text may take, at worst."""
_GROWN = 512_000_000
"""Bytes that one call of a function may make."""
_QUOTED = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"", re.DOTALL)


def blanked(sql: str) -> str:
    """The text with blanks for what is quoted or a comment."""
    return _QUOTED.sub(lambda m: " " * len(m.group()), sql)


def check_text(sql: str) -> None:
    """Refuse what DuckDB's parser does not take well."""
    if len(sql) > LONGEST:
        raise LimitExceeded(f"the SELECT has {len(sql):,} characters, at most {LONGEST:,} are answered ad hoc")
    depth = 0
    for bracket in re.findall(r"[(\[{)\]}]", blanked(sql)):
        depth += 1 if bracket in "([{" else -1
        if depth > DEEPEST:
            raise too_deep()


def check_tree(text: str) -> None:
    """Refuse a parsed statement, in JSON, that is nested too deeply."""
    depth = 0
    for bracket in re.findall(r'"(?:[^"\\]|\\.)*"|[{\[}\]]', text):
        if bracket in ("{", "["):
            depth += 1
            if depth > _NESTED:
                raise too_deep()
        elif bracket in ("}", "]"):
            depth -= 1


def too_deep() -> CqlSyntaxError:
    return CqlSyntaxError("the SELECT is nested too deeply", hint="name its parts: WITH part AS (…)")


def repetitions(pattern: str) -> int:
    """How many unbounded repetitions a regular expression has; BindError where one holds another, or a choice.

    Such patterns may take time that doubles with each character of a text.
    """
    count = 0
    inside: list[bool] = [False]
    """Of each open group, whether a repetition or a choice is in it."""
    closed = False
    i = 0
    while i < len(pattern):
        c = pattern[i]
        if c == "\\":
            i, closed = i + 2, False
            continue
        if c == "[":
            end = i + 2 if pattern[i + 1 : i + 2] in ("]", "^") else i + 1
            end = end + 1 if pattern[i + 1 : i + 3] == "^]" else end
            while end < len(pattern) and pattern[end] != "]":
                end += 2 if pattern[end] == "\\" else 1
            i, closed = end + 1, False
            continue
        repeat = re.compile(r"[*+]|\{\d*,\d*\}|\{\d+\}").match(pattern, i)
        if repeat is not None:
            if closed:
                raise BindError(
                    f"ad hoc, '{pattern}' is not matched: a repetition in a repetition may take very long",
                    hint="CREATE QUERY takes it",
                )
            count += not repeat.group().startswith("{") or repeat.group().endswith(",}")
            inside[-1] = True
            i, closed = repeat.end(), False
            continue
        if c == "(":
            inside.append(False)
            closed = False
        elif c == ")":
            closed = inside.pop() if len(inside) > 1 else False
            inside[-1] = inside[-1] or closed
        elif c == "|":
            inside[-1] = True
            closed = False
        elif c != "?":
            closed = False
        i += 1
    return count


def _matching(columns: Sequence[pa.Array]) -> None:
    texts, patterns = columns[0], columns[1]
    longest = pc.max(pc.utf8_length(texts)).as_py() or 0
    for pattern in pc.unique(patterns).to_pylist():
        times = repetitions(pattern) if pattern is not None else 0
        if times > 1 and longest**times > _STEPS:
            raise LimitExceeded(
                f"ad hoc, '{pattern}' is not matched with texts of {longest:,} characters", hint="CREATE QUERY takes it"
            )


def _replacing(columns: Sequence[pa.Array]) -> None:
    _matching(columns)
    _within(pc.add(pc.binary_length(columns[0]), 1), pc.add(pc.binary_length(columns[2]), 1))


def _plain_replacing(columns: Sequence[pa.Array]) -> None:
    shortest = pc.max_element_wise(pc.binary_length(columns[1]), 1)
    _within(pc.divide(pc.binary_length(columns[0]), shortest), pc.binary_length(columns[2]))


def _repeating(columns: Sequence[pa.Array]) -> None:
    _within(pc.binary_length(columns[0]), pc.min_element_wise(columns[1], 2**24))


def _padding(columns: Sequence[pa.Array]) -> None:
    _within(pc.min_element_wise(columns[1], 2**24), pa.scalar(4))


def _within(sizes: pa.Array, times: pa.Array | pa.Scalar) -> None:
    product = pc.multiply(pc.cast(sizes, pa.float64()), pc.cast(times, pa.float64()))
    if (pc.sum(pc.max_element_wise(product, 0.0)).as_py() or 0) > _GROWN:
        raise LimitExceeded("ad hoc, the texts that this makes are too long", hint="ask for fewer rows")


GUARDS: dict[str, Callable[[Sequence[pa.Array]], None]] = {
    "regexp_like": _matching,
    "regexp_extract": _matching,
    "regexp_replace": _replacing,
    "replace": _plain_replacing,
    "repeat": _repeating,
    "lpad": _padding,
    "rpad": _padding,
}
"""Functions whose cost depends on their values: each raises where it would be too high."""


def fetched(
    relation: duckdb.DuckDBPyRelation, most: int, room: Callable[[int], None] = lambda size: None
) -> pa.Table:
    """All rows, up to ``most`` bytes: DuckDB does not count what it hands out. ``room`` is called with the bytes of
    each batch, and may refuse them."""
    reader = relation.to_arrow_reader(10_000)
    batches, size = [], 0
    for batch in reader:
        room(batch.nbytes)
        batches.append(batch)
        size += batch.nbytes
        if size > most:
            raise LimitExceeded(f"the answer has more than {most:,} bytes", hint="ask for less: WHERE, LIMIT")
    return pa.Table.from_batches(batches, reader.schema)
