"""A registered query, as its user holds it."""

from __future__ import annotations

import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from penstock.errors import BindError, PenstockError, QueryFailed, StateError
from penstock.hosts import Answers, Runner
from penstock.ingest import counted
from penstock.operators.base import StateSize
from penstock.plan.empty import every_window
from penstock.plan.explain import explain_text
from penstock.plan.explanation import Explanation
from penstock.plan.nodes import Clock, RelationScan, StreamScan, walk
from penstock.plan.nodes import Query as Plan
from penstock.plan.order import is_ranking
from penstock.plan.window import Generic
from penstock.reference import Dating
from penstock.scalar.zones import UTC
from penstock.shown import as_text
from penstock.standing import Standing
from penstock.values import with_zone

if TYPE_CHECKING:
    from penstock.database import Database

_FEW = 64
_LOOK = 100_000
"""Answers that may be put together to show where a query stands, anew for each look."""

_TICK = 0.05
"""Seconds between looks at the clock while an iteration waits: streams stamped on arrival move on by themselves."""

Due = Callable[[], object]
"""Something to call once the lock need not be held."""

Status = Literal["running", "ended", "stopped", "failed"]

Start = Literal["now", "retained"]
"""With which rows of its streams a query begins: those that come, or before them those that all of them retain. Where
it is not said, those that they retain, if they do."""


@dataclass(frozen=True)
class QueryOptions:
    """``WITH (…)`` of a query."""

    priority: int = 5
    latency: int | None = None
    strict: bool = False
    start: Start | None = None


def check_start(value: str, what: str) -> Start:
    """Where a query may start."""
    match value:
        case "now" | "retained":
            return value
    hint = "'retained': with the rows that its streams retain; 'now': with the next ones"
    raise BindError(f"{what} is 'now' or 'retained', not {value!r}", hint=hint)


@dataclass(frozen=True)
class Before:
    """Rows of a stream that came before a query and that it was not given."""

    rows: int
    arrivals: int
    """How many rows the stream had been given, late ones and those that waited for slack included."""


def retain_example(clock: Clock) -> str:
    """A way to say for how long a stream keeps its rows."""
    return "WITH (retain = 1000)" if clock == "ticks" else "WITH (retain = '1 hour')"


