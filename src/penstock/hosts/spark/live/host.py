"""``connect()`` on Spark: rows into logs, micro-batches of Spark tasks over them, answers in files.

    push ──▶ ingest ──▶ log of the stream ──▶ micro-batch: a task for each slot ──▶ answers ──▶ fetch
                          (acknowledged)         state before ─▶ operators ─▶ state after

A call that gives rows returns when they are in a log. The queries are divided into parts (``part.py``); micro-batches
of each take what is in the logs, in order, and run as Spark jobs, one task for each slot. One counts when its record is
in the journal, which names the state and the answers that it left; whatever dies before that is done again from the
state before. Answers wait in files until somebody has them.

A directory holds:

    lock, journal/          who has it open; declarations, queries, micro-batches, deliveries
    streams/, relations/    logs, by name; forgotten when all queries have them and no RETAIN needs them
    late/, apart/           late rows and rows that do not fit, until somebody takes them
    queries/                of each query its definition, and answers that wait
    state/                  of each part and slot, the state after the last micro-batches

Without a directory there is a temporary one, removed at the end.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from penstock.catalog import FunctionDef, RelationDef, StreamDef, ViewDef
from penstock.graph.view import GraphView
from penstock.hosts.core import Core
from penstock.hosts.host import Abilities, QuerySettings
from penstock.hosts.options import SparkOptions
from penstock.hosts.registered import Registered
from penstock.hosts.spark.live.backlog import Backlog
from penstock.hosts.spark.live.cluster import Cluster
from penstock.hosts.spark.live.divided import Parts
from penstock.hosts.spark.live.journal import Journal, packed_bytes
from penstock.hosts.spark.live.logs import Logs
from penstock.hosts.spark.live.part import Metrics, Part
from penstock.hosts.spark.live.plan import Definition, live_split
from penstock.hosts.spark.live.restore import restore
from penstock.hosts.spark.live.runner import SparkRunner
from penstock.hosts.spark.live.slot import pickled, write_definition
from penstock.ingest.relations import RelationStore
from penstock.ingest.streams import StreamInput
from penstock.model.batch import Batch
from penstock.model.change import Change
from penstock.model.errors import CheckpointError, EngineError, InputError, PenstockError
from penstock.plan.meanings import NUMBER
from penstock.plan.nodes import Query as QueryPlan
from penstock.plan.nodes import declared_scans
from penstock.plan.serial import to_json
from penstock.scalar.zones import UTC

_KEPT_METRICS = 1_000
_FORGET_EVERY = 32
"""Micro-batches after which logs are looked through for files that nobody needs."""


class SparkHost(Abilities):
    """Logs, parts and answers of one database.

    Bounded by: the queries and what their parts hold, and ``_KEPT_METRICS``. Threads of parts are ended by ``close``;
    with ``trigger="push"`` there are none.
    """

    def __init__(self, core: Core, path: Path | None, options: SparkOptions) -> None:
        super().__init__("spark")
        _check(options)
        self.core = core
        self.options = options
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
        self.logs = Logs(self.root, sync=options.sync)
        self.restoring = False
        self._next_batch = (self.journal.model.epoch << 32) + 1
        self._metrics: deque[Metrics] = deque(maxlen=_KEPT_METRICS)
        self._since_forgetting = 0
        self.changed = threading.Condition(core.lock)
        """The database's lock, and word of a micro-batch that is over."""
        self.stopping = False
        self.stop = threading.Event()
        self.broken: PenstockError | None = None
        self.parts = Parts(self)
        self._touched: set[Part] = set()
        """Parts that have something to do and have not been told."""
        if options.shards is not None and options.shards != self.slots:
            self.journal.close()
            raise EngineError(
                f"{self.root} was begun with {self.slots} shards, not {options.shards}",
                hint=f"say shards={self.slots}, or leave it out",
            )

    def zone(self) -> str:
        """That of the directory, or for a new one that of the Spark session."""
        return self.cluster.zone if self.journal.is_new else self.journal.model.zone

    def abilities(self) -> SparkHost:
        return self

    @property
    def combines(self) -> bool:
        return False

    @property
    def on_its_own(self) -> bool:
        return self.options.trigger != "push"

    @property
    def inside(self) -> bool:
        return False

    def results_lock(self) -> threading.RLock:
        """The database's own: what a reader has had is noted in the journal."""
        return self.core.lock

    def open(self) -> None:
        """Take up what the directory has; called once, when the database is ready for it."""
        if not self.journal.is_new:
            self.restoring = True
            try:
                restore(self, self.core)
            finally:
                self.restoring = False
        if self.core.catalog.zone != self.journal.model.zone:
            self.journal.add({"kind": "zone", "zone": self.core.catalog.zone})
        self.cluster.begin()
        self.parts.start()

    # -- what the database says ---------------------------------------------------------------------

    def runner(self, query: QueryPlan, schema: pa.Schema, settings: QuerySettings) -> SparkRunner:
        self.check()
        runner = SparkRunner(self, uuid.uuid4().hex[:12], query, schema)
        runner.settings = settings
        return runner

    def begin(self, query: Registered) -> None:
        runner = query.runner
        assert isinstance(runner, SparkRunner), "this host made it"
        definition = Definition(
            runner.id, runner.plan, runner.schema, runner.settings.functions, runner.settings.strict,
            runner.changes, runner.rows, runner.starting, query.options.start == "now",
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
        runner.priority, runner.latency = query.options.priority, query.options.latency
        part = self.parts.place(runner)
        record = {
            "kind": "query", "id": runner.id, "name": query.name, "plan": to_json(runner.plan), "text": query.text,
            "reads": sorted(query.reads), "options": asdict(query.options), "slot": slot, "start": self.logs.next_frame,
            "count": self.core.query_count, "part": part, "since": query.dating.earlier,
            "last": query.dating.last,
        }  # fmt: skip
        self.journal.add(record)
        self.touch(self.parts.add(runner, part))
        runner.changes, runner.rows, runner.starting = {}, {}, {}

    def admits(self, source: StreamInput, rows: pa.Table) -> bool:
        return True  # they wait in the stream's log

    def room(self) -> AbstractContextManager[Callable[[], None]]:
        return nullcontext(lambda: None)

    def deliver(self, source: StreamInput, batch: Batch, readers: Sequence[Registered]) -> None:
        self.check()
        frame = self.logs.rows(source, batch)
        self._touched |= self.parts.take(source.definition.name, frame, readers)

    def reached(
        self, source: StreamInput, batch: Batch, readers: Sequence[Registered]
    ) -> Literal["none", "some", "all"]:
        return "some"  # the rows may be in the log

    @property
    def wrote(self) -> bool:
        return True  # it may be

    @property
    def keeps(self) -> bool:
        return False  # the state may have been saved since

    def change(self, relation: RelationStore, changes: Sequence[Change], readers: Sequence[Registered]) -> None:
        self.check()
        if not changes:
            return
        frame = self.logs.changes(relation, changes)
        self._touched |= self.parts.take(relation.definition.name, frame, readers)

    def work(self, queries: Sequence[Registered]) -> None:
        pass

    def declared(self, definition: StreamDef | RelationDef | ViewDef | FunctionDef) -> None:
        if self.restoring:
            return
        if isinstance(definition, StreamDef) and definition.drops:
            raise EngineError(
                f"stream `{definition.name}`: engine `spark` drops no rows, they wait in the stream's log",
                hint="leave `overflow` out, or use engine='local'",
            )
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
            record |= {"text": definition.text, "next_position": self.core.catalog.next_position}
            record["position"] = None if isinstance(definition, ViewDef) else definition.position
            record["meanings"] = NUMBER
            if self.core.catalog.zone != UTC:
                record["zone"] = self.core.catalog.zone
        self.journal.add(record)

    def dropped(self, name: str) -> None:
        if self.restoring:
            return
        self.journal.add({"kind": "drop", "name": name})
        self.logs.drop(name)
        for part in self.parts:
            part.pending = Backlog((n, f) for n, f in part.pending if n != name)

    def late_taken(self, source: StreamInput) -> None:
        self.logs.late_taken(source.definition.name)

    def apart_taken(self, source: StreamInput) -> None:
        self.logs.apart_taken(source)

    def delivered(self, id: str, upto: int, notes: Mapping[str, object]) -> None:
        """Answers up to a micro-batch have been taken by the reader who is remembered."""
        if not self.stopping and id in self.journal.model.queries:
            self.journal.add({"kind": "delivered", "id": id, "upto": upto, "notes": dict(notes)})

    def end(self, runner: SparkRunner) -> None:
        """A query is over, in whatever way: no micro-batch has it any more."""
        self.parts.remove(runner)

    def finishing(self, query: Registered) -> None:
        pass  # what no micro-batch has taken yet is not waited for

    def leaving(self, query: Registered) -> None:
        pass

    def stopped(self, query: Registered) -> None:
        assert isinstance(query.runner, SparkRunner), "this host made it"
        if not self.stopping and query.runner.id in self.journal.model.queries:
            self.journal.add({"kind": "stop", "id": query.runner.id})

    def check_keys(self) -> None:
        raise EngineError(
            "engine `spark` does not remember keys of pushes, so it cannot tell what comes twice",
            hint="push without a key, or use engine='local'",
        )

    def notes(self) -> dict[str, Any]:
        return dict(self.journal.model.notes)

    def note(self, notes: Mapping[str, object]) -> None:
        self.journal.add({"kind": "notes", "notes": dict(notes)})

    def explain(self, plan: QueryPlan, query: Registered | None = None) -> str:
        lines = [] if query is None else self.parts.explained(query)
        split = live_split(plan)
        if split.keys is None:
            pass  # the plan says why
        elif split.anywhere:
            lines.append(f"spark: {self.slots} shards, any row in any: rows do not meet each other")
        else:
            names = {scan.name: scan.schema for scan in declared_scans(plan)}
            keys = (f"{n} by {', '.join(names[n][c].name for c in cs)}" for n, cs in split.keys.items())
            lines.append(f"spark: {self.slots} shards: {'; '.join(keys)}")
        return "\n".join(lines)

    def metrics(self) -> pa.Table:
        rows = [asdict(m) for m in self._metrics]
        kinds = Metrics.__annotations__.items()
        return pa.Table.from_pylist(
            rows, pa.schema([(name, pa.float64() if kind == "float" else pa.int64()) for name, kind in kinds])
        )

    def view(self) -> GraphView:
        return self.parts.view()

    def suspend(self, operator: int) -> None:
        raise EngineError("engine `spark` runs the operators of a query together", hint="STOP QUERY stops them")

    def resume(self, operator: int) -> None:
        self.suspend(operator)

    # -- work ---------------------------------------------------------------------------------------

    def configure(self, settings: Mapping[str, Any]) -> None:
        self.parts.ask(settings)

    def configured(self) -> None:
        self.parts.configure()

    def after(self) -> None:
        if self.options.trigger == "push":
            self._touched.clear()
            self.settle()
            return
        while self._touched:
            try:
                self._touched.pop().wake()
            except KeyError:  # another thread has
                return

    def settle(self, query: Registered | None = None) -> None:
        with self.changed:
            upto = self.logs.next_frame - 1
        failed: dict[Part, int] = {}
        while True:
            with self.changed:
                if self.stopping:
                    return
                parts = [p for p in self._parts_of(query) if p.has_work(upto)]
                if not parts:
                    return
                self.check()
                if self.options.trigger != "push":
                    for part in parts:
                        if part.failed > failed.setdefault(part, part.failed) and part.problem is not None:
                            raise part.problem
                        part.wake(hurry=True)
                    self.changed.wait()
                    continue
            max(parts, key=lambda p: p.priority).make_batch(upto)

    def _parts_of(self, query: Registered | None) -> list[Part]:
        if query is None:
            return list(self.parts)
        part = query.runner.part if isinstance(query.runner, SparkRunner) else None
        return [] if part is None else [part]

    def touch(self, part: Part) -> None:
        """A part has something to do: it is told when the lock is given back."""
        self._touched.add(part)

    def next_batch(self) -> int:
        """A number for a micro-batch."""
        self._next_batch += 1
        return self._next_batch - 1

    def counts(self, metrics: Metrics) -> None:
        """A micro-batch has been made."""
        self._metrics.append(metrics)
        self._since_forgetting += 1
        if self._since_forgetting >= _FORGET_EVERY:
            self._since_forgetting = 0
            waiting = [part.pending.first for part in self.parts if part.pending]
            self.logs.forget(self.core.inputs.values(), min(waiting, default=self.logs.next_frame))

    def give_up(self, error: PenstockError) -> None:
        """Spark cannot go on: nothing is lost, nothing more is answered until the database is opened again."""
        with self.changed:
            self.broken = error
            for query in list(self.core.running()):
                self.core.fail(query, EngineError(f"query `{query.name}`: {error.message}", hint=error.hint))
            self.changed.notify_all()

    # -- files --------------------------------------------------------------------------------------

    def folder(self, id: str) -> Path:
        """Where a query's definition and answers are."""
        return self.root / "queries" / id

    def _free_slot(self) -> int:
        used = [q.start["slot"] for q in self.journal.model.queries.values() if q.start["slot"] is not None]
        return min(range(self.slots), key=lambda slot: (used.count(slot), slot))

    def check(self) -> None:
        """Refuse to go on without Spark."""
        if self.broken is not None:
            told = f"{self.broken.hint}; " if self.broken.hint else ""
            raise EngineError(
                f"Spark has stopped: {self.broken.message}", hint=f"{told}open the database again to go on"
            )

    def close(self) -> None:
        self.stopping = True
        self.stop.set()
        cancelled = self.parts.close()
        self.logs.close()
        self.journal.close()
        if self._remove is not None and cancelled:
            # A task that was given up may still write: what it leaves is removed when the process ends.
            shutil.rmtree(self.root, ignore_errors=True)
        elif self._remove is not None:
            self._remove()


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
