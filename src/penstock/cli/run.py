"""``penstock run``: play files into the queries of a CQL file."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import pyarrow as pa
import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from penstock.cli.answers import SUFFIX, Answers, file_stem, open_answers, resume_answers
from penstock.cli.failures import Failure, failure, report
from penstock.cli.script import (
    DatabaseOption,
    EngineOption,
    MasterOption,
    open_database,
    resume_script,
    run_script,
)
from penstock.cli.seen import check_files, unsee
from penstock.errors import InputError
from penstock.io.files import Leave
from penstock.io.table_text import table_text
from penstock.io.writers import OutputFormat, Writer, open_writer
from penstock.plan.show import show_duration
from penstock.play import input_name, play

if TYPE_CHECKING:
    from penstock.database import Database
    from penstock.query import Query

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
        typer.Option(metavar="NAME=PATH", help="A file or folder for a stream or relation; repeat for each."),
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
    keep_open: Annotated[
        bool,
        typer.Option("--keep-open", help="Streams stay open at the end of their files: more rows will come."),
    ] = False,
    quiet: QuietOption = False,
) -> None:
    """Run the queries of a file over data files, and write their answers as they come.

    Exit codes: 0 success, 1 a query failed, 2 wrong usage, CQL or input, 130 interrupted.
    """
    started = time.perf_counter()
    given = parse_inputs(input or [])
    chosen: OutputFormat | None = None if format is None else format.value
    if database is not None and output is None:
        raise Failure("with --database the answers go to files: give --output a folder")
    try:
        with open_database(engine, master, database) as db, ExitStack() as stack:
            for result in run_script(db, file) if database is None else resume_script(db, file):
                if result.table is not None:
                    print(table_text(result.table), end="", file=sys.stderr)
            queries = list(db.queries.values())
            if not queries:
                raise Failure(f"{file} has no query to run")
            inputs = {input_name(db, name): path for name, path in given.items()}
            _check_inputs(db, queries, inputs)
            if database is None or output is None:
                answers = open_answers(queries, output, chosen, sys.stdout, stack)
            elif chosen not in (None, "csv"):
                raise Failure("with --database the answers are written as CSV")
            else:
                answers = resume_answers(db, queries, output, stack)
            aside = [
                stack.enter_context(SetAside(db, late, chosen, db.late)),
                stack.enter_context(SetAside(db, apart, chosen, db.apart)),
            ]
            over = [name for name in inputs if name in db.catalog.streams and db.progress(name) == math.inf]
            shown = output is not None or not sys.stdout.isatty()
            unfinished: dict[Path, None] = {}
            leave = None
            if database is not None:
                check_files(db, inputs, _done(db, inputs))
                leave = unfinished.setdefault if keep_open else None
            rows, stopped = play_all(db, inputs, answers, aside, shown=shown, close=not keep_open, leave=leave)
            if database is not None:
                unsee(db, stopped)
            summary = summarize(db, queries, answers.counts, rows, time.perf_counter() - started)
    except KeyboardInterrupt:
        if database is not None:
            print(f"penstock: interrupted; the same command goes on from {database}", file=sys.stderr)
        raise
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
            if db.progress(name) == float("-inf"):
                raise Failure(f"query `{query.name}` reads stream `{name}`; pass --input {name}=PATH")


def play_all(
    db: Database,
    inputs: dict[str, Path],
    answers: Answers,
    aside: Sequence[SetAside],
    *,
    shown: bool,
    close: bool = True,
    leave: Leave | None = None,
) -> tuple[dict[str, int], dict[str, InputError]]:
    """Play the inputs to their ends, passing on answers and rows that are late or do not fit; how many rows each had,
    and what some have stopped at."""
    done = _done(db, inputs)
    rows = {name: done.get(name, 0) for name in inputs}
    with _progress(shown) as show:

        def after_push(name: str, pushed: int) -> None:
            rows[name] = pushed
            answers.drain(wait=False)
            for rows_aside in aside:
                rows_aside.drain()
            show(name, pushed)

        for name, stream in db.catalog.streams.items():
            if close and not stream.derived and stream.name not in inputs:
                db.close_stream(name)
        stopped = play(db, inputs, on_progress=after_push, done=done, chunk_rows=_CHUNK, close=close, leave=leave)
        answers.drain()
    return rows, stopped


def _done(db: Database, inputs: dict[str, Path]) -> dict[str, int]:
    """How many rows of each input were pushed before, by a run that this one goes on from."""
    begun: dict[str, int] = db.notes.get("inputs", {})
    new = {name: db.given(name) for name in inputs if name not in begun}
    if new:
        db.note(inputs=begun | new)
    return {name: db.given(name) - begun[name] for name in inputs if name in begun}


@contextmanager
def _progress(shown: bool) -> Iterator[_Show]:
    """Counters on stderr for people; nothing in a pipe, or where answers fill the same terminal."""
    if not shown or not sys.stderr.isatty():
        yield _Show(None)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TextColumn("{task.fields[rows]:,} rows"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as progress:
        yield _Show(progress)


class _Show:
    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._tasks: dict[str, object] = {}

    def __call__(self, name: str, rows: int) -> None:
        if self._progress is None:
            return
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=None, rows=rows)
        self._progress.update(self._tasks[name], rows=rows)  # type: ignore[arg-type]


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
    late = {n: db.late_count(n) for n, stream in db.catalog.streams.items() if not stream.derived}
    errors = {query.name: query.failures for query in queries}
    lines = [f"rows in   {_counts(rows)}", f"answers   {_counts(answered)}"]
    if any(late.values()):
        lines.append(f"late rows {', '.join(_late(db, name, n) for name, n in late.items() if n)}")
    apart = {n: db.apart_count(n) for n, stream in db.catalog.streams.items() if not stream.derived}
    if any(apart.values()):
        lines.append(f"apart     {', '.join(_apart(db, name, n) for name, n in apart.items() if n)}")
    if any(errors.values()):
        lines.append(f"row errors (NULL in the answers) {_counts({k: n for k, n in errors.items() if n})}")
    lines.append(f"seconds   {seconds:.2f}")
    return "\n".join(lines)


def _late(db: Database, name: str, count: int) -> str:
    """How many rows were late, and what would have taken them."""
    stream = db.catalog.streams[name]
    text = f"{name} {count:,}"
    if behind := db.lateness(name):
        text += f" (by up to {show_duration(behind, stream.clock).lower()}; "
        text += f"SLACK {show_duration(stream.slack + behind, stream.clock)} takes them)"
    return text


def _apart(db: Database, name: str, count: int) -> str:
    """How many rows did not fit, and why one of them."""
    text = f"{name} {count:,}"
    left = db._input(name).apart.table
    if len(left):
        bad = left.slice(0, 1).to_pylist()[0]
        column = f", column `{bad['column']}`" if bad["column"] else ""
        text += f" ({bad['place']}{column}: {bad['reason']}; --apart FOLDER writes them)"
    return text


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {n:,}" for name, n in counts.items()) or "none"
