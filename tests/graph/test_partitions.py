"""Partitions that users choose: several virtual operators, one worker, one strategy, and buffers on edges (001)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import penstock
from penstock.database.database import core_of
from penstock.graph.view import GraphView
from penstock.hosts.local import host

STREAM = "CREATE STREAM s (t BIGINT, k BIGINT, v DOUBLE) TIMESTAMP BY t"
ROWS = [(i, i % 3, float(i)) for i in range(60)]


@pytest.fixture
def db() -> Iterator[penstock.Database]:
    with penstock.connect(engine="local") as db:
        db.execute(STREAM)
        db.query("SELECT k, avg(v) AS a FROM s [RANGE 60] WHERE v > 0 GROUP BY k", name="averages")
        db.query("SELECT k, max(v) AS a FROM s [RANGE 30] GROUP BY k", name="peaks")
        yield db


def operators(db: penstock.Database, query: str) -> set[int]:
    """Those that only this query needs, without where rows come in."""
    return {o.id for o in db.graph().operators if o.queries == (query,) and o.kind != "source"}


def worker_of(graph: GraphView, operator: int) -> str | None:
    (found,) = [p.worker for p in graph.partitions if operator in p.operators]
    return found


def buffered(graph: GraphView) -> set[tuple[int, int]]:
    return {(e.source, e.target) for e in graph.edges if e.buffer is not None}


def test_a_query_has_the_worker_of_its_partition_and_its_strategy(db: penstock.Database) -> None:
    slow = {"of": ["peaks"], "strategy": "chain-flush"}
    db.configure(threading="hybrid", workers=3, partitions={"fast": ["averages"], "slow": slow})
    graph = db.graph()
    workers = {q: {worker_of(graph, o) for o in operators(db, q)} for q in ("averages", "peaks")}
    assert workers == {"averages": {"penstock-worker-partition-fast"}, "peaks": {"penstock-worker-partition-slow"}}
    strategies = {p.worker: p.strategy for p in graph.partitions}
    assert strategies["penstock-worker-partition-fast"] == "fifo+"
    assert strategies["penstock-worker-partition-slow"] == "chain-flush"


@pytest.mark.parametrize("workers", [1, 3])
def test_virtual_operators_of_a_partition_have_buffers_between_them_and_one_thread(workers: int) -> None:
    """With as many threads as partitions or fewer."""
    used: dict[str, set[int]] = {"low": set(), "high": set()}

    def low(v: float) -> float:
        used["low"].add(threading.get_ident())
        return v

    def high(v: float) -> float:
        used["high"].add(threading.get_ident())
        return v

    with penstock.connect(engine="local") as db:
        db.execute(STREAM)
        for function in (low, high):
            db.create_function(function.__name__, function, args=["DOUBLE"], returns="DOUBLE")
        query = db.query("SELECT high(m) AS h FROM (SELECT max(low(v)) AS m FROM s [ROWS 3])", name="q")
        db.configure(threading="hybrid", workers=workers, partitions={"mine": ["q"]})
        inside = operators(db, "q")
        edges = [(e.source, e.target) for e in db.graph().edges if e.source in inside and e.target in inside]
        db.configure(queues=dict.fromkeys(edges, True))
        graph = db.graph()
        assert buffered(graph) >= set(edges), "each operator is a virtual operator"
        assert len([p for p in graph.partitions if set(p.operators) <= inside]) == len(inside)
        assert {worker_of(graph, o) for o in inside} == {"penstock-worker-partition-mine"}
        db.push("s", ROWS)
        assert query.fetch().num_rows > 0
        if workers > 1:
            assert used["low"] == used["high"]
            assert len(used["low"]) == 1, "a thread of its own"
        assert threading.get_ident() not in used["low"] | used["high"]


def test_an_operator_is_pinned_by_its_number_wherever_its_query_is(db: penstock.Database) -> None:
    (peak,) = [o.id for o in db.graph().operators if o.kind == "aggregate" and o.queries == ("peaks",)]
    db.configure(threading="hybrid", workers=4, partitions={"all": ["averages", "peaks"], "one": [peak]})
    graph = db.graph()
    assert worker_of(graph, peak) == "penstock-worker-partition-one"
    rest = operators(db, "peaks") - {peak}
    assert {worker_of(graph, o) for o in rest} == {"penstock-worker-partition-all"}
    (intake,) = [o.id for o in graph.operators if o.kind == "intake"]
    assert worker_of(graph, intake) == "penstock-worker-partition-all", "all queries that need it are there"


def test_what_queries_of_two_partitions_share_is_in_none(db: penstock.Database) -> None:
    db.configure(threading="hybrid", workers=4, partitions={"a": ["averages"], "b": ["peaks"]})
    graph = db.graph()
    (intake,) = [o.id for o in graph.operators if o.kind == "intake"]
    assert worker_of(graph, intake) not in ("penstock-worker-partition-a", "penstock-worker-partition-b")


def test_a_buffer_is_put_on_an_edge_and_taken_away_while_data_flows(db: penstock.Database) -> None:
    db.configure(threading="hybrid", partitions={"p": ["averages", "peaks"]})
    graph = db.graph()
    (aggregate,) = [o.id for o in graph.operators if o.kind == "aggregate" and o.queries == ("averages",)]
    (edge,) = [(e.source, e.target) for e in graph.edges if e.target == aggregate]
    for start, queues in ((0, {edge: True}), (20, {f"{edge[0]}-{edge[1]}": False}), (40, {})):
        db.configure(queues=queues)
        if queues:  # else the placement decides, by what it has measured
            assert (edge in buffered(db.graph())) is (start == 0)
        db.push("s", ROWS[start : start + 20])
    answers = db.queries["averages"].fetch()
    with penstock.connect(engine="reference") as plain:
        plain.execute(STREAM)
        query = plain.query("SELECT k, avg(v) AS a FROM s [RANGE 60] WHERE v > 0 GROUP BY k", name="averages")
        plain.push("s", ROWS)
        expected = query.fetch()
    assert sorted(map(str, answers.to_pylist())) == sorted(map(str, expected.to_pylist()))


def test_without_the_first_buffer_the_thread_that_pushes_does_the_work(db: penstock.Database) -> None:
    db.configure(threading="hybrid")
    edges = {(e.source, e.target): False for e in db.graph().edges}
    db.configure(queues=edges)
    assert not buffered(db.graph())
    assert all(p.worker is None for p in db.graph().partitions)
    db.push("s", ROWS)
    assert db.queries["averages"].fetch().num_rows > 0


@pytest.mark.parametrize(
    ("partitions", "error", "told"),
    [
        ({"p": ["peeks"]}, penstock.CatalogError, "in the partition `p`: no query `peeks`; did you mean `peaks`"),
        ({"p": [99]}, penstock.CatalogError, "in the partition `p`: there is no operator 99"),
        ({"p": ["peaks"], "q": ["peaks"]}, penstock.InputError, "'peaks' is in the partition `q` and in `p`"),
        ({"p": ["peaks", "peaks"]}, penstock.InputError, "'peaks' is in the partition `p` and in it"),
        ({"p": "peaks"}, penstock.InputError, "the partition 'p' is 'peaks'; it is a list, as in"),
        ({"p": [1.5]}, penstock.InputError, "in the partition `p` is 1.5; its members are names of queries"),
        ({"p": {"of": ["peaks"], "how": 1}}, penstock.InputError, "it is a list, as in"),
        ({"p": {"of": ["peaks"], "strategy": "fofi"}}, penstock.InputError, "unknown strategy 'fofi'"),
        (["peaks"], penstock.InputError, "partitions is .*; it is a dictionary, as in"),
    ],
)
def test_partitions_that_cannot_be_are_refused(
    db: penstock.Database, partitions: object, error: type[Exception], told: str
) -> None:
    refused(db, {"partitions": partitions}, error, told)


@pytest.mark.parametrize(
    ("queues", "error", "told"),
    [
        ({(0, 99): True}, penstock.CatalogError, r"no edge leads from operator 0 to 99; db.graph\(\) shows"),
        ({"a": True}, penstock.InputError, "'a' in queues is no edge; as in"),
        ({(0, 1): 1}, penstock.InputError, "queues says 1 of the edge"),
        (7, penstock.InputError, "queues is 7; it is a dictionary"),
    ],
)
def test_queues_that_cannot_be_are_refused(
    db: penstock.Database, queues: object, error: type[Exception], told: str
) -> None:
    refused(db, {"queues": queues}, error, told)


def test_partitions_need_workers(db: penstock.Database) -> None:
    refused(db, {"partitions": {"p": ["peaks"]}, "threading": "graph"}, penstock.InputError, "threading='hybrid'")


def refused(db: penstock.Database, change: dict[str, Any], error: type[Exception], told: str) -> None:
    """It is said why, and nothing has changed."""
    db.configure(threading="hybrid", partitions={"mine": ["averages"]})
    before = [(p.operators, p.worker) for p in db.graph().partitions]
    with pytest.raises(error, match=told):
        db.configure(**change)
    assert [(p.operators, p.worker) for p in db.graph().partitions] == before


def test_operators_of_two_partitions_have_a_buffer_between_them(db: penstock.Database) -> None:
    db.configure(threading="hybrid")
    (peak,) = [o.id for o in db.graph().operators if o.kind == "aggregate" and o.queries == ("peaks",)]
    (edge,) = [(e.source, e.target) for e in db.graph().edges if e.target == peak]
    with pytest.raises(penstock.InputError, match="so a buffer is between them; put both operators into one partition"):
        db.configure(partitions={"one": [peak]}, queues={edge: False})


def test_a_partition_goes_with_the_last_of_its_queries(db: penstock.Database) -> None:
    db.configure(threading="hybrid", workers=3, partitions={"p": ["peaks"], "a": ["averages"]})
    db.queries["peaks"].stop()
    assert "penstock-worker-partition-p" not in {p.worker for p in db.graph().partitions}
    db.query("SELECT k, max(v) AS a FROM s [RANGE 30] GROUP BY k", name="peaks")
    assert "penstock-worker-partition-p" not in {p.worker for p in db.graph().partitions}, "it is another query"
    db.configure(threading="direct")
    db.push("s", ROWS)
    assert db.queries["averages"].fetch().num_rows > 0


def test_a_query_that_alone_is_hybrid_is_placed_again(db: penstock.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_REPLACE", 0.0)
    db.configure(workers=4)
    db.configure(query="averages", threading="hybrid")
    local = core_of(db).host
    assert isinstance(local, host.LocalHost)

    def virtual() -> set[tuple[int, ...]]:
        return {p.operators for p in db.graph().partitions if p.worker}

    before = virtual()
    for t in range(200, 210):  # it is looked at twice before anything moves
        for vertex in local.graph.vertices.values():
            if "averages" in vertex.users:  # a million elements in a second, each of which takes one
                vertex.stats.elements_in = vertex.stats.elements_out = 1_000_000
                vertex.stats.busy, vertex.stats.until = 10**15, vertex.stats.since + 10**9
        db.push("s", [(t, 1, 1.0)])
    assert virtual() != before


def test_before_it_is_measured_a_function_is_taken_to_be_slow() -> None:
    with penstock.connect(engine="local") as db:
        db.execute(STREAM)
        db.create_function("slowly", lambda v: v, args=["DOUBLE"], returns="DOUBLE")
        db.query("SELECT ISTREAM slowly(v) AS v FROM s [ROWS 1] WHERE v > 0", name="python")
        db.query("SELECT k, max(v) AS a FROM s [RANGE 30] GROUP BY k", name="peaks")
        db.configure(threading="hybrid", workers=2)
        graph = db.graph()
        (calling,) = [o.id for o in graph.operators if "slowly" in o.label]
        (part,) = [p.operators for p in graph.partitions if calling in p.operators]
        assert part == (calling,), "it stalls nothing else"
        peaks = operators(db, "peaks")
        assert any(peaks <= set(p.operators) for p in graph.partitions), "what works on columns is fused"


def test_queues_are_of_hybrid_threading_alone(db: penstock.Database) -> None:
    edges = [(e.source, e.target) for e in db.graph().edges]
    db.configure(threading="hybrid", queues=dict.fromkeys(edges, False))
    assert not buffered(db.graph())
    db.configure(threading="operator")
    assert {target for _, target in buffered(db.graph())} >= operators(db, "averages") | operators(db, "peaks")
    db.configure(threading="hybrid")
    assert not buffered(db.graph())
