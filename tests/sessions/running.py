"""Live a session on an engine, and tell what became of every step and what every query answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import penstock
from penstock.testing import Clock
from tests.generated.running import comparable
from tests.sessions.language import Beat, Close, Fetch, Pass, Push, Say, Step


@dataclass
class Life:
    """What came of a session."""

    refused: dict[int, str] = field(default_factory=dict)
    """The error of each step that was refused, by its place."""
    results: dict[int, Counter[object]] = field(default_factory=dict)
    """All results of each query, by the place of the step that created it."""
    fetched: dict[int, Counter[object]] = field(default_factory=dict)
    """What each ``Fetch`` gave, by its place."""

    def of(self, kept: Sequence[int]) -> dict[int, Counter[object]]:
        """The results of the queries whose steps are kept, by their places among these."""
        return {kept.index(place): found for place, found in self.results.items() if place in kept}


def live(engine: str, steps: Sequence[Step], *, row_by_row: bool = False) -> Life:
    """Every step in turn, then all streams are closed. Any error that is not a ``PenstockError`` is raised."""
    life = Life()
    clock = Clock("2024-01-01")
    names: dict[str, int] = {}
    with penstock.connect(engine=engine, clock=clock) as db:

        def take(query: penstock.Query) -> Counter[object]:
            found = results(query)
            life.results[names[query.name]].update(found)
            return found

        for place, step in enumerate(steps):
            try:
                match step:
                    case Say(text):
                        stopping = {n: q for n, q in db.queries.items() if text.startswith("STOP")}
                        if text.startswith("SUSPEND"):
                            db.settle()  # engines that work by themselves are then as far as the others
                        made = db.execute(text)
                        for query in (q for n, q in stopping.items() if n not in db.queries):
                            take(query)
                        if made.query is not None and made.query.name not in stopping:
                            names[made.query.name] = place
                            life.results.setdefault(place, Counter())
                    case Push(name, rows):
                        # Each change of a relation without an instant has one of its own.
                        split = row_by_row and name not in db.catalog.relations
                        for part in [[r] for r in rows] if split else [rows]:
                            db.push(name, list(part))
                    case Beat(name, at):
                        db.heartbeat(name, at)
                    case Close(name):
                        db.close_stream(name)
                    case Pass(ticks):
                        clock.advance(ticks)
                        db.heartbeat()
                    case Fetch(name) if name in db.queries:
                        life.fetched[place] = take(db.queries[name])
            except penstock.PenstockError as error:
                life.refused[place] = f"{type(error).__name__}: {error}"
        for query in db.queries.values():
            if query.status == "suspended":
                query.resume()
        for name, stream in db.catalog.streams.items():
            if not stream.derived:
                db.close_stream(name)
        for query in list(db.queries.values()):
            take(query)
    return life


def results(query: penstock.Query) -> Counter[object]:
    """What waits to be fetched, and the failure of a query that has failed."""
    try:
        table = query.fetch()
    except penstock.QueryFailed as failed:
        return Counter([f"failed: {failed.message}"])
    rows = zip(*(table.column(i).to_pylist() for i in range(table.num_columns)), strict=True)
    return Counter(tuple(comparable(v) for v in row) for row in rows)
