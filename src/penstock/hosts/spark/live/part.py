"""A part of a database's queries: its frames, its micro-batches, its thread.

    logs ──▶ frames of its streams ──▶ micro-batch ──▶ the journal ──▶ answers
             (from its own position)    (in its pool)

Parts share the logs and the journal and nothing else, so none waits for another. What is here is touched under the
database's lock, except while a micro-batch runs, which one thread at a time does.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.hosts.registered import Registered
from penstock.hosts.spark.described import described
from penstock.hosts.spark.live.backlog import NOBODY, Admitted, Backlog
from penstock.hosts.spark.live.frames import Frame, Kind
from penstock.hosts.spark.live.load import Load
from penstock.hosts.spark.live.plan import Assigned, Outcome, Plan, Report, raised
from penstock.hosts.spark.live.runner import SparkRunner, StoredAnswers
from penstock.model.errors import CheckpointError, EngineError, PenstockError

if TYPE_CHECKING:
    from penstock.hosts.spark.live.host import SparkHost

_log = logging.getLogger("penstock")

BATCH_ROWS = 1_000_000
_ATTEMPTS = 3
"""How often a micro-batch is tried when Spark, not a query, fails."""
_FORGET_STATE = 8
"""Micro-batches after which state that nobody needs is removed."""
_AGAIN = 0.2
"""Seconds before a micro-batch that could not be stored is made again."""


@dataclass(frozen=True)
class Metrics:
    """What a micro-batch took: rows whose turn it was and, ``early``, that overtook; seconds in all, in Spark, and in
    the slowest slot's state and operators. ``apart``: rows of all streams that had not fitted until then."""

    number: int
    part: int
    frames: int
    rows: int
    early: int
    answers: int
    seconds: float
    spark: float
    opening: float
    working: float
    storing: float
    written: int
    apart: int


