"""Run a generated case and give its answers as a multiset per instant."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable

import penstock
from penstock.cql.declarations import plan_of_text
from penstock.plan.nodes import Query as Plan
from tests.generated.language import Case, Row

Feed = list[tuple[str, list[Row]]]


def whole(case: Case) -> Feed:
    """Each stream in one push."""
    return [(name, rows) for name, rows in case.streams.items() if rows]


def answers(
    case: Case,
    engine: str,
    feed: Feed | None = None,
    plan: Callable[[Plan], object] | None = None,
    *,
    close: bool = True,
    optimise: bool = True,
) -> Counter[object]:
    """The answers when pushed as ``feed`` says (default: whole streams) and, usually, everything is closed after it.
    ``plan``: what is submitted in the place of the query's text. Without ``optimise`` it is run as it is."""
    with penstock.connect(engine=engine) as db:
        db.execute(case.declare)
        if case.beginning:
            db.push("q", list(case.beginning))
        if plan is None:
            query = db.query(case.query, optimise=optimise)
        else:
            bound, _ = plan_of_text(db.catalog, case.query)
            query = db.query(plan=plan(bound), optimise=optimise)
        if case.relation:
            db.push("q", [{"k": r[0], "name": r[1], "ts": at, "op": op} for at, op, r in case.relation])
        for name, rows in whole(case) if feed is None else feed:
            db.push(name, rows)
        for name in case.streams if close else ():
            db.close_stream(name)
        table = query.fetch()
        found = zip(*(table.column(i).to_pylist() for i in range(table.num_columns)), strict=True)
        return Counter(tuple(comparable(v) for v in row) for row in found)


def alternatives(case: Case, engine: str) -> dict[str, object]:
    """The plans that could be run for a case's query, by description."""
    with penstock.connect(engine=engine) as db:
        db.execute(case.declare)
        found = json.loads(db.explain(case.query, "json", alternatives=True))
    return {each["description"]: each["plan"] for each in found["alternatives"]}


def comparable(value: object) -> object:
    """A value that is equal to what counts as equal: NaN to NaN, -0.0 to 0.0."""
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        return value + 0.0 if value != 0 else 0.0
    if isinstance(value, list):
        return tuple(comparable(v) for v in value)
    return value
