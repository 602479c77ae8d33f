"""Plays the scenario into a database and measures what comes out. How that is shown is somebody else's matter."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.demo import script
from penstock.demo.clock import Clock
from penstock.demo.figures import Burst, Meter, Pushes, Rate
from penstock.demo.scenario import ALARM, SLICE, WARM, Scenario, instant
from penstock.demo.snapshot import Event, QueryFigures, Snapshot
from penstock.graph.draw.common import duration
from penstock.model.errors import EngineError

if TYPE_CHECKING:
    from penstock.database.database import Database
    from penstock.graph.view import GraphView

Show = Callable[[Snapshot], object]
_REFRESH = 0.15
"""Seconds between two snapshots."""
_LOOK = 0.6
"""Seconds between two looks at the graph: it is drawn anew for each."""
_OUTAGE = 12
"""Slices for which the line to the turbines is down, in a run that is long enough."""
_WARM_UP = 12
"""Slices that are played before anything is measured, and that the engine has to be done with."""
_WARM_SECONDS = 6.0
"""After so many it is done with each by itself no more, only with all of them."""
_WARM_BURST = 5
"""The slice of them in which the line to the turbines is down."""
_BEHIND = 8.0
"""Seconds that an engine may be behind before nothing more is pushed, and that the last answers are waited for."""
_BREATH = 0.001
"""Seconds between two pushes of a burst: whoever hands out answers needs the database, too."""
_SOON = 0.02
"""Seconds in which answers that are there may be handed out."""
_ALARMS = "service_calls"


@dataclass(frozen=True)
class Profile:
    """How an engine is driven: the scenario, how long it lasts, and settings for ``connect`` and ``configure``."""

    scenario: Scenario
    lasts: float
    connect: dict[str, Any]
    configure: dict[str, Any]


# On Spark the queries are two parts that work side by side, so each has half of the cores. Pushes of one moment are
# worked on together, and of a burst alarms are let through when a micro-batch is full.
_SPARK = {"shards": max(1, min(4, (os.cpu_count() or 1) // 2)), "trigger": 0.01, "batch_rows": 6_000}
PROFILES = {
    "spark": Profile(Scenario(burst=60_000, chunk=2_000), 13.0, _SPARK, {}),
    "local": Profile(Scenario(burst=300_000), 18.0, {}, {"threading": "hybrid", "workers": 2}),
    # Computes every answer from scratch.
    "reference": Profile(Scenario(readings=8, burst=400, chunk=100), 10.0, {}, {}),
}


class Run:
    """One run of the demo over an open database without streams.

    Bounded by: the length of the run. The thread that waits for the last answers ends with them, or when the database
    is closed.
    """

    def __init__(self, database: Database, scenario: Scenario, seconds: float, clock: Clock) -> None:
        self._db, self._scenario, self._clock = database, scenario, clock
        self._abouts = script.abouts()
        database.execute(script.text())
        self._pushes = Pushes(database.catalog.streams)
        self._rows = {stream: Rate() for stream in database.catalog.streams}
        self._meters: dict[str, Meter] = {}
        for name, query in database.queries.items():
            self._meters[name] = Meter(clock.now, sorted(query.inputs), self._pushes)
            query.subscribe(self._meters[name])
        self._slices = max(10, round(seconds * 1e6 / SLICE))
        # Long enough for each reading of the burst to have an instant of its own.
        outage = max(min(_OUTAGE, self._slices // 10), math.ceil(scenario.burst / SLICE))
        first = _WARM_UP + self._slices * 2 // 5
        self._outage = range(first, first + outage)
        self._began = clock.now()
        self._ended: float | None = None
        self._events: list[Event] = []
        self._over = False
        """All calls for the burst are answered."""
        self._graph: GraphView | None = None
        self._looked = -math.inf
        self._shown = -math.inf

    @property
    def lasts(self) -> float:
        """Seconds for which rows come."""
        return self._slices * SLICE / 1e6

    def warm_up(self) -> None:
        """Play the first rows and a small burst, so that what an engine does once does not count."""
        burst = replace(self._scenario, burst=self._scenario.burst // 4)
        until = self._clock.now() + _WARM_SECONDS
        for number in range(_WARM_UP):
            if number == _WARM_BURST + 1:
                self._push_all(burst.held_back(_WARM_BURST, number))
            self._push_slice(number)
            if self._clock.now() < until:
                self._db.settle()
        self._db.settle()
        for meter in self._meters.values():
            meter.reset(instant(_WARM_UP))  # answers to the others may still be under way
        self._rows = {stream: Rate() for stream in self._rows}

    def play(self, show: Show) -> None:
        """Push the rows of each moment when it has passed, and show how things are now and then."""
        rows = f"{self._scenario.a_second:,}"
        burst = self._scenario.held_back(self._outage.start, self._outage.stop)
        self._began = self._clock.now()
        self._happens(f"8 turbines and the sensors and meters of 5 houses send {rows} rows a second")
        for number in range(_WARM_UP, _WARM_UP + self._slices):
            due = self._began + (number - _WARM_UP + 1) * SLICE / 1e6
            self._wait(due, show)
            if self._clock.now() > due + _BEHIND:
                self._happens("this machine is too busy to keep pace: no more rows are sent")
                break
            if number == self._outage.start:
                self._happens("the line to the turbines is down: queries that read them wait, the others go on")
                self._watch(burst)
            if number == self._outage.stop:
                self._push_burst(burst)
            self._push_slice(number)
            self._notice()
        self._finish(show)

    def snapshot(self, *, look: bool = False) -> Snapshot:
        """How things are; ``look``: at the graph too, even if somebody just did."""
        now, since = self._clock.now(), self._began
        if look or now >= self._looked + _LOOK:
            self._graph, self._looked = self._looked_at(), now
        found, burst = [], None
        rows = {stream: (rate.total, rate.a_second(now, since)) for stream, rate in self._rows.items()}
        for name, meter in self._meters.items():
            query, about, reading = self._db.queries[name], self._abouts[name], meter.read(since)
            inputs = [rows[stream] for stream in query.inputs]
            burst = reading.burst or burst
            found.append(QueryFigures(
                name, about.kind, about.sentence, sum(n for n, _ in inputs), sum(r for _, r in inputs),
                reading.answers, reading.a_second, reading.p50, reading.p99,
                sum(size.bytes for size in query.state.values()), _texts(reading.latest),
            ))  # fmt: skip
        waiting = sum(e.buffer.elements for e in self._graph.edges if e.buffer is not None) if self._graph else 0
        return Snapshot(
            self._db.engine, (now if self._ended is None else self._ended) - since, self.lasts,
            sum(n for n, _ in rows.values()), sum(r for _, r in rows.values()), waiting,
            tuple(found), tuple(self._events), burst, self._graph,
        )  # fmt: skip

    def _looked_at(self) -> GraphView | None:
        try:
            return self._db.graph()
        except EngineError:
            return None  # the engine has none

    # -- rows ---------------------------------------------------------------------------------------

    def _push_slice(self, number: int) -> None:
        """The rows of a slice; those of turbines last, so that they find all that has come with them."""
        upto = instant(number + 1)
        is_down = number in self._outage or number == _WARM_BURST
        for stream, rows in self._scenario.slice(number, turbines=not is_down).items():
            self._push(stream, rows, upto)
            self._db.heartbeat(stream, upto)

    def _push(self, stream: str, rows: pa.Table, upto: int) -> None:
        now = self._clock.now()
        self._pushes.note(stream, upto, now)
        self._rows[stream].note(now, rows.num_rows)
        if rows.num_rows:
            self._db.push(stream, rows)

    def _watch(self, burst: list[pa.Table]) -> None:
        """From now on compare the answers to these rows, which have not come yet."""
        rows = pa.concat_tables(burst)
        bearing, at = rows["bearing"].to_numpy(), rows["at"].cast(pa.int64()).to_numpy()
        alarms = at[bearing > ALARM]
        self._meters[_ALARMS].burst = Burst(
            instant(self._outage.start), instant(self._outage.stop), len(at), alarms,
            int(np.count_nonzero(bearing > WARM)) - len(alarms),
        )  # fmt: skip

    def _push_burst(self, pushes: list[pa.Table]) -> None:
        rows, alarms = sum(len(p) for p in pushes), self._scenario.alarms
        self._happens(f"burst: the line is back, {rows:,} readings come at once, {alarms} alarms in their middle")
        self._push_all(pushes)

    def _push_all(self, pushes: list[pa.Table]) -> None:
        for push in pushes:
            self._push("turbines", push, push["at"][-1].value + 1)
            self._clock.sleep(_BREATH)

    # -- time ---------------------------------------------------------------------------------------

    def _wait(self, until: float, show: Show) -> None:
        while True:
            now = self._clock.now()
            if now >= self._shown + _REFRESH:
                self._notice()
                show(self.snapshot())
                self._shown = now = self._clock.now()
            if now >= until:
                return
            self._clock.sleep(max(0.0, min(until, self._shown + _REFRESH) - now))

    def _notice(self) -> None:
        """Say when all calls for the burst are answered."""
        burst = self._meters[_ALARMS].read(self._began).burst
        if burst is None or not burst.done or burst.other_longest is None or self._over:
            return
        self._over = True
        self._happens(f"all calls for the burst are answered, the last after {duration(burst.other_longest)}")

    def _finish(self, show: Show) -> None:
        """Wait for the last answers, but not for ever."""
        settling = threading.Thread(target=self._db.settle, name="penstock-demo-settle", daemon=True)
        settling.start()
        until = self._clock.now() + _BEHIND
        while self._clock.now() < until:
            if settling.is_alive():
                self._clock.join(settling, _REFRESH)
            elif all(meter.heard == self._db.queries[name].answered for name, meter in self._meters.items()):
                break
            else:
                self._clock.sleep(_SOON)
            show(self.snapshot())
        self._notice()
        self._ended = self._clock.now()
        show(self.snapshot(look=True))

    def _happens(self, text: str) -> None:
        self._events.append(Event(self._clock.now() - self._began, text))


def _texts(answers: pa.Table | None) -> tuple[str, ...]:
    """Answers in a line each: texts as they are, numbers behind the names of their columns."""
    if answers is None:
        return ()
    columns = answers.drop_columns(["ts", "op"])
    return tuple(
        "  ".join(value if isinstance(value, str) else f"{name} {value:,.1f}" for name, value in row.items())
        for row in columns.to_pylist()
    )
