"""The host of ``engine="spark"``: rows into logs, micro-batches of Spark over them, what they gave into a log.

A call that gives rows returns when they are in a log. The queries are divided into parts (``part``), each of which is a
streaming query of Spark (``cluster``). A database without a directory has a temporary one, removed at the end.
"""

from __future__ import annotations

import contextlib
import math
import re
import secrets
import shutil
import tempfile
import threading
import uuid
import weakref
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from penstock.catalog import FunctionDef, QueryOptions, RelationDef, StreamDef, ViewDef
from penstock.graph.view import GraphView, PartView
from penstock.hosts.core import Core
from penstock.hosts.durable.forms import Slots, division_of, held_again, instant_again, spans_again
from penstock.hosts.durable.kept import Kept
from penstock.hosts.host import Abilities, QuerySettings
from penstock.hosts.options import Keeping, SparkOptions
from penstock.hosts.registered import Registered
from penstock.hosts.results import Results
from penstock.hosts.spark.keys import shard_of
from penstock.hosts.spark.parts.cluster import Cluster
from penstock.hosts.spark.parts.definitions import Past, check_stream, forget_definition, write_definition
from penstock.hosts.spark.parts.inflow import Inflow, forget_sources
from penstock.hosts.spark.parts.inline import Inline
from penstock.hosts.spark.parts.leftover import forget_states
from penstock.hosts.spark.parts.part import Metrics, Part
from penstock.hosts.spark.parts.parts import Parts
from penstock.hosts.spark.parts.runner import Content, SparkRunner, Stored
from penstock.hosts.spark.parts.talk import Talk
from penstock.hosts.spark.parts.task import Failure, Frame, Moved, live_split, raised
from penstock.ingest.files import Columns, held
from penstock.ingest.relations import RelationStore
from penstock.ingest.streams import StreamInput
from penstock.model import tracing
from penstock.model.batch import Batch
from penstock.model.change import Change
from penstock.model.errors import EngineError, PenstockError, StateError, StorageError
from penstock.model.waiting import LOOK_SECONDS, Look
from penstock.operators.state import LoadedState, Saved, State
from penstock.plan.nodes import Query as QueryPlan
from penstock.plan.nodes import declared_scans
from penstock.plan.show import show_duration
from penstock.storage.log import Log
from penstock.storage.objects import Root, joined
from penstock.storage.shards import ANSWERS, PART, PARTS, PROGRAMS, QUERIES, SHARDS
from penstock.storage.store import Item

_KEPT_METRICS = 1_000
_MEASURED = 10
"""Micro-batches after which what they take counts as measured."""
_MICRO_BATCH = 1.0
"""Seconds that a micro-batch takes where nothing has been measured."""
_DEATHS, _VERDICT = 2, 4
"""Attempts in a row that end the process in which they are made: before a part is divided, and before a query that is
alone in one fails."""
_FORGIVEN = 1
"""Attempts at micro-batches that may fail before a call that waits for results says so: a cluster has its hiccups."""
_MANY, _MANY_OF_SLOT = 8_192, 512
"""Rows that are pushed at once, and for each slot, from which on the driver divides them."""
_MOST = 1 << 30
"""Bytes up to which it does: a column of Arrow's texts has no more than twice as many."""
_SPLITS = 4
"""Ways of splitting a stream of which each has a copy of its rows; who splits it in another reads all of them."""
_FILE = re.compile(r"(\d+)-(\d+)-\d+-[0-9a-f]+-\d+\.arrow")


