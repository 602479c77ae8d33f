"""A part of a database's queries: what each of its micro-batches consists of, and what became of it.

    logs ──▶ entries of its streams ──▶ offset, tasks ──▶ Spark ──▶ reports ──▶ the log of results
             (from its own position)

An offset says up to which entry a micro-batch goes, and up to which prioritised rows are taken ahead of their turn:

    {"batch": 7, "upto": 4711, "ahead": 0, "attempt": 0}

What a micro-batch consists of follows from that and from what the last one recorded. It counts when the log of results
has it; until then nothing of it is seen, and it may be made again, by Spark or after a restart. Spark may take one for
done that does not count, so each that is planned has an attempt of its own: what is equal to its last offset is nothing
new to Spark, which would ask again and again.

Parts share the logs and nothing else, so none waits for another. What is here is touched under the database's lock.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.hosts.spark.parts.backlog import NOBODY, TOLD, Admitted, Backlog
from penstock.hosts.spark.parts.definitions import write_program
from penstock.hosts.spark.parts.leftover import discard
from penstock.hosts.spark.parts.load import Load
from penstock.hosts.spark.parts.runner import SparkRunner, bases_json
from penstock.hosts.spark.parts.talk import Offset
from penstock.hosts.spark.parts.task import Base, Failure, Frame, Moved, Outcome, Report, Task, Trouble, raised
from penstock.hosts.spark.parts.working import told
from penstock.model import tracing
from penstock.model.errors import PenstockError, StorageError
from penstock.storage.shards import RESULTS

if TYPE_CHECKING:
    from penstock.hosts.spark.parts.host import SparkHost

_log = logging.getLogger("penstock")

BATCH_ROWS = 2_000_000
LONG = 10_000
"""A micro-batch of more rows than this takes long enough for the prioritised ones among them to go first, alone."""
_PATIENCE = 1.0
"""Seconds for which a reader waits for entries at most: then Spark sees whether it is to stop."""
_FIRST, _LONGEST = 0.2, 30.0
"""Seconds before an attempt that failed is made again, the first time and at most."""
_FEW = 4
"""Prioritised rows go alone if they are no more than one of this many."""
_FORGET_EVERY = 8
"""Micro-batches after which state that nobody needs is removed."""


@dataclass(frozen=True)
class Metrics:
    """What a micro-batch took: rows whose turn it was and, ``early``, that overtook; seconds in all, in Spark, and of
    the slowest slot as ``Spent`` has them. ``apart``: rows of all streams that had not fitted until then.
    ``caught_up``, ``loaded``: slots whose process had an earlier state of theirs, or none."""

    number: int
    part: int
    frames: int
    rows: int
    early: int
    answers: int
    seconds: float
    spark: float
    opening: float
    reading: float
    splitting: float
    working: float
    answering: float
    storing: float
    written: int
    apart: int
    caught_up: int
    loaded: int


@dataclass(frozen=True)
class Planned:
    """A micro-batch that is to be made, or made again. ``last``: the last entry that it takes. ``known``: queries with
    greater numbers are not in it. ``failed``: queries that end in it, and why."""

    offset: Offset
    last: int
    known: int
    admitted: Admitted
    tasks: tuple[Task, ...]
    began: float
    failed: Mapping[str, Failure] = field(default_factory=dict)

    @property
    def first(self) -> Task:
        return self.tasks[0]

    @property
    def alone(self) -> bool:
        """Whether it takes nothing but prioritised rows before their turn."""
        return bool(self.admitted.frames) and not self.first.frames


class Part:
    """Queries that are worked on together.

    Bounded by: entries that no micro-batch has taken (their places, not their rows).
    """

    def __init__(self, host: SparkHost, id: int, upto: int) -> None:
        self._host = host
        self.id = id
        self.queries: dict[str, SparkRunner] = {}
        self.version = 0
        """How many micro-batches count."""
        self.upto = upto
        """The last entry that all queries have had, but those which have come from elsewhere."""
        self.ahead = 0
        """They have had the prioritised rows of entries up to this number."""
        self.bases: dict[int, Base] = {}
        """The state that each slot left."""
        self.pending = Backlog()
        """Entries of streams and relations that no micro-batch has taken."""
        self.load = Load(time.monotonic())
        self.last: Metrics | None = None
        """What the last micro-batch took, since the database was opened."""
        self.pool: int | None = None
        """The priority for which its streaming query runs, once it does: Spark fixes the pool when it starts."""
        self.busy = False
        """A micro-batch is under way."""
        self.over = False
        self.attempt = 0
        """That of the last micro-batch that was planned: no other one has it while the database is open."""
        self._heard = 0
        """Readers that ask with earlier attempts are those of streaming queries that have ended."""
        self.failed = 0
        """Attempts that came to nothing, and what went wrong in the last of them."""
        self.problem: PenstockError | None = None
        self.deaths = 0
        """Attempts in a row that ended the process in which they were made, where Spark went on with other tasks."""
        self.retry = threading.Event()
        """An attempt that failed is to be made again now."""
        self._not_before = 0.0
        self._pause = _FIRST
        """When it is made again otherwise, and in how many seconds after the next failure."""
        self._planned: Planned | None = None
        self._is_in = False
        """It has passed the gate."""
        self._alarmed = False
        """The last micro-batch took prioritised rows alone: the next one takes what is there, so nothing starves."""
        self._in_order = 0
        """Up to this entry nothing overtakes: a query failed on rows that had."""
        self._wake = threading.Event()
        self._hurry = False
        self._since = math.inf
        """When there was something to do first."""
        self._program: tuple[dict[str, int | None], str] = ({}, "")
        self._programs = 0

    @property
    def label(self) -> str:
        """What it is called in messages."""
        return f"part {self.id}"

    @property
    def thread(self) -> str:
        """The name of the thread that runs it."""
        return f"penstock-part-{self.id}"

    @property
    def priority(self) -> int:
        """That of its most urgent query."""
        return max((runner.priority for runner in list(self.queries.values())), default=0)

    @property
    def pause(self) -> float:
        """Seconds in which rows are collected: what the database says, or less where a query is to answer sooner."""
        trigger = self._host.options.trigger
        latencies = [r.latency / 1e6 for r in list(self.queries.values()) if r.latency is not None]
        return min([trigger if isinstance(trigger, int | float) else 0.0, *latencies])

    @property
    def offset(self) -> Offset:
        """Up to where it is."""
        return {"batch": self.version, "upto": self.upto, "ahead": self.ahead, "attempt": self.attempt}

    @property
    def begin(self) -> str:
        """The same as Spark's text of it."""
        return json.dumps(self.offset)

    @property
    def program(self) -> str:
        """The name of the file that lists its queries."""
        return self._program[1]

    @property
    def listed(self) -> Collection[str]:
        """The queries in that file: a micro-batch under way may have them, also those that are over."""
        return self._program[0]

    @property
    def gives_up(self) -> bool:
        """No micro-batch begins any more."""
        return self.over or self._host.stopping

    def wake(self, *, hurry: bool = False) -> None:
        """There is something to do; in a hurry: without waiting for more."""
        if hurry:
            self._hurry = True
            self.retry.set()
        self._wake.set()

    def end(self) -> None:
        """No micro-batch begins any more, and one that runs for nobody is given up. Under the lock."""
        self.over = True
        self._done()
        self.wake(hurry=True)
        self._host.parts.gate.wake()
        self._host.cluster.stop(self)

    @property
    def rests(self) -> bool:
        """Whether all its queries are suspended: entries wait."""
        return bool(self.queries) and all(runner.suspended for runner in list(self.queries.values()))

    def is_needed(self) -> bool:
        """Whether it needs a streaming query: while all its queries are suspended this waits; False: it ends. Without
        the lock."""
        while True:
            self._wake.clear()
            with self._host.changed:
                if self.gives_up or not self.rests:
                    return not self.gives_up
            self._wake.wait()

    def has_work(self, upto: float = math.inf) -> bool:
        """Are there entries up to a number, or queries that have not begun? Not for a part that rests."""
        if self.rests:
            return False
        if self.pending and self.pending.first <= upto:
            return True
        return any(not r.started and r.number <= upto for r in self.queries.values())

    def start_of(self, runner: SparkRunner) -> int:
        """The first entry that a query has not had."""
        return self.upto + 1 if runner.moved is None else runner.moved.start

    # -- what Spark asks ------------------------------------------------------------------------------

    def next_offset(self, start: Offset) -> Offset:
        """Up to where the next micro-batch goes; ``start`` if there is none within a second. Without the lock."""
        until = time.monotonic() + _PATIENCE
        while not self._is_deaf_to(start):
            with self._host.changed:
                if start["batch"] < self.version:
                    return self.offset  # Spark did not hear that it counts
                self._wake.clear()
                due = self._due()
            if due <= 0:
                found = self._entered(start)
                if found is not None:
                    return found
                continue
            left = min(due, until - time.monotonic())
            if left <= 0:
                break
            self._wake.wait(left)
        return start

    def _due(self) -> float:
        """In how many seconds a micro-batch is to begin."""
        if not self.has_work() or self.id in self._host.parts.held:
            self._since = math.inf
            return math.inf
        now = time.monotonic()
        self._since = min(self._since, now)
        return 0.0 if self._hurry else max(self._since + self.pause, self._not_before) - now

    def _is_deaf_to(self, asked: Offset) -> bool:
        """Whether who asks with an offset is told of no micro-batch: its streaming query has ended, or the part has."""
        return self.gives_up or asked["attempt"] < self._heard

    def _entered(self, start: Offset) -> Offset | None:
        """Begin a micro-batch, when it is this part's turn; None if there is nothing to do any more."""
        host = self._host
        while True:
            enters = not self._is_in
            if enters and not host.parts.gate.enter(self.priority, lambda: self._is_deaf_to(start)):
                return None
            with host.changed:
                if enters or self._is_in:  # otherwise it was interrupted meanwhile, and has left
                    return self._begun(start, enters)

    def _begun(self, start: Offset, enters: bool) -> Offset | None:
        """Plan a micro-batch, since it is this part's turn. Under the lock."""
        host = self._host
        if self._is_deaf_to(start):
            if enters:
                host.parts.gate.leave()
            return None
        self._is_in = True
        if not self.has_work() or self.id in host.parts.held:
            self._leave()
            return None
        self._hurry, self._since = False, math.inf
        try:
            self._planned = self._plan()
        except PenstockError as error:
            self.attempt_failed(error)
            return None
        self.busy = True
        return self._planned.offset

    def contents(self, end: Offset) -> Sequence[bytes]:
        """The tasks of a micro-batch. Without the lock."""
        host = self._host
        with host.changed:
            # Who holds this part waits for what it has begun.
            while self.id in host.parts.held and not self.busy and not self._is_deaf_to(end):
                host.changed.wait()
            if self._is_deaf_to(end) or end["batch"] <= self.version:
                return []
            if self._planned is None or self._planned.offset != end:
                try:
                    self._planned = self._plan(end)  # Spark makes it again
                except PenstockError as error:
                    self.attempt_failed(error)
                    return []  # it does not count
            self.busy = True
            return [told(task) for task in self._planned.tasks]

    # -- what it consists of --------------------------------------------------------------------------

    def _plan(self, end: Offset | None = None) -> Planned:
        """The next micro-batch, or the one that goes up to there. Under the lock."""
        host = self._host
        most = host.options.batch_rows or BATCH_ROWS
        upto: float = math.inf if end is None else end["upto"]
        rows = taken = 0
        near = TOLD
        frames: dict[str, list[Frame]] = {}
        closes = False
        # All that has come so far, also of what nobody here reads, unless something is left for the next one.
        everything = last = max(host.last_feed, self.upto)
        for name, frame in self.pending:
            if frame.number > upto or (end is None and taken and rows + frame.rows > most):
                break
            if closes and frame.kind == "changes":
                break  # it comes after all answers of whoever reads nothing but streams that this closes
            closes = closes or frame.closed
            frame = frame.within(near)
            near -= len(frame.place.content)
            frames.setdefault(name, []).append(frame)
            rows, taken, last = rows + frame.rows, taken + 1, frame.number
        else:
            last = everything
        if end is not None:
            last = end["upto"]
        known = max((r.number for r in self.queries.values()), default=0)
        admitted = NOBODY
        if host.parts.settings.overtakes:
            had = self._had()
            if end is None and rows > LONG and not self._alarmed and self.upto >= self._in_order:
                admitted = self.pending.admitted(self.upto, had, most)
            if 0 < admitted.rows <= rows // _FEW:
                frames, last = {}, self.upto
            elif last < self._in_order:
                admitted = NOBODY
            elif end is None:
                admitted = self.pending.admitted(last, had, most)
            else:
                admitted = self.pending.admitted(last, had, math.inf, end["ahead"])
            if last >= self._in_order:
                admitted = admitted.waiting(frames, had)
        version = self.version + 1
        if end is None:
            self.attempt += 1
        ahead = max(self.ahead, admitted.ahead)
        offset = end or {"batch": version, "upto": last, "ahead": ahead, "attempt": self.attempt}
        forget = host.oldest_of(self.id) if version % _FORGET_EVERY == 0 else None
        moved = {
            id: Moved(r.moved.start, r.moved.origin, r.moved.ahead)
            for id, r in self.queries.items() if r.moved is not None
        }  # fmt: skip
        tasks = tuple(
            Task(
                str(host.root), self.id, slot, host.slots, version, self.bases.get(slot), self._written_program(),
                frames, admitted.frames, self.upto + 1, self.ahead, moved, forget, session=host.session,
            )
            for slot in range(host.slots)
        )  # fmt: skip
        return Planned(offset, last, known, admitted, tasks, time.perf_counter())

    def _had(self) -> dict[str, int]:
        """Of each stream the number of the entry up to which all its readers have had the prioritised rows."""
        had: dict[str, int] = {}
        for runner in self.queries.values():
            ahead = max(self.ahead, self.upto) if runner.moved is None else runner.moved.ahead
            for name in runner.reads:
                had[name] = min(ahead, had.get(name, ahead))
        return had

    def _written_program(self) -> str:
        queries = {id: runner.slot for id, runner in self.queries.items()}
        if queries != self._program[0]:
            self._programs += 1
            name = f"{self.id}-{self._host.epoch}-{self._programs}-{self._host.session}"
            try:
                write_program(self._host.files, name, queries)
            except OSError as error:
                raise StorageError(f"{self._host.root}: cannot be written: {error.strerror or error}") from error
            self._program = queries, name
        return self._program[1]

    # -- what became of it ----------------------------------------------------------------------------

    def record(self, reports: Sequence[Report | Trouble]) -> bool:
        """Let a micro-batch count, if nothing is wrong with it; False: the tasks of ``again`` are to be done instead.
        Without the lock."""
        planned = self._planned
        if planned is not None:
            # Nothing is answered from rows that a loss of power could take away.
            try:
                self._host.safe(max(planned.last, planned.admitted.ahead))
            except PenstockError:
                discard(self._host, self.id, reports)
                raise
        with self._host.changed:
            if self.gives_up or planned is None or planned is not self._planned:
                return True
            if not reports or reports[0].version != self.version + 1:
                return True
            for report in reports:
                if isinstance(report, Trouble):
                    discard(self._host, self.id, reports)
                    raise raised(report.failure)
            done = [report for report in reports if isinstance(report, Report)]
            other = self._mended(planned, done)
            if other is not None:
                self._planned = other
                return False
            self._commit(planned, done)
            return True

    def again(self) -> Sequence[bytes]:
        """The tasks of a micro-batch that is made in another way, because a query failed in it."""
        planned = self._planned
        return [] if planned is None else [told(task) for task in planned.tasks]

    def _mended(self, planned: Planned, reports: Sequence[Report]) -> Planned | None:
        """How to make a micro-batch in which queries fail, so that what came before the entry on which one fails is
        answered; None: as it was made."""
        failed: dict[str, list[Failure]] = {}
        for report in reports:
            for id, outcome in report.outcomes.items():
                if outcome.error is not None:
                    failed.setdefault(id, []).append(outcome.error)
        if not failed:
            return None
        task = planned.first
        if not task.careful:
            begins = any(not runner.started for runner in self.queries.values())
            if planned.admitted.frames or len(task.numbers) > 1 or (task.numbers and begins):
                self._in_order = max(self._in_order, planned.admitted.ahead)
                tasks = tuple(replace(t, careful=True, early={}) for t in planned.tasks)
                return replace(planned, tasks=tasks, admitted=NOBODY)
            return None
        verdicts = dict(task.verdicts)
        errors = dict(planned.failed)
        for id, some in failed.items():
            first = min(some, key=lambda f: f.entry)
            everywhere = sum(id in report.outcomes for report in reports)
            if first.entry and (len(some) < everywhere or any(f.entry != first.entry for f in some)):
                verdicts[id], errors[id] = first.entry, first
        if verdicts == dict(task.verdicts):
            return None
        tasks = tuple(replace(t, verdicts=verdicts) for t in planned.tasks)
        return replace(planned, tasks=tasks, failed=errors)

    def _commit(self, planned: Planned, reports: Sequence[Report]) -> None:
        """Write down what a micro-batch gave, and hand it to the queries."""
        host = self._host
        outcomes = {id: [(r.slot, r.outcomes[id]) for r in reports if id in r.outcomes] for id in self.queries}
        careful = planned.first.careful
        news: dict[str, dict[str, Any]] = {}
        rows: list[tuple[str, int, bytes, str, int, int]] = []
        for id, some in outcomes.items():
            said = _news([o for _, o in some], planned.failed.get(id), self.queries[id])
            if said:
                news[id] = said
            if "error" in said and not careful:
                continue  # it failed on the one entry that there was
            given = (o.given for _, o in some if o.given is not None)
            rows += ((id, g.rows, g.payload, g.file, g.crc, g.size) for g in given)
        table = pa.Table.from_arrays(
            [pa.array(column, f.type) for column, f in zip(zip(*rows, strict=True), RESULTS, strict=True)]
            if rows else [pa.array([], f.type) for f in RESULTS],
            schema=RESULTS,
        )  # fmt: skip
        meta: dict[str, Any] = {
            "part": self.id, "batch": self.version + 1, "upto": max(self.upto, planned.last),
            "last": planned.last, "ahead": max(self.ahead, planned.admitted.ahead), "known": planned.known,
            "bases": bases_json({r.slot: (r.version, r.attempt) for r in reports}),
        }  # fmt: skip
        if news:
            meta["queries"] = news
        try:
            number = host.recorded(table, meta)
        except PenstockError:
            if host.kept.keeper.store.is_settled:  # otherwise an opening may find that it counts
                discard(host, self.id, reports)
            raise
        self.problem, self.deaths, self._pause, self._not_before = None, 0, _FIRST, 0.0
        for id, some in outcomes.items():
            runner = self.queries.get(id)
            if runner is not None:
                runner.reported.update({slot: o.sizes for slot, o in some if o.sizes})
                runner.count([o.counts for _, o in some])
        seconds = {id: max(o.seconds for _, o in some) for id, some in outcomes.items() if some}
        self.load.worked(planned.first.rows, seconds)
        self._measure(planned, reports, sum(row[1] for row in rows))
        took, batch = time.perf_counter() - planned.began, planned.offset["batch"]
        with tracing.span("micro-batch", parent=host.span, seconds=took, part=self.id, batch=batch):
            self.applied(meta, table, number)
        delivered = host.core.stopwatch()
        for query in host.core.queries.values():
            some = outcomes.get(query.runner.id, []) if isinstance(query.runner, SparkRunner) else []
            for sample in [o.sample for _, o in some if o.sample is not None]:
                query.meter.note(delivered, None, sample)
        self._alarmed = planned.alone
        self._hurry = self._hurry or planned.alone
        self._done()
        host.changed.notify_all()
        host.parts.after_batch(self)

    def _measure(self, planned: Planned, reports: Sequence[Report], answers: int) -> None:
        slowest = max(reports, key=lambda r: r.spent.seconds)
        spent = slowest.spent
        seconds = time.perf_counter() - planned.began
        self.last = Metrics(
            planned.offset["batch"], self.id, len(planned.first.numbers), slowest.rows, planned.admitted.rows, answers,
            seconds, max(0.0, seconds - spent.seconds), spent.opening, spent.reading, spent.splitting, spent.working,
            spent.answering, spent.storing,
            sum(r.written for r in reports), sum(s.apart.count for s in self._host.core.inputs.values()),
            sum(r.missed == "caught up" for r in reports), sum(r.missed == "loaded" for r in reports),
        )  # fmt: skip
        self._host.counts(self.last)

    def applied(self, meta: Mapping[str, Any], rows: pa.Table, number: int) -> None:
        """Be as after a micro-batch that counts, and hand what it gave to the queries; also after a restart."""
        last, ahead = meta["last"], meta["ahead"]
        self.version, self.upto, self.ahead = meta["batch"], meta["upto"], ahead
        self.bases = {slot: (version, attempt) for slot, version, attempt in meta["bases"]}
        for runner in self.queries.values():
            if runner.number > meta["known"]:
                continue
            runner.started = True
            if runner.moved is not None:
                start = max(runner.moved.start, last + 1)
                is_with = start == self.upto + 1
                runner.moved = None if is_with else Moved(start, None, max(runner.moved.ahead, ahead))
        self.pending.taken(last, ahead)
        self._host.received(meta.get("queries", {}), rows, number)

    def attempt_failed(self, problem: PenstockError) -> None:
        """Spark could not make a micro-batch: it is made again. Without the lock."""
        with self._host.changed:
            self.failed, self.problem = self.failed + 1, problem
            self._not_before = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, _LONGEST)
            self.interrupted()

    def interrupted(self) -> None:
        """A micro-batch was stopped half-way: it is made again. Without the lock."""
        with self._host.changed:
            self.retry.clear()
            self._done()
            self._host.changed.notify_all()

    def cut_off(self) -> None:
        """Its streaming query has ended. What the reader of that still asks, or waits for, is no micro-batch any more:
        it would be made by nobody. Without the lock."""
        with self._host.changed:
            self.attempt += 1
            self._heard = self.attempt
            self._host.changed.notify_all()
        self.wake()
        self._host.parts.gate.wake()

    def _done(self) -> None:
        self._planned, self.busy = None, False
        self._hurry = self._hurry and self.has_work()  # rows that come later are not in a hurry
        self._leave()

    def _leave(self) -> None:
        if self._is_in:
            self._is_in = False
            self._host.parts.gate.leave()


def _news(outcomes: Sequence[Outcome], failed: Failure | None, runner: SparkRunner) -> dict[str, Any]:
    """What the log of results says of a query besides what it gave."""
    found: dict[str, Any] = {}
    errors = [o.error for o in outcomes if o.error is not None]
    error = failed or (min(errors, key=lambda f: f.entry) if errors else None)
    if error is not None:
        found["error"] = asdict(error)
    elif outcomes and all(o.ended for o in outcomes):
        found["ended"] = True
    failures = sum(o.failures for o in outcomes)
    if failures != runner.failures:
        found["failures"] = [failures, next((o.last_failure for o in outcomes if o.last_failure), None)]
    return found
