"""Plans made for each rule: what it does, and what it must leave alone."""

from __future__ import annotations

from tests.plan.plans import R, S, T, U, call, col, count_by, eq, num, over, project, query, unbounded

from penstock.model.types import BOOLEAN, INT, STRING
from penstock.plan.nodes import Distinct, Filter, Join, Project, Query, QueryStream, SemiJoin, SetOp, SortKey, TopN
from penstock.plan.window import Generic, Now, PartitionRows, Range, Rows, Session, Unbounded
from penstock.scalar.expr import FALSE, TRUE, Call, Case, Column, Expr, Literal, UserCall

Cases = list[tuple[str, Query]]

_hot = call(">", col(R, "k"), num(5))
_hot_s = call(">", col(S, "k"), num(5))
_join = Join("inner", over(R), over(S))
_k, _k2, _y = col(_join, "k"), col(_join, "k", 3), col(_join, "y")
_mark = Column(3, BOOLEAN, "mark")


def _filter(node: object, *parts: Expr) -> Filter:
    for part in parts:
        node = Filter(node, part)  # type: ignore[arg-type]
    assert isinstance(node, Filter)
    return node


def _marked(condition: Expr, compare: bool = True) -> Filter:
    both = eq(col(R, "k"), Column(3, INT, "k"))
    return Filter(SemiJoin("mark", over(R), over(S), compare=both if compare else None), condition)


def _fold() -> Cases:
    one = Call("+", (num(1), num(2)), INT)
    null = Literal(None, BOOLEAN)
    user = UserCall("f", (col(R, "k"),), BOOLEAN)
    case = Case(((FALSE, num(1)), (_hot, num(2)), (TRUE, num(3))), num(4), INT)
    return [
        ("arithmetic on constants", query(_filter(over(R), call(">", col(R, "k"), one)))),
        ("TRUE AND x, and a filter that is TRUE", query(_filter(over(R), call("and", TRUE, _hot), TRUE))),
        ("FALSE AND x is FALSE and is kept", query(_filter(over(R), call("and", _hot, FALSE)))),
        ("x OR TRUE is TRUE", query(_filter(over(R), call("or", _hot, TRUE)))),
        (
            "NULL AND x stays, a constant NULL is FALSE",
            query(_filter(over(R), call("and", null, _hot), null)),
        ),
        ("NOT NOT x, NOT a > b", query(_filter(over(R), call("not", call("not", _hot)), call("not", _hot)))),
        ("CASE", query(_filter(over(R), eq(case, num(2))))),
        ("a user's function is evaluated all the same", query(_filter(over(R), call("or", user, TRUE)))),
        (
            "1 / 0 fails on every row, not once",
            query(_filter(over(R), eq(Call("div", (num(1), num(0)), INT), num(1)))),
        ),
    ]


def _split() -> Cases:
    user = UserCall("f", (col(R, "k"),), BOOLEAN)
    return [
        ("one filter for each conjunct", query(_filter(over(R), call("and", _hot, eq(col(R, "k"), num(7)))))),
        ("not with a user's function", query(_filter(over(R), call("and", _hot, user)))),
    ]


def _merge_filters() -> Cases:
    user = UserCall("f", (col(R, "k"),), BOOLEAN)
    return [
        ("adjacent, without repetition", query(_filter(over(R), _hot, eq(col(R, "k"), num(7)), _hot))),
        ("not with a user's function", query(_filter(over(R), _hot, user))),
    ]


def _merge_projects() -> Cases:
    twice = Project(over(R), (Call("+", (col(R, "k"), num(1)), INT),), ("a",))
    a = col(twice, "a")
    return [
        ("one after the other", query(project(project(over(R), "x", "k"), "k"))),
        ("nothing is computed twice", query(Project(twice, (Call("*", (a, a), INT),), ("b",)))),
        ("all columns in order is nothing", query(project(over(R), "k", "x", "d"))),
    ]


def _push() -> Cases:
    tumbling = Generic("time", 0, 10, 10, 10, None, True)
    left = Join("left", over(R), over(S), ((col(R, "k"), col(S, "k")),))
    user = UserCall("f", (col(R, "k"),), BOOLEAN)
    shifted = Project(over(R), (Call("+", (col(R, "k"), num(1)), INT),), ("a",))
    nested = QueryStream("q", query(_filter(over(R), _hot), "istream"), 10)
    counted = count_by(over(R), "k")
    sides = Join("inner", over(R), over(S), (), call("and", _hot, call("<", _k, _k2)))
    cases: Cases = [
        (f"below {type(w).__name__}", query(_filter(over(R, w), _hot)))
        for w in (Unbounded(), Now(), Range(10), Range(10, 5))
    ]
    cases += [
        ("not below ROWS", query(_filter(over(R, Rows(2)), _hot))),
        ("below PARTITION BY k ROWS: it reads k only", query(_filter(over(R, PartitionRows((0,), 2)), _hot))),
        ("not below PARTITION BY x ROWS", query(_filter(over(R, PartitionRows((1,), 2)), _hot))),
        ("not below a bounded window", query(_filter(over(R, tumbling), _hot), "windows")),
        ("not below a session", query(_filter(over(R, Session(5)), _hot), "windows")),
        ("not below a window under RSTREAM", query(_filter(over(R), _hot), "rstream")),
        ("with masters also under RSTREAM", query(_filter(over(R), _hot), "rstream", "r")),
        ("not where the first instant shows", query(count_by(_filter(over(R), _hot)))),
        ("both sides of an inner join", query(_filter(_join, _hot, call("<", _k2, num(3)), eq(_k, _k2)))),
        ("only the kept side of an outer join", query(_filter(left, _hot, call("<", _k2, num(3))))),
        ("one-sided conditions of a join", query(sides)),
        ("through a projection", query(_filter(shifted, call(">", col(shifted, "a"), num(5))))),
        ("group keys only", query(_filter(counted, _hot, call(">", col(counted, "n"), Literal(1, INT))))),
        ("DISTINCT", query(_filter(Distinct(over(R)), _hot))),
        ("both sides of EXCEPT", query(_filter(SetOp("except", False, over(S), over(S)), _hot_s))),
        ("left side of IN", query(_filter(SemiJoin("anti", over(R), over(S)), _hot))),
        ("not through LIMIT", query(_filter(TopN(over(R), (SortKey(col(R, "k")),), 3), _hot))),
        ("not with a user's function", query(_filter(over(R), user, _hot))),
        ("each sub-query for itself", query(_filter(over(nested), _hot))),
    ]
    return cases


