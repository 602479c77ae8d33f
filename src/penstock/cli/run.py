"""``penstock run``: play files into the queries of a CQL file."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import pyarrow as pa
import typer

from penstock.cli.answers import SUFFIX, Answers, file_stem, open_answers, resume_answers
from penstock.cli.connected import ConnectOption, TokenOption, check_alone, remote_run
from penstock.cli.failures import INTERRUPTED, TERMINATED, Failure, failure, report
from penstock.cli.far import HowFar
from penstock.cli.inputs import FollowOption, InputFormatOption, Terminated, open_inputs, stoppable
from penstock.cli.script import (
    DatabaseOption,
    EngineOption,
    MasterOption,
    ZoneOption,
    open_database,
    resume_script,
    run_script,
)
from penstock.cli.seen import check_files, unsee
from penstock.cli.watch import clock
from penstock.database.database import core_of
from penstock.database.play import Input, input_name, play
from penstock.io.files import Leave
from penstock.io.live import STDIN, Arrivals, LiveText, is_live
from penstock.io.table_text import table_text
from penstock.io.writers import OutputFormat, Writer, open_writer
from penstock.model.errors import InputError
from penstock.plan.show import show_duration
from penstock.rows.apart import apart_reason

if TYPE_CHECKING:
    from penstock.database.database import Database
    from penstock.database.query import Query

_CHUNK = 16_384
"""Rows that are pushed at a time."""

Format = Enum("Format", {name: name for name in get_args(OutputFormat)}, type=str)  # type: ignore[misc]
FormatOption = Annotated[
    Format | None, typer.Option(help="How answers are written; by default as --output ends, or a table.")
]
LateOption = Annotated[Path | None, typer.Option(help="A folder for the late rows of each stream.")]
ApartOption = Annotated[
    Path | None, typer.Option(help="A folder for the rows that do not fit a stream WITH (on_error = 'apart').")
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Say nothing but errors and warnings: no summary at the end.")
]


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE.cql", help="Declarations and queries; - is stdin.")],
    input: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=PATH", help="A file, folder or pipe for a stream or relation; - is stdin."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="A file; with several queries a folder with a file for each.")
    ] = None,
    engine: EngineOption = None,
    master: MasterOption = None,
    database: DatabaseOption = None,
    format: FormatOption = None,
    late: LateOption = None,
    apart: ApartOption = None,
    zone: ZoneOption = None,
    keep_open: Annotated[
        bool,
        typer.Option("--keep-open", help="Streams stay open at the end of their files: more rows will come."),
    ] = False,
    follow: FollowOption = False,
    input_format: InputFormatOption = None,
    quiet: QuietOption = False,
    connect: ConnectOption = None,
    token: TokenOption = None,
) -> None:
    """Run the queries of a file over data files, and write their answers as they come.

    Exit codes: 0 success, 1 a query failed, 2 wrong usage, CQL or input, 130 interrupted.
    """
    started = time.perf_counter()
    if connect is not None:
        check_alone(input, output, engine, master, database, zone, late, apart)
        remote_run(connect, token, file)
        return
    given = parse_inputs(input or [])
    chosen: OutputFormat | None = None if format is None else format.value
    if database is not None and output is None:
        raise Failure("with --database the answers go to files: give --output a folder")
    if str(file) == STDIN and any(str(path) == STDIN for path in given.values()):
        raise Failure("the script and an input are standard input (-), which can be read once")
    done, arrivals = Done(), Arrivals()
    try:
        with (
            stoppable(arrivals, follow=follow) as cores,
            open_database(engine, master, database, zone) as db,
            ExitStack() as stack,
        ):
            cores.append(core_of(db))
            for result in run_script(db, file) if database is None else resume_script(db, file):
                if result.table is not None:
                    print(table_text(result.table), end="", file=sys.stderr)
                if result.note is not None:
                    of = result.message if result.query is None else f"query `{result.query.name}`"
                    print(f"penstock: {of}: {result.note}", file=sys.stderr)
            queries = list(db.queries.values())
            if not queries:
                raise Failure(f"{file} has no query to run")
            paths = {input_name(db.catalog, name): path for name, path in given.items()}
            _check_inputs(db, queries, paths)
            relations = db.catalog.relations
            inputs = open_inputs(
                paths, arrivals, stack, follow=follow, format=input_format, relations=relations.keys()
            )  # fmt: skip
            if database is None or output is None:
                answers = open_answers(queries, output, chosen, sys.stdout, stack, as_they_come=follow)
            elif chosen not in (None, "csv"):
                raise Failure("with --database the answers are written as CSV")
            else:
                answers = resume_answers(db, queries, output, stack)
            aside = [
                stack.enter_context(SetAside(db, late, chosen, db.late)),
                stack.enter_context(SetAside(db, apart, chosen, db.apart)),
            ]
            over = [name for name in inputs if name in db.catalog.streams and db.stream(name).progress == math.inf]
            unfinished: dict[Path, None] = {}
            leave = None
            if database is not None:
                check_files(db, {n: p for n, p in paths.items() if not is_live(p, follow=False)}, _done(db, inputs))
                leave = unfinished.setdefault if keep_open else None
            done.answers = answers.counts
            stopped = play_all(
                db, inputs, answers, aside, done.rows, arrivals,
                far=HowFar(quiet=quiet, beside_answers=output is None and sys.stdout.isatty()), close=not keep_open,
                leave=leave,
            )  # fmt: skip
            if database is not None:
                unsee(db, stopped)
            summary = summarize(db, queries, answers.counts, done.rows, time.perf_counter() - started)
    except KeyboardInterrupt as asked:
        raise done.interrupted(asked, output, database) from None
    for path in () if quiet else unfinished:
        said = "the last line has no end yet, so it is left for the next run"
        print(f"penstock: {path}: {said} (a run without --keep-open reads it)", file=sys.stderr)
    for name in () if quiet else over:
        said = "was closed by an earlier run, at the end of its file; what has come since is not read"
        print(f"penstock: `{name}` {said} (--keep-open leaves streams open for more)", file=sys.stderr)
    if not quiet:
        print(summary, file=sys.stderr)
    raise_stopped(stopped)


def raise_stopped(stopped: dict[str, InputError]) -> None:
    """Fail if inputs have stopped at rows that do not fit: the last is raised, the others are told of."""
    errors = list(stopped.values())
    for error in errors[:-1]:
        report(failure(error), sys.stderr)
    if errors:
        raise errors[-1]


def parse_inputs(given: list[str]) -> dict[str, Path]:
    """The inputs of a command by name, from NAME=PATH."""
    inputs: dict[str, Path] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not (name and equals and path):
            raise Failure(f"--input {text} is not NAME=PATH, such as --input sensors=sensors.csv")
        if name in inputs:
            raise Failure(f"--input names `{name}` twice; a folder may hold several files")
        inputs[name] = Path(path)
    return inputs


def _check_inputs(db: Database, queries: list[Query], inputs: dict[str, Path]) -> None:
    """Streams a query reads need an input, unless the file itself has inserted rows into them."""
    for query in queries:
        for name in sorted(query.inputs - inputs.keys()):
            if db.stream(name).progress == float("-inf"):
                raise Failure(f"query `{query.name}` reads stream `{name}`; pass --input {name}=PATH")


@dataclass
class Done:
    """What a run has done so far."""

    rows: dict[str, int] = field(default_factory=dict)
    answers: dict[str, int] = field(default_factory=dict)
    began: float = field(default_factory=time.perf_counter)

    def interrupted(self, by: KeyboardInterrupt, output: Path | None, database: Path | None) -> typer.Exit:
        """Say what an interrupted run has done, and what is left of it; with what it ends."""
        spent = clock(time.perf_counter() - self.began)
        said = f"rows in {_counts(self.rows)}; answers {_counts(self.answers)}" if self.rows else "no row was read"
        print(f"penstock: interrupted after {spent}: {said}", file=sys.stderr)
        if database is not None:
            kept = f"everything up to there is in {database}; the same command goes on from it"
        elif output is not None:
            kept = f"{output} is not written, since it would not be whole"
        elif any(self.answers.values()):
            kept = "the answers that are printed are those of these rows; nothing else is kept"
        else:
            kept = "nothing is kept"
        print(f"penstock: {kept}", file=sys.stderr, flush=True)
        return typer.Exit(TERMINATED if isinstance(by, Terminated) else INTERRUPTED)


def play_all(
    db: Database,
    inputs: Mapping[str, Input],
    answers: Answers,
    aside: Sequence[SetAside],
    rows: dict[str, int],
    arrivals: Arrivals,
    *,
    far: HowFar,
    close: bool = True,
    leave: Leave | None = None,
) -> dict[str, InputError]:
    """Play the inputs to their ends, passing on answers and rows that are late or do not fit; what some inputs have
    stopped at. ``rows``: how many rows of each have been pushed, also if it is interrupted."""
    before = _done(db, inputs)
    # What comes bit by bit does not come again.
    done = {name: 0 if _is_new(inputs[name]) else count for name, count in before.items()}
    rows.update({name: done.get(name, 0) for name in inputs})
    answers.before = far.hide
    with far:

        def after_push(name: str, pushed: int) -> None:
            rows[name] = pushed
            pass_on(wait=False)
            far(name, pushed)

        def pass_on(*, wait: bool = True) -> None:
            answers.drain(wait=wait)
            for rows_aside in aside:
                rows_aside.drain()

        for name, stream in db.catalog.streams.items():
            if close and not stream.derived and stream.name not in inputs:
                db.close_stream(name)
        stopped = play(
            core_of(db), inputs, on_progress=after_push, on_read=lambda name, count: far(name, count, " read"),
            on_idle=pass_on, arrivals=arrivals, done=done, chunk_rows=_CHUNK, close=close, leave=leave,
        )  # fmt: skip
        pass_on()
    return stopped


def _is_new(given: Input) -> bool:
    return isinstance(given, LiveText) and not given.grows


def _done(db: Database, inputs: Collection[str]) -> dict[str, int]:
    """How many rows of each input were pushed before, by a run that this one goes on from."""
    begun: dict[str, int] = db.note().get("inputs", {})
    new = {name: core_of(db).given(name) for name in inputs if name not in begun}
    if new:
        db.note(inputs=begun | new)
    return {name: core_of(db).given(name) - begun[name] for name in inputs if name in begun}


class SetAside:
    """Writes rows of each stream that take part in nothing to a file of its own, once there are any. ``take``:
    ``db.late`` or ``db.apart``."""

    def __init__(
        self, db: Database, folder: Path | None, format: OutputFormat | None, take: Callable[[str], pa.Table]
    ) -> None:
        self._db = db
        self._take = take
        self._folder = folder
        self._format: OutputFormat = format if format not in (None, "table") else "csv"
        self._writers: dict[str, Writer] = {}
        self._stack = ExitStack()

    def __enter__(self) -> SetAside:
        self._stack.__enter__()
        return self

    def __exit__(self, *failure: object) -> None:
        self._stack.__exit__(*failure)  # type: ignore[arg-type]

    def drain(self) -> None:
        if self._folder is None:
            return
        for name, stream in self._db.catalog.streams.items():
            if stream.derived:
                continue
            rows = self._take(name)
            if not rows.num_rows:
                continue
            if name not in self._writers:
                path = self._folder / f"{file_stem(stream.name)}{SUFFIX[self._format]}"
                self._writers[name] = self._stack.enter_context(open_writer(path, self._format, rows.schema))
            self._writers[name].write(rows)


def summarize(
    db: Database, queries: list[Query], answered: dict[str, int], rows: dict[str, int], seconds: float
) -> str:
    """What a run did, in a few lines."""
    late = {n: db.stream(n).late for n, stream in db.catalog.streams.items() if not stream.derived}
    errors = {query.name: query.failures for query in queries}
    lines = [f"rows in   {_counts(rows)}", f"answers   {_counts(answered)}"]
    if any(late.values()):
        lines.append(f"late rows {', '.join(_late(db, name, n) for name, n in late.items() if n)}")
    apart = {n: db.stream(n).apart for n, stream in db.catalog.streams.items() if not stream.derived}
    if any(apart.values()):
        lines.append(f"apart     {', '.join(_apart(db, name, n) for name, n in apart.items() if n)}")
    if any(errors.values()):
        lines.append(f"row errors (NULL in the answers) {_counts({k: n for k, n in errors.items() if n})}")
    lines += [f"incomplete {query.name}: {mark}" for query in queries for mark in query.incomplete]
    lines.append(f"seconds   {seconds:.2f}")
    return "\n".join(lines)


def _late(db: Database, name: str, count: int) -> str:
    """How many rows were late, and what would have taken them."""
    stream = db.catalog.streams[name]
    text = f"{name} {count:,}"
    if behind := db.stream(name).lateness:
        text += f" (by up to {show_duration(behind, stream.clock).lower()}; "
        text += f"SLACK {show_duration(stream.slack + behind, stream.clock)} takes them)"
    return text


def _apart(db: Database, name: str, count: int) -> str:
    """How many rows did not fit, and why one of them."""
    text = f"{name} {count:,}"
    left = core_of(db).input(name).apart.table
    if len(left):
        text += f" ({apart_reason(left)}; --apart FOLDER writes them)"
    return text


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {n:,}" for name, n in counts.items()) or "none"
