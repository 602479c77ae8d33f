"""Plans that could be run in the place of another: shown with their costs, chosen once, with the same answers."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock
from penstock.cql.declarations import plan_of_text
from penstock.hosts.durable.forms import options_again, options_json
from penstock.plan.nodes import Join, StreamScan, walk
from penstock.plan.order import carrying_order
from penstock.plan.reuse import reuses
from penstock.plan.serial import to_json
from tests.budget import examples

STREAMS = "".join(f"CREATE STREAM {s} (t BIGINT, k BIGINT, j BIGINT) TIMESTAMP BY t;" for s in "abc")
JOIN = "SELECT a.t, b.t AS u, c.t AS w FROM a [RANGE 20], b [RANGE 20], c [RANGE 20] WHERE a.k = b.k AND b.j = c.j"
GROUPS = "SELECT k, count(*) AS n FROM a [HOPPING 100 EVERY {}] GROUP BY k"


def rows(step: int, since: int = 0, upto: int = 400, values: int = 10) -> list[dict[str, int]]:
    return [{"t": t, "k": t % values, "j": (t // 3) % values} for t in range(since, upto, step)]


def push(db: penstock.Database, since: int = 0, upto: int = 400, **steps: int) -> None:
    for name, step in steps.items():
        db.push(name, rows(step, since, upto))


def first_joined(query: penstock.Query) -> set[str]:
    """The streams that are joined first."""
    deepest = [node for node in walk(query.plan) if isinstance(node, Join)][-1]
    return {scan.stream for scan in walk(deepest) if isinstance(scan, StreamScan)}


def compared(db: penstock.Database, query: str | None = None, **given: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(db.explain(query, "json", alternatives=True, **given))
    return found


def fetched(query: penstock.Query) -> Counter[tuple[object, ...]]:
    table = query.fetch()
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def test_defaults_are_called_so_until_something_is_measured(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(STREAMS)
        before = compared(db, JOIN)
        assert (before["chosen"], before["reason"]) == ("optimised", "nothing has been measured")
        assert not any(figure["measured"] for figure in before["figures"])
        push(db, a=1, b=1)
        some = {figure["node"]: figure["measured"] for figure in compared(db, JOIN)["figures"]}
        assert some["Stream a(t, k, j)"]
        assert not some["Stream c(t, k, j)"]
        push(db, c=20)
        after = compared(db, JOIN)
        assert all(figure["measured"] for figure in after["figures"])
        assert after["reason"] == "it costs the least"
        costs = [each["cost"]["total"] for each in after["alternatives"]]
        assert costs == sorted(costs)
        assert after["alternatives"][0]["description"] == after["chosen"] == "joins in the order b, c, a"


def test_the_order_of_joins_stays_where_rows_may_overtake(engine: str) -> None:
    """In which joins a row can overtake depends on it."""
    with penstock.connect(engine=engine) as db:
        db.execute(STREAMS.replace("TIMESTAMP BY t", "TIMESTAMP BY t PRIORITY BY k", 1))
        push(db, a=1, b=1, c=20)
        found = compared(db, JOIN)
        assert found["chosen"] == "optimised"
        assert found["reason"] == "rows may overtake, so the order of joins stays as the rules make it"
        assert to_json(db.query(JOIN, name="q").plan) == (
            next(each["plan"] for each in found["alternatives"] if each["description"] == "optimised")
        )


def test_explain_says_it_line_by_line(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(STREAMS)
        push(db, a=1, b=1, c=20)
        table = db.execute(f"EXPLAIN (ALTERNATIVES) {JOIN}").table
        assert table is not None
        lines = table.column("plan").to_pylist()
        assert lines[0] == "chosen: joins in the order b, c, a (it costs the least)"
        (mark,) = [line for line in lines if line.endswith("<- chosen")]
        assert mark.startswith("joins in the order b, c, a: cost ")
        assert "  Stream c(t, k, j): 52,632 rows/s (measured)" in lines
        assert "\n".join(lines) == db.explain(JOIN, alternatives=True)
        said = db.execute(f"EXPLAIN (ALTERNATIVES, FORMAT JSON) {JOIN}").table
        assert said is not None
        assert json.loads(said.column("plan")[0].as_py()) == compared(db, JOIN)


def test_a_registered_query_has_the_cheapest_and_keeps_it(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(STREAMS)
        early = db.query(JOIN, name="early")
        push(db, a=1, b=1, c=20)
        late = db.query(JOIN, name="late")
        assert first_joined(early) == {"a", "b"}
        assert first_joined(late) == {"b", "c"}
        shown = compared(db, "early")
        assert shown["reason"] == "the query was registered with it"
        runs = [each["plan"] for each in shown["alternatives"] if each["description"] == shown["chosen"]]
        assert runs == [to_json(early.plan)]
        push(db, 400, 1_200, a=40, b=1, c=1)
        assert first_joined(late) == {"b", "c"}
        assert first_joined(db.query(JOIN)) == {"a", "b"}


@pytest.mark.parametrize("way", ["CREATE QUERY", "text", "plan", "AS PLAN"])
def test_a_plan_runs_as_it_was_submitted(engine: str, way: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(STREAMS)
        push(db, a=1, b=1, c=20)
        plain, _ = plan_of_text(db.catalog, JOIN)
        plan = compared(db, JOIN)["alternatives"][-1]["plan"]
        match way:
            case "CREATE QUERY":
                db.execute(f"CREATE QUERY q AS {JOIN} WITH (optimise = FALSE)")
            case "text":
                db.query(JOIN, name="q", optimise=False)
            case "plan":
                db.query(plan=plan, name="q", optimise=False)
            case "AS PLAN":
                db.execute(f"CREATE QUERY q AS PLAN '{json.dumps(plan)}' WITH (optimise = FALSE)")
        assert db.queries["q"].plan == carrying_order(plain)
        assert "WITH (optimise = FALSE)" in str(db.execute("DESCRIBE QUERY q").note)
        other = db.query(plan=plan, name="other")
        push(db, 400, 420, a=2, b=2, c=2)
        assert other.plan != db.queries["q"].plan
        found = fetched(other)
        assert found
        assert fetched(db.queries["q"]) == found


def test_alternatives_of_plan_objects() -> None:
    with penstock.connect(engine="local") as db:
        db.execute(STREAMS)
        push(db, a=1, b=1, c=20)
        plan = json.loads(db.explain(JOIN, "json"))
        by_text = compared(db, JOIN)["alternatives"][0]
        assert compared(db, plan=plan)["alternatives"][0]["cost"] == by_text["cost"]
        said = db.execute(f"EXPLAIN (ALTERNATIVES, FORMAT JSON) PLAN '{json.dumps(plan)}'").table
        assert said is not None
        assert json.loads(said.column("plan")[0].as_py()) == compared(db, plan=plan)
        assert db.explain(plan=plan) == db.explain(JOIN)


def test_explain_knows_the_options_of_create_query() -> None:
    with penstock.connect(engine="local") as db:
        db.execute(STREAMS)
        create = f"CREATE QUERY q AS {JOIN} WITH (optimise = FALSE)"
        assert compared(db, create)["reason"] == "optimise = FALSE"
        assert compared(db, create)["chosen"] == "as written"
        push(db, a=1)
        hopping = GROUPS.format(10)
        assert "from nothing" in db.explain(f"CREATE QUERY q AS {hopping} WITH (reuse = FALSE)")
        found = compared(db, f"CREATE QUERY q AS {hopping} WITH (reuse = FALSE)")
        (runs,) = [each["plan"] for each in found["alternatives"] if each["description"] == found["chosen"]]
        assert '"reuse": false' in json.dumps(runs)


@pytest.mark.parametrize(
    ("statement", "wrong"),
    [
        ("EXPLAIN (ALTERNATIVES, FORMAT MERMAID) SELECT t FROM a [NOW]", "alternatives have no format `MERMAID`"),
        ("EXPLAIN (ALTERNATIVES FORMAT JSON) SELECT t FROM a [NOW]", "expected )"),
        ("EXPLAIN (ALTERNATIVES, COSTS) SELECT t FROM a [NOW]", "expected ALTERNATIVES or FORMAT"),
        ("CREATE QUERY q AS SELECT t FROM a [NOW] WITH (optimise = 'no')", "`optimise` is true or false"),
        ("CREATE QUERY q AS SELECT t FROM a [NOW] WITH (optimize = FALSE)", "no option `optimize`"),
    ],
)
def test_what_is_wrong_is_said(statement: str, wrong: str) -> None:
    with penstock.connect(engine="local") as db:
        db.execute(STREAMS)
        with pytest.raises(penstock.PenstockError) as raised:
            db.execute(statement)
        assert wrong in str(raised.value)
        assert not db.queries


def test_how_a_plan_is_made_does_not_change() -> None:
    with penstock.connect(engine="local") as db:
        db.execute(f"{STREAMS} CREATE QUERY q AS {GROUPS.format(10)}")
        for option in ("optimise", "reuse"):
            with pytest.raises(penstock.PenstockError, match=f"`{option}` of a query cannot change"):
                db.execute(f"ALTER QUERY q SET ({option} = FALSE)")


# -- overlapping windows -----------------------------------------------------------------------------------


def test_windows_are_reused_where_that_is_cheaper(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(STREAMS)
        push(db, a=1)
        assert reuses(db.query(GROUPS.format(5)).plan)
        assert reuses(db.query(GROUPS.format(95)).plan), "to begin a window costs more than its few rows"
        large = GROUPS.replace("100", "100000")
        assert reuses(db.query(large.format(5_000)).plan)
        assert not reuses(db.query(large.format(95_000)).plan)
        assert not reuses(db.query(large.format(5_000), reuse=False).plan)
        assert reuses(db.query(large.format(95_000), reuse=True).plan)


def test_windows_of_a_stream_that_never_has_a_row(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(STREAMS)
        window = "[BEGIN WINDOW 1 TUPLE END WINDOW 10 TUPLES HOP SIZE (5, 5)]"
        query = db.query(f"SELECT k, count(*) AS n FROM (SELECT ISTREAM * FROM a WHERE FALSE) AS x {window} GROUP BY k")
        push(db, a=1)
        assert query.fetch().num_rows == 0


def test_pairs_are_kept_where_they_are_counted_and_not_where_they_are_listed(engine: str) -> None:
    joined = "FROM a [HOPPING 4000 EVERY {0}], b [HOPPING 4000 EVERY {0}] WHERE a.k = b.k"
    with penstock.connect(engine=engine) as db:
        db.execute(STREAMS)
        push(db, a=1, b=1)
        assert reuses(db.query(f"SELECT a.j, count(*) AS n {joined.format(1_000)} GROUP BY a.j").plan)
        assert not reuses(db.query(f"SELECT a.j, b.j AS i {joined.format(1_000)}").plan)


@settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    hop=st.integers(1, 120),
    text=st.sampled_from([
        "SELECT k, count(*) AS n, max(j) AS m FROM a [HOPPING 100 EVERY {0}] GROUP BY k",
        "SELECT DISTINCT k FROM a [HOPPING 100 EVERY {0}]",
        "SELECT a.j, b.j AS i FROM a [HOPPING 100 EVERY {0}], b [HOPPING 100 EVERY {0}] WHERE a.k = b.k AND a.j > 3",
        "SELECT a.k, c.j FROM a [HOPPING 100 EVERY {0}], c [RANGE 30] WHERE a.k = c.k",
    ]),
    steps=st.tuples(*[st.integers(1, 60)] * 3),
)  # fmt: skip
def test_windows_from_nothing_and_from_the_one_before_are_the_same(
    hop: int, text: str, steps: tuple[int, int, int]
) -> None:
    found = []
    for engine, reuse in (("reference", None), ("local", False), ("local", True)):
        with penstock.connect(engine=engine) as db:
            db.execute(STREAMS)
            query = db.query(text.format(hop), reuse=reuse)
            for since in range(0, 400, 50):
                push(db, since, since + 50, **dict(zip("abc", steps, strict=True)))
            for name in "abc":
                db.close_stream(name)
            found.append(fetched(query))
    assert found[0] == found[1] == found[2]


# -- the same answers --------------------------------------------------------------------------------------


@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    steps=st.tuples(*[st.integers(1, 90)] * 3),
    later=st.tuples(*[st.integers(5, 60)] * 3),
    output=st.sampled_from(["", "ISTREAM ", "DSTREAM "]),
    on=st.sampled_from(["a.k = b.k AND b.j = c.j", "a.k = b.k AND a.k = c.k AND a.j > b.j", "a.k = b.k AND c.j < b.j"]),
)
def test_a_chosen_order_of_joins_gives_the_same_answers(
    engine: str, steps: tuple[int, int, int], later: tuple[int, int, int], output: str, on: str
) -> None:
    """What has come before decides the order; rows that come are joined the same in any."""
    text = f"SELECT {output}a.t, b.t AS u, c.t AS w FROM a [RANGE 30], b [RANGE 30], c [ROWS 3] WHERE {on}"
    found = []
    for name, optimise in (("reference", False), (engine, True)):
        with penstock.connect(engine=name) as db:
            db.execute(STREAMS)
            push(db, **dict(zip("abc", steps, strict=True)))
            query = db.query(text, optimise=optimise)
            push(db, 400, 520, **dict(zip("abc", later, strict=True)))
            for stream in "abc":
                db.close_stream(stream)
            found.append(fetched(query))
    assert found[0] == found[1]


# -- restart -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("again", ["same", "other"])
@pytest.mark.parametrize("durable", ["local", "spark"])
def test_a_restart_does_not_choose_again(durable: str, again: str, tmp_path: Path) -> None:
    """After it the figures would choose another order."""
    from tests.spark.direct import directly

    after = durable if again == "same" else {"local": "spark", "spark": "local"}[durable]
    hopping = GROUPS.format(20)
    with directly():
        with penstock.connect(tmp_path / "db", engine=durable) as db:
            db.execute(STREAMS)
            push(db, a=1, b=1, c=20)
            db.execute(f"CREATE QUERY joined AS {JOIN}; CREATE QUERY written AS {JOIN} WITH (optimise = FALSE)")
            db.execute(f"CREATE QUERY groups AS {hopping}")
            db.execute(f"CREATE QUERY fresh AS {hopping} WITH (reuse = FALSE)")
            push(db, 400, 450, a=1, b=1, c=5)
            plans = {name: query.plan for name, query in db.queries.items()}
            before = {name: fetched(query) for name, query in db.queries.items()}
        with penstock.connect(tmp_path / "db", engine=after) as db:
            push(db, 450, 900, a=40, b=2, c=2)
            assert {name: query.plan for name, query in db.queries.items()} == plans
            assert first_joined(db.queries["joined"]) == {"b", "c"}
            assert first_joined(db.query(JOIN, name="new")) == {"a", "b"}
            db.queries["new"].stop()
            found = {name: before[name] + fetched(query) for name, query in db.queries.items()}
    with penstock.connect(engine="reference") as db:
        db.execute(STREAMS)
        push(db, a=1, b=1, c=20)
        right = {"joined": db.query(JOIN, optimise=False), "groups": db.query(hopping, optimise=False)}
        push(db, 400, 450, a=1, b=1, c=5)
        push(db, 450, 900, a=40, b=2, c=2)
        expected = {name: fetched(query) for name, query in right.items()}
    assert found["joined"] == found["written"] == expected["joined"]
    assert found["groups"] == found["fresh"] == expected["groups"]


def test_options_that_were_stored_before_there_was_a_choice() -> None:
    with penstock.connect(engine="local") as db:
        db.execute(STREAMS)
        query = db.query(GROUPS.format(10))
        stored = options_json(options_again({}))
        for new in ("optimise", "reuse"):
            del stored[new]
        assert options_again(stored) == options_again({})
        assert options_again(stored).optimise
        assert "reuse" not in json.dumps(json.loads(db.explain(query.name, "json"))["query"])


def test_figures_are_of_the_newest_rows() -> None:
    with penstock.connect(engine="local") as db:
        db.execute("CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t")
        text = "SELECT v FROM s [NOW] WHERE v = 0"

        def passing() -> str:
            found = [f["text"] for f in compared(db, text)["figures"] if f["node"].startswith("Filter")]
            return str(found[0])

        db.push("s", pa.table({"t": range(10_000), "v": [0] * 10_000}))
        assert passing() == "100 % of the rows pass"
        for i in range(40):
            first = 10_000 * (i + 1)
            db.push("s", pa.table({"t": range(first, first + 10_000), "v": [i % 2] * 10_000}))
        share = float(passing().split(" ")[0])
        assert 30 < share < 70


@pytest.mark.parametrize("rows", [0, 20, 5_000])
def test_what_was_measured_does_not_decide_whether_a_strict_query_fails(rows: int) -> None:
    """In some orders of the joins the division is computed for rows that have no partner in c."""
    with penstock.connect(engine="local") as db:
        for name in "abc":
            db.execute(f"CREATE STREAM {name} (t BIGINT, k BIGINT, x BIGINT) TIMESTAMP BY t")
            count = rows and (20 if name == "c" else rows)
            db.push(name, [(i * 1_000 // count, i % 3, 1) for i in range(count)])
        condition = "a.k = b.k AND b.k = c.k AND 1 / (a.x - b.x) = c.x"
        text = f"SELECT a.k FROM a [RANGE 10], b [RANGE 10], c [RANGE 10] WHERE {condition}"
        query = db.query(text, strict=True, start="now")
        db.push("a", [(5_000, 7, 3)])
        db.push("b", [(5_000, 7, 3)])
        db.push("c", [(5_001, 8, 3)])
        for name in "abc":
            db.close_stream(name)
        assert query.status == "failed"
