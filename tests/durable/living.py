"""A database on a disk and one in memory that live the same life, one of them interrupted again and again."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from unittest.mock import patch

import pyarrow as pa

import penstock
from penstock.database.database import core_of
from penstock.hosts import history
from penstock.storage.store import Sync
from penstock.testing import Clock
from tests.durable.disks import in_memory, opened, save
from tests.durable.language import (
    Aside,
    Ask,
    Configure,
    Current,
    Define,
    Interrupt,
    Note,
    Place,
    Save,
    Step,
    Transfer,
    call,
)
from tests.generated.lives import begin_anew
from tests.generated.running import comparable
from tests.graph.schedules import place
from tests.sessions.language import Beat, Close, Fetch, Pass, Push, Say
from tests.storage.forgetful import Forgetful

BEGIN = "2024-01-01"


def rows_of(table: pa.Table) -> list[object]:
    """The rows of a table, such that those that count as equal are."""
    columns = [table.column(i).to_pylist() for i in range(table.num_columns)]
    return [tuple(comparable(v) for v in row) for row in zip(*columns, strict=True)] or [table.num_rows]


def done(db: penstock.Database, step: Step) -> object:
    """Do a step; gives what its user hears of it."""
    try:
        return _done(db, step)
    except penstock.PenstockError as error:
        notes = [n for n in getattr(error, "__notes__", ()) if "Traceback" not in n]
        return f"{type(error).__name__}: {error}", notes


def _done(db: penstock.Database, step: Step) -> object:
    match step:
        case Say(text):
            if text.startswith("SUSPEND"):
                db.settle()  # so that what waits is the same with and without threads
            made = db.execute(text)
            return made.message, made.note, None if made.table is None else rows_of(made.table)
        case Push(name, rows):
            db.push(name, list(rows))
        case Beat(name, at):
            db.heartbeat(name, at)
        case Close(name):
            db.close_stream(name)
        case Pass():
            db.heartbeat()
        case Fetch(name):
            return rows_of(db.queries[name].fetch())
        case Current(name):
            return rows_of(db.queries[name].current())
        case Transfer(name):
            return db.queries[name].transfer(lambda table: {"taken": table.num_rows})
        case Aside(stream, what):
            return rows_of(db.late(stream) if what == "late" else db.apart(stream))
        case Define(name, version):
            db.create_function(name, partial(call, name, version), args=["BIGINT"], returns="BIGINT")
        case Ask(text):
            return db.query(text).name
        case Configure(threading):
            db.configure(threading=threading)
        case Place(numbers):
            place(db, numbers)
        case _:
            raise AssertionError(step)
    return None


def seen(db: penstock.Database) -> Mapping[str, object]:
    """All that can be seen of a database without changing it."""
    core = core_of(db)
    shown = {what: rows_of(table) for what in ("STREAMS", "RELATIONS", "VIEWS", "QUERIES") if
             (table := db.execute(f"SHOW {what}").table) is not None}  # fmt: skip
    over = db.execute("SHOW ALL QUERIES").table
    assert over is not None
    # Each process has its own clock, and measures anew.
    timed = ["latency p50", "latency p99", "waiting p99"]
    return {
        **shown,
        "QUERIES": rows_of(over.drop_columns(["ended", "how", *timed])),
        "over": rows_of(over.drop_columns(["ended", *timed])),
        "described": {n: db.execute(f"DESCRIBE {n}").note for n in (*db.catalog.names(), *db.queries)},
        "count": core.query_count,
        "streams": {name: _stream(db, name) for name in core.inputs},
        "relations": {name: (store.rows, store.changes) for name, store in core.relations.items()},
        "queries": {name: _query(q) for name, q in db.queries.items()},
        "sharing": _sharing(db),
    }


def _stream(db: penstock.Database, name: str) -> object:
    status, source = db.stream(name), core_of(db).inputs[name]
    told = status.progress, status.newest, status.given, status.late, status.apart, source.closed
    past = core_of(db).history.get(name)
    gone = source.passed if past is None else past.forgotten
    return told, rows_of(source.late.table), rows_of(source.apart.table), source.waiting, gone


def _query(query: penstock.Query) -> object:
    error = None if query.error is None else f"{type(query.error).__name__}: {query.error}"
    return (
        query.text, query.status, error, query.answered, query.waiting, query.failures, query.last_failure, query.note,
        rows_of(query.peek(1 << 30)),
    )  # fmt: skip


def _sharing(db: penstock.Database) -> object:
    graph = db.graph()
    edges = sorted((e.source, e.target, e.port) for e in graph.edges)
    return [(o.id, o.kind, o.label, o.queries, o.state) for o in graph.operators], edges


class Lives:
    """The same life of two databases: ``wanted`` is never interrupted."""

    def __init__(self, sync: Sync = "off", files: Any = None) -> None:
        self.clock = Clock(BEGIN)
        self.sync: Sync = sync
        self.files: Forgetful = files or Forgetful()
        """Or what is asked for the same."""
        self.wanted = in_memory(self.clock)
        self.found = opened(self.files, self.clock, sync=sync)
        self.notes: dict[str, Any] = {}

    def __enter__(self) -> Lives:
        return self

    def __exit__(self, *_: object) -> None:
        self.found.close()
        self.wanted.close()

    def live(self, steps: Sequence[Step]) -> None:
        """Every step in turn, then all streams are closed and everything is fetched."""
        place = 0
        while place < len(steps):
            step = steps[place]
            place += 1
            if isinstance(step, Save):
                part = steps[place : place + step.during]
                part = part[: next((i for i, s in enumerate(part) if isinstance(s, Interrupt | Save)), len(part))]
                save(self.found, partial(self._several, place, part) if part else None)
                place += len(part)
            else:
                self.do(place - 1, step)
        self.finish()

    def finish(self) -> None:
        """The end of a life."""
        for name, stream in list(self.wanted.catalog.streams.items()):
            if not stream.derived:
                self.both(f"closing {name}", Close(name))
        for name, query in self.wanted.queries.items():
            if query.status == "suspended":
                self.both(f"resuming {name}", Say(f"RESUME QUERY {name}"))
        for name in list(self.wanted.queries):
            self.both(f"the results of {name}", Fetch(name))
        self.compare("at the end")

    def _several(self, place: int, steps: Sequence[Step]) -> None:
        for i, step in enumerate(steps):
            self.do(place + i, step)

    def do(self, place: int, step: Step) -> None:
        """A step of both."""
        match step:
            case Interrupt(how, seed):
                self.interrupt(how, seed)
                self.compare(f"after step {place}, {step}")
            case Note(value):
                self.notes["n"] = value
                self.found.note(n=value)
            case _:
                self.both(f"step {place}, {step}", step)

    def both(self, what: str, step: Step) -> None:
        """Something that both do, and hear the same of."""
        if isinstance(step, Pass):
            self.clock.advance(step.ticks)
        wanted = done(self.wanted, step)
        found = done(self.found, step)
        assert found == wanted, f"{what}: {found} != {wanted}"
        self.heard(step, found)

    def heard(self, step: Step, found: object) -> None:
        """A step has given this: remember what it has noted."""
        if isinstance(step, Transfer) and isinstance(found, int) and found:
            self.notes["taken"] = found

    def interrupt(self, how: str, seed: int) -> None:
        """Let the database on the disk end somehow, and open it again."""
        before = self.found
        if how == "closed":
            before.close()
            self.files = self.files.killed()
        else:
            files = self.files.killed() if how == "killed" else self.files.power_lost(random.Random(seed))
            before.close()  # on a disk that nobody reads any more
            self.files = files
        self.found = opened(self.files, self.clock, sync=self.sync)
        begin_anew(self.wanted)

    def compare(self, when: str) -> None:
        """Both look the same."""
        for db in (self.wanted, self.found):
            db.settle()
        wanted, found = seen(self.wanted), seen(self.found)
        for what in wanted:
            if isinstance(theirs := wanted[what], dict) and isinstance(ours := found[what], dict):
                for name in theirs.keys() | ours.keys():
                    one, other = ours.get(name), theirs.get(name)
                    assert one == other, f"{what} {name}, {when}: {one} != {other}"
            assert found[what] == wanted[what], f"{what}, {when}: {found[what]} != {wanted[what]}"
        assert self.found.note() == self.notes, when


def lived(
    steps: Sequence[Step], sync: Sync = "off", also: Callable[[Lives], None] | None = None, files: Any = None
) -> None:
    """Live these steps on both."""
    with patch.object(history, "MEMORY", 200), Lives(sync, files) as lives:
        lives.live(steps)
        if also is not None:
            also(lives)
