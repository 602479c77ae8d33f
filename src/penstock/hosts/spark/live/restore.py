"""Opening a database that is there: declarations, inputs, relations and queries as they were acknowledged."""

from __future__ import annotations

import math
import pickle
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.catalog import FunctionDef, QueryOptions
from penstock.cql.declarations import definition_again
from penstock.hosts.core import Core
from penstock.hosts.host import QuerySettings
from penstock.hosts.registered import Registered
from penstock.hosts.spark.live.frames import Frame, Kind, mapped, payload, unpacked
from penstock.hosts.spark.live.inputs import changes_of
from penstock.hosts.spark.live.journal import QueryRecord, unpacked_bytes
from penstock.hosts.spark.live.logs import CLOCKS, TIMES
from penstock.hosts.spark.live.plan import Definition, Failure, changes_schema, raised, rows_logged, rows_schema
from penstock.hosts.spark.live.runner import SparkRunner, StoredAnswers
from penstock.hosts.spark.live.slot import write_definition
from penstock.ingest.streams import StreamInput
from penstock.model.amounts import Bound
from penstock.model.batch import Batch
from penstock.model.change import Change, Dating
from penstock.model.errors import CheckpointError, PenstockError, StateError
from penstock.model.schema import Schema, arrow_schema
from penstock.plan.answers import answer_schema
from penstock.plan.meanings import changed_in_plan
from penstock.plan.nodes import Query as Plan
from penstock.plan.nodes import reads_streams, walk
from penstock.plan.serial import from_json
from penstock.rows.apart import SCHEMA, Kept
from penstock.scalar.zones import UTC

if TYPE_CHECKING:
    from penstock.hosts.spark.live.host import SparkHost


def restore(host: SparkHost, core: Core) -> None:
    """Make an empty database what the directory of its host says."""
    model = host.journal.model
    for record in model.functions.values():
        function: FunctionDef = pickle.loads(unpacked_bytes(record["code"]))
        core.catalog.add_function(function)
    zone = core.catalog.zone
    for record in model.declared.values():
        # As it was bound then, whatever the zone is now.
        core.catalog.zone = record.get("zone", UTC)
        try:
            found = definition_again(
                record["text"], record["name"], record["position"], record.get("meanings", 1), core.catalog
            )
            if found is not None:
                core.put(found)
        except PenstockError as error:
            raise CheckpointError(
                f"`{record['name']}` of this database is refused by this release: {error.one_line}",
                hint="drop it with the release of Penstock that wrote it, or start in an empty directory",
            ) from error
    core.catalog.zone = zone
    core.catalog.skip_positions(model.next_position)
    core.query_count = model.query_count
    for known in model.queries.values():
        _check_meanings(known)
    numbers = [model.upto, *(q.first - 1 for q in model.queries.values())]
    pending: list[tuple[str, Frame]] = []
    running = [q for q in model.queries.values() if q.status == "running"]
    taken = min((max(q.first - 1, model.parts[q.part].upto) for q in running), default=model.upto)
    for name, source in core.inputs.items():
        for frame in _stream(host, core, name, source):
            numbers.append(frame.number)
            if frame.kind is Kind.ROWS and frame.number > taken:
                pending.append((name, frame))
    changes: list[tuple[int, str, list[Change]]] = []
    for name, store in core.relations.items():
        for frame in host.logs.log("relations", name).read():
            numbers.append(frame.number)
            changes.append((frame.number, name, _changes(frame, store.definition.schema)))
            store.replay(changes[-1][2])
            times, clock = divmod(frame.marks.late, TIMES)
            store.clock, store.times = CLOCKS[clock], bool(times)
            if frame.number > taken:
                pending.append((name, frame))
        core.instants.counted = max(core.instants.counted, store.early)
        core.catalog.given_times = core.catalog.given_times or store.timed
    changes.sort(key=lambda change: change[0])
    host.logs.next_frame = max(numbers) + 1
    for id, known in model.queries.items():
        _query(host, core, id, known)
        _date(core.queries[known.start["name"]], known, changes)
    host.parts.restore(sorted(pending, key=lambda p: p[1].number))
    _sweep(host)


def _check_meanings(known: QueryRecord) -> None:
    """A query that calls a function whose meaning has changed fails, before it goes on with another one."""
    plan = known.start["plan"]
    changed = changed_in_plan(plan["query"], plan["penstock_plan"])
    if known.status == "running" and changed is not None:
        name, what = changed
        again = "stop it and register it anew; answers that it gave before can be fetched"
        failure = Failure("PlanError", f"`{name}` has another meaning than when the query was stored: {what}", again)
        known.status, known.error = "failed", asdict(failure)