class SparkHost(Abilities):
    """Logs, parts and results of one database.

    Bounded by: the queries and what their parts hold, and ``_KEPT_METRICS``; on disk by what ``storage.store`` says,
    what slots remembered at two saved states and since, and results that no reader has confirmed. Its threads are ended
    by ``close``.
    """

    def __init__(self, core: Core, path: Root | None, options: SparkOptions, keeping: Keeping) -> None:
        super().__init__("spark")
        options.check()
        self.core, self.options = core, options
        self.zone_is_free = False
        self.session = secrets.token_hex(6)
        """Of this opening, what no other one has."""
        self.opening = True
        """What the directory has is being taken up."""
        self.stopping = False
        self.slots = 0
        self.last_feed = 0
        """The number of the last entry of a stream or relation."""
        self.span: tracing.Context | None = None
        """Of the push that made it, if somebody watches: the next micro-batch follows from it."""
        self.changed = threading.Condition(core.lock)
        """The database's lock, and word of a micro-batch that is over."""
        self.parts = Parts(self)
        self.inflows: dict[str, Inflow] = {}
        """What feeds streams that have a source, by stream."""
        self._metrics: deque[Metrics] = deque(maxlen=_KEPT_METRICS)
        self._touched: set[Part] = set()
        """Parts that have something to do and have not been told."""
        self._needs: dict[int, Mapping[str, Any]] = {}
        """Of the saved states that are kept, by number: what they need besides themselves."""
        self._results: dict[str, int] = {}
        """Files with results, and the number of the entry that names each."""
        self._left: weakref.WeakSet[Results] = weakref.WeakSet()
        """Of queries that are over, as long as users have them: they may still be read."""
        self.cluster = Inline(options) if options.inline else Cluster(options)
        self.root = path or Path(tempfile.mkdtemp(prefix="penstock-"))
        if isinstance(self.root, Path):
            self.root = self.root.absolute()
        # A database that nobody closes leaves nothing behind either, when the process ends.
        self._remove = weakref.finalize(self, shutil.rmtree, self.root, True) if path is None else None
        try:
            self.kept = Kept(self.root, core, self, keeping, turns=True)
        except BaseException:
            if self._remove is not None:
                self._remove()
            raise
        self.files = self.kept.keeper.store.files
        on_disk = isinstance(self.root, Path)
        self.checkpoints = Path(self.root, "spark") if on_disk else Path(tempfile.mkdtemp(prefix="penstock-"))
        """Where Spark has the checkpoints of its streaming queries. Nothing of them is needed after a restart, so that
        this process sees them is enough."""
        self._talk: Talk | None = None

    @property
    def epoch(self) -> int:
        """Of this opening of the directory."""
        epoch: int = self.kept.keeper.store.epoch
        return epoch

    def zone(self) -> str:
        self.zone_is_free = True
        return self.cluster.zone

    def abilities(self) -> SparkHost:
        return self

    @property
    def combines(self) -> bool:
        return self.kept.gathers

    @property
    def on_its_own(self) -> bool:
        return self.options.trigger != "push"

    @property
    def inside(self) -> bool:
        return False

    @property
    def pace(self) -> float:
        return 0.05  # a micro-batch takes longer

    def results_lock(self) -> threading.RLock:
        return threading.RLock()

    # -- opening --------------------------------------------------------------------------------------

    def open(self) -> None:
        keeper = self.kept.keeper
        self.kept.open()
        try:
            if not self.slots:
                if keeper.declarations:
                    raise self._of_local()
                self.slots = self.options.shards or self.cluster.cores
                keeper.divided({"slots": self.slots})
            elif self.options.shards not in (None, self.slots):
                raise EngineError(
                    f"{self.root} was begun with {self.slots} shards, not {self.options.shards}",
                    hint=f"say shards={self.slots}, or leave it out",
                )
            self._take_up()
        except BaseException:
            keeper.store.close()
            raise
        self.opening = False
        self.kept.begin()
        self.cluster.begin(self)
        self.parts.start()
        if self.parts.misplaced:
            self.parts.ask({})
            self.parts.configure()
        for source in self.core.inputs.values():
            self._begin_inflow(source.definition, closed=source.closed)

    def _take_up(self) -> None:
        """Give the parts the entries that they have not taken, and remove what former owners have left."""
        store = self.kept.keeper.store
        for version in store.states.versions:
            with contextlib.suppress(StorageError, KeyError):  # it is found out when it is needed
                self._needs[version[0]] = store.states.meta(version, f"graph/{PARTS}")["needs"]
        if store.saved in self._needs:
            store.check_entries(self._needs[store.saved]["entry"])
        results = store.known("results", "default")
        for entry in () if results is None else results.read(store.oldest):  # the older saved state needs them, too
            self._name(entry.rows.column("file").to_pylist(), entry.number)
        frames: list[tuple[str, Frame]] = []
        running = [runner for part in self.parts for runner in part.queries.values() if runner.part is not None]
        starts = [part.start_of(r) for part in self.parts for r in part.queries.values()]
        after = min(starts, default=store.number + 1) - 1
        read = {name for runner in running for name in runner.reads}
        for kind, names in (("streams", self.core.inputs), ("relations", self.core.relations)):
            for name in names:
                log = store.known(kind, name)
                if log is not None:
                    self.last_feed = max(self.last_feed, log.last)
                    if name in read:
                        frames += ((name, frame) for frame in _frames(log, kind, after))
        self.parts.restore(sorted(frames, key=lambda f: f[1].number))
        shutil.rmtree(self.checkpoints, ignore_errors=True)
        if isinstance(self.root, Path):
            forget_sources(self.root, {s.definition.position for s in self.core.inputs.values() if s.definition.source})
        self._sweep()

    def restored(self, state: LoadedState, queries: Mapping[str, tuple[Registered, Mapping[str, Any]]]) -> None:
        """Go on with the queries that were saved."""
        if PARTS not in state:
            raise self._of_local()
        facts = state[PARTS].meta
        self.slots = facts["slots"]
        self.parts.resume(facts)
        for query, record in queries.values():
            runner = query.runner
            assert isinstance(runner, SparkRunner), "this host made it"
            failures, last = record["failures"]
            runner.resume(record["runner"], (failures, last), ended=query.status == "ended")
            self._become(runner, query)
            if query.status == "running":
                self.parts.add(runner, record["runner"]["part"], resumed=True)

    def _of_local(self) -> StorageError:
        return StorageError(
            f"{self.root}: what can be read of its state was saved by engine='local'",
            hint="open it with engine='local', then with engine='spark'",
        )

    def _become(self, runner: SparkRunner, query: Registered) -> None:
        runner.id, runner.slot = query.placement["id"], query.placement["slot"]
        self._run_as(runner, query)

    def _run_as(self, runner: SparkRunner, query: Registered) -> None:
        runner.priority, runner.latency = query.options.priority, query.options.latency
        runner.suspended = query.suspended
        query.meter.look_up()

    def again(self, item: Item) -> None:
        """Do again what an entry of this engine says."""
        if item.kind == "results":
            part = self.parts.get(item.meta["part"])
            assert item.rows is not None
            if part is not None:
                part.applied(item.meta, item.rows, item.number)
        elif "slots" in item.meta:
            self.slots = item.meta["slots"]
        elif "failed" in item.meta:
            id, why = item.meta["failed"]
            self._fail(id, Failure(**why))
        else:
            self.parts.again(item.meta)

    # -- queries --------------------------------------------------------------------------------------

    def runner(self, query: QueryPlan, schema: pa.Schema, settings: QuerySettings) -> SparkRunner:
        return SparkRunner(self, query, schema, settings)

    def begin(self, query: Registered) -> None:
        runner, keeper = query.runner, self.kept.keeper
        assert isinstance(runner, SparkRunner), "this host made it"
        runner.id = query.placement.get("id") or uuid.uuid4().hex[:12]
        self._run_as(runner, query)
        if not query.placement:
            if keeper.again:
                raise self._of_local()
            slot = self._free_slot() if runner.split.keys is None else None
            query.placement = {
                "id": runner.id, "part": self.parts.place(runner), "slot": slot, "first": self.last_feed + 1
            }  # fmt: skip
        if not keeper.again:
            query.versions = keeper.versions(query)
        try:
            write_definition(
                self.files, runner.id, query.plan_json, versions=query.versions, strict=runner.settings.strict,
                apart=query.options.start == "now", progress=runner.starting,
                schemas={scan.name: scan.schema for scan in declared_scans(runner.plan)},
                past=Past(runner.changes, runner.rows),
            )  # fmt: skip
        except OSError as error:
            raise StorageError(
                f"{self.root}: the query cannot be stored: {error.strerror or error}",
                hint="make room, or see that it can be written, and try again",
            ) from error
        runner.number = keeper.registered(query)
        runner.slot = query.placement["slot"]
        runner.moved = Moved(query.placement["first"], None, 0)
        self.touch(self.parts.add(runner, query.placement["part"]))
        runner.changes, runner.rows, runner.starting = {}, {}, {}

    def _free_slot(self) -> int:
        used = [r.slot for part in self.parts for r in part.queries.values()]
        return min(range(self.slots), key=lambda slot: (used.count(slot), slot))

    def end(self, runner: SparkRunner) -> None:
        """A query is over, in whatever way: no micro-batch has it any more."""
        self.parts.remove(runner)

    def finishing(self, query: Registered) -> None:
        pass  # what no micro-batch has taken yet is not waited for

    def leaving(self, query: Registered) -> None:
        if not self.stopping:
            self.kept.keeper.stopped(query)
            self._left.add(query.results)

    def stopped(self, query: Registered) -> None:
        pass

    def altering(self, query: Registered, options: QueryOptions, suspended: bool) -> None:
        self.kept.keeper.altered(query, options, suspended)

    def altered(self, query: Registered, before: QueryOptions) -> None:
        runner = query.runner
        assert isinstance(runner, SparkRunner), "this host made it"
        self._run_as(runner, query)
        if not self.opening:
            self.parts.alter(runner, priority=query.options.priority != before.priority)

    def remark(self, query: Registered) -> str | None:
        asked = query.options.latency
        took, measured = self._took()
        if asked is None or asked / 1e6 >= took:
            return None
        how = "as measured here" if measured else "as a rule"
        return (
            f"latency = '{show_duration(asked, 'timestamp').lower()}' cannot be met on Spark: an answer comes with the "
            f"micro-batch that takes its rows, and one takes about {took:.1f} s {how}; engine='local' answers sooner"
        )

    def _took(self) -> tuple[float, bool]:
        """Seconds of a micro-batch, and whether that has been measured."""
        seconds = [metrics.seconds for metrics in list(self._metrics)[-_MEASURED:]]
        return (median(seconds), True) if len(seconds) == _MEASURED else (_MICRO_BATCH, False)

    # -- data -----------------------------------------------------------------------------------------

    def admits(self, source: StreamInput, rows: pa.Table) -> bool:
        return True  # they wait in the stream's log

    def room(self) -> AbstractContextManager[Callable[[], None]]:
        return nullcontext(lambda: None)

    def released(self, source: StreamInput) -> Batch:
        # Tasks read the files; who registers a query later has what the stream retains.
        return self.kept.released(source) if source.definition.retain else source.nothing

    def deliver(self, source: StreamInput, batch: Batch, readers: Sequence[Registered]) -> None:
        log = self.kept.rows(source, batch, self._slots_of(source, batch))
        if log is not None:
            prioritised = 0 if batch.priority is None else int((batch.priority > 0).sum())
            rows = len(batch)
            if source.spans:
                rows = sum(span.file.rows for span in source.spans)
                prioritised = sum(span.file.prioritised for span in source.spans)
            urgent, files = source.urgent_came(), held(source.came.files if source.came else (), source.progress)
            waited = source.waited(batch) + sum(s.file.prioritised for s in source.spans if s.after > -math.inf)
            frame = Frame(
                log.last, "rows", log.place, rows, prioritised, source.progress, source.closed, source.spans,
                sum(s.file.prioritised for s in files) if urgent is None else len(urgent), files, waited,
                self.kept.keeper.division,
            )  # fmt: skip
            self._taken(source.definition.name, frame, readers)
            if source.closed:
                self._end_intake(source.definition.name)

    def _slots_of(self, source: StreamInput, batch: Batch) -> Slots | None:
        """The slots of rows whose turn has come, if they are so many that it is better that no task reads all."""
        if self.slots == 1 or self.kept.keeper.again or source.spans or not len(batch):
            return None
        if source.definition.slack and source.definition.priority is not None:
            return None  # alarms are given before their turn, and must be in the same slot then
        # Without slack they are those that came, with the late ones among them.
        rows = batch.table if source.definition.slack or source.came is None else source.came.table
        if len(rows) < max(_MANY, _MANY_OF_SLOT * self.slots) or rows.nbytes > _MOST:
            return None
        name = source.definition.name
        if splits := self.splits_of(name):
            columns = splits[0]
            return Slots(columns, shard_of([rows.column(c).combine_chunks() for c in columns], self.slots), self.slots)
        if any(r.slot is None and name in r.reads for part in self.parts for r in part.queries.values()):
            return Slots((), np.arange(len(rows)) * self.slots // len(rows), self.slots)
        return None

    def reached(
        self, source: StreamInput, batch: Batch, readers: Sequence[Registered]
    ) -> Literal["none", "some", "all"]:
        if not self.kept.is_written:
            return "none"
        log = self.kept.keeper.store.known("streams", source.definition.name)
        for frame in () if log is None or log.last == self.last_feed else _frames(log, "streams", log.last - 1):
            self._taken(source.definition.name, frame, readers)  # it was stopped before the parts had it
        return "all"

    @property
    def wrote(self) -> bool:
        return self.kept.is_written

    @property
    def keeps(self) -> bool:
        return True

    def change(self, relation: RelationStore, changes: Sequence[Change], readers: Sequence[Registered]) -> None:
        log = self.kept.changes(relation, changes)
        if log is not None:
            self._taken(relation.definition.name, Frame(log.last, "changes", log.place, len(changes)), readers)

    def _taken(self, name: str, frame: Frame, readers: Sequence[Registered]) -> None:
        self.span = tracing.current()
        self._touched |= self.parts.take(name, frame, readers)
        self.last_feed = frame.number  # last: where an interrupt comes before, the parts are given it again

    def work(self, queries: Sequence[Registered]) -> None:
        pass

    def declared(self, definition: StreamDef | RelationDef | ViewDef | FunctionDef) -> None:
        if isinstance(definition, StreamDef):
            check_stream(definition, self.root)
        self.kept.keeper.declared(definition)
        if isinstance(definition, StreamDef) and not self.opening:
            self._begin_inflow(definition)

    def dropped(self, name: str) -> None:
        self.kept.keeper.dropped(name)
        self._end_intake(name)
        self.inflows.pop(name, None)

    def _begin_inflow(self, definition: StreamDef, *, closed: bool = False) -> None:
        if definition.source is not None:
            inflow = self.inflows[definition.name] = Inflow(self, definition)
            if closed:
                inflow.end()
            else:
                self.cluster.start(inflow)

    def _end_intake(self, name: str) -> None:
        inflow = self.inflows.get(name)
        if inflow is not None:
            inflow.end()
            self.cluster.stop(inflow)

    def check_source(self, definition: StreamDef) -> None:
        pass

    def source_status(self, name: str) -> str:
        return self.inflows[name].status

    def splits_of(self, stream: str) -> list[Columns]:
        """By which columns of a stream queries split it that run in all slots; first those by which most do. Under the
        lock."""
        runners = sorted((r for part in self.parts for r in part.queries.values()), key=lambda r: r.number)
        found = Counter[Columns](
            keys[stream]
            for r in runners if r.slot is None
            if (keys := r.split.keys) and stream in keys and not r.split.anywhere
        )  # fmt: skip
        return [columns for columns, _ in found.most_common(_SPLITS)]

    def late_taken(self, source: StreamInput) -> None:
        self.kept.keeper.taken(source, "late")

    def apart_taken(self, source: StreamInput) -> None:
        self.kept.keeper.taken(source, "apart")

    # -- results --------------------------------------------------------------------------------------

    def recorded(self, rows: pa.Table, meta: Mapping[str, Any]) -> int:
        """Write down what a micro-batch gave: from here on it counts."""
        return self.kept.keeper.results(rows, meta)

    def safe(self, number: int) -> None:
        """Return when entries up to this number are as safe as was asked for. Without the lock."""
        self.kept.keeper.store.wait(min(number, self.kept.keeper.store.number))

    def received(self, news: Mapping[str, Mapping[str, Any]], rows: pa.Table, number: int) -> None:
        """Hand what a micro-batch gave to the queries."""
        queries = {q.runner.id: q for q in self.core.running() if isinstance(q.runner, SparkRunner)}
        given: dict[str, list[Content]] = {}
        counts: dict[str, int] = {}
        ids, numbers, files, crcs = (rows.column(n).to_pylist() for n in ("query", "rows", "file", "crc"))
        # Entries of early builds of 0.2.0 do not say sizes.
        sizes = rows.column("size").to_pylist() if "size" in rows.column_names else [None] * len(ids)
        payloads = rows.column("payload").combine_chunks()
        self._name(files, number)
        for i, (id, count, file, crc, size) in enumerate(zip(ids, numbers, files, crcs, sizes, strict=True)):
            if id in queries:
                inline = payloads[i].as_buffer()
                content = self.filed(file, crc, size) if file else Content(inline.size, crc, inline)
                given.setdefault(id, []).append(content)
                counts[id] = counts.get(id, 0) + count
        for id, query in queries.items():
            runner = query.runner
            assert isinstance(runner, SparkRunner)
            if id in given:
                self.core.deliver(query, Stored((tuple(given[id]),), counts[id]))
            said = news.get(id)
            if said is None:
                continue
            if "failures" in said:
                runner.failures, runner.last_failure = said["failures"]
            if "error" in said:
                self.core.fail(query, query.failure(raised(Failure(**said["error"]))))
            elif said.get("ended"):
                runner.ended = True
                self.core.end(query)

    def _name(self, files: Sequence[str], number: int) -> None:
        """An entry names files with results; none where the name is empty."""
        self._results |= {file.rpartition("/")[2]: number for file in files if file}

    def filed(self, file: str, crc: int, size: int | None = None) -> Content:
        """What a slot has written into a file, which is not read yet."""
        if size is None:
            with contextlib.suppress(OSError):
                size = self.files.size(file)
        return Content(size or 0, crc, file=file)

    def answers(self, file: str) -> pa.Buffer:
        """What a slot has written into a file. Without the lock."""
        try:
            return self.files.read(file)
        except OSError as error:
            if self.stopping and self._remove is not None:
                why = "the database is closed, and what it had in a temporary directory is gone"
                raise StateError(why, hint="read results before, or name a directory") from error
            lost = isinstance(error, FileNotFoundError)
            raise StorageError(
                f"{joined(self.root, file)}: results cannot be read: {error.strerror or error}",
                hint="restore the directory from a backup" if lost else "they stay there: try again",
            ) from error

    def delivered(self, runner: SparkRunner, upto: int, notes: Mapping[str, object] | None) -> None:
        """The reader of a query who is remembered has all results before a position."""
        self.kept.keeper.delivered(runner.number, upto, notes)

    def written(self) -> None:
        """Return when what was written is as safe as was asked for. Without the lock."""
        self.kept.after()

    def notes(self) -> dict[str, Any]:
        return self.kept.keeper.noted()

    def note(self, notes: Mapping[str, object]) -> None:
        self.kept.keeper.note(notes)

    # -- saving ---------------------------------------------------------------------------------------

    def save(self) -> None:
        """Save the state now. Without the lock."""
        self.kept.saver.save()

    def hand_over(self, shards: int) -> None:
        from penstock.hosts.handing import to_local

        with self.changed:
            for part in self.parts:
                for runner in part.queries.values():
                    runner.suspended = False  # the other engine begins where all is worked on
                part.wake()
        self.settle()
        for query in self.core.queries.values():
            query.results.copy()
        self.kept.saver.save(again=True)
        with self.kept.saver.still():
            to_local(self.kept.keeper.store, self.root)

    def taken(self) -> State:
        """What is to be known of parts after a restart; what operators remember, slots have stored. Under the lock."""
        number = self.kept.keeper.store.number
        waiting = [part.pending.first for part in self.parts if part.pending]
        versions: dict[str, int] = {str(part.id): part.version for part in self.parts}
        for id, version in self.parts.origins():
            versions[str(id)] = min(version, versions.get(str(id), version))
        queries = [r.id for part in self.parts for r in part.queries.values()]
        needs = {
            "entry": min([*waiting, number + 1]) - 1, "versions": versions, "queries": queries,
            "answers": sorted(self._unread()),
        }  # fmt: skip
        self._needs[number] = needs
        return {PARTS: Saved({**self.parts.facts(), "slots": self.slots, "needs": needs})}

    def _unread(self) -> set[str]:
        """Files with results that a reader has not confirmed."""
        results = [*(query.results for query in self.core.queries.values()), *self._left]
        found = (record for some in results for record in some.files())
        return {file for _, batches in found for batch in batches for file, *_ in batch}

    def needed(self) -> int | None:
        kept = {version[0] for version in self.kept.keeper.store.states.versions}
        self._needs = {number: needs for number, needs in self._needs.items() if number in kept}
        self._sweep()
        return min((needs["entry"] for needs in self._needs.values()), default=0)

    def oldest_of(self, part: int) -> int:
        """The oldest micro-batch of a part whose state may be needed still."""
        found = [needs["versions"].get(str(part), 0) for needs in self._needs.values()]
        now = self.parts.get(part)
        found += [version for id, version in self.parts.origins() if id == part]
        return min([*found, 0 if now is None else now.version]) if len(self._needs) > 1 else 0

    def _sweep(self) -> None:
        """Remove files that neither the parts as they are nor a saved state that is kept need."""
        known = {int(id) for needs in self._needs.values() for id in needs["versions"]}
        known |= {part.id for part in self.parts} | {id for id, _ in self.parts.origins()}
        for name in self.files.folders(SHARDS):
            match = PART.fullmatch(name)
            if match and int(match[1]) not in known:
                with contextlib.suppress(OSError):
                    self.files.remove_folder(f"{SHARDS}/{name}")
        if self.kept.keeper.store.pressed:  # tasks remove it now and then, but not while rows are refused
            forget_states(self)
        queries = {id for needs in self._needs.values() for id in needs["queries"]}
        queries |= {id for part in self.parts for id in (*part.queries, *part.listed)}
        for id in {name.partition(".")[0] for name in self.files.names(QUERIES)} - queries:
            with contextlib.suppress(OSError):
                forget_definition(self.files, id)
        programs = {f"{part.program}.json" for part in self.parts}
        oldest = min(self._needs, default=0)
        self._results = {file: number for file, number in self._results.items() if number > oldest}
        named = self._unread().union(*(needs.get("answers", ()) for needs in self._needs.values()))
        answers = [n for n in self.files.names(ANSWERS) if not self._is_used(n) and f"{ANSWERS}/{n}" not in named]
        for path in (
            *(f"{PROGRAMS}/{name}" for name in self.files.names(PROGRAMS) if name not in programs),
            *(f"{ANSWERS}/{name}" for name in answers),
        ):
            with contextlib.suppress(OSError):
                self.files.remove(path)

    def _is_used(self, name: str) -> bool:
        """Whether a file has results of an entry that is not in all saved states, or of a micro-batch under way."""
        match = _FILE.fullmatch(name)
        part = None if match is None else self.parts.get(int(match[1]))
        return name in self._results or (match is not None and part is not None and int(match[2]) > part.version)

    # -- how it is run --------------------------------------------------------------------------------

    def divided(self, record: Mapping[str, Any]) -> None:
        """Write down how queries are divided from now on."""
        self.kept.keeper.divided(dict(record))

    def configure(self, settings: Mapping[str, Any]) -> None:
        self.parts.ask(settings)

    def configured(self) -> None:
        self.parts.configure()

    def after(self) -> None:
        self.kept.after()
        while self._touched:
            try:
                self._touched.pop().wake()
            except KeyError:  # another thread has
                break
        if self.options.trigger == "push":
            try:
                self.settle()
            except PenstockError as error:
                told = f"{error.hint}; " if error.hint else ""
                raise type(error)(error.message, hint=f"{told}what was given has been taken") from error

    def settle(self, query: Registered | None = None, look: Look | None = None) -> None:
        with self.changed:
            upto = self.kept.keeper.store.number
        failed: dict[Part, int] = {}
        while True:
            if look is not None:
                look()
            if query is not None and isinstance(runner := query.runner, SparkRunner):
                runner.prepare(query.results.unconfirmed())
            with self.changed:
                if self.stopping:
                    return
                problem = self.parts.begin()
                if problem is not None:
                    raise problem
                parts = [p for p in self._parts_of(query) if p.has_work(upto)]
                if not parts:
                    return
                for part in parts:
                    attempts = part.failed - failed.setdefault(part, part.failed)
                    if attempts > _FORGIVEN and part.problem is not None:
                        raise part.problem
                    part.wake(hurry=True)
                self.changed.wait(None if look is None else LOOK_SECONDS)

    def _parts_of(self, query: Registered | None) -> list[Part]:
        if query is None:
            return list(self.parts)
        part = query.runner.part if isinstance(query.runner, SparkRunner) else None
        return [] if part is None else [part]

    def touch(self, part: Part) -> None:
        """A part has something to do: it is told when the lock is given back."""
        self._touched.add(part)

    def counts(self, metrics: Metrics) -> None:
        """A micro-batch has been made."""
        self._metrics.append(metrics)
        self.kept.keeper.store.grew(metrics.written)

    def ended_process(self, part: Part, problem: PenstockError, *, lives: bool) -> None:
        """A micro-batch of a part has ended the process in which it was made. ``lives``: Spark did tasks since that do
        nothing, so it is not Spark that loses processes. Without the lock.

        After ``_DEATHS`` in a row the part is divided, and they are counted anew. A query that is alone in its part,
        from which it takes more than that, fails after ``_VERDICT`` in a row.
        """
        with self.changed:
            part.deaths = part.deaths + 1 if lives else 0
            if part.gives_up or part.deaths < _DEATHS or self.parts.divide(part) or part.deaths < _VERDICT:
                return
            why = Failure("QueryFailed", problem.message, "the others go on; stop it, mend it, and register it again")
            for id in list(part.queries):
                self.divided({"failed": [id, asdict(why)]})
                self._fail(id, why)
            self.changed.notify_all()

    def _fail(self, id: str, why: Failure) -> None:
        for query in list(self.core.running()):
            if isinstance(query.runner, SparkRunner) and query.runner.id == id:
                self.core.fail(query, query.failure(raised(why)))

    # -- words ----------------------------------------------------------------------------------------

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

    def part_views(self) -> tuple[PartView, ...]:
        return self.parts.shown()

    def suspend(self, operator: int) -> None:
        raise EngineError("engine `spark` runs the operators of a query together", hint="SUSPEND QUERY suspends them")

    def resume(self, operator: int) -> None:
        self.suspend(operator)

    @property
    def socket(self) -> str:
        """Where readers of streaming queries ask."""
        with self.changed:
            if self._talk is None:
                self._talk = Talk(self.parts.get)
            return self._talk.path

    def close(self) -> None:
        with self.changed:
            self.stopping = True
            self.changed.notify_all()
        for part in self.parts:
            part.wake(hurry=True)
        for inflow in self.inflows.values():
            inflow.end()
        self.parts.gate.wake()
        self.cluster.close()
        if self._talk is not None:
            self._talk.close()
        try:
            self.kept.close()
        finally:
            shutil.rmtree(self.checkpoints, ignore_errors=True)
            if self._remove is not None:
                self._remove()


def _frames(log: Log, kind: str, after: int) -> list[Frame]:
    """The entries of a log that parts read."""
    found: list[Frame] = []
    for number, place, meta, rows in log.places(after):
        if kind == "relations":
            found.append(Frame(number, "changes", place, rows))
        elif "p" in meta:  # others say what users have taken
            turn = meta.get("turn", rows - meta.get("late", 0))
            progress = instant_again(meta["p"])
            spans = spans_again(meta)
            if spans:
                turn = sum(span.file.rows for span in spans)
            files = held_again(meta)
            urgent = sum(span.file.prioritised for span in files) if files else meta.get("u", 0)
            found.append(Frame(
                number, "rows", place, turn, meta.get("h", 0), progress, meta.get("closed", False), spans, urgent,
                files, meta.get("w", 0), division_of(meta),
            ))  # fmt: skip
    return found
