"""Streams that move on with the clock: those that are stamped on arrival, and those declared ``WITH (idle = …)``.

They move when a query waits for them, and never when none does. A timer looks at the clock then; a simulated clock says
itself that it has moved; who fetches looks too. Whoever does, the same streams move to the same place, by heartbeats
that are written down before anything is answered from them.
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from penstock.database.timer import Timer, Told
from penstock.database.waiting import Recent, Waiting
from penstock.hosts.host import Host
from penstock.hosts.registered import Registered
from penstock.ingest.instants import Instants
from penstock.ingest.relations import RelationStore
from penstock.ingest.streams import StreamInput
from penstock.model.batch import Batch
from penstock.model.errors import PenstockError
from penstock.model.waiting import Look, take


class Ticking(ABC):
    """The part of ``Core`` that asks the clock."""

    clock: Callable[[], int]
    closed: bool
    host: Host
    inputs: dict[str, StreamInput]
    relations: dict[str, RelationStore]
    instants: Instants
    lock: threading.RLock
    stopwatch: Callable[[], float]
    began: float | None
    _changer: int | None
    _stamped: tuple[str, ...]

    def __init__(self) -> None:
        self._idle: tuple[str, ...] = ()
        """The streams that are moved on when nothing comes; replaced as a whole, so it is read without the lock."""
        self._timer: Timer | None = None
        self._recent: dict[str, Recent] = {}
        """When rows came into streams from which they leave by time alone, where there is a timer."""
        self._lags: dict[str, float] = {}
        """How many ticks after a row of a stream something may wait for the clock; 0: at once."""
        self._alarm = math.inf
        """What the clock says at the next look, if nothing comes before."""

    @property
    @abstractmethod
    def is_inside(self) -> bool:
        """Whether a function that a query calls is what asks."""

    @abstractmethod
    def after(self, *, waits: bool = True) -> None:
        """Let the host work and subscribers be called, in this thread or in threads of their own."""

    @abstractmethod
    def running(self) -> list[Registered]:
        """The queries that go on."""

    @abstractmethod
    def _take(self, source: StreamInput, take: Callable[[StreamInput], Batch]) -> None:
        """Take rows or progress into a stream, and hand them to its readers."""

    @abstractmethod
    def now(self) -> int | None:
        """What the clock says, if a stream moves on with it."""

    @property
    def follows_clock(self) -> bool:
        """Whether a stream moves on with the clock."""
        return bool(self._stamped or self._idle)

    # -- who looks ------------------------------------------------------------------------------------

    def follow(self, *, is_wall: bool) -> None:
        """From now on streams move on with the clock by themselves. While the database was closed, nothing could come,
        so streams are idle from now on. Without the lock."""
        now = self.now()
        for name in self._idle:
            self.inputs[name].since = now
        if isinstance(self.clock, Told):
            self.clock.tells(self.moved)
        else:
            self._timer = Timer(self, is_wall=is_wall)
            self.poke(self.running())

    def poke(self, queries: Iterable[Registered]) -> None:
        """Queries have come, or relations that they read have changed: see whether they wait for the clock."""
        clocked = {*self._stamped, *self._idle}
        if self._timer is not None and not all(clocked.isdisjoint(query.inputs) for query in queries):
            self._timer.poke()

    def _came(self, source: StreamInput, batch: Batch) -> None:
        """A stream has moved on: let the timer know, if that may make something wait sooner than it thinks."""
        name = source.definition.name
        lag = self._lags[name]
        if self._timer is None:
            return
        if name in self._recent and (len(batch) or source.spans):
            first = min([s.file.oldest for s in source.spans] or [int(batch.ts[0])])
            self._recent[name].add(first, max([s.file.newest for s in source.spans] or [int(batch.ts[-1])]))
        if not lag or source.progress + lag < self._alarm:
            self._timer.poke()

    @property
    def pace(self) -> float:
        """Seconds between two looks at least."""
        return self.host.pace

    def moved(self) -> None:
        """The clock says that it has moved. Without the lock."""
        if self.is_inside or self.closed:
            return
        self._move(self.now(), None)

    def tick(self, query: Registered | None = None, *, wait: bool = True, look: Look | None = None) -> None:
        """Let streams move on with the clock, though nothing arrives. Without the lock.

        ``query``: as far as it waits for them; else all that have begun. ``wait``: also while another thread changes
        something; who does not wait leaves it to the next call. ``look`` may give that up.
        """
        if self.is_inside or not self.follows_clock:
            return  # a function reads: time moves on with the call that it is in, and the next
        if query is None:
            self._move(self.now(), None, everything=True, look=look)
        elif any(name in query.inputs for name in (*self._stamped, *self._idle)):
            self._move(self.now(), query, wait=wait, look=look)

    def look(self) -> None:
        """Move on what is due. Without the lock. Called by the timer."""
        self._move(self.now(), None, by_timer=True)

    def left(self) -> float:
        """In how many ticks something is due; infinite if nothing waits. Without the lock. Called by the timer."""
        now = self.now()
        with self.lock:
            queries = self._waiting(self.running())
            self._remember(queries)
            self._lags = {}
            for waiting in queries:
                for name, lag in waiting.lags().items():
                    self._lags[name] = min(lag, self._lags.get(name, math.inf))
            self._alarm = min((waiting.next(self._recent) for waiting in queries), default=math.inf)
            return math.inf if now is None else max(0.0, self._alarm - now)

    # -- moving ---------------------------------------------------------------------------------------

    def _move(
        self, now: int | None, query: Registered | None, *, wait: bool = True, everything: bool = False,
        by_timer: bool = False, look: Look | None = None,
    ) -> None:  # fmt: skip
        """Move on the streams that a query waits for, or any query, or all that have begun."""
        began = self.stopwatch()
        if now is None or (not wait and not self.lock.acquire(blocking=False)):
            return
        if wait:
            take(self.lock, look)
        due: set[str] = set()
        try:
            self._changer, self.began = threading.get_ident(), began
            if self.closed:
                pass
            elif everything:
                due = {n for n in (*self._stamped, *self._idle) if self.inputs[n].progress > -math.inf}
            else:
                recent = self._recent if by_timer else None
                for waiting in self._waiting(self.running() if query is None else [query]):
                    due |= waiting.due(now, recent)
            self._pass_time(sorted(due), now)
        except BaseException:
            with suppress(PenstockError):
                self._released(due, by_timer=by_timer)
            raise
        self._released(due, by_timer=by_timer)

    def _released(self, moved: set[str], *, by_timer: bool) -> None:
        """Give the lock back. The timer's thread is that of all queries, so it waits for no subscriber."""
        self._changer = None
        self.lock.release()
        if moved:
            self.after(waits=not by_timer)

    def _pass_time(self, names: Iterable[str], now: int) -> None:
        """Let streams be where they are by the clock. If one cannot, the others can."""
        problem: PenstockError | None = None
        for name in names:
            source = self.inputs[name]
            if source.is_moved and source.reach(now) > source.progress:
                try:
                    self._take(source, partial(StreamInput.move, now=now))
                except PenstockError as error:
                    problem = problem or error
        if problem is not None:
            raise problem

    def _waiting(self, queries: Iterable[Registered]) -> list[Waiting]:
        clocked = {*self._stamped, *self._idle}
        return [
            Waiting(query, self.inputs, self.relations, self.instants.passed(query.plan.clock))
            for query in queries if query.status == "running" and not clocked.isdisjoint(query.inputs)
        ]  # fmt: skip

    def _remember(self, queries: Iterable[Waiting]) -> None:
        """Remember when rows come into the streams from which they leave by time alone, and no longer than that."""
        needed: dict[str, float] = {}
        for waiting in queries:
            for name, since in waiting.remembers().items():
                needed[name] = min(since, needed.get(name, math.inf))
        for name in self._recent.keys() - needed.keys():
            del self._recent[name]
        for name, since in needed.items():
            if name not in self._recent:
                self._recent[name] = Recent()
                self._recent[name].add(-math.inf, self.inputs[name].newest_row)
            self._recent[name].forget(since)
