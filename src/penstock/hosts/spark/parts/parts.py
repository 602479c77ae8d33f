"""The queries of a database divided into parts, and how they change parts while rows come.

A query moves between two micro-batches of its part. It takes with it the number of the first entry that it has not
read, and the place of its state; its new part goes back to that entry if it is further, and gives it to this query
alone. So nobody waits for anybody, and a move is one record: it has happened or it has not.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from penstock.graph.view import GraphView, PartView
from penstock.hosts.registered import Registered
from penstock.hosts.spark.parts.backlog import Backlog
from penstock.hosts.spark.parts.gate import Gate
from penstock.hosts.spark.parts.grouping import THREADING, Member, Settings, groups, placed
from penstock.hosts.spark.parts.load import Load
from penstock.hosts.spark.parts.part import Part
from penstock.hosts.spark.parts.runner import SparkRunner, bases_again, bases_json, moved_again, moved_json
from penstock.hosts.spark.parts.task import Frame, Moved
from penstock.hosts.spark.parts.view import graph_view
from penstock.model.errors import EngineError, PenstockError, StateError

if TYPE_CHECKING:
    from penstock.hosts.spark.parts.host import SparkHost


def _whole(work: Callable[[], None]) -> None:
    """Do something of which nothing may be left out: Ctrl-C comes to the main thread, so another thread does it, and
    ends with it. Where no other can be started, the main thread does it."""
    if threading.current_thread() is not threading.main_thread():
        work()
        return
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="penstock-configuring", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        run()
    else:
        thread.join()
    if failed:
        raise failed[0]


class Parts:
    """The parts of one database. All calls but ``configure`` come under the database's lock."""

    def __init__(self, host: SparkHost) -> None:
        self._host = host
        self._parts: dict[int, Part] = {}
        self.next = 0
        """The number of the next new part."""
        self.settings = Settings()
        self.gate = Gate(self.settings.at_once)
        self.held: frozenset[int] = frozenset()
        """Parts that begin no micro-batch, because queries are about to move."""
        self._configuring = threading.Lock()
        self._asked: deque[dict[str, object]] = deque()
        self._altered: set[str] = set()
        """Queries whose priority has changed, and which are still where it was."""
        self._started = False
        self._unstarted: set[Part] = set()
        """Parts that there was no thread for; see ``begin``."""

    def __iter__(self) -> Iterator[Part]:
        return iter(list(self._parts.values()))

    def get(self, id: int) -> Part | None:
        """The part of this number. Also without the lock."""
        return self._parts.get(id)

    # -- after a restart ------------------------------------------------------------------------------

    def facts(self) -> dict[str, Any]:
        """All that is to be known of the parts after a restart, besides what queries say of themselves."""
        return {
            "next": self.next, "settings": asdict(self.settings),
            "parts": [[p.id, p.version, p.upto, p.ahead, bases_json(p.bases)] for p in self],
        }  # fmt: skip

    def resume(self, facts: Mapping[str, Any]) -> None:
        """Be the parts that there were; queries come back with ``add``."""
        self.next, self.settings = facts["next"], Settings(**facts["settings"])
        for id, version, upto, ahead, bases in facts["parts"]:
            part = self._parts[id] = Part(self._host, id, upto)
            part.version, part.ahead, part.bases = version, ahead, bases_again(bases)

    def again(self, record: Mapping[str, Any]) -> None:
        """Do what a record says that ``_move`` has written."""
        self.settings = Settings(**record["settings"])
        for id, to, moved in record["moves"]:
            runner = next(p.queries[id] for p in self if id in p.queries)
            assert runner.part is not None
            del runner.part.queries[id]
            runner.moved = moved_again(moved)
            self.add(runner, to)
        for part in self:
            for id, runner in part.queries.items():
                runner.apart = id in record["apart"]

    def restore(self, frames: Sequence[tuple[str, Frame]]) -> None:
        """After a restart: give each part the entries that it has not taken."""
        self._drop_empty()
        for part in self:
            self._give(part, frames)
        self.gate.let(self.settings.at_once)

    def _drop_empty(self) -> None:
        used = {id: part for id, part in self._parts.items() if part.queries}
        self._parts = used or dict(list(self._parts.items())[:1])  # one is kept for the next query

    # -- queries come and go ------------------------------------------------------------------------

    def place(self, runner: SparkRunner) -> int:
        """The part for a new query."""
        members = [*self._members(), Member(runner.id, runner.priority)]
        spare = next((part.id for part in self if not part.queries), self.next)
        found = placed(self._groups(members, self.settings), self._now(), spare)[runner.id]
        working = self._working()
        if len(working) >= self._most and found not in [part.id for part in working]:
            # Queries that are there do not move for it, and are not where they would be put now.
            return min(working, key=lambda part: (part.priority != runner.priority, len(part.queries))).id
        return found

    def _working(self) -> list[Part]:
        """The parts that make micro-batches."""
        return [part for part in self if part.queries and not part.rests]

    def _groups(self, members: Sequence[Member], settings: Settings) -> list[tuple[str, ...]]:
        return groups(members, settings, self._most)

    @property
    def _most(self) -> int:
        """At most so many parts work: as many as Spark has cores. The shards stand for them as long as Spark starts
        elsewhere, and they are not known."""
        return max(1, self._host.cluster.known_cores or self._host.slots)

    def add(self, runner: SparkRunner, id: int, *, resumed: bool = False, begins: bool = True) -> Part:
        """A query is in a part, which is made if it is not there. ``resumed``: it was in it before a restart;
        ``begins``: a new part has a thread at once, otherwise with ``begin``."""
        part = self._parts.get(id)
        if part is None:
            start = self._host.last_feed + 1 if runner.moved is None else runner.moved.start
            part = self._parts[id] = Part(self._host, id, start - 1)
            self.next = max(self.next, id + 1)
            if self._started and begins:
                self._host.cluster.start(part)
            elif self._started:
                self._unstarted.add(part)
        if not part.queries and not resumed:
            part.bases = {}  # what queries that are gone have left may be gone too
        part.queries[runner.id] = runner
        runner.part = part
        return part

    def remove(self, runner: SparkRunner) -> None:
        """A query is over."""
        part, runner.part = runner.part, None
        if part is not None:
            part.queries.pop(runner.id, None)
            self._retire(part)
            self._host.changed.notify_all()  # who waits for it need not any more

    def take(self, name: str, frame: Frame, readers: Iterable[Registered]) -> set[Part]:
        """A frame for the parts of its readers."""
        runners = (q.runner for q in readers)
        parts = {r.part for r in runners if isinstance(r, SparkRunner) and r.part is not None}
        for part in parts:
            part.pending.add(name, frame)
            part.load.arrived(frame.rows)
        return parts

    def start(self) -> None:
        """Let parts work."""
        self._started = True
        for part in self:
            self._host.cluster.start(part)
            if part.has_work():
                part.wake()

    def _retire(self, part: Part) -> None:
        """A part without queries ends; the last one is kept for the next query, which then need not wait for Spark."""
        if part.queries or self._host.stopping or self._host.opening:
            return  # what is stored is gone on with when the database is opened again
        part.pending = Backlog()
        if len(self._parts) == 1:
            return
        self._parts.pop(part.id, None)
        part.end()
        self._host.changed.notify_all()

    # -- moves --------------------------------------------------------------------------------------

    def ask(self, given: Mapping[str, object]) -> None:
        """Settings to change, when ``configure`` is called next; if they are wrong, none is."""
        self.settings.with_(given)
        self._asked.append(dict(given))

    def alter(self, runner: SparkRunner, *, priority: bool) -> None:
        """A query rests, goes on, or has another ``priority``: ``configure``, which is called next, may move it."""
        if priority:
            self._altered.add(runner.id)
        self.ask({})

    @property
    def misplaced(self) -> bool:
        """Whether a suspended query is in a part that works: the process ended before it could move. Or whether there
        are more parts than this machine has cores."""
        many = len(self._working()) > self._most
        return many or any(any(r.suspended for r in part.queries.values()) for part in self._working())

    def configure(self) -> None:
        """Change what was asked for; returns when queries are in the parts that the settings ask for.

        Ctrl-C stops the waiting, not the change: a move that is written down and not made would be made by the next
        opening, which would give queries again what they have had."""
        _whole(self._configure)
        self.gate.let(self.settings.at_once)
        self._host.after()

    def _configure(self) -> None:
        with self._configuring, self._host.changed:
            while self._asked:
                self._change(self._asked.popleft())
            problem = self.begin()
            if problem is not None:
                raise problem

    def _change(self, given: Mapping[str, object]) -> None:
        host, settings = self._host, self.settings.with_(given)
        try:
            while True:
                if host.stopping:
                    raise StateError("the database is closed", hint="connect again")
                apart = set() if "threading" in given else {m.id for m in self._members() if m.apart}
                moves, now = self._wanted(settings, apart), self._now()
                resting = (part.id for part in self if part.rests)
                self.held = frozenset({*moves.values(), *(now[id] for id in moves), *resting})
                if not any(p.busy for p in self if p.id in self.held):
                    break
                host.changed.wait()
            if moves or settings != self.settings or apart != {m.id for m in self._members() if m.apart}:
                self._move(moves, apart, settings)
            self._altered.clear()
        finally:
            self.held = frozenset()
            for part in self:
                part.wake()
            host.changed.notify_all()

    def after_batch(self, part: Part) -> None:
        """A micro-batch of a part is over: it may have to end, or to let queries go that make others wait."""
        if not part.queries:
            self._retire(part)
        elif self.settings.threading == "hybrid" and len(part.queries) > 1 and not self._host.stopping:
            free = max(0, self._most - len(self._working()))
            leaving = part.load.crowding(time.monotonic(), part.queries, free)
            if leaving and part.id not in self.held:
                apart = {*leaving, *(m.id for m in self._members() if m.apart)}
                self._move({id: self.next + i for i, id in enumerate(leaving)}, apart, self.settings)

    def divide(self, part: Part) -> bool:
        """Micro-batches of a part end the process in which they are made: let half of its queries go elsewhere, so that
        the one that is to blame is found, also if there are more parts than cores then. False: it is alone."""
        ids = list(part.queries)
        if len(ids) < 2 or self._host.stopping or part.over:
            return False
        apart = {m.id for m in self._members() if m.apart}
        self._move(dict.fromkeys(ids[len(ids) // 2 :], self.next), {*apart, *ids}, self.settings)
        return True

    def _members(self) -> list[Member]:
        runners = sorted((r for part in self for r in part.queries.values()), key=lambda r: r.number)
        return [Member(r.id, r.priority, r.apart, r.suspended) for r in runners]

    def _now(self) -> dict[str, int]:
        return {id: part.id for part in self for id in part.queries}

    def _wanted(self, settings: Settings, apart: set[str]) -> dict[str, int]:
        """The queries that are to move, and where to."""
        now = self._now()
        members = [replace(m, apart=m.id in apart) for m in self._members()]
        # One whose priority has changed needs another pool, and so a part that has it, or a new one.
        stale = {id for id in self._altered & now.keys() if (pool := self._parts[now[id]].pool) is not None
                 and pool != next(m.priority for m in members if m.id == id)}  # fmt: skip
        stale = stale if settings.threading == "hybrid" else set()
        wanted = placed(
            self._groups(members, settings), {id: part for id, part in now.items() if id not in stale}, self.next
        )
        return {id: part for id, part in wanted.items() if now[id] != part}

    def _move(self, moves: Mapping[str, int], apart: set[str], settings: Settings) -> None:
        """Let queries go on in other parts; no micro-batch of these parts is under way."""
        now = self._now()
        record: dict[str, Any] = {"settings": asdict(settings), "apart": sorted(apart), "moves": []}
        moved: dict[str, Moved] = {}
        for id, to in moves.items():
            part = self._parts[now[id]]
            runner = part.queries[id]
            before = runner.moved
            origin = None if before is None else before.origin
            if origin is None and runner.started:
                origin = part.id, dict(part.bases)
            ahead = max(part.ahead, part.upto) if before is None else before.ahead
            moved[id] = Moved(part.start_of(runner), origin, ahead)
            record["moves"].append([id, to, moved_json(moved[id])])
        self._host.divided(record)
        self.settings = settings
        involved = {*moves.values(), *(now[id] for id in moves)}
        frames = {f.number: (n, f) for id in involved if id in self._parts for n, f in self._parts[id].pending}
        for id, to in moves.items():
            runner = self._parts[now[id]].queries.pop(id)
            runner.moved = moved[id]
            self.add(runner, to, begins=False)
        for part in self:
            for id, runner in part.queries.items():
                runner.apart = id in apart
            if part.id in involved:
                self._give(part, [frames[number] for number in sorted(frames)])
                part.load, part.deaths = Load(time.monotonic()), 0
                self._retire(part)
                part.wake()
        self.begin()

    def begin(self) -> PenstockError | None:
        """Start the parts that have no thread yet; why one could not be started. ``SparkHost.settle`` tries again."""
        for part in list(self._unstarted):
            if not part.gives_up:
                try:
                    self._host.cluster.start(part)
                except RuntimeError as error:
                    return EngineError(
                        f"{part.label}: no thread can be started: {error}",
                        hint="allow more processes (ulimit -u) or end some; nothing is lost: what was asked for holds, "
                        "and the next fetch tries again",
                    )
            self._unstarted.discard(part)
        return None

    def _give(self, part: Part, frames: Sequence[tuple[str, Frame]]) -> None:
        """Entries that this part has not read yet."""
        first: dict[str, int] = {}
        for runner in part.queries.values():
            start = part.start_of(runner)
            for name in runner.reads:
                first[name] = min(start, first.get(name, start))
        part.pending = Backlog((n, f) for n, f in frames if n in first and f.number >= first[n])

    def origins(self) -> Iterator[tuple[int, int]]:
        """The parts and micro-batches whose state queries in other parts are to go on from."""
        for part in self:
            for runner in part.queries.values():
                if runner.moved is not None and runner.moved.origin is not None:
                    id, bases = runner.moved.origin
                    yield id, min((version for version, _ in bases.values()), default=0)

    # -- words, and the end -------------------------------------------------------------------------

    def explained(self, query: Registered) -> list[str]:
        """In which part a query is, with whom, in which pool, and what it reads."""
        runner = query.runner
        if not isinstance(runner, SparkRunner) or runner.part is None:
            return []
        part, threading = runner.part, self.settings.threading
        names = {q.runner.id: q.name for q in self._host.core.queries.values() if isinstance(q.runner, SparkRunner)}
        others = ", ".join(f"`{names[id]}`" for id in part.queries if id != runner.id)
        lines = [
            f"virtual operator: part {part.id}, {f'with {others}' if others else 'alone'}",
            f"threading: {threading} ({THREADING[threading]})",
            f"priority {part.priority}: {self._host.cluster.scheduling(part.priority)}",
        ]
        if runner.suspended:
            lines.append(f"suspended: rows wait in the logs until RESUME QUERY {query.name}")
        if runner.reads:
            lines.append(f"stream buffers: {', '.join(f'log of {self._log(name)}' for name in sorted(runner.reads))}")
        return lines

    def _log(self, name: str) -> str:
        stream = self._host.core.catalog.streams.get(name)
        overtakes = stream is not None and stream.priority is not None and self.settings.overtakes
        return f"{name}, prioritised rows first" if overtakes else name

    def shown(self) -> tuple[PartView, ...]:
        """The parts with what waits in front of them, and what they took last."""
        names = {q.runner.id: q.name for q in self._host.core.running() if isinstance(q.runner, SparkRunner)}
        found: list[PartView] = []
        for part in self:
            queries = tuple(names[id] for id in part.queries if id in names)
            waiting = [frame.rows for _, frame in part.pending]
            last = part.last
            took: tuple[int | None, float | None, float | None, float | None] = (None, None, None, None)
            if last is not None:
                rows = last.rows + last.early
                took = rows, rows / last.seconds, last.answers / last.seconds, last.seconds
            found.append(PartView(part.id, queries, part.priority, part.version, *took, len(waiting), sum(waiting)))
        return tuple(found)

    def view(self) -> GraphView:
        """The graph of all queries, with the parts and what waits in front of them."""
        waiting: dict[str, tuple[int, int]] = {}
        for part in self:
            counts: dict[str, tuple[int, int]] = {}
            for name, frame in part.pending:
                frames, rows = counts.get(name, (0, 0))
                counts[name] = (frames + 1, rows + frame.rows)
            waiting |= {name: max(count, waiting.get(name, (0, 0))) for name, count in counts.items()}
        running = list(self._host.core.running())
        names = {q.runner.id: q.name for q in running if isinstance(q.runner, SparkRunner)}
        parts = [(p.id, frozenset(names[id] for id in p.queries), p.priority, p.thread) for p in self]
        return graph_view(running, waiting, self.settings.threading, parts)
