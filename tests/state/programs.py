"""Programs over two streams of numbers, fed from arrays."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import penstock
from penstock.cql.declarations import plan_of_text
from penstock.graph.programs import Program
from penstock.model.batch import Batch
from penstock.model.delta import Delta
from penstock.model.schema import Field
from penstock.model.types import BIGINT, DOUBLE
from penstock.plan.nodes import Query
from penstock.plan.optimize import optimize
from penstock.scalar import Context

DECLARE = """
CREATE STREAM s (t BIGINT, k BIGINT, v DOUBLE) TIMESTAMP BY t;
CREATE STREAM r (t BIGINT, k BIGINT, v DOUBLE) TIMESTAMP BY t;
"""
SCHEMA = (Field("t", BIGINT), Field("k", BIGINT), Field("v", DOUBLE))


def plan(text: str) -> Query:
    """The plan of a query over the streams."""
    with penstock.connect(engine="reference") as db:
        db.execute(DECLARE)
        return optimize(plan_of_text(db.catalog, text)[0])


def program(query: Query) -> Program:
    """A fresh program."""
    return Program(query, {}, Context())


def batch(start: int, rows: int, keys: int, seed: int = 0) -> Batch:
    """Elements ``start``, … of a stream, one each tick."""
    number = np.arange(start, start + rows, dtype=np.int64)
    random = np.random.default_rng((seed, start))
    table = pa.table({"t": number, "k": random.integers(0, keys, rows), "v": random.random(rows)})
    return Batch(SCHEMA, table, number, number)


def feed(running: Program, start: int, rows: int, keys: int = 1000) -> list[Delta]:
    """The next rows of both streams."""
    for seed, name in enumerate(("s", "r")):
        running.push(name, batch(start, rows, keys, seed))
        running.progress(name, start + rows - 1)
    return running.answers()