class Query:
    """A continuous query: fetch its answers, iterate over them, or subscribe to them.

    Answers wait here until they are fetched; with subscribers they go to them instead and none wait. What
    waits is bounded only by how often the reader reads.
    """

    def __init__(
        self,
        database: Database,
        name: str,
        plan: Plan,
        schema: pa.Schema,
        runner: Runner,
        reads: frozenset[str],
        options: QueryOptions,
        text: str,
    ) -> None:
        self.name = name
        self.plan = plan
        shown = pa.schema(list(schema)[: len(schema) - plan.hidden])
        self.schema = shown if database.zone == UTC else with_zone(shown, database.zone)
        self.reads = reads
        self.options = options
        self.text = text
        self.error: PenstockError | None = None
        self.answered = 0
        self.dating = Dating()
        """Of a query without streams, the instants of the changes that it has been given."""
        self._database = database
        self._runner = runner
        self._status: Status = "running"
        self._waiting: deque[Answers] = deque()
        self._small = 0  # how many of the last ones are small
        self._subscribers: list[Callable[[pa.Table], object]] = []
        self._changed = threading.Condition(database._lock)
        self._standing: Standing | None = None
        self._before: Mapping[str, Before] = {}
        self._warned = False

    @property
    def status(self) -> Status:
        return self._status

    @property
    def failures(self) -> int:
        """How many values became NULL because computing them failed (division by zero, a bad cast …)."""
        return self._runner.failures

    @property
    def last_failure(self) -> str | None:
        """What the last of the failures was; of a query that failed, what stopped it."""
        return self._runner.last_failure if self.error is None else self.error.message

    @property
    def trouble(self) -> str | None:
        """What stopped a query that failed: what was wrong, in which operator, on which element, and the traceback."""
        if self.error is None:
            return None
        return "\n".join([str(self.error), *getattr(self.error, "__notes__", ())])

    @property
    def state(self) -> Mapping[str, StateSize]:
        """What the query remembers (rows, bytes), by operator."""
        return self._runner.sizes()

    @cached_property
    def inputs(self) -> frozenset[str]:
        """The declared streams that rows must be pushed into for this query."""
        return frozenset(n.stream for n in walk(self.plan) if isinstance(n, StreamScan))

    @cached_property
    def _every_window(self) -> tuple[tuple[Generic, frozenset[str]], ...]:
        """The windows of which each is answered, also without rows, and the streams that end them."""
        return tuple(every_window(self.plan))

    @cached_property
    def relations(self) -> frozenset[str]:
        """The stored relations that the query reads."""
        return frozenset(n.relation for n in walk(self.plan) if isinstance(n, RelationScan))

    def fetch(self, *, wait: bool = True) -> pa.Table:
        """The answers since the last fetch: ts, op, then the columns.

        Waits until what was pushed before has been worked on; with ``wait=False`` it takes what is there. Raises
        ``QueryFailed`` once all answers before the failure have been fetched.
        """
        answers = self._taken(self._shown, wait=wait)
        self._warn_of_rows_before(answers)
        return answers

    def current(self) -> pa.Table:
        """The rows of the answer as it stands now, without ts and op: what all its changes come to.

        With ORDER BY they are in that order, with LIMIT alone in the order of their values. Takes the answers that
        wait, as ``fetch`` does, so use one or the other from the beginning. The query then keeps the rows of its
        answer.
        """
        with self._changed:
            if self._standing is None:
                self._standing = Standing(self.name, self.plan, self.schema)
            standing = self._standing

        def put_in(table: pa.Table) -> pa.Table:
            if not self._whole:
                raise StateError(
                    f"some answers of `{self.name}` have been taken in another way",
                    hint="current() puts all of them together: use it from the beginning, and not fetch",
                )
            standing.take(table)
            return standing.table()

        rows = self._taken(put_in, wait=True)
        self._warn_of_rows_before(rows)
        return rows

    @property
    def note(self) -> str | None:
        """What people should know of rows that came before the query and are not in its answer."""
        if not self._before:
            return None
        had = " and ".join(f"stream `{name}` had {counted(b.rows, 'row')}" for name, b in self._before.items())
        return f"{had} before the query, which are not in its answer; {self._remedy}"

    @property
    def _remedy(self) -> str:
        """What helps if rows from before a query are wanted."""
        return (
            "register the query before rows are pushed, or declare the stream WITH (retain = 'all'), which keeps them "
            f"for queries to come; {retain_example(self.plan.clock)} keeps the last ones"
        )

    def _warn_of_rows_before(self, given: pa.Table) -> None:
        """Warn once a user who pushed first and asked then, and is given nothing.

        As Python does with deprecations, it is told only to code in ``__main__``: a script, a notebook, a prompt.
        """
        if given.num_rows or self._warned or not self._before or self.answered:
            return
        with self._changed:
            inputs = self._database._inputs
            if any(name not in inputs or inputs[name].arrivals > b.arrivals for name, b in self._before.items()):
                return
            self._warned = True
        if sys._getframe(2).f_globals.get("__name__") == "__main__":
            names = " and ".join(f"`{name}`" for name in self._before)
            warnings.warn(
                f"rows that were pushed into {names} before a query are not in its answer; {self._remedy}", stacklevel=3
            )

    @property
    def _whole(self) -> bool:
        """Whether all answers so far wait or are in the answer that stands, so that ``current`` can have them."""
        with self._changed:
            return (0 if self._standing is None else self._standing.changes) + self.waiting == self.answered

    def _ranking(self) -> pa.Table | None:
        """What ``current`` would give of ORDER BY … LIMIT, but nothing is taken.

        None for other queries, where answers have been taken in another way, and where many wait: this is for a look.
        """
        with self._changed:
            if not is_ranking(self.plan) or not self._whole or self.waiting > _LOOK:
                return None
            standing = self._standing
            standing = Standing(self.name, self.plan, self.schema) if standing is None else standing.copy()
            standing.take(self._runner.table(list(self._waiting)))
        return standing.table()

    def transfer(self, write: Callable[[pa.Table], Mapping[str, object] | None], *, wait: bool = True) -> int:
        """Like ``fetch``, but the answers count as delivered when ``write`` has returned; gives their number.

        Of a database with a directory: if the process dies before that, they come again after the next start. What
        ``write`` returns (JSON) is noted in the same step, to be found in ``Database.notes``: for example how long the
        file is now, so that what was written after the last such step can be cut off.
        """
        notes: list[Mapping[str, object] | None] = [None]

        def writing(table: pa.Table) -> pa.Table:
            if table.num_rows:
                notes[0] = write(self._shown(table))
            return table

        return int(self._taken(writing, wait=wait, notes=notes).num_rows)

    def _taken(
        self,
        use: Callable[[pa.Table], pa.Table],
        *,
        wait: bool,
        notes: Sequence[Mapping[str, object] | None] = (None,),
    ) -> pa.Table:
        """Take the answers that wait; ``use`` is given them with hidden columns."""
        self._database.tick()
        if wait:
            self._database._host.settle(self)
        with self._changed:
            waiting = list(self._waiting)
            if not waiting and self._status == "failed" and self.error is not None:
                raise self.error
            table = use(self._runner.table(waiting))
            for _ in waiting:
                self._waiting.popleft()
            self._runner.delivered(waiting, notes[0])
            return table

    def _shown(self, table: pa.Table) -> pa.Table:
        """Answers as their reader gets them: without hidden columns, and in the zone of the database."""
        table = table.select(self.schema.names) if self.plan.hidden else table
        return table if table.schema.equals(self.schema) else table.cast(self.schema)

    def __iter__(self) -> Iterator[pa.Table]:
        """Batches of answers as they come; ends with the query. Waits while other threads push."""
        while True:
            with self._changed:
                while not self._waiting and self._status == "running":
                    if not self._changed.wait(_TICK):
                        self._database.tick()
                if not self._waiting:
                    if self._status == "failed" and self.error is not None:
                        raise self.error
                    return
                answers = self._waiting[0]
                batch = self._table([answers])
                self._waiting.popleft()
                self._runner.delivered([answers])
            yield batch

    def subscribe(self, callback: Callable[[pa.Table], object]) -> None:
        """Call back with every batch of answers from now on, in the thread that pushes; what waits comes first."""
        with self._changed:
            # Under the lock, so that nothing newer can come first.
            while self._waiting:
                answers = self._waiting[0]
                callback(self._table([answers]))
                self._waiting.popleft()
                self._runner.delivered([answers])
            self._subscribers.append(callback)

    def stop(self) -> None:
        """End the query. Answers that wait can still be fetched."""
        if self._status == "running":
            self._database._host.finishing(self)
        with self._changed:
            if self._status == "running":
                self._end("stopped")
            self._database._forget_query(self)

    @property
    def waiting(self) -> int:
        """How many answers have not been fetched yet."""
        with self._changed:
            return sum(map(len, self._waiting))

    def peek(self, rows: int = 10) -> pa.Table:
        """The last answers that wait, at most so many. They are not taken: ``fetch`` gives them still."""
        with self._changed:
            last: list[Answers] = []
            count = 0
            while count < rows and len(last) < len(self._waiting):
                last.append(self._waiting[-len(last) - 1])
                count += len(last[-1])
            table = self._table(last[::-1])
        return table.slice(max(0, table.num_rows - rows))

    def _wait_for_more(self, seconds: float) -> bool:
        """Return when there are new answers or the query has ended, at the latest after so many seconds; False then."""
        until = time.monotonic() + seconds
        with self._changed:
            before = self.answered
            while self.answered == before and self._status == "running":
                left = until - time.monotonic()
                if left <= 0:
                    return False
                if not self._changed.wait(min(_TICK, left)):
                    self._database.tick()
            return True

    def watch(self, seconds: float = 10.0, *, interval: float = 0.5) -> None:
        """In a notebook: show the query and its latest answers, and keep that up to date for so many seconds.

        An interrupt ends it. Answers are not taken; see ``penstock.notebook.watch``.
        """
        from penstock.notebook import watch

        watch(self, seconds=seconds, interval=interval)

    def explain(self) -> str:
        """The plan as text."""
        return Explanation(explain_text(self.plan))

    def _repr_html_(self) -> str:
        from penstock.notebook import html

        return html.query(self)

    def __repr__(self) -> str:
        return f"<Query {self.name}: {self._status}, {self.answered} answers>"

    def __str__(self) -> str:
        return repr(self) if self.note is None or self.answered else f"{self!r}\n{self.note}"

    _repr_pretty_ = as_text

    # -- the database's side, under its lock --------------------------------------------------------

    def _advance(self) -> list[Due]:
        """Let the runner work; gives the callbacks that are due."""
        if self._status != "running":
            return []
        try:
            answers = self._runner.run()
        except Exception as error:
            self._fail(self._failure(error))
            return []
        due = [] if answers is None else self._receive(answers)
        if self._runner.ended:
            self._end("ended")
        return due

    def _receive(self, answers: Answers) -> list[Due]:
        """Keep answers for the reader, or give the callbacks that are due."""
        if not len(answers):
            return []
        self.answered += len(answers)
        if not self._subscribers:
            self._wait(answers)
            self._changed.notify_all()
            return []
        table = self._table([answers])
        calls: list[Due] = [partial(callback, table) for callback in self._subscribers]
        return [*calls, partial(self._runner.delivered, [answers])]

    def _table(self, answers: Sequence[Answers]) -> pa.Table:
        return self._shown(self._runner.table(answers))

    def _failure(self, error: Exception) -> PenstockError:
        if isinstance(error, PenstockError):
            error.message = f"query `{self.name}`: {error.message}"
            return error
        failure = QueryFailed(f"query `{self.name}` failed: {type(error).__name__}: {error}")
        failure.__cause__ = error
        for note in getattr(error, "__notes__", ()):
            failure.add_note(note)
        return failure

    def _wait(self, answers: Answers) -> None:
        """Keep answers for the reader; many small ones are put together, or the interpreter would mind their number."""
        self._waiting.append(answers)
        self._small = min(self._small, len(self._waiting) - 1) + 1 if len(answers) < _FEW else 0
        if self._small == _FEW:
            last = [self._waiting.pop() for _ in range(_FEW)]
            self._waiting.append(self._runner.together(last[::-1]))
            self._small = 0

    def _fail(self, error: PenstockError) -> None:
        self.error = error
        self._end("failed")

    def _end(self, status: Status) -> None:
        self._status = status
        self._runner.close()
        self._changed.notify_all()
