"""``penstock query`` and ``penstock declare``: data files as they are, without a script."""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.answers import Answers, open_answer, open_answers
from penstock.cli.failures import Failure, failure
from penstock.cli.run import FormatOption, LateOption, LateRows, QuietOption, play_all, summarize
from penstock.cli.script import EngineOption, MasterOption, ZoneOption, open_database
from penstock.declare import STAMPED, Declaration, declaration
from penstock.errors import PenstockError
from penstock.io.writers import OutputFormat
from penstock.play import input_name
from penstock.standing import Standing

if TYPE_CHECKING:
    from penstock.database import Database

if TYPE_CHECKING:
    from penstock.database import Database
    from penstock.query import Query

DataArgument = Annotated[
    list[str],
    typer.Argument(metavar="[NAME=]PATH", help="Files or folders; without a NAME it is that of the file."),
]
TimestampOption = Annotated[
    list[str] | None,
    typer.Option(metavar="[NAME=]COLUMN", help="The column that orders the rows; by default a column of times."),
]
SlackOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[NAME=]TIME",
        help="How far rows may be out of order, such as '5 seconds'; by default as far as the first rows are.",
    ),
]
KeyOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=COLUMN", help="Makes a relation of a file, with this key; repeat for a key of more."),
]
_QUERY = re.compile(r"\s*(SELECT|WITH)\s", re.IGNORECASE)


def query(
    text: Annotated[str, typer.Argument(metavar="QUERY", help="A SELECT in CQL; files are streams in it.")],
    data: DataArgument,
    timestamp: TimestampOption = None,
    slack: SlackOption = None,
    key: KeyOption = None,
    final: Annotated[
        bool, typer.Option("--final", help="Only the answer as it stands after the last row, not how it changed.")
    ] = False,
    output: Annotated[Path | None, typer.Option(help="A file for the answers.")] = None,
    engine: EngineOption = None,
    master: MasterOption = None,
    format: FormatOption = None,
    late: LateOption = None,
    zone: ZoneOption = None,
    quiet: QuietOption = False,
) -> None:
    """Answer one query over data files. Their columns are found out from the first rows.

    penstock query 'SELECT room, avg(temp) FROM readings [RANGE 1 MINUTE] GROUP BY room' readings.csv
    """
    started = time.perf_counter()
    for path in data:
        if _QUERY.match(path) and not Path(path).exists():
            raise Failure(f"the query comes first, then the files: penstock query '{path}' {text}")
    inputs = _inputs(data)
    declared = _declarations(inputs, timestamp or [], slack or [], key or [])
    for name, found in declared.items():
        for remark in found.warnings + (() if quiet else found.remarks):
            print(f"penstock: {inputs[name]}: {remark}{_advice(name, remark)}", file=sys.stderr)
    chosen: OutputFormat | None = None if format is None else format.value
    with open_database(engine, master, None, zone) as db, ExitStack() as stack:
        for found in declared.values():
            db.execute(found.statement)
        try:
            asked = db.query(text.strip().rstrip(";"))
        except PenstockError as error:
            raise failure(error, "the query") from None
        _warn_of_two_clocks(db, asked, declared)
        paths = {input_name(db, name): path for name, path in inputs.items()}
        if final:
            standing = Standing(asked.name, asked.plan, asked.schema)
            answers = Answers([asked], [lambda changes: standing.take(changes, _newest(db, paths))])
        else:
            answers = open_answers([asked], output, chosen, sys.stdout, stack)
        late_rows = stack.enter_context(LateRows(db, late, chosen))
        rows = play_all(db, paths, answers, late_rows, shown=output is not None or not sys.stdout.isatty())
        if final:
            rest = standing.table()
            answers.counts[asked.name] = rest.num_rows
            stack.enter_context(open_answer(output, chosen, rest.schema)).write(rest)
        summary = summarize(db, [asked], answers.counts, rows, time.perf_counter() - started)
    if not quiet:
        print(summary, file=sys.stderr)


def _newest(db: Database, inputs: Iterable[str]) -> int | None:
    """The instant of the last row that has come, in ticks: what rows change that leave later is not asked for."""
    found = max(db.newest(name) for name in db.catalog.streams if name in inputs)
    return None if found == -math.inf else int(found)


def declare(
    data: DataArgument, timestamp: TimestampOption = None, slack: SlackOption = None, key: KeyOption = None
) -> None:
    """Print the CREATE statements for data files, as a beginning of a script of your own."""
    for name, found in _declarations(_inputs(data), timestamp or [], slack or [], key or []).items():
        advised = tuple(warning + _advice(name, warning) for warning in found.warnings)
        print(replace(found, warnings=advised), end="")


def _advice(name: str, remark: str) -> str:
    """What options help, for a remark that some do for."""
    if remark != STAMPED:
        return ""
    return f"; --timestamp {name}=COLUMN names one, --key {name}=COLUMN makes it a relation to look up in"


def _warn_of_two_clocks(db: Database, asked: Query, declared: dict[str, Declaration]) -> None:
    """Say it if a query reads rows of now together with rows of their own times, which hardly ever meet."""
    read = [name for name in declared if input_name(db, name) in asked.inputs]
    stamped = [name for name in read if declared[name].stamped]
    own = [name for name in read if not declared[name].stamped]
    if stamped and own:
        name = stamped[0]
        print(
            f"penstock: rows of `{name}` are stamped now and rows of `{own[0]}` have their own times, so that they "
            f"hardly ever meet; if `{name}` is to look up in, say --key {name}=COLUMN",
            file=sys.stderr,
        )


def _inputs(data: list[str]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for text in data:
        name, equals, path = text.partition("=")
        # year=2024/r.csv is a path if it is there.
        if not equals or Path(text).exists():
            name, path = _name_of(Path(text)), text
        if not name or not path:
            raise Failure(f"{text} is neither a PATH nor NAME=PATH, such as readings=data/june.csv")
        if name.lower() in map(str.lower, found):
            raise Failure(f"`{name}` is there twice; name one of them: NAME={text}")
        found[name] = Path(path)
    return found


def _name_of(path: Path) -> str:
    """The name of a stream for a file: its own, without suffixes, in letters that need no quotes."""
    name = re.sub(r"\W+", "_", path.name.split(".")[0]).strip("_").lower()
    return f"_{name}" if name[:1].isdigit() else name


def _declarations(
    inputs: dict[str, Path], timestamp: list[str], slack: list[str], key: list[str]
) -> dict[str, Declaration]:
    names = list(inputs)
    keys = _for_names("--key", key, names, names)
    streams = [name for name in names if name not in keys]
    ordering = _for_names("--timestamp", timestamp, names, streams)
    waiting = _for_names("--slack", slack, names, streams)
    return {
        name: declaration(
            name,
            path,
            timestamp=next(reversed(ordering.get(name, [])), None),
            slack=next(reversed(waiting.get(name, [])), None),
            key=keys.get(name, []),
        )
        for name, path in inputs.items()
    }


def _for_names(option: str, given: list[str], names: list[str], rest: list[str]) -> dict[str, list[str]]:
    """What an option says for each input: [NAME=]VALUE, where one without a name is for all of ``rest``."""
    found: dict[str, list[str]] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals and option != "--key":
            name, value = "", text
        if not value or (name and name not in names):
            raise Failure(f"{option} {text}: write NAME=… with one of {', '.join(names)}")
        for each in [name] if name else rest:
            found.setdefault(each, []).append(value)
    return found