def _hash() -> Cases:
    text = eq(col(_join, "x"), Literal("a", STRING))
    semi = SemiJoin("semi", over(R), over(S), compare=eq(col(R, "k"), Column(3, INT, "k")))
    anti = SemiJoin("anti", over(R), over(S), compare=eq(col(R, "k"), Column(3, INT, "k")))
    return [
        ("from a filter above", query(_filter(_join, call("and", eq(_k2, _k), text)))),
        ("from the condition", query(Join("left", over(R), over(S), (), call("and", eq(_k, _k2), text)))),
        ("an outer join's filter is no key", query(_filter(Join("left", over(R), over(S)), eq(_k, _k2)))),
        ("IN", query(semi)),
        ("NOT IN has to see NULL", query(anti)),
    ]


def _semi() -> Cases:
    negated = call("not", _mark)
    return [
        ("IN", query(project(_marked(_mark), "k", "x"))),
        ("NOT IN", query(project(_marked(negated), "k", "x"))),
        ("EXISTS and more", query(project(_marked(call("and", _hot, _mark), False), "x"))),
        ("OR needs the mark", query(project(_marked(call("or", _hot, _mark)), "x"))),
    ]


def _order() -> Cases:
    big = Join("inner", unbounded(R), over(S), ((col(R, "k"), col(S, "k")),))
    y = col(big, "y")
    chain = Join("inner", big, over(U, Rows(1)), ((y, col(U, "y")),))
    cross = Join("inner", Join("inner", unbounded(R), over(U)), over(S))
    residual = call("and", eq(col(cross, "k"), col(cross, "k", 5)), eq(col(cross, "y"), col(cross, "y", 6)))
    keyed = Join("inner", cross.left, cross.right, (), residual)
    return [
        ("the small window first", query(chain)),
        ("along equalities, not cross products", query(keyed)),
        ("nothing to gain", query(Join("inner", over(R), over(S), ((col(R, "k"), col(S, "k")),)))),
        ("outer joins stay", query(Join("left", unbounded(R), over(U, Rows(1))))),
    ]


def _prune() -> Cases:
    keyed = Join("inner", over(R), over(S), ((col(R, "k"), col(S, "k")),))
    nested = QueryStream("q", query(over(R)), 10)
    ties = TopN(over(R), (SortKey(col(R, "k")),), 3)
    return [
        ("before the window", query(project(over(R), "x"))),
        ("keys of a join are read", query(project(keyed, "x", "y"))),
        ("keys of a window are read", query(project(over(R, PartitionRows((0,), 2)), "d"))),
        ("what only a filter below reads", query(project(over(Filter(R, _hot)), "x"))),
        ("relations", query(project(Join("inner", over(R), T, ((col(R, "k"), col(T, "k")),)), "d"))),
        ("count(*) keeps one column", query(count_by(over(R)))),
        ("DISTINCT compares whole rows", query(project(Distinct(over(R)), "k"))),
        ("ties of LIMIT go by all values", query(project(ties, "k"))),
        ("an aggregate's output is its identity", query(project(count_by(over(R), "k"), "k"), "changes")),
        ("not inside a sub-query", query(project(over(nested, Rows(2)), "x"))),
    ]


def _retractions() -> Cases:
    keys = ((col(R, "k"), col(S, "k")),)
    return [
        ("ISTREAM of a filter", query(_filter(over(R, Rows(2)), _hot))),
        (
            "a join knows the end of RANGE rows, not of ROWS",
            query(Join("inner", over(R), over(S, Rows(2)), keys)),
        ),
        ("MASTER", query(_filter(over(R), _hot), "istream", "r")),
        ("DSTREAM", query(over(R), "dstream")),
        ("changes", query(over(R), "changes")),
        ("an outer join", query(Join("left", over(R), over(S), keys))),
        ("IN", query(SemiJoin("semi", over(R), over(S), keys))),
        ("an aggregate", query(count_by(over(R), "k"))),
        ("UNBOUNDED never retracts", query(count_by(unbounded(R), "k"), "changes")),
    ]


CASES = {
    "fold_constants": _fold,
    "split_filters": _split,
    "push_filters": _push,
    "semi_joins": _semi,
    "merge_projects": _merge_projects,
    "hash_keys": _hash,
    "order_joins": _order,
    "prune_columns": _prune,
    "merge_filters": _merge_filters,
    "mark_retractions": _retractions,
}