class Part:
    """Queries that are worked on together.

    Bounded by: frames that no micro-batch has taken (their places, not their rows). Its thread ends when the part has
    no query any more, or with ``SparkHost.close``; with ``trigger="push"`` there is none.
    """

    def __init__(self, host: SparkHost, id: int) -> None:
        self._host = host
        self.id = id
        self.group = f"penstock {host.root} part {id} of {host.journal.model.epoch}"
        self.queries: dict[str, SparkRunner] = {}
        self.pending = Backlog()
        """Frames of streams and relations that no micro-batch has taken."""
        self.load = Load(time.monotonic())
        self.busy = False
        """A micro-batch is under way."""
        self.over = False
        self.failed = 0
        """Micro-batches that came to nothing, and what went wrong in the last of them."""
        self.problem: PenstockError | None = None
        self._running = False
        self._batches = 0
        self._in_order = 0
        """Up to this frame nothing overtakes: a query failed on rows that had."""
        self._wake = threading.Event()
        self._hurry = threading.Event()
        self.thread: threading.Thread | None = None
        self._titled: tuple[str, ...] = ()
        self._title = ""
        """What Spark's UI says of a micro-batch: the queries of these ids that it is for."""

    @property
    def priority(self) -> int:
        """That of its most urgent query."""
        return max((runner.priority for runner in self.queries.values()), default=0)

    @property
    def pause(self) -> float:
        """Seconds in which rows are collected: what the database says, or less where a query is to answer sooner."""
        trigger = self._host.options.trigger
        latencies = [r.latency / 1e6 for r in self.queries.copy().values() if r.latency is not None]
        return min([trigger if isinstance(trigger, int | float) else 0.0, *latencies])

    def start(self) -> None:
        """Begin to work on its own."""
        self.thread = threading.Thread(target=self._keep_working, name=f"penstock-part-{self.id}", daemon=True)
        self.thread.start()

    def wake(self, *, hurry: bool = False) -> None:
        """There is something to do; in a hurry: without waiting for more."""
        if hurry:
            self._hurry.set()
        self._wake.set()

    def end(self) -> None:
        """No micro-batch begins any more, and one that runs for nobody is given up."""
        self.over = True
        self.wake(hurry=True)
        self._host.parts.gate.wake()
        self.cancel()

    def cancel(self) -> bool:
        """Give up what Spark is doing for this part; False if it does nothing."""
        if self._running:
            self._host.cluster.cancel(self.group)
        return self._running

    @property
    def _gives_up(self) -> bool:
        return self.over or self._host.stopping

    def has_work(self, upto: float = math.inf) -> bool:
        """Are there frames up to a number, or queries that have not begun?"""
        if self.pending and self.pending.first <= upto:
            return True
        started = self._host.journal.model.started
        return any(id not in started for id in self.queries)

    def _keep_working(self) -> None:
        """The thread: a micro-batch whenever there is something to do."""
        host = self._host
        host.cluster.own_thread()
        while True:
            self._wake.wait()
            self._wake.clear()
            if self.pause > 0 and not self._gives_up:
                self._hurry.wait(self.pause)
            self._hurry.clear()
            while self._goes_on():
                try:
                    self.make_batch()
                except PenstockError as error:
                    _log.error("%s", error)
                    host.stop.wait(_AGAIN)
            if self._gives_up:
                return

    def _goes_on(self) -> bool:
        with self._host.changed:
            return not self._gives_up and self._host.broken is None and self.has_work()

    def make_batch(self, upto: float = math.inf) -> None:
        """One micro-batch: take frames, let Spark run the slots, make it count, deliver its answers.

        Does nothing if there is nothing to do any more. The database's lock must not be held.
        """
        host = self._host
        with host.changed:
            while (self.busy or self.id in host.parts.held) and not self._gives_up:
                host.changed.wait()
            if self._gives_up or not self.has_work(upto):
                return
            self.busy = True
        try:
            self._done(upto)
        except Exception as error:
            if self._gives_up:
                return
            if isinstance(error, PenstockError):
                problem = error
            else:
                problem = EngineError(f"a micro-batch failed: {type(error).__name__}: {error}")
                host.give_up(problem)
            self.failed, self.problem = self.failed + 1, problem
            raise problem from error.__cause__
        finally:
            with host.changed:
                self.busy = False
                host.changed.notify_all()
                host.parts.after_batch(self)

    def _done(self, upto: float) -> None:
        host = self._host
        with host.parts.gate.entered(self.priority, lambda: self._gives_up) as is_in:
            if not is_in:
                return
            limit: int | None = None
            while True:
                with host.changed:
                    if self._gives_up:
                        return
                    plan, last, admitted = self._planned(upto, limit)
                began = time.perf_counter()
                plan, reports = self._run(plan)
                is_first = any(q.id not in host.journal.model.started for q in plan.queries)
                failed = any(o.error for r in reports for o in r.outcomes.values())
                if failed and plan.early:
                    self._in_order = admitted.ahead
                    continue
                if not failed or not (plan.count > 1 or (plan.count == 1 and is_first)):
                    break
                # What comes before the rows that make a query fail is answered first, as if it had come alone.
                limit = plan.count // 2
            with host.changed:
                self._commit(plan, last, admitted, reports, time.perf_counter() - began)

    def _planned(self, upto: float, limit: int | None) -> tuple[Plan, int, Admitted]:
        host, model = self._host, self._host.journal.model
        rows, taken = 0, 0
        frames: dict[str, list[Frame]] = {}
        most = host.options.batch_rows or BATCH_ROWS
        known = model.parts[self.id]
        last = known.upto
        closes = False
        for name, frame in self.pending:
            if frame.number > upto or (limit is not None and taken >= limit) or (taken and rows + frame.rows > most):
                break
            if closes and frame.kind is Kind.CHANGES:
                break  # it comes after all answers of whoever reads nothing but streams that this closes
            closes = closes or frame.marks.closed
            frames.setdefault(name, []).append(frame)
            rows, taken, last = rows + frame.rows, taken + 1, frame.number
        of_model = {id: model.queries[id] for id in self.queries}
        if self._titled != tuple(of_model):
            self._titled = tuple(of_model)
            self._title = described({q.start["name"]: q.start["text"] for q in of_model.values()})
        queries = tuple(Assigned(id, q.start["slot"], q.first, q.origin, q.ahead) for id, q in of_model.items())
        admitted = NOBODY
        if limit is None and last >= self._in_order and host.parts.settings.overtakes:
            had: dict[str, int] = {}
            for id, query in of_model.items():
                for name in self.queries[id].reads:
                    had[name] = min(query.ahead, had.get(name, query.ahead))
            admitted = self.pending.admitted(last, had, most)
        forget = None
        if known.batch is not None and self._batches % _FORGET_STATE == 0:
            forget = min([known.batch, *host.parts.needed_of(self.id)])
        plan = Plan(
            str(host.root), host.next_batch(), known.batch, host.slots, queries, frames, self.id, forget,
            admitted.frames,
        )  # fmt: skip
        return plan, last, admitted

    def _run(self, plan: Plan) -> tuple[Plan, list[Report]]:
        """Let Spark do it, with another number each time; gives the plan that was done."""
        host = self._host
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._running = True
                return plan, host.cluster.run(plan, self.priority, self.group, self._title)
            except PenstockError as error:
                if self._gives_up:
                    raise
                if attempt == _ATTEMPTS or isinstance(error, CheckpointError):
                    host.give_up(error)
                    raise
                _log.warning("micro-batch %d is tried again: %s", plan.number, error.one_line)
                with host.changed:
                    plan = replace(plan, number=host.next_batch())
            except KeyboardInterrupt:
                host.cluster.cancel(self.group)
                raise
            finally:
                self._running = False
        raise AssertionError("unreachable")

    def _commit(self, plan: Plan, last: int, admitted: Admitted, reports: Sequence[Report], seconds: float) -> None:
        """Make the micro-batch count, and hand its answers to the queries."""
        host = self._host
        if not self.queries:
            return  # all have been stopped meanwhile
        ids = [q.id for q in plan.queries]
        outcomes = {id: [(r.slot, r.outcomes[id]) for r in reports if id in r.outcomes] for id in ids}
        record: dict[str, Any] = {
            "kind": "batch", "part": self.id, "number": plan.number, "upto": last,
            "queries": {id: _recorded([o for _, o in some]) for id, some in outcomes.items() if id in self.queries},
        }  # fmt: skip
        if plan.early:
            record["ahead"] = admitted.ahead
        host.journal.add(record)
        self.pending.taken(last, admitted.ahead)
        by_id = {q.runner.id: q for q in host.core.queries.values() if isinstance(q.runner, SparkRunner)}
        answers = 0
        for id, some in outcomes.items():
            query, runner = by_id.get(id), self.queries.get(id)
            if query is None or runner is None:
                continue
            answers += sum(o.rows for _, o in some)
            self._received(query, runner, plan.number, some)
        slowest = max(reports, key=lambda r: r.opening + r.working + r.storing)
        spent = slowest.opening + slowest.working + slowest.storing
        self._batches += 1
        self.load.worked(plan.rows, {id: max(o.seconds for _, o in some) for id, some in outcomes.items() if some})
        host.counts(Metrics(
            plan.number & 0xFFFFFFFF, self.id, plan.count, slowest.rows, admitted.rows, answers, seconds,
            seconds - spent, slowest.opening, slowest.working, slowest.storing, sum(r.written for r in reports),
            sum(source.apart.count for source in host.core.inputs.values()),
        ))  # fmt: skip
        host.changed.notify_all()

    def _received(
        self, query: Registered, runner: SparkRunner, number: int, outcomes: Sequence[tuple[int, Outcome]]
    ) -> None:
        runner.failures = sum(o.failures for _, o in outcomes)
        runner.last_failure = next((o.last_failure for _, o in outcomes if o.last_failure), None)
        error = next((o.error for _, o in outcomes if o.error), None)
        if error is not None:
            self._host.core.fail(query, query.failure(raised(error)))
            return
        runner.reported = {slot: o.sizes for slot, o in outcomes}
        files = tuple(self._host.folder(runner.id) / o.file for _, o in outcomes if o.file)
        if files:
            self._host.core.deliver(query, StoredAnswers(((number, files),), sum(o.rows for _, o in outcomes)))
        runner.ended = bool(outcomes) and all(o.ended for _, o in outcomes)
        if runner.ended:
            self._host.core.end(query)


def _recorded(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """What the journal says of a query in a micro-batch."""
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
