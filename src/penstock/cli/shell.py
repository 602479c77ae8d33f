"""The shell behind ``penstock sql``: lines in, text out. It knows nothing of terminals."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import pyarrow as pa

from penstock.cli.answers import Headings
from penstock.cli.script import read_script
from penstock.cql.names import quoted
from penstock.cql.splitting import split
from penstock.database.database import core_of, run_script
from penstock.database.play import input_name, load_relation, stream_rows
from penstock.database.results import Result, counts_aside, rows_into
from penstock.io.table_text import table_text
from penstock.model.errors import InputError
from penstock.plan.order import is_ranking

if TYPE_CHECKING:
    from penstock.database.database import Database

HELP = """\
Statements end with ; and may go over several lines. Answers of running queries appear after each statement,
of ORDER BY … LIMIT the whole answer as it stands, in its order.
  \\d                  streams, relations, views and queries
  \\d NAME             one of them: its columns, and the statement that declares it
  \\declare NAME PATH  declare a stream with the columns of a file
  \\load NAME PATH     push a file or folder into a stream or relation
  \\close NAME         no more rows will come on a stream
  \\i FILE             run the statements of a file
  \\?                  this help
  \\q                  leave"""


_MEANT = {"quit": "\\q", "exit": "\\q", "help": "\\?", "?": "\\?"}
"""What people type who come from other shells."""


class Shell:
    """Collects lines into statements, runs them, and prints results and answers."""

    def __init__(self, db: Database, out: TextIO) -> None:
        self._db = db
        self._out = out
        self._text = ""
        self._answered: dict[str, int] = {}
        """How many answers each query had given when they were last shown."""
        self.done = False
        self._commands: dict[str, Callable[[list[str]], None]] = {
            "\\d": self._describe,
            "\\declare": self._declare,
            "\\load": self._load,
            "\\close": self._close,
            "\\i": self._include,
            "\\?": lambda _: self._say(HELP),
            "\\q": self._quit,
        }

    @property
    def pending(self) -> bool:
        """Whether a statement has been begun and not ended."""
        return bool(self._text.strip())

    def feed(self, line: str) -> None:
        """One line. After an error what was collected is forgotten."""
        if not self.pending and line.lstrip().startswith("\\"):
            self._command(line)
            return
        if not self.pending and (meant := _MEANT.get(line.strip().rstrip(";").lower())):
            self._command(meant)
            return
        statements, rest = split(self._text + line + "\n")
        self._text = ""
        for statement in statements:
            self._run(statement)
        self._text = rest if rest.strip() else ""

    def finish(self) -> None:
        """Run what the last ``;`` was forgotten of."""
        text, self._text = self._text, ""
        if text.strip():
            self._run(text)

    def forget(self) -> None:
        """Drop the statement that was begun."""
        self._text = ""

    def _say(self, text: str) -> None:
        print(text, file=self._out, flush=True)

    def _run(self, text: str) -> None:
        for result in run_script(self._db, text):
            self._show_result(result)
        self._answers()

    def _show_result(self, result: Result) -> None:
        if result.table is not None and result.table.column_names == ["plan"]:
            self._say(result.message)  # line by line: a plan object can be copied from here
        elif result.table is not None:
            self._say(table_text(result.table, color=self._out.isatty()).rstrip("\n"))
            if result.note is not None:
                self._say(result.note)
        elif str(result):
            self._say(str(result))

    def _answers(self) -> None:
        headings = Headings(self._out)
        for query in list(self._db.queries.values()):
            if is_ranking(query.plan):
                standing = query.current()
                if query.answered > self._answered.get(query.name, 0):
                    headings.sink(f"{query.name}, as it stands", standing.schema)(standing)
            elif (answers := query.fetch()).num_rows:
                headings.sink(query.name, query.schema)(answers)
        self._answered = {query.name: query.answered for query in self._db.queries.values()}

    def _command(self, line: str) -> None:
        name, *arguments = line.strip().rstrip(";").split(maxsplit=2)
        if name not in self._commands:
            raise InputError(f"there is no command {name}", hint="\\? lists them")
        self._commands[name](arguments)

    def _quit(self, arguments: list[str]) -> None:
        self.done = True

    def _describe(self, arguments: list[str]) -> None:
        if arguments:
            self._describe_one(arguments[0])
            return
        catalog = self._db.catalog
        rows = [
            *((s.name, "derived stream" if s.derived else "stream") for s in catalog.streams.values()),
            *((r.name, "relation") for r in catalog.relations.values()),
            *((v.name, "view") for v in catalog.views.values()),
            *((q.name, f"query, {q.status}") for q in self._db.queries.values()),
        ]
        if not rows:
            self._say("nothing is declared yet")
            return
        names, kinds = zip(*rows, strict=True)
        self._show({"name": list(names), "kind": list(kinds)})

    def _describe_one(self, given: str) -> None:
        known = {*self._db.catalog.names(), *self._db.queries}
        self._run(f"DESCRIBE {quoted(given if given in known else given.lower())}")

    def _show(self, columns: dict[str, list[str]]) -> None:
        self._say(table_text(pa.table(columns)).rstrip("\n"))

    def _declare(self, arguments: list[str]) -> None:
        if len(arguments) != 2:
            raise InputError("\\declare takes a name and a path", hint="\\declare sensors sensors.csv")
        self._say(self._db.declare(*arguments).rstrip("\n"))

    def _load(self, arguments: list[str]) -> None:
        if len(arguments) != 2:
            raise InputError("\\load takes a name and a path", hint="\\load sensors sensors.csv")
        name, path = input_name(self._db.catalog, arguments[0]), Path(arguments[1])
        if name in self._db.catalog.relations:
            rows = load_relation(core_of(self._db), name, path)
            self._answers()
            self._say(f"{rows:,} rows into {name}")
        else:
            rows, before = 0, counts_aside(core_of(self._db), name)
            with closing(stream_rows(core_of(self._db), name, path)) as found:
                for some in found:
                    self._db.push(name, some)
                    rows += len(some)
                    self._answers()
            self._say(str(rows_into(core_of(self._db), name, rows, before)))

    def _close(self, arguments: list[str]) -> None:
        if len(arguments) != 1:
            raise InputError("\\close takes the name of a stream")
        self._db.close_stream(input_name(self._db.catalog, arguments[0]))
        self._answers()

    def _include(self, arguments: list[str]) -> None:
        if len(arguments) != 1:
            raise InputError("\\i takes the path of a file")
        self._run(read_script(Path(arguments[0])))
