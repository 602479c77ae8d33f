"""``connect()`` on Spark: rows into logs, micro-batches of Spark tasks over them, answers in files.

    push ──▶ ingest ──▶ log of the stream ──▶ micro-batch: a task for each slot ──▶ answers ──▶ fetch
                          (acknowledged)         state before ─▶ operators ─▶ state after

A call that gives rows returns when they are in a log. Micro-batches take what is in the logs, in order, and run as
Spark jobs, one task for each slot. One counts when its record is in the journal, which names the state and the answers
that it left; whatever dies before that is done again from the state before. Answers wait in files until somebody has
them.

A directory holds:

    lock, journal/          who has it open; declarations, queries, micro-batches, deliveries
    streams/, relations/    logs, by name; forgotten when all queries have them and no RETAIN needs them
    late/                   late rows that nobody has taken
    queries/                of each query its definition, and answers that wait
    state/                  of each slot, the state after the last micro-batches

Without a directory there is a temporary one, removed at the end.
"""

from __future__ import annotations

import logging
import math
import shutil
import tempfile
import threading
import time
import uuid
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa

from penstock.catalog import FunctionDef, RelationDef, StreamDef, ViewDef
from penstock.errors import CheckpointError, EngineError, InputError, PenstockError
from penstock.graph.view import GraphView
from penstock.hosts import QuerySettings, SparkOptions
from penstock.hosts.spark.live.cluster import Cluster
from penstock.hosts.spark.live.frames import Frame, Kind, Log, Marks, packed
from penstock.hosts.spark.live.inputs import changes_batch
from penstock.hosts.spark.live.journal import Journal, packed_bytes
from penstock.hosts.spark.live.plan import (
    Assigned,
    Definition,
    Outcome,
    Plan,
    Report,
    live_split,
    logged_rows,
    raised,
)
from penstock.hosts.spark.live.restore import restore
from penstock.hosts.spark.live.runner import SparkRunner, StoredAnswers
from penstock.hosts.spark.live.slot import pickled, write_definition
from penstock.hosts.spark.live.view import graph_view
from penstock.ingest import Batch, StreamInput
from penstock.plan.nodes import Query as QueryPlan
from penstock.plan.nodes import RelationScan, StreamScan, walk
from penstock.plan.serial import to_json
from penstock.query import Due, Query
from penstock.reference import Change
from penstock.relations import RelationStore

if TYPE_CHECKING:
    from penstock.database import Database

_log = logging.getLogger("penstock")

BATCH_ROWS = 1_000_000
_ATTEMPTS = 3
"""How often a micro-batch is tried when Spark, not a query, fails."""
_KEPT_METRICS = 1_000
_FORGET_EVERY = 32
"""Micro-batches after which logs are looked through for files that nobody needs."""


@dataclass(frozen=True)
class Metrics:
    """What a micro-batch took: seconds in all, in Spark, and in the slowest slot's state and operators."""

    number: int
    frames: int
    rows: int
    answers: int
    seconds: float
    spark: float
    opening: float
    working: float
    storing: float
    written: int


