"""``%cql`` and ``%%cql``: statements in notebooks and in IPython."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from keyword import iskeyword
from typing import Any

import pyarrow as pa
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand
from IPython.display import display

from penstock.connecting import connect
from penstock.cql import ast
from penstock.cql.expressions import identifier
from penstock.cql.splitting import split
from penstock.cql.text import parse
from penstock.database.database import Database
from penstock.database.results import Result, query_started
from penstock.hosts.options import check_engine, default_engine
from penstock.io.table_text import table_text
from penstock.model.errors import BindError, CatalogError, InputError, PenstockError
from penstock.model.shown import Printer
from penstock.notebook import html

OPTIONS = "--db NAME, --engine ENGINE, --name QUERY, --replace"
_OPTION = re.compile(r"\s*--([a-z]+)(?:[ =]+(?!-)(\S+))?")


@dataclass
class _Options:
    """What stands before the statements. ``text``: the rest of the line."""

    db: str | None = None
    engine: str | None = None
    name: str | None = None
    replace: bool = False
    text: str = ""


@magics_class
class CqlMagics(Magics):
    """The magics of one shell."""

    @no_var_expand
    @line_cell_magic
    def cql(self, line: str, cell: str | None = None) -> object:
        """Run CQL statements: ``%%cql`` above a cell of them, ``%cql SELECT …`` in one line.

        --db NAME        in the database of this variable; by default ``db``, which is made if it is not there
        --engine ENGINE  the engine of the database that is made: local, spark or reference
        --name QUERY     the name of the query that the last statement is, and of the variable that gets it
        --replace        stop the query that has this name

        Gives the query, or what the last statement gave. Nothing in braces is replaced by values of variables.
        """
        try:
            options = _read(line)
            text = options.text if cell is None else f"{options.text}\n{cell}" if options.text.strip() else cell
            return self._run(options, text)
        except PenstockError as error:
            raise _short(error) from None

    @property
    def _variables(self) -> dict[str, Any]:
        assert self.shell is not None
        names: dict[str, Any] = self.shell.user_ns
        return names

    def _run(self, options: _Options, text: str) -> object:
        parse(text)  # before anything is done
        statements = list(_statements(text))
        if not statements:
            raise BindError("there is no statement in the cell")
        self._check_name(options, statements[-1])
        db = self._database(options)
        given: object = None
        for i, statement in enumerate(statements):
            last = i == len(statements) - 1
            try:
                result = self._one(db, statement, options if last else _Options())
            except PenstockError as error:
                error.text = text if error.text is not None else None
                raise
            if result.kind == "done":
                print(result)
            elif last:
                given = result.query or result
            else:
                display(result)  # type: ignore[no-untyped-call]
        db.settle()
        return given

    def _one(self, db: Database, statement: str, options: _Options) -> Result:
        if options.name is None:
            return db.execute(statement)
        if options.replace and options.name in db.queries:
            db.explain(statement)  # if that is wrong, the query before it stays
            db.queries[options.name].stop()
        if isinstance(parse(statement)[0].tree, ast.CreateQuery):  # which may say more than a query
            result = db.execute(statement)
        else:
            result = query_started(db.query(statement, name=options.name))
        self._variables[options.name] = result.query
        return result

    def _check_name(self, options: _Options, last: str) -> None:
        """Refuse a name that cannot be that of the query and of its variable."""
        name = options.name
        if name is None:
            if options.replace:
                raise InputError("--replace needs the name of the query", hint="write --name QUERY --replace")
            return
        if not name.isidentifier() or iskeyword(name):
            raise InputError(f"`{name}` cannot be the name of a variable", hint="use letters, digits and _")
        if name == (options.db or "db") or isinstance(self._variables.get(name), Database):
            raise InputError(f"the variable `{name}` holds the database", hint="give the query another name")
        tree = parse(last)[-1].tree
        if isinstance(tree, ast.CreateQuery) and identifier(tree.this) != name:
            own = identifier(tree.this)
            raise InputError(f"the query is `{own}` in the text and `{name}` in --name", hint=f"write --name {own}")

    def _database(self, options: _Options) -> Database:
        name = options.db or "db"
        found = self._variables.get(name)
        if found is None and options.db is None:
            engine = options.engine or default_engine()
            check_engine(engine)
            print(f"a new database on engine {engine}, in the variable `db`", flush=True)  # Spark takes some seconds
            found = self._variables[name] = connect(engine=engine)
        if found is None:
            raise CatalogError(f"there is no variable `{name}`", hint=f"{name} = penstock.connect() makes one")
        if not isinstance(found, Database):
            raise InputError(f"the variable `{name}` is no database", hint="name another one with --db")
        if options.engine is not None and found.engine != options.engine:
            raise InputError(
                f"the database `{name}` is on engine {found.engine}", hint="--engine is for one that is to be made"
            )
        return found


def _read(line: str) -> _Options:
    options, at = _Options(), 0
    while found := _OPTION.match(line, at):
        name, value = found.groups()
        at = found.end()
        if name == "replace":
            options.replace = True
            at = found.end(1)
            continue
        if name not in ("db", "engine", "name"):
            raise InputError(f"no option --{name}", hint=f"there are {OPTIONS}")
        if value is None:
            raise InputError(f"--{name} needs a value", hint=f"the options are {OPTIONS}")
        setattr(options, name, value)
    options.text = line[at:].lstrip()
    return options


def _statements(text: str) -> Iterator[str]:
    """The statements of a text, each with blanks before it, so that places in it are those in the text."""
    found, rest = split(text)
    at = 0
    for statement in [*found, *([rest] if parse(rest) else [])]:
        start = text.index(statement, at)
        at = start + len(statement)
        yield re.sub(r"[^\n]", " ", text[:start]) + statement


def _short(error: PenstockError) -> PenstockError:
    """The error, which IPython shows without the calls that led to it."""
    error._render_traceback_ = lambda: html.failure(error).splitlines()  # type: ignore[attr-defined]
    return error


def load(shell: InteractiveShell) -> None:
    """The magics and the display of tables, in a shell."""
    shell.register_magics(CqlMagics)
    formatters = _formatters(shell)
    formatters["text/html"].for_type(pa.Table, html.table)
    formatters["text/plain"].for_type(pa.Table, _plain)


def unload(shell: InteractiveShell) -> None:
    """Without the display of tables again; magics stay, IPython has no way to take them back."""
    formatters = _formatters(shell)
    for kind in ("text/html", "text/plain"):
        formatters[kind].pop(pa.Table, None)


def _formatters(shell: InteractiveShell) -> Any:
    assert shell.display_formatter is not None
    return shell.display_formatter.formatters


def _plain(table: pa.Table, printer: Printer, cycle: bool) -> None:
    """A table on a terminal, or where a notebook shows no HTML."""
    few = table.slice(0, html.ROWS)
    printer.text(table_text(few).rstrip("\n"))
    if table.num_rows > html.ROWS:
        printer.text(f"\n… {table.num_rows - html.ROWS:,} more rows")
