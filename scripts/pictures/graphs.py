"""Query graphs of real databases, as `db.graph().svg()` draws them; without what differs from run to run."""

from __future__ import annotations

from dataclasses import replace

import penstock
from penstock.graph.latency import Latency
from penstock.graph.view import GraphView

HOUSE = """
CREATE STREAM meters (at BIGINT, house BIGINT, watts DOUBLE) TIMESTAMP BY at;
CREATE RELATION houses (house BIGINT, street STRING) KEY (house);
INSERT INTO houses VALUES (1, 'Elm'), (2, 'Oak'), (3, 'Oak');
CREATE QUERY load AS SELECT house, avg(watts) AS average FROM meters [RANGE 60] GROUP BY house;
CREATE QUERY peak AS SELECT house, max(watts) AS peak FROM meters [RANGE 60] GROUP BY house;
CREATE QUERY alarm AS
  SELECT ISTREAM h.street, m.watts FROM meters [NOW] AS m JOIN houses AS h ON h.house = m.house
  WHERE m.watts > 3000 WITH (priority = 9);
"""


def _steady(view: GraphView) -> GraphView:
    """The view without times and bytes, and with workers by number."""
    workers = {p.worker: f"worker {i}" for i, p in enumerate((p for p in view.partitions if p.worker), 1)}
    return replace(
        view,
        operators=tuple(replace(o, cost=None, interarrival=None, calls=0) for o in view.operators),
        edges=tuple(
            replace(e, buffer=e.buffer and replace(e.buffer, lag=None)) for e in view.edges
        ),
        partitions=tuple(
            replace(p, capacity=None, worker=p.worker and workers[p.worker]) for p in view.partitions
        ),
        queries=tuple(replace(q, latency=Latency()) for q in view.queries),
    )


def _pushed(db: penstock.Database) -> None:
    db.push("meters", [(t, t % 3 + 1, 2900.0 + 10 * t) for t in range(30)])


def shared() -> str:
    """Three queries over one stream: what is equal in them is there once."""
    with penstock.connect(engine="local") as db:
        db.execute(HOUSE)
        _pushed(db)
        return _steady(db.graph()).svg()


def buffered() -> str:
    """The same with workers: `alarm` has a buffer on every edge, the others are one virtual operator, in which a window
    rests for now and rows wait in front of it."""
    with penstock.connect(engine="local") as db:
        db.execute(HOUSE)
        db.configure(threading="hybrid", workers=2)
        db.configure(query="alarm", threading="graph")
        _pushed(db)
        db.settle()
        window = next(o.id for o in db.graph().operators if o.kind == "window" and "RANGE" in o.label)
        db.suspend(window)
        db.push("meters", [(t, t % 3 + 1, 100.0) for t in range(30, 42)])
        db.settle()
        return _steady(db.graph()).svg()