class SparkHost:
    """Logs, micro-batches and answers of one database.

    Bounded by: frames that no micro-batch has taken (their places, not their rows), and ``_KEPT_METRICS``.
    Its thread is stopped by ``close``; with ``trigger="push"`` there is none.
    """

    may_refuse = True

    def __init__(self, database: Database, path: Path | None, options: SparkOptions) -> None:
        _check(options)
        self._db = database
        self._options = options
        self.cluster = Cluster(options)
        self.root = Path(tempfile.mkdtemp(prefix="penstock-")) if path is None else _directory(path)
        # A database that nobody closes leaves nothing behind either, when the process ends.
        self._remove = weakref.finalize(self, shutil.rmtree, self.root, True) if path is None else None
        try:
            slots = options.shards or self.cluster.cores
            self.journal = Journal(self.root, slots=slots, sync=options.sync)
        except BaseException:
            if self._remove is not None:
                self._remove()
            raise
        self.slots = self.journal.model.slots
        self._logs: dict[str, Log] = {}
        self._logged: dict[str, tuple[int, int]] = {}
        self.restoring = False
        self.next_frame = 1
        self.pending: deque[tuple[str, Frame]] = deque()
        """Frames of streams and relations that no micro-batch has taken, by name."""
        self.runners: dict[str, SparkRunner] = {}
        self._next_batch = (self.journal.model.epoch << 32) + 1
        self._metrics: deque[Metrics] = deque(maxlen=_KEPT_METRICS)
        self._since_forgetting = 0
        self._batch = threading.RLock()
        """Held while a micro-batch is made; taken before the database's lock, never after it."""
        self._in_batch = False
        self._batch_owner: threading.Thread | None = None
        self._wake = threading.Event()
        self._stopping = False
        self._stop = threading.Event()
        self._broken: PenstockError | None = None
        self._thread: threading.Thread | None = None
        if options.shards is not None and options.shards != self.slots:
            self.journal.close()
            raise EngineError(
                f"{self.root} was begun with {self.slots} shards, not {options.shards}",
                hint=f"say shards={self.slots}, or leave it out",
            )

    def open(self) -> None:
        """Take up what the directory has; called once, when the database is ready for it."""
        if not self.journal.is_new:
            self.restoring = True
            try:
                restore(self, self._db)
            finally:
                self.restoring = False
        self.cluster.begin()
        if self._options.trigger != "push":
            self._thread = threading.Thread(target=self._keep_working, name="penstock-spark", daemon=True)
            self._thread.start()
            if self._has_work():
                self._wake.set()

    # -- what the database says ---------------------------------------------------------------------

    def runner(self, query: QueryPlan, schema: pa.Schema, settings: QuerySettings) -> SparkRunner:
        self._check()
        runner = SparkRunner(self, uuid.uuid4().hex[:12], query, schema)
        runner.settings = settings
        return runner

    def begin(self, query: Query) -> None:
        runner = query._runner
        assert isinstance(runner, SparkRunner), "this host made it"
        definition = Definition(
            runner.id, runner.plan, runner.schema, runner.settings.functions, runner.settings.strict,
            runner.changes, runner.rows, runner.starting,
        )  # fmt: skip
        try:
            write_definition(self.folder(runner.id) / "definition", definition)
        except (TypeError, AttributeError, ValueError) as error:
            raise InputError(
                f"query `{query.name}` calls a function that cannot be sent to Spark's workers: {error}",
                hint="a function must not hold files, locks or connections",
            ) from None
        except OSError as error:
            raise CheckpointError(f"{self.root}: the query cannot be stored: {error}") from None
        slot = self._free_slot() if live_split(runner.plan).keys is None else None
        record = {
            "kind": "query", "id": runner.id, "name": query.name, "plan": to_json(runner.plan), "text": query.text,
            "reads": sorted(query.reads), "options": asdict(query.options), "slot": slot, "start": self.next_frame,
            "count": self._db._query_count,
        }  # fmt: skip
        self.journal.add(record)
        self.runners[runner.id] = runner
        runner.changes, runner.rows, runner.starting = {}, {}, {}

    def deliver(self, source: StreamInput, batch: Batch, readers: Sequence[Query]) -> None:
        self._check()
        definition = source.definition
        arrivals, late = self._logged.get(definition.name, (0, 0))
        new_late = source.late_since(late)
        waiting = source.waiting_since(arrivals)
        if new_late is not None:
            rows = new_late.combine_chunks().to_batches()[0]
            self._append("late", definition.name, Kind.LATE, packed(rows), len(rows), source)
        if waiting is not None:
            rows = logged_rows(waiting)
            self._append("streams", definition.name, Kind.WAITING, packed(rows), len(rows), source)
        rows = logged_rows(batch)
        frame = self._append("streams", definition.name, Kind.ROWS, packed(rows), len(batch), source)
        self._logged[definition.name] = (source.arrivals, source.late_count)
        if readers:
            self.pending.append((definition.name, frame))

    def change(self, relation: RelationStore, changes: Sequence[Change], readers: Sequence[Query]) -> None:
        self._check()
        if not changes:
            return
        definition = relation.definition
        rows = packed(changes_batch(definition.schema, changes))
        frame = self._append("relations", definition.name, Kind.CHANGES, rows, len(changes), None)
        if readers:
            self.pending.append((definition.name, frame))

    def work(self, queries: Sequence[Query]) -> None:
        pass

    def declared(self, definition: StreamDef | RelationDef | ViewDef | FunctionDef) -> None:
        if self.restoring:
            return
        record: dict[str, Any] = {"kind": "declare", "name": definition.name}
        if isinstance(definition, FunctionDef):
            try:
                code = packed_bytes(pickled(definition))
            except Exception as error:
                raise InputError(
                    f"function `{definition.name}` cannot be sent to Spark's workers: {error}",
                    hint="it must not hold files, locks or connections",
                ) from None
            record |= {"kind": "function", "code": code}
        else:
            record |= {"text": definition.text, "next_position": self._db.catalog.next_position}
            record["position"] = None if isinstance(definition, ViewDef) else definition.position
        self.journal.add(record)

    def dropped(self, name: str) -> None:
        if self.restoring:
            return
        self.journal.add({"kind": "drop", "name": name})
        for kind in ("streams", "relations", "late"):
            log = self._logs.pop(f"{kind}/{quoted(name)}", None)
            if log is not None:
                log.close()
            shutil.rmtree(self.root / kind / quoted(name), ignore_errors=True)
        self._logged.pop(name, None)
        self.pending = deque((n, f) for n, f in self.pending if n != name)

    def late_taken(self, source: StreamInput) -> None:
        name = quoted(source.definition.name)
        log = self._logs.pop(f"late/{name}", None)
        if log is not None:
            log.close()
            shutil.rmtree(self.root / "late" / name, ignore_errors=True)

    def delivered(self, id: str, upto: int, files: Sequence[Path], notes: Mapping[str, object]) -> None:
        """Answers up to a micro-batch have been taken by their reader."""
        if not self._stopping and id in self.journal.model.queries:
            self.journal.add({"kind": "delivered", "id": id, "upto": upto, "notes": dict(notes)})
        for file in files:
            file.unlink(missing_ok=True)

    def end(self, runner: SparkRunner) -> None:
        """A query is over, in whatever way: no micro-batch has it any more."""
        self.runners.pop(runner.id, None)

    def stopped(self, query: Query) -> None:
        assert isinstance(query._runner, SparkRunner), "this host made it"
        if not self._stopping and query._runner.id in self.journal.model.queries:
            self.journal.add({"kind": "stop", "id": query._runner.id})

    def notes(self) -> dict[str, Any]:
        return dict(self.journal.model.notes)

    def note(self, notes: Mapping[str, object]) -> None:
        self.journal.add({"kind": "notes", "notes": dict(notes)})

    def explain(self, plan: QueryPlan) -> str:
        split = live_split(plan)
        if split.keys is None:
            return ""  # the plan says why
        if split.anywhere:
            return f"spark: {self.slots} shards, any row in any: rows do not meet each other"
        scans = (n for n in walk(plan) if isinstance(n, StreamScan | RelationScan))
        names = {n.stream if isinstance(n, StreamScan) else n.relation: n.schema for n in scans}
        keys = (f"{n} by {', '.join(names[n][c].name for c in cs)}" for n, cs in split.keys.items())
        return f"spark: {self.slots} shards: {'; '.join(keys)}"

    def metrics(self) -> pa.Table:
        rows = [asdict(m) for m in self._metrics]
        kinds = Metrics.__annotations__.items()
        return pa.Table.from_pylist(
            rows, pa.schema([(name, pa.float64() if kind == "float" else pa.int64()) for name, kind in kinds])
        )

    def configure(self, settings: Mapping[str, Any]) -> None:
        raise EngineError("engine `spark` has nothing to configure yet")

    def view(self) -> GraphView:
        waiting: dict[str, tuple[int, int]] = {}
        for name, frame in list(self.pending):
            frames, rows = waiting.get(name, (0, 0))
            waiting[name] = (frames + 1, rows + frame.rows)
        return graph_view([q for q in self._db.queries.values() if q.status == "running"], waiting)

    def suspend(self, operator: int) -> None:
        raise EngineError("engine `spark` runs the operators of a query together", hint="STOP QUERY stops them")

    def resume(self, operator: int) -> None:
        self.suspend(operator)

    # -- micro-batches ------------------------------------------------------------------------------

    def after(self) -> None:
        if self._options.trigger == "push":
            self.settle()
        elif self._has_work():
            self._wake.set()

    def settle(self) -> None:
        if self._in_batch and self._batch_owner is threading.current_thread():
            return  # a callback asks; what it asks for is under way
        upto = self.next_frame - 1
        while self._has_work(upto) and not self._stopping:
            self._check()
            self._make_batch(upto)

    def _has_work(self, upto: float = math.inf) -> bool:
        model = self.journal.model
        starting = any(id not in model.started for id in list(self.runners))
        try:
            return starting or (bool(self.pending) and self.pending[0][1].number <= upto)
        except IndexError:  # somebody took it
            return starting

    def _keep_working(self) -> None:
        """The thread: a micro-batch whenever there is something to do, until ``close``."""
        pause = self._options.trigger
        while True:
            self._wake.wait()
            self._wake.clear()
            if isinstance(pause, int | float) and pause > 0:
                self._stop.wait(pause)
            while self._has_work() and not self._stopping and self._broken is None:
                try:
                    self._make_batch()
                except PenstockError as error:
                    _log.error("%s", error)
            if self._stopping:
                return

    def _make_batch(self, upto: float = math.inf) -> None:
        """One micro-batch: take frames, let Spark run the slots, make it count, deliver its answers."""
        with self._batch:
            limit: int | None = None
            while True:
                with self._db._lock:
                    plan, last = self._planned(upto, limit)
                if plan is None or last is None:
                    return
                began = time.perf_counter()
                plan, reports = self._run(plan)
                count = sum(map(len, plan.frames.values()))
                is_first = any(q.id not in self.journal.model.started for q in plan.queries)
                failed = any(o.error for r in reports for o in r.outcomes.values())
                if failed and (count > 1 or (count == 1 and is_first)):
                    # What comes before the rows that make a query fail is answered first, as if it had come alone.
                    limit = count // 2
                    continue
                break
            with self._db._lock:
                due = self._commit(plan, last, reports, time.perf_counter() - began)
            self._in_batch, self._batch_owner = True, threading.current_thread()
            try:
                self._db.notify(due)
            finally:
                self._in_batch = False

    def _planned(self, upto: float, limit: int | None) -> tuple[Plan | None, int | None]:
        model = self.journal.model
        rows, taken = 0, 0
        frames: dict[str, list[Frame]] = {}
        most = self._options.batch_rows or BATCH_ROWS
        last = model.upto
        for name, frame in self.pending:
            if frame.number > upto or (limit is not None and taken >= limit) or (taken and rows + frame.rows > most):
                break
            frames.setdefault(name, []).append(frame)
            rows, taken, last = rows + frame.rows, taken + 1, frame.number
        queries = tuple(
            Assigned(id, model.queries[id].start["slot"], model.queries[id].start["start"]) for id in self.runners
        )
        if not taken and all(q.id in model.started for q in queries):
            return None, None
        number, self._next_batch = self._next_batch, self._next_batch + 1
        return Plan(str(self.root), number, model.batch, self.slots, queries, frames), last

    def _run(self, plan: Plan) -> tuple[Plan, list[Report]]:
        """Let Spark do it, with another number each time; gives the plan that was done."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return plan, self.cluster.run(plan)
            except PenstockError as error:
                if attempt == _ATTEMPTS or self._stopping or isinstance(error, CheckpointError):
                    self._break(error)
                    raise
                _log.warning("micro-batch %d is tried again: %s", plan.number, error.one_line)
                plan = replace(plan, number=self._next_batch)
                self._next_batch += 1
        raise AssertionError("unreachable")

    def _break(self, error: PenstockError) -> None:
        """Spark cannot go on: nothing is lost, nothing more is answered until the database is opened again."""
        with self._db._lock:
            self._broken = error
            for query in list(self._db._queries.values()):
                if query.status == "running":
                    query._fail(EngineError(f"query `{query.name}`: {error.message}", hint=error.hint))

    def _commit(self, plan: Plan, last: int, reports: Sequence[Report], seconds: float) -> list[Due]:
        """Make the micro-batch count, and hand its answers to the queries."""
        ids = [q.id for q in plan.queries]
        outcomes = {id: [(r.slot, r.outcomes[id]) for r in reports if id in r.outcomes] for id in ids}
        record = {
            "kind": "batch", "number": plan.number, "upto": last,
            "queries": {id: _recorded([o for _, o in some]) for id, some in outcomes.items() if id in self.runners},
        }  # fmt: skip
        self.journal.add(record)
        for _ in range(sum(map(len, plan.frames.values()))):
            if self.pending and self.pending[0][1].number <= last:
                self.pending.popleft()
        due: list[Due] = []
        by_id = {q._runner.id: q for q in self._db._queries.values() if isinstance(q._runner, SparkRunner)}
        answers = 0
        for id, some in outcomes.items():
            query, runner = by_id.get(id), self.runners.get(id)
            if query is None or runner is None:
                continue
            answers += sum(o.rows for _, o in some)
            due += self._received(query, runner, plan.number, some)
        slowest = max(reports, key=lambda r: r.opening + r.working + r.storing)
        spent = slowest.opening + slowest.working + slowest.storing
        self._metrics.append(Metrics(
            plan.number & 0xFFFFFFFF, sum(map(len, plan.frames.values())), slowest.rows, answers, seconds,
            seconds - spent, slowest.opening, slowest.working, slowest.storing, sum(r.written for r in reports),
        ))  # fmt: skip
        self._since_forgetting += 1
        if self._since_forgetting >= _FORGET_EVERY:
            self._since_forgetting = 0
            self._forget()
        return due

    def _received(
        self, query: Query, runner: SparkRunner, number: int, outcomes: Sequence[tuple[int, Outcome]]
    ) -> list[Due]:
        runner.failures = sum(o.failures for _, o in outcomes)
        runner.last_failure = next((o.last_failure for _, o in outcomes if o.last_failure), None)
        error = next((o.error for _, o in outcomes if o.error), None)
        if error is not None:
            query._fail(query._failure(raised(error)))
            return []
        runner.reported = {slot: o.sizes for slot, o in outcomes}
        files = tuple(self.folder(runner.id) / o.file for _, o in outcomes if o.file)
        due = query._receive(StoredAnswers(((number, files),), sum(o.rows for _, o in outcomes))) if files else []
        runner.ended = bool(outcomes) and all(o.ended for _, o in outcomes)
        if runner.ended:
            query._end("ended")
        return due

    # -- files --------------------------------------------------------------------------------------

    def log(self, kind: str, name: str) -> Log:
        """The log of a stream or relation."""
        key = f"{kind}/{quoted(name)}"
        found = self._logs.get(key)
        if found is None:
            found = self._logs[key] = Log(self.root / key, sync=self._options.sync)
            found.resume()
        return found

    def known(self, name: str, arrivals: int, late: int) -> None:
        """What is in the logs of a stream already."""
        self._logged[name] = (arrivals, late)

    def _append(
        self, kind: str, name: str, what: Kind, rows: pa.Buffer, count: int, source: StreamInput | None
    ) -> Frame:
        marks = Marks()
        if source is not None:
            marks = Marks(source.progress, source.newest_row, source.arrivals, source.late_count, source.closed)
        frame = self.log(kind, name).append(what, self.next_frame, rows, count, marks)
        self.next_frame += 1
        return frame

    def _forget(self) -> None:
        """Remove files of streams that no query and no new query will ask for."""
        oldest = self.pending[0][1].number if self.pending else self.next_frame
        for name, source in self._db._inputs.items():
            if source.waiting or source.definition.retain:
                continue
            self.log("streams", name).forget(oldest)

    def folder(self, id: str) -> Path:
        """Where a query's definition and answers are."""
        return self.root / "queries" / id

    def _free_slot(self) -> int:
        used = [q.start["slot"] for q in self.journal.model.queries.values() if q.start["slot"] is not None]
        return min(range(self.slots), key=lambda slot: (used.count(slot), slot))

    def _check(self) -> None:
        if self._broken is not None:
            told = f"{self._broken.hint}; " if self._broken.hint else ""
            raise EngineError(
                f"Spark has stopped: {self._broken.message}", hint=f"{told}open the database again to go on"
            )

    def close(self) -> None:
        self._stopping = True
        self._stop.set()
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        for log in self._logs.values():
            log.close()
        self.journal.close()
        if self._remove is not None:
            self._remove()


