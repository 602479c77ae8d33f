"""Rows of stored relations: an index finds what a look at every row finds, a change that fails changes nothing, and
what a change costs does not follow the size of the relation."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock import scalar
from penstock.catalog import RelationDef
from penstock.database.database import core_of
from penstock.ingest import relations, table
from penstock.ingest.relations import RelationStore, When
from penstock.model.change import Change
from penstock.model.errors import InputError
from penstock.model.schema import Field
from penstock.model.types import DOUBLE, INT
from penstock.scalar.expr import Call, Cast, Column, Expr, Literal
from tests.budget import examples

Rows = list[tuple[object, ...]]

# -- through statements -------------------------------------------------------------------------------------

COLUMNS = {
    "i": ("INT", ["0", "1", "2", "NULL"]),
    "b": ("BIGINT", ["1", "9007199254740992", "9007199254740993", "NULL"]),
    "f": ("DOUBLE", ["0.0", "-0.0", "1.0", "1.5", "9007199254740992.0", "CAST('NaN' AS DOUBLE)", "NULL"]),
    "g": ("REAL", ["0.1", "1.0", "CAST('NaN' AS REAL)", "NULL"]),
    "d": ("DECIMAL(6, 2)", ["0", "1.00", "1.5", "1.50", "NULL"]),
    "s": ("STRING", ["'a'", "'A'", "'a '", "''", "'1'", "NULL"]),
    "p": ("BOOLEAN", ["TRUE", "FALSE", "NULL"]),
    "t": ("TIMESTAMP", ["TIMESTAMP '2024-05-01 10:00:00'", "TIMESTAMP '2024-05-01 00:00:00'", "NULL"]),
    "y": ("DATE", ["DATE '2024-05-01'", "NULL"]),
}
CONSTANTS = sorted({v for _, values in COLUMNS.values() for v in values} | {
    "1e0", "1.0001", "0.1e0", "1 + 1", "1 / 0", "'2024-05-01'", "'x'", "CAST(1 AS BIGINT)",
})  # fmt: skip
OTHERS = ["i > 0", "s <> 'a'", "10 / i > 1", "CAST(s AS INT) = 1", "half(i) = 1", "i = b", "f IS NULL",
          "i = 1 OR d = 1", "coalesce(i, 1) = 1", "i IN (1, 2)", "NOT p", "b + 1 > 2", "f = f + 0.0",
          "s = 'a' OR 1 / i = 1"]  # fmt: skip
SETS = ["i = i + 1", "i = 10 / i", "s = 'a', i = 1", "d = d * 10", "f = i", "i = half(i)", "i = b", "p = NOT p"]


def a_row() -> st.SearchStrategy[str]:
    return st.tuples(*(st.sampled_from(values) for _, values in COLUMNS.values())).map(lambda v: f"({', '.join(v)})")


def a_part() -> st.SearchStrategy[str]:
    equal = st.tuples(st.sampled_from([*COLUMNS]), st.sampled_from(CONSTANTS), st.booleans())
    fitting = st.sampled_from([(c, v, False) for c, (_, values) in COLUMNS.items() for v in values])
    written = (fitting | equal).map(lambda e: f"{e[1]} = {e[0]}" if e[2] else f"{e[0]} = {e[1]}")
    return written | written | st.sampled_from(OTHERS)


def a_statement() -> st.SearchStrategy[str]:
    where = st.lists(a_part(), min_size=1, max_size=3).map(" AND ".join)
    return st.one_of(
        st.lists(a_row(), min_size=1, max_size=4).map(lambda rows: f"INSERT INTO r VALUES {', '.join(rows)}"),
        where.map("DELETE FROM r WHERE {}".format),
        st.tuples(st.sampled_from(SETS), where).map(lambda u: f"UPDATE r SET {u[0]} WHERE {u[1]}"),
    )


def half(x: int | None) -> int | None:
    if x == 0:
        raise ValueError("zero")
    return None if x is None else x // 2


def declared(key: str = "") -> penstock.Database:
    db = penstock.connect(engine="reference")
    db.create_function("half", half, returns="INT", args=["INT"])
    db.execute(f"CREATE RELATION r ({', '.join(f'{name} {kind}' for name, (kind, _) in COLUMNS.items())}){key}")
    return db


def outcome(db: penstock.Database, text: str) -> object:
    """What a statement says, and the rows after it."""
    try:
        said = db.execute(text).message
    except penstock.PenstockError as error:
        said = str(error)
    return said, repr(core_of(db).relations["r"].rows)


@settings(max_examples=examples(300), deadline=None)
@given(
    key=st.sampled_from(["", "", " KEY (i)", " KEY (s, f)", " KEY (f)"]),
    first=st.lists(a_row(), min_size=3, max_size=12),
    statements=st.lists(a_statement(), min_size=1, max_size=8),
)
def test_an_index_finds_what_a_look_at_every_row_finds(key: str, first: list[str], statements: list[str]) -> None:
    with declared(key) as indexed, declared(key) as scanned:
        for text in [*(f"INSERT INTO r VALUES {row}" for row in first), *statements]:
            found = outcome(indexed, text)
            with mock.patch.object(table, "_equalities", return_value={}):
                assert found == outcome(scanned, text), text


@pytest.mark.parametrize(
    ("where", "rows"),
    [("k = 1", 1), ("1 = k AND v > 0", 1), ("k = 1.0", 1), ("k = 1e0", 1), ("v = 2 AND k = 5", 1), ("k = NULL", 1),
     ("k = 1 AND 1 / v > 0", 9), ("k = 1 AND same(v) = 1", 9), ("k > 1", 9), ("k = 1 OR v = 1", 9)],
)  # fmt: skip
@pytest.mark.parametrize("key", ["", " KEY (k)"])
def test_rows_that_cannot_meet_a_condition_are_looked_at_only_if_it_could_fail(
    key: str, where: str, rows: int
) -> None:
    with penstock.connect(engine="reference") as db:
        db.create_function("same", lambda x: x, returns="INT", args=["INT"])
        db.execute(f"CREATE RELATION r (k INT, v INT){key}")
        db.push("r", [(k, k + 1) for k in range(9)])
        looked: list[object] = []

        def evaluate(expr: Expr, row: tuple[object, ...], context: scalar.Context) -> object:
            looked.append(row)
            return scalar.evaluate(expr, row, context)

        with mock.patch.object(relations, "scalar", mock.Mock(evaluate=evaluate)):
            db.execute(f"DELETE FROM r WHERE {where}")
        assert len(looked) <= rows
        assert (len(looked) == 9) is (rows == 9)


def test_many_columns_are_asked_for_in_turn() -> None:
    names = [f"c{i}" for i in range(8)]
    with penstock.connect(engine="reference") as db:
        db.execute(f"CREATE RELATION r ({', '.join(f'{n} INT' for n in names)})")
        db.push("r", [(k,) * 8 for k in range(20)])
        for k, name in enumerate([*names, *names]):
            db.execute(f"UPDATE r SET c0 = c0 WHERE {name} = {k}; DELETE FROM r WHERE {name} = {k}")
        assert core_of(db).relations["r"].rows == [(k,) * 8 for k in range(16, 20)]


# -- a change that fails ------------------------------------------------------------------------------------


def three(engine: str) -> tuple[penstock.Database, penstock.Query]:
    db = penstock.connect(engine=engine)
    db.create_function("half", half, returns="INT", args=["INT"])
    db.execute("CREATE STREAM s (t BIGINT, k INT) TIMESTAMP BY t; CREATE RELATION r (k INT, v INT) KEY (k)")
    db.execute("INSERT INTO r VALUES (1, 4), (2, 0), (3, 8)")
    db.push("s", [(1, 1)])
    return db, db.query("SELECT ISTREAM r.k, v FROM s [NOW], r")


def goes_on(db: penstock.Database, query: penstock.Query) -> None:
    """Nothing has changed, and the next changes find what is there."""
    assert core_of(db).relations["r"].rows == [(1, 4), (2, 0), (3, 8)]
    db.execute("UPDATE r SET v = 5 WHERE k = 3; DELETE FROM r WHERE k = 1; INSERT INTO r VALUES (1, 1)")
    assert core_of(db).relations["r"].rows == [(2, 0), (3, 5), (1, 1)]
    db.push("s", [(100, 1)])
    assert sorted((row["k"], row["v"]) for row in query.fetch().to_pylist()) == [(1, 1), (2, 0), (3, 5)]


@pytest.mark.parametrize(
    "text",
    ["UPDATE r SET v = half(v)", "UPDATE r SET k = 7", "UPDATE r SET k = 1 WHERE k = 2",
     "INSERT INTO r VALUES (4, 4), (2, 2)", "DELETE FROM r WHERE k = 3 AND half(v) > 0"],
)  # fmt: skip
def test_a_change_that_fails_half_way_changes_nothing(text: str, engine: str) -> None:
    db, query = three(engine)
    with db:
        with pytest.raises(InputError):
            db.execute(text)
        goes_on(db, query)


def test_a_change_that_the_host_refuses_changes_nothing(engine: str) -> None:
    db, query = three(engine)
    with db:
        for text in ("UPDATE r SET v = 1", "DELETE FROM r WHERE k = 1", "INSERT INTO r VALUES (4, 4)"):
            refusing = mock.patch.object(core_of(db).host, "change", side_effect=InputError("no"))
            with refusing, pytest.raises(InputError, match="no"):
                db.execute(text)
        goes_on(db, query)


def test_a_function_cannot_change_the_relation_that_is_being_changed(engine: str) -> None:
    if engine == "spark":
        pytest.skip("a function that knows a database cannot be sent to its workers")
    db, query = three(engine)
    with db:
        db.create_function("more", lambda k: db.execute("DELETE FROM r WHERE k = 9") and k, returns="INT", args=["INT"])
        with pytest.raises(InputError, match="cannot do this to the database that is calling it"):
            db.execute("UPDATE r SET v = more(v)")
        goes_on(db, query)


def interrupted(action: Callable[[], object], at: int) -> bool:
    """Run with an interrupt at a line of the rows of relations; False if it has fewer lines."""
    left, files = at, {relations.__file__, table.__file__}

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in files:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.parametrize("key", ["", " KEY (k)"])
@pytest.mark.parametrize(
    ("text", "after"),
    [("INSERT INTO r VALUES (4, 1), (5, 1)", [(1, 1), (2, 1), (3, 2), (4, 1), (5, 1)]),
     ("UPDATE r SET v = 7 WHERE v = 1", [(3, 2), (1, 7), (2, 7)]),
     ("DELETE FROM r WHERE k = 2", [(1, 1), (3, 2)])],
    ids=["insert", "update", "delete"],
)  # fmt: skip
def test_wherever_an_interrupt_comes_a_change_is_made_or_not(key: str, text: str, after: Rows) -> None:
    before: Rows = [(1, 1), (2, 1), (3, 2)]
    seen, at = set(), 0
    while True:
        at += 1
        with penstock.connect(engine="local") as db:
            db.execute(f"CREATE STREAM s (t BIGINT) TIMESTAMP BY t; CREATE RELATION r (k INT, v INT){key}")
            db.push("s", [(1,)])
            db.push("r", before)
            db.execute("DELETE FROM r WHERE v = 9; DELETE FROM r WHERE k = 9 AND v = 9")
            stopped = interrupted(partial(db.execute, text), at)
            again = interrupted(core_of(db).relations["r"].copy, 1 + at % 20)
            found = core_of(db).relations["r"].rows
            assert found in (before, after), (at, again)
            seen.add(found == after)
            history = [(c.sign, c.row) for c in core_of(db).relations["r"].initial(-1)]
            assert history[:3] == [(1, row) for row in before]
            assert bool(history[3:]) is (found == after)
            for k, v in found:
                assert db.execute(f"DELETE FROM r WHERE k = {k}").message == "1 row of r deleted"
                assert db.execute(f"DELETE FROM r WHERE v = {v} AND k = {k}").message == "0 rows of r deleted"
            assert core_of(db).relations["r"].rows == []
        if not stopped:
            break
    assert seen == {False, True}


# -- the store, against lists -------------------------------------------------------------------------------

SCHEMA = (Field("x", INT), Field("y", DOUBLE))
X, Y = Column(0, INT), Column(1, DOUBLE)
ROWS = st.tuples(st.sampled_from([None, 1, 2]), st.sampled_from([None, 0.0, -0.0, 1.0, float("nan")]))


def equal(column: Column, value: object) -> Expr:
    return Call("=", (column, Literal(value, column.type)), INT)


WHERES = st.sampled_from([
    None, equal(X, 1), equal(X, None), equal(Y, -0.0), equal(Y, float("nan")), equal(Y, 1.0),
    Call("=", (Cast(X, DOUBLE), Literal(1.0, DOUBLE)), INT),
    Call("and", (equal(X, 1), equal(Y, 0.0)), INT), Call("is_null", (X,), INT),
])  # fmt: skip


class Lists:
    """A relation as plain lists, in which everything looks at every row."""

    def __init__(self, definition: RelationDef) -> None:
        self.key = definition.key
        self.rows: Rows = []
        self.made: list[Change] = []

    def identity(self, row: tuple[object, ...]) -> object:
        return scalar.hashable(tuple(row[k] for k in self.key) if self.key else row)

    def done(self, steps: list[tuple[int, tuple[object, ...]]], at: int | None) -> None:
        rows, made = list(self.rows), list[Change]()
        for sign, row in steps:
            same = [i for i, r in enumerate(rows) if self.identity(r) == self.identity(row)]
            if sign > 0:
                if self.key and same:
                    raise InputError("there already")
                rows.append(row)
            else:
                if not same:
                    raise InputError("not there")
                row = rows.pop(same[0])
            made.append(Change(at, sign, row, len(self.made) + len(made)))
        self.rows = rows
        self.made += made

    def matching(self, where: Expr | None) -> Rows:
        return [r for r in self.rows if where is None or scalar.evaluate(where, r, scalar.Context()) is True]

    def initial(self, passed: float) -> tuple[Rows, list[object]]:
        """The rows after the changes up to an instant, and those behind it."""
        past = Lists(RelationDef("r", SCHEMA, 0, self.key))
        later = [c for c in self.made if c.ts is not None and c.ts > passed]
        past.done([(c.sign, c.row) for c in self.made if c not in later], None)
        return past.rows, [(c.ts, c.sign, c.row) for c in later]


@settings(max_examples=examples(400), deadline=None)
@given(data=st.data(), key=st.sampled_from([(), (0,), (1,), (0, 1)]), dated=st.booleans())
def test_a_store_is_what_lists_are(data: st.DataObject, key: tuple[int, ...], dated: bool) -> None:
    definition = RelationDef("r", SCHEMA, 0, key)
    store, lists, passed = RelationStore(definition), Lists(definition), 0
    steps: list[tuple[int, tuple[object, ...]]]
    for at in range(1, data.draw(st.integers(1, 12)) + 1):
        when = replace(When(None), at=at if dated else None)
        draft, where = store.copy(), data.draw(WHERES)
        new = data.draw(st.lists(ROWS, max_size=3))
        kind = data.draw(st.sampled_from(["insert", "update", "delete", "load"]))
        ops = [data.draw(st.sampled_from("+-")) for _ in new]
        try:
            match kind:
                case "insert":
                    steps = [(1, row) for row in new]
                    changes = draft.insert(new, when)
                case "delete":
                    steps = [(-1, row) for row in lists.matching(where)]
                    changes = draft.delete(where, when, scalar.Context())
                case "update":
                    value = data.draw(st.sampled_from([1, 2]))
                    found = lists.matching(where)
                    steps = [*((-1, row) for row in found), *((1, (value, row[1])) for row in found)]
                    changes = draft.update(where, {0: Literal(value, INT)}, when, scalar.Context())
                case _:
                    steps = [(1 if op == "+" else -1, row) for op, row in zip(ops, new, strict=True)]
                    given_rows = [{"x": x, "y": y, "op": op} for (x, y), op in zip(new, ops, strict=True)]
                    changes = draft.load(given_rows, when)
        except InputError:
            with pytest.raises(InputError):
                lists.done(steps, when.at)
        else:
            if data.draw(st.booleans()):  # else somebody refuses it
                lists.done(steps, when.at)
                assert repr([(c.sign, c.row) for c in changes]) == repr(
                    [(c.sign, c.row) for c in lists.made[len(lists.made) - len(changes) :]]
                )
                store = draft
        if data.draw(st.booleans()):
            passed = max(passed, at - 2)
            store.forget(passed)
        assert repr(store.rows) == repr(lists.rows)
        initial = store.initial(-1)
        base, later = lists.initial(passed)
        assert repr([c.row for c in initial[: len(base)]]) == repr(base)
        assert [c.arrival for c in initial[: len(base)]] == list(range(-len(base), 0))
        assert repr([(c.ts, c.sign, c.row) for c in initial[len(base) :]]) == repr(later)


# -- costs --------------------------------------------------------------------------------------------------


def steps_of(action: Callable[[], object]) -> int:
    """How many instructions an action runs."""
    count = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("key", ["", " KEY (k)"])
@pytest.mark.parametrize("reading", [False, True], ids=["nobody reads", "a query reads"])
def test_what_a_change_costs_does_not_follow_the_size_of_the_relation(key: str, reading: bool) -> None:
    def costs(size: int) -> list[int]:
        with penstock.connect(engine="local") as db:
            db.execute(f"CREATE STREAM s (t BIGINT, k INT) TIMESTAMP BY t; CREATE RELATION r (k INT, v INT){key}")
            db.push("r", [(k, 0) for k in range(size)])
            if reading:
                db.query("SELECT ISTREAM s.k, v FROM s [NOW] JOIN r ON s.k = r.k")
            found, at = [], 0
            for turn in range(3):
                for text in (
                    f"INSERT INTO r VALUES ({size + turn}, 1)",
                    f"UPDATE r SET v = 2 WHERE k = {turn}",
                    f"DELETE FROM r WHERE k = {turn}",
                ):
                    at += 5
                    found.append(steps_of(partial(db.execute, text)) + steps_of(partial(db.push, "s", [(at, turn)])))
            return found[-3:]  # the first ones make indexes and compile

    for small, large in zip(costs(50), costs(2_000), strict=True):
        assert large < small * 1.2
