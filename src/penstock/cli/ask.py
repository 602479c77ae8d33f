"""``penstock query`` and ``penstock declare``: data files as they are, without a script."""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.answers import Answers, open_answer, open_answers
from penstock.cli.connected import ConnectOption, TokenOption, check_alone, remote_query
from penstock.cli.failures import Failure, failure
from penstock.cli.far import HowFar
from penstock.cli.inputs import FollowOption, InputFormatOption, open_inputs, stoppable
from penstock.cli.run import (
    ApartOption,
    Done,
    FormatOption,
    LateOption,
    QuietOption,
    SetAside,
    play_all,
    raise_stopped,
    summarize,
)
from penstock.cli.script import EngineOption, MasterOption, ZoneOption, open_database
from penstock.database.database import core_of
from penstock.database.declare import STAMPED, Declaration, declaration
from penstock.database.play import Input, input_name
from penstock.io.files import Source
from penstock.io.live import STDIN, Arrivals, LiveText
from penstock.io.writers import OutputFormat
from penstock.model.errors import InputError, PenstockError
from penstock.rows.apart import BadRow

if TYPE_CHECKING:
    from penstock.database.database import Database
    from penstock.database.query import Query

DataArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="[NAME=]PATH", help="Files, folders or pipes, - is stdin; without a NAME it is that of the file."
    ),
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
OnErrorOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[NAME=]WHAT",
        help="What becomes of rows that do not fit: refuse (the default: the whole file), stop, or apart.",
    ),
]
TypeOption = Annotated[
    list[str] | None,
    typer.Option(metavar="[NAME.]COLUMN=TYPE", help="The type of a column, if the first rows do not show it."),
]
_QUERY = re.compile(r"\s*(SELECT|WITH)\s", re.IGNORECASE)


def query(
    text: Annotated[str, typer.Argument(metavar="QUERY", help="A SELECT in CQL; files are streams in it.")],
    data: DataArgument = [],  # noqa: B006  (typer copies it)
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
    on_error: OnErrorOption = None,
    apart: ApartOption = None,
    type: TypeOption = None,
    follow: FollowOption = False,
    input_format: InputFormatOption = None,
    zone: ZoneOption = None,
    quiet: QuietOption = False,
    connect: ConnectOption = None,
    token: TokenOption = None,
) -> None:
    """Answer one query over data files. Their columns are found out from the first rows.

    penstock query 'SELECT room, avg(temp) FROM readings [RANGE 1 MINUTE] GROUP BY room' readings.csv

    With --connect a server runs the statement instead: a SELECT is answered once, over what stands now.
    """
    if connect is not None:
        check_alone(data or None, timestamp, slack, key, output, engine, master, late, on_error, apart, zone)
        remote_query(connect, token, text, None if format is None else format.value)
        return
    if not data:
        raise Failure("the files are missing: penstock query 'SELECT …' readings.csv")
    started = time.perf_counter()
    for path in data:
        if _QUERY.match(path) and not Path(path).exists():
            raise Failure(f"the query comes first, then the files: penstock query '{path}' {text}")
    chosen: OutputFormat | None = None if format is None else format.value
    arrivals, done = Arrivals(), Done()
    try:
        with stoppable(arrivals, follow=follow) as cores, ExitStack() as stack:
            named = _inputs(data)
            keyed = {text.partition("=")[0] for text in key or []}
            inputs = open_inputs(named, arrivals, stack, follow=follow, format=input_format, relations=keyed)
            declared = _declarations(inputs, timestamp or [], slack or [], key or [], on_error or [], type or [])
            for name, found in declared.items():
                for remark in found.warnings + (() if quiet else found.remarks):
                    print(f"penstock: {_shown(named[name])}: {remark}{_advice(name, remark)}", file=sys.stderr)
                if isinstance(inputs[name], LiveText) and found.ordering is not None and not (quiet or timestamp):
                    # Few rows were there to find it from.
                    said = f"`{found.ordering}` orders the rows; --timestamp {name}=COLUMN names another column"
                    print(f"penstock: {_shown(named[name])}: {said}", file=sys.stderr)
            db = stack.enter_context(open_database(engine, master, None, zone))
            cores.append(core_of(db))
            for found in declared.values():
                db.execute(found.statement)
            try:
                asked = db.query(text.strip().rstrip(";"))
            except PenstockError as error:
                raise failure(error, "the query") from None
            _warn_of_two_clocks(db, asked, declared)
            opened = {input_name(db.catalog, name): given for name, given in inputs.items()}
            if final:
                asked.current()  # refuses a query whose answer is a stream
                answers: Answers = Nothing(asked)
            else:
                answers = open_answers([asked], output, chosen, sys.stdout, stack, as_they_come=follow)
            aside = [
                stack.enter_context(SetAside(db, late, chosen, db.late)),
                stack.enter_context(SetAside(db, apart, chosen, db.apart)),
            ]
            done.answers = {} if final else answers.counts
            beside = output is None and not final and sys.stdout.isatty()
            stopped = play_all(
                db, opened, answers, aside, done.rows, arrivals, far=HowFar(quiet=quiet, beside_answers=beside)
            )  # fmt: skip
            if final:
                rest = asked.current(until=_newest(db, opened))
                answers.counts[asked.name] = rest.num_rows
                stack.enter_context(open_answer(output, chosen, rest.schema)).write(rest)
            summary = summarize(db, [asked], answers.counts, done.rows, time.perf_counter() - started)
    except KeyboardInterrupt as asked:
        raise done.interrupted(asked, output, None) from None
    if not quiet:
        print(summary, file=sys.stderr)
    raise_stopped({name: _with_type(error, inputs) for name, error in stopped.items()})