def _stream(host: SparkHost, core: Core, name: str, source: StreamInput) -> list[Frame]:
    """Give an input back what it knew, and the rows that wait, are late or apart, or are kept for new queries."""
    schema = source.definition.schema
    frames = list(host.logs.log("streams", name).read())
    pushed = [f for f in frames if f.kind is Kind.ROWS]
    logged_late, logged_apart = (list(host.logs.log(kind, name).read()) for kind in ("late", "apart"))
    # Also those that do not count, so that nothing else gets their numbers.
    numbered = [*frames, *logged_late, *logged_apart]
    if not pushed:
        return numbered
    marks = pushed[-1].marks
    # A push is there when its rows are, which are logged last; what was logged just before them belongs to them.
    whole = {f.number for f in pushed}
    before = [f for f in frames if f.kind is Kind.WAITING and f.number + 1 in whole]
    whole |= {f.number for f in before}
    waiting = [_batch(f, schema) for f in before]
    waiting = [w.take(np.flatnonzero(w.ts > marks.progress)) for w in waiting if w.ts.max() > marks.progress]
    oldest = frames[0].number
    of_late = [f for f in logged_late if f.number + 1 in whole or f.number + 1 < oldest]
    late = Kept(arrow_schema(schema), tuple(_table(f, arrow_schema(schema)) for f in of_late), marks.late)
    whole |= {f.number for f in of_late}
    apart = Kept(SCHEMA)
    for f in logged_apart:
        # Of taken rows only the number is there, in a frame of its own.
        if not f.rows or f.number + 1 in whole or f.number + 1 < oldest:
            apart = Kept(SCHEMA, (*apart.tables, _table(f, SCHEMA)), f.marks.late)
    source.restore(marks.progress, marks.newest, marks.arrivals, marks.closed, waiting, late, apart)
    host.logs.known(name, marks.arrivals, late.count, apart.count)
    retain = source.definition.retain
    # Closing forgets nothing of what is kept.
    upto = [f.marks.progress for f in pushed if math.isfinite(f.marks.progress)]
    if retain and upto:
        rows = [_batch(f, schema) for f in frames if f.kind is Kind.ROWS and f.rows]
        oldest = int(upto[-1]) - retain
        core.history[name] = [b.take(np.flatnonzero(b.ts >= oldest)) for b in rows if b.ts[-1] >= oldest]
    return numbered


def _changes(frame: Frame, schema: Schema) -> list[Change]:
    return changes_of(schema, unpacked(payload(mapped(frame.path), frame), changes_schema(schema)))


def _batch(frame: Frame, schema: Schema) -> Batch:
    return rows_logged(schema, [unpacked(payload(mapped(frame.path), frame), rows_schema(schema))])


def _table(frame: Frame, schema: pa.Schema) -> pa.Table:
    batch = unpacked(payload(mapped(frame.path), frame), schema)
    return pa.Table.from_batches([batch])


def _query(host: SparkHost, core: Core, id: str, record: QueryRecord) -> None:
    start = record.start
    plan = from_json(start["plan"], whatever_it_meant=record.status != "running")
    runner = SparkRunner(host, id, plan, answer_schema(plan))
    runner.failures, runner.last_failure = record.failures, record.last_failure
    query = Registered(
        start["name"], plan, runner.schema, runner, frozenset(start["reads"]), _options(start["options"]),
        start["text"], host.results_lock(),
    )  # fmt: skip
    waiting = [
        StoredAnswers(((number, tuple(host.folder(id) / file for file, _ in files)),), sum(rows for _, rows in files))
        for number, files in sorted(record.waiting.items())
    ]
    query.results.restore(waiting, record.answered)
    core.restore(query)
    if record.status == "running" and "since" not in start and any(
        isinstance(n, Plan) and not reads_streams(n) for n in walk(plan)
    ):
        query.status, query.error = "failed", StateError(
            f"query `{query.name}` reads relations without a stream and was stored when changes had other instants",
            hint="STOP QUERY, and start it again",
        )
        return
    if record.status == "running":
        functions = {n: f.call for n, f in core.catalog.functions.items()}
        runner.settings = QuerySettings(functions, query.options.strict)
        if id in host.journal.model.started:
            nothing: dict[str, list[Change]] = {name: [] for name in query.relations}
            apart = query.options.start == "now"
            definition = Definition(id, plan, runner.schema, functions, query.options.strict, nothing, {}, {}, apart)
            write_definition(host.folder(id) / "definition", definition)
        runner.priority, runner.latency = query.options.priority, query.options.latency
        host.parts.add(runner, record.part)
        return
    runner.ended = record.status == "ended"
    query.status = "ended" if record.status == "ended" else "failed"
    if record.error is not None:
        query.error = query.failure(raised(Failure(**record.error)))


def _options(stored: Mapping[str, Any]) -> QueryOptions:
    results = stored.get("results")
    return QueryOptions(**{**stored, "results": None if results is None else Bound(**results)})


def _date(query: Registered, record: QueryRecord, changes: Sequence[tuple[int, str, list[Change]]]) -> None:
    """Give a query without streams back the instants of the changes that it has been given, which are by frame."""
    query.dating = Dating(True, record.start.get("since", 0), record.start.get("last", 0))
    for number, relation, some in changes if not query.inputs else ():
        if number >= record.start["start"] and relation in query.relations:
            query.dating.dated(some)


def _sweep(host: SparkHost) -> None:
    """Remove what micro-batches that do not count, and queries that are no more, have left."""
    folder = host.root / "queries"
    for found in folder.iterdir() if folder.is_dir() else ():
        known = host.journal.model.queries.get(found.name)
        if known is None:
            shutil.rmtree(found, ignore_errors=True)
            continue
        kept = {"definition", *(file for files in known.waiting.values() for file, _ in files)}
        for file in found.iterdir():
            if file.name not in kept:
                file.unlink(missing_ok=True)
