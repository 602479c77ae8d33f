"""Lives of databases: sessions of statements and pushes, right and wrong ones, with everything that a directory keeps
in between, and interruptions wherever one can be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from penstock.testing import steps as written
from tests.generated.language import Row
from tests.generated.lives import BEGIN, Life, lives
from tests.sessions.language import QUERIES, Beat, Close, Fetch, Pass, Push, Say, sessions


@dataclass(frozen=True)
class Current:
    """Look at the answer of a query as it stands."""

    query: str


@dataclass(frozen=True)
class Transfer:
    """Take results and note how many there were."""

    query: str


@dataclass(frozen=True)
class Aside:
    """Take the late rows of a stream, or those kept apart."""

    stream: str
    what: str


@dataclass(frozen=True)
class Note:
    """Note something with the database."""

    value: int


@dataclass(frozen=True)
class Define:
    """Declare a function, or declare it anew."""

    name: str
    version: int


@dataclass(frozen=True)
class Ask:
    """Register a query whose name the database finds."""

    text: str


@dataclass(frozen=True)
class Configure:
    """Let other threads do the work."""

    threading: str


@dataclass(frozen=True)
class Place:
    """Have other virtual operators: see ``tests.graph.schedules.place``."""

    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Save:
    """Save the state; so many of the next steps happen while it is written."""

    during: int


@dataclass(frozen=True)
class Interrupt:
    """Close the database and open it again, or kill it, or let the power fail."""

    how: str
    seed: int = 0


Step = (
    Say | Push | Beat | Close | Pass | Fetch | Current | Transfer | Aside | Note | Define | Ask | Configure | Place
    | Save | Interrupt
)  # fmt: skip
NAMES = [*QUERIES, "n1", "n2", "n3", "q1", "q2", "q3"]
MORE = [
    "SELECT ISTREAM f(k) AS y FROM s [ROWS 2]",
    "SELECT f(k) AS y, count(*) AS n FROM s [RANGE 4] GROUP BY f(k)",
    "SELECT k / (k - 1) AS y FROM s [ROWS 3]",
    "SELECT k, f(k) AS y FROM q",
    "SELECT f(k) AS y FROM now [ROWS 2]",
    "SELECT k, count(*) AS n FROM s [TUMBLING 3] GROUP BY k",
    "SELECT k FROM s [ROWS 3]",
    "SELECT k FROM s [ROWS 5] WHERE k > 0",
    "SELECT k, sum(k) AS n FROM s [ROWS 9] GROUP BY k ORDER BY n DESC LIMIT 2",
    "SELECT count(*) AS n FROM now [RANGE 2 SECONDS]",
    "SELECT k FROM s [BEGIN WINDOW 0 END WINDOW 3 HOP SIZE (3, 3) END QUERY 12]",
    "SELECT s.k FROM s [ROWS 2], r [ROWS 2] WHERE s.k = r.k MASTER s",
]
OPTIONS = [""] * 6 + [
    " WITH (strict = TRUE)", " WITH (priority = 9)", " WITH (results = '3 rows')", " WITH (start = 'now')",
]  # fmt: skip


def call(name: str, version: int, value: int | None) -> int | None:
    """What a function of this version gives: it fails for some values."""
    if value == version:
        raise ValueError(f"{name}@{version} takes no {value}")
    return None if value is None else value * 10 + version


def of_life(life: Life) -> list[Step]:
    """The steps of a generated life, with what restarts it where it says so."""
    found: list[Step] = []
    time = BEGIN
    for line in (*life.declare, *life.steps):
        kind, _, rest = line.partition(" ")
        if kind == "query":
            name, _, text = rest.partition(": ")
            found.append(Say(f"CREATE QUERY {name} AS {text}"))
        elif kind == "restart":
            found.append(Interrupt("killed"))
        elif kind == "configure":
            found.append(Configure(rest))
        elif kind == "place":
            found.append(Place(tuple(map(int, rest.split()))))
        elif kind.isupper():
            found.append(Say(line))
        elif kind == "clock":
            found.append(Pass(int(rest) - time))
            time = int(rest)
        else:
            found.append(_step(written.read_step(line)))
    return found


def _step(step: written.Step) -> Step:
    match step:
        case written.Push(name, rows):
            assert isinstance(rows, Sequence)
            return Push(name, tuple(rows))
        case written.Heartbeat(name, at):
            assert isinstance(at, int)
            return Beat(name, at)
        case written.Close(name):
            return Close(name)
    raise AssertionError(step)


@st.composite
def _richer(draw: st.DrawFn, steps: Sequence[Step]) -> list[Step]:
    """Declarations with more in them."""
    found: list[Step] = []
    for step in steps:
        match step:
            case Say(text) if text.startswith("CREATE STREAM") and text.endswith(")") and "WITH" not in text:
                # Stamped on arrival.
                options = draw(st.sampled_from(["", " WITH (on_error = 'apart')", " WITH (retain = '3 seconds')"]))
                found.append(Say(text + options))
            case Say(text) if text.endswith("TIMESTAMP BY t") and text.startswith("CREATE STREAM"):
                seconds = " SECONDS" if "TIMESTAMP," in text else ""
                slack = draw(st.sampled_from(["", "", f" SLACK 2{seconds}"]))
                with_ = draw(
                    st.sampled_from(
                        ["", "", " WITH (idle = '1 second')", " WITH (retain = '5 us')", " WITH (on_error = 'apart')",
                         " WITH (retain = '4 us', on_error = 'apart')", " WITH (retain = 'all', history = 'disk')"]
                    )
                )  # fmt: skip
                priority = draw(st.sampled_from(["", "", " PRIORITY BY 1"]))
                found.append(Say(text + slack + priority + with_))
            case _:
                found.append(step)
    return found


def _further(interrupts: Sequence[str]) -> st.SearchStrategy[Step]:
    names, streams = st.sampled_from(NAMES), st.sampled_from(["s", "r", "at", "now", "u"])
    asked = st.builds(lambda q, o: q + o, st.sampled_from(MORE), st.sampled_from(OPTIONS))
    bad: list[Row] = [("nonsense", 1, "a", 1.0, 1), (3, "no", None, None, None), (None, 1)]
    seeds = st.integers(0, 2**32)
    return st.one_of(
        st.builds(lambda n, q: Say(f"CREATE QUERY {n} AS {q}"), st.sampled_from(QUERIES), asked),
        st.builds(Ask, st.sampled_from([*MORE, "SELECT k FROM nowhere"])),
        st.builds(lambda what, n: Say(f"{what} QUERY {n}"), st.sampled_from(["SUSPEND", "SUSPEND", "RESUME"]), names),
        st.builds(lambda n, p: Say(f"ALTER QUERY {n} SET (priority = {p})"), names, st.integers(0, 9)),
        st.builds(Fetch, names),
        st.builds(Current, names),
        st.builds(Transfer, names),
        st.builds(Aside, streams, st.sampled_from(["late", "apart"])),
        st.builds(Note, st.integers(0, 9)),
        st.builds(Define, st.just("f"), st.integers(0, 3)),
        st.builds(lambda n, rows: Push(n, tuple(rows)), streams, st.lists(st.sampled_from(bad), min_size=1)),
        st.builds(Pass, st.sampled_from([0, 1, 1_000_000])),
        st.builds(Save, st.integers(0, 3)),
        st.builds(Save, st.integers(0, 3)),
        st.builds(Interrupt, st.sampled_from(interrupts), seeds),
        st.builds(Interrupt, st.sampled_from(interrupts), seeds),
    )


@st.composite
def histories(draw: st.DrawFn, interrupts: Sequence[str]) -> list[Step]:
    """A life, and what else happens at random places of it."""
    steps: list[Step] = of_life(draw(lives())) if draw(st.integers(0, 2)) == 0 else [*draw(sessions())]
    steps = draw(_richer(steps))
    if draw(st.booleans()):
        steps.insert(0, Define("f", draw(st.integers(0, 3))))
    more = draw(st.lists(_further(interrupts), min_size=3, max_size=16))
    for step in more:
        steps.insert(draw(st.integers(1, len(steps))), step)
    return steps


def listed(steps: Sequence[object]) -> str:
    """One to a line."""
    return "\n" + "\n".join(f"  {place}: {step}" for place, step in enumerate(steps))
