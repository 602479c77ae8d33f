"""The queries of a database divided into parts, and how they change parts while rows come.

A query moves between two micro-batches of its part. It takes with it the number of the first frame that it has not
read, and the place of its state; its new part goes back to that frame if it is further, and gives it to this query
alone. So nobody waits for anybody, and a move is one record in the journal: it has happened or it has not.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from penstock.graph.view import GraphView
from penstock.hosts.registered import Registered
from penstock.hosts.spark.live.backlog import Backlog
from penstock.hosts.spark.live.frames import Frame
from penstock.hosts.spark.live.gate import Gate
from penstock.hosts.spark.live.journal import placing
from penstock.hosts.spark.live.load import Load
from penstock.hosts.spark.live.part import Part
from penstock.hosts.spark.live.parts import THREADING, Member, Settings, groups, placed
from penstock.hosts.spark.live.plan import state_folder
from penstock.hosts.spark.live.runner import SparkRunner
from penstock.hosts.spark.live.view import graph_view
from penstock.model.errors import StateError

if TYPE_CHECKING:
    from penstock.hosts.spark.live.host import SparkHost

_GRACE = 1.0
"""Seconds that closing lets micro-batches end by themselves."""


class Parts:
    """The parts of one database. All calls but ``configure`` and ``close`` come under the database's lock."""

    def __init__(self, host: SparkHost) -> None:
        self._host = host
        self._model = host.journal.model
        self._parts: dict[int, Part] = {}
        self.settings = Settings(**self._model.settings)
        self.gate = Gate(self.settings.at_once)
        self.held: frozenset[int] = frozenset()
        """Parts that begin no micro-batch, because queries are about to move."""
        self._configuring = threading.Lock()
        self._asked: deque[dict[str, object]] = deque()
        self._left: set[int] = set()
        """Parts without queries whose state may still be needed."""
        self._threads: list[threading.Thread] = []
        self._started = False

    def __iter__(self) -> Iterator[Part]:
        return iter(list(self._parts.values()))

    # -- queries come and go ------------------------------------------------------------------------

    def place(self, runner: SparkRunner) -> int:
        """The part for a new query."""
        members = [*self._members(), Member(runner.id, runner.priority)]
        return placed(groups(members, self.settings), self._now(), self._model.next_part)[runner.id]

    def add(self, runner: SparkRunner, id: int) -> Part:
        """A query is in a part, which is made if it is not there."""
        part = self._parts.get(id)
        if part is None:
            part = self._parts[id] = Part(self._host, id)
            if self._started:
                self._run(part)
        part.queries[runner.id] = runner
        runner.part = part
        return part

    def remove(self, runner: SparkRunner) -> None:
        """A query is over."""
        part, runner.part = runner.part, None
        if part is not None:
            part.queries.pop(runner.id, None)
            self._retire(part)

    def take(self, name: str, frame: Frame, readers: Iterable[Registered]) -> set[Part]:
        """A frame for the parts of its readers."""
        runners = (q.runner for q in readers)
        parts = {r.part for r in runners if isinstance(r, SparkRunner) and r.part is not None}
        for part in parts:
            part.pending.add(name, frame)
            part.load.arrived(frame.rows)
        return parts

    def restore(self, frames: Sequence[tuple[str, Frame]]) -> None:
        """After a restart: give each part the frames that it has not taken, and remove what is left of others."""
        for part in self:
            self._give(part, frames)
        used = {known.part for known in self._model.queries.values()}
        used |= {known.origin[0] for known in self._model.queries.values() if known.origin is not None}
        for folder in (self._host.root / "state").glob("part-*"):
            if int(folder.name.removeprefix("part-")) not in used:
                shutil.rmtree(folder, ignore_errors=True)
        if 0 not in used:
            self._remove_state(0)

    def start(self) -> None:
        """Let parts work."""
        self._started = self._host.options.trigger != "push"
        if self._started:
            for part in self:
                self._run(part)
                if part.has_work():
                    part.wake()

    def _run(self, part: Part) -> None:
        part.start()
        self._threads = [t for t in (*self._threads, part.thread) if t is not None and t.is_alive()]

    def _retire(self, part: Part) -> None:
        """A part without queries ends, as soon as no micro-batch of it is under way."""
        if part.queries or self._host.stopping or self._host.broken is not None:
            return  # what is stored is gone on with when the database is opened again
        part.end()
        if not part.busy and self._parts.pop(part.id, None) is not None:
            self._left.add(part.id)
            self._sweep()
        self._host.changed.notify_all()

    # -- moves --------------------------------------------------------------------------------------

    def ask(self, given: Mapping[str, object]) -> None:
        """Settings to change, when ``configure`` is called next; if they are wrong, none is."""
        self.settings.with_(given)
        self._asked.append(dict(given))

    def configure(self) -> None:
        """Change what was asked for; returns when queries are in the parts that the settings ask for."""
        with self._configuring, self._host.changed:
            while self._asked:
                self._change(self._asked.popleft())
        self.gate.let(self.settings.at_once)
        self._host.after()

    def _change(self, given: Mapping[str, object]) -> None:
        host, settings = self._host, self.settings.with_(given)
        try:
            while True:
                if host.stopping:
                    raise StateError("the database is closed", hint="connect again")
                host.check()
                apart = set() if "threading" in given else {m.id for m in self._members() if m.apart}
                moves, now = self._wanted(settings, apart), self._now()
                self.held = frozenset({*moves.values(), *(now[id] for id in moves)})
                if not any(p.busy for p in self if p.id in self.held):
                    break
                host.changed.wait()
            self._move(moves, apart, settings)
        finally:
            self.held = frozenset()
            host.changed.notify_all()

    def after_batch(self, part: Part) -> None:
        """A micro-batch of a part is over: it may have to end, or to let queries go that make others wait."""
        if not part.queries:
            self._retire(part)
        elif self.settings.threading == "hybrid" and len(part.queries) > 1 and not self._host.stopping:
            leaving = part.load.crowding(time.monotonic(), part.queries, self._host.slots)
            if leaving and part.id not in self.held:
                apart = {*leaving, *(m.id for m in self._members() if m.apart)}
                free = self._model.next_part
                self._move({id: free + i for i, id in enumerate(leaving)}, apart, self.settings)
        if self._left:
            self._sweep()

    def _members(self) -> list[Member]:
        known = self._model.queries
        runners = {id: runner for part in self for id, runner in part.queries.items()}
        return [Member(id, runners[id].priority, q.apart) for id, q in known.items() if id in runners]

    def _now(self) -> dict[str, int]:
        return {id: part.id for part in self for id in part.queries}

    def _wanted(self, settings: Settings, apart: set[str]) -> dict[str, int]:
        """The queries that are to move, and where to."""
        now = self._now()
        members = [Member(m.id, m.priority, m.id in apart) for m in self._members()]
        wanted = placed(groups(members, settings), now, self._model.next_part)
        return {id: part for id, part in wanted.items() if now[id] != part}

    def _move(self, moves: Mapping[str, int], apart: set[str], settings: Settings) -> None:
        """Let queries go on in other parts; no micro-batch of these parts is under way."""
        known, parts = self._model.queries, self._model.parts
        now = self._now()
        changed: dict[str, dict[str, Any]] = {id: placing(known[id]) | {"apart": id in apart} for id in now}
        upto: dict[int, int] = {}
        for id, to in moves.items():
            old = parts[now[id]]
            what = changed[id]
            what["part"], what["first"] = to, max(known[id].first, old.upto + 1)
            if what["origin"] is None and id in self._model.started:
                what["origin"] = [now[id], old.batch]
            before = upto.get(to, parts[to].upto if to in parts else what["first"] - 1)
            upto[to] = min(before, what["first"] - 1)
        for to in upto:
            # Who is there already has read the frames to which the part goes back.
            for id in self._parts[to].queries if to in self._parts else ():
                if id not in moves:
                    changed[id]["first"] = max(changed[id]["first"], parts[to].upto + 1)
        record = {
            "kind": "moves", "settings": asdict(settings), "parts": upto,
            "queries": {id: what for id, what in changed.items() if what != placing(known[id])},
        }  # fmt: skip
        self._host.journal.add(record)
        self.settings = settings
        involved = {*upto, *(now[id] for id in moves)}
        frames = {f.number: (n, f) for id in involved if id in self._parts for n, f in self._parts[id].pending}
        for id, to in moves.items():
            runner = self._parts[now[id]].queries.pop(id)
            self.add(runner, to)
        for part in self:
            if part.id in involved:
                self._give(part, [frames[number] for number in sorted(frames)])
                part.load = Load(time.monotonic())
                self._retire(part)
                part.wake()

    def _give(self, part: Part, frames: Sequence[tuple[str, Frame]]) -> None:
        """Of these frames those that a part has still to take."""
        upto = self._model.parts[part.id].upto if part.queries else 0
        first: dict[str, int] = {}
        for id, runner in part.queries.items():
            start = max(self._model.queries[id].first, upto + 1)
            for name in runner.reads:
                first[name] = min(start, first.get(name, start))
        part.pending = Backlog((n, f) for n, f in frames if n in first and f.number >= first[n])

    # -- state --------------------------------------------------------------------------------------

    def needed_of(self, part: int) -> list[int]:
        """The micro-batches of a part whose state queries in other parts are to go on from."""
        origins = (q.origin for q in self._model.queries.values() if q.origin is not None)
        return [number for id, number in origins if id == part]

    def _sweep(self) -> None:
        for id in [id for id in self._left if not self.needed_of(id)]:
            self._left.discard(id)
            self._remove_state(id)

    def _remove_state(self, part: int) -> None:
        folder = state_folder(self._host.root, part)
        for found in folder.glob("slot-*") if part == 0 else (folder,):
            shutil.rmtree(found, ignore_errors=True)

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
        if runner.reads:
            lines.append(f"stream buffers: {', '.join(f'log of {self._log(name)}' for name in sorted(runner.reads))}")
        return lines

    def _log(self, name: str) -> str:
        stream = self._host.core.catalog.streams.get(name)
        overtakes = stream is not None and stream.priority is not None and self.settings.overtakes
        return f"{name}, prioritised rows first" if overtakes else name

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
        parts = [
            (p.id, frozenset(names[id] for id in p.queries), p.priority, None if p.thread is None else p.thread.name)
            for p in self
        ]
        return graph_view(running, waiting, self.settings.threading, parts)

    def close(self) -> bool:
        """End all threads; gives whether work was given up half-way for it."""
        host = self._host
        with host.changed:
            host.changed.notify_all()
            threads = list(self._threads)
            for part in self:
                part.wake(hurry=True)
        self.gate.wake()
        mine = threading.current_thread()
        until = time.monotonic() + _GRACE
        cancelled = False
        while True:
            with host.changed:
                busy = [p for p in self if p.busy]
                if not busy:
                    break
                host.changed.wait(max(0.05, until - time.monotonic()))
            if time.monotonic() >= until:
                for part in busy:
                    cancelled |= part.cancel()
        for thread in threads:
            if thread is not mine:
                thread.join()
        return cancelled