def _shown(path: Path) -> str:
    return "standard input" if str(path) == STDIN else str(path)


def _with_type(error: InputError, inputs: Mapping[str, Input]) -> InputError:
    """Where only a few rows were there to find a type from, the option that gives another helps."""
    lives = {given.where for given in inputs.values() if isinstance(given, LiveText)}
    if isinstance(error, BadRow) and error.where in lives and error.column is not None:
        advice = f"--type {error.column}=… gives the column another type, such as DOUBLE or STRING"
        error.hint = "; ".join(filter(None, (error.hint, advice)))
    return error


class Nothing(Answers):
    """Leaves the results of a query where they are; the answer as it stands is asked for at the end."""

    def __init__(self, query: Query) -> None:
        super().__init__([query], [lambda _: None])

    def drain(self, *, wait: bool = True) -> None:
        pass


def _newest(db: Database, inputs: Iterable[str]) -> int | None:
    """The instant of the last row that has come, in ticks: what rows change that leave later is not asked for."""
    found = max(db.stream(name).newest for name in db.catalog.streams if name in inputs)
    return None if found == -math.inf else int(found)


def declare(
    data: DataArgument,
    timestamp: TimestampOption = None,
    slack: SlackOption = None,
    key: KeyOption = None,
    on_error: OnErrorOption = None,
    type: TypeOption = None,
    input_format: InputFormatOption = None,
) -> None:
    """Print the CREATE statements for data files, as a beginning of a script of your own."""
    options = (timestamp or [], slack or [], key or [], on_error or [], type or [])
    with ExitStack() as stack:
        inputs = open_inputs(_inputs(data), Arrivals(), stack, follow=False, format=input_format)
        for name, found in _declarations(inputs, *options, patient=True).items():
            advised = tuple(warning + _advice(name, warning) for warning in found.warnings)
            print(replace(found, warnings=advised), end="")


def _advice(name: str, remark: str) -> str:
    """What options help, for a remark that some do for."""
    if remark != STAMPED:
        return ""
    return f"; --timestamp {name}=COLUMN names one, --key {name}=COLUMN makes it a relation to look up in"


def _warn_of_two_clocks(db: Database, asked: Query, declared: dict[str, Declaration]) -> None:
    """Say it if a query reads rows of now together with rows of their own times, which hardly ever meet."""
    read = [name for name in declared if input_name(db.catalog, name) in asked.inputs]
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
    if str(path) == STDIN:
        return "stdin"
    name = re.sub(r"\W+", "_", path.name.split(".")[0]).strip("_").lower()
    return f"_{name}" if name[:1].isdigit() else name


def _declarations(
    inputs: Mapping[str, Input], timestamp: list[str], slack: list[str], key: list[str], on_error: list[str],
    type: list[str], *, patient: bool = False,
) -> dict[str, Declaration]:  # fmt: skip
    """``patient``: what comes bit by bit is waited for as if it were a file."""
    names = list(inputs)
    keys = _for_names("--key", key, names, names)
    streams = [name for name in names if name not in keys]
    ordering = _for_names("--timestamp", timestamp, names, streams)
    waiting = _for_names("--slack", slack, names, streams)
    faults = _for_names("--on-error", on_error, names, streams)
    return {
        name: declaration(
            name,
            _data(given, patient=patient or name in keys),
            timestamp=next(reversed(ordering.get(name, [])), None),
            slack=next(reversed(waiting.get(name, [])), None),
            key=keys.get(name, []),
            on_error=next(reversed(faults.get(name, [])), None),
            types=_types(type, name, names),
        )
        for name, given in inputs.items()
    }


def _data(given: Input, *, patient: bool) -> Source:
    """What the columns are found out from."""
    if isinstance(given, LiveText):
        return given.first(patience=None) if patient else given.first()
    return given


def _types(given: list[str], name: str, names: list[str]) -> dict[str, str]:
    """What ``--type`` says for an input: COLUMN=TYPE for all that have the column, or NAME.COLUMN=TYPE for one."""
    found: dict[str, str] = {}
    for text in given:
        column, equals, dtype = text.partition("=")
        if not (column and equals and dtype):
            raise Failure(f"--type {text} is not COLUMN=TYPE, such as --type temperature=DOUBLE")
        owner, dot, rest = column.partition(".")
        if dot and owner in names:
            found |= {rest: dtype} if owner == name else {}
        elif len(names) > 1:
            raise Failure(f"--type {text}: write NAME.COLUMN=TYPE with one of {', '.join(names)}")
        else:
            found[column] = dtype
    return found


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
