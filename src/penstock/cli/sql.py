"""``penstock sql``: the interactive shell on a terminal, or statements from a pipe."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from penstock.cli.connected import ConnectOption, RemoteShell, TokenOption, check_alone, opened
from penstock.cli.failures import Failure, failure, report
from penstock.cli.interrupts import handling
from penstock.cli.script import DatabaseOption, EngineOption, MasterOption, ZoneOption, open_database
from penstock.cli.shell import Shell
from penstock.cql.keywords import KEYWORDS
from penstock.database.core import Core
from penstock.database.database import core_of
from penstock.model.errors import PenstockError
from penstock.model.version import VERSION

if TYPE_CHECKING:
    from penstock.client.database import RemoteDatabase
    from penstock.database.database import Database


def sql(
    engine: EngineOption = None,
    master: MasterOption = None,
    database: DatabaseOption = None,
    zone: ZoneOption = None,
    connect: ConnectOption = None,
    token: TokenOption = None,
) -> None:
    r"""Type statements and watch the answers; \? inside for help.

    Without a terminal, statements are read from stdin and the first error ends the run.
    """
    cores: list[Core] = []
    with handling(signal.default_int_handler, [signal.SIGINT], lambda: any(core.is_inside for core in cores)):
        if connect is None:
            with open_database(engine, master, database, zone) as db:
                cores.append(core_of(db))
                _read(db, Shell(db, sys.stdout))
            return
        check_alone(engine, master, database, zone)
        with opened(connect, token) as remote:
            _read(remote, RemoteShell(remote, sys.stdout))


def _read(db: Database | RemoteDatabase, shell: Shell) -> None:
    if sys.stdin.isatty():
        _converse(db, shell)
        return
    for line in sys.stdin:
        shell.feed(line.rstrip("\n"))
        if shell.done:
            return
    shell.finish()


def _converse(db: Database | RemoteDatabase, shell: Shell) -> None:
    session: PromptSession[str] = PromptSession(history=_history(), completer=NameCompleter(db))
    print(f"Penstock {VERSION}, engine {db.engine}. \\? for help, \\q to leave.")
    while not shell.done:
        try:
            shell.feed(session.prompt("     ...> " if shell.pending else "penstock> "))
        except KeyboardInterrupt:
            shell.forget()
        except EOFError:
            return
        except Failure as failed:
            report(failed, sys.stderr)
        except PenstockError as error:
            report(failure(error), sys.stderr)


def history_file() -> Path:
    """Where the shell remembers what was typed: the XDG folder for state."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "penstock" / "history"


def _history() -> History:
    path = history_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))


class NameCompleter(Completer):
    """Completes keywords, and the names of everything declared with its columns, as of now."""

    def __init__(self, db: Database | RemoteDatabase) -> None:
        self._db = db

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        typed = document.get_word_before_cursor()
        if not typed.strip():
            return
        for name in self.names():
            if name.lower().startswith(typed.lower()) and name != typed:
                # A keyword follows the case that was begun; a name is as it is.
                shown = name.lower() if name in KEYWORDS and typed.islower() else name
                yield Completion(shown, start_position=-len(typed))

    def names(self) -> list[str]:
        from penstock.client.database import RemoteDatabase

        if isinstance(self._db, RemoteDatabase):
            return [*self._db.names(), *KEYWORDS]
        catalog = self._db.catalog
        schemas = [
            *(stream.schema for stream in catalog.streams.values()),
            *(relation.schema for relation in catalog.relations.values()),
            *(view.schema for view in catalog.views.values()),
        ]
        columns = [field.name for schema in schemas for field in schema]
        return [*dict.fromkeys([*catalog.names(), *self._db.queries, *columns]), *KEYWORDS]