def _recorded(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """What the journal says of a query's part in a micro-batch."""
    error = next((o.error for o in outcomes if o.error), None)
    if error is not None:
        return {"status": "failed", "error": asdict(error)}
    record: dict[str, Any] = {"files": [[o.file, o.rows] for o in outcomes if o.file]}
    if outcomes and all(o.ended for o in outcomes):
        record["status"] = "ended"
    failures = sum(o.failures for o in outcomes)
    if failures:
        record["failures"] = failures
        record["last_failure"] = next((o.last_failure for o in outcomes if o.last_failure), None)
    return record


def quoted(name: str) -> str:
    """A name as that of a folder."""
    return quote(name, safe="")


def _directory(path: Path) -> Path:
    path = path.absolute()
    if path.exists() and not path.is_dir():
        raise EngineError(f"{path} is a file", hint="a database is a directory")
    if path.is_dir() and not (path / "journal").is_dir() and any(path.iterdir()):
        raise EngineError(f"{path} is not a database", hint="use an empty or a new directory")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EngineError(f"{path} cannot be made: {error.strerror}") from None
    return path


def _check(options: SparkOptions) -> None:
    if options.shards is not None and options.shards < 1:
        raise InputError(f"shards is {options.shards}", hint="at least one is needed")
    if options.batch_rows is not None and options.batch_rows < 1:
        raise InputError(f"batch_rows is {options.batch_rows}", hint="at least one is needed")
    trigger = options.trigger
    if not (trigger is None or trigger == "push" or (isinstance(trigger, int | float) and trigger >= 0)):
        raise InputError(f"trigger is {trigger!r}", hint="give seconds, or 'push'")
