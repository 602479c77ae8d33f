"""Things that go wrong when a test says so: sources, functions, consumers, disks, processes."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from penstock.database.database import Database, core_of
from penstock.hosts.durable.kept import Kept
from penstock.model.errors import InputError, StateError
from penstock.runtime.storage import files, storage
from penstock.storage import files as store_files

T = TypeVar("T")
Raised = BaseException | type[BaseException]


def failing(rows: Iterable[T], *, after: int, error: Raised | None = None) -> Iterator[T]:
    """The first rows of a source, and then an exception in the place of the others: a ConnectionError, or ``error``."""
    for i, row in enumerate(rows):
        if i >= after:
            break
        yield row
    raise _fresh(error) or ConnectionError("the source is gone")


def fails_on(
    function: Callable[..., object],
    bad: Callable[..., bool] | Container[object],
    error: Raised | None = None,
) -> Callable[..., object]:
    """A function for ``create_function`` that raises for some arguments and otherwise does what it did.

    It raises a RuntimeError, or ``error``.

    ``bad``: a function of the same arguments that says when, or a collection of first arguments. Functions must give
    the same for the same arguments, so there is no way to fail at the n-th call.
    """
    chosen: Callable[..., bool] = bad if callable(bad) else (lambda *arguments: arguments[0] in bad)

    def sometimes(*arguments: object) -> object:
        if chosen(*arguments):
            raise _fresh(error) or RuntimeError("injected failure")
        return function(*arguments)

    sometimes.__name__ = getattr(function, "__name__", "function")
    return sometimes


class Consumer:
    """Somebody who takes answers and fails now and then: for ``subscribe`` and ``transfer``.

    ``fails``: at which calls, counted from 1; a collection, or a function of that number. It raises a RuntimeError, or
    ``error``. ``tables`` are those that it has taken; it keeps them all.
    """

    def __init__(
        self,
        fails: Container[int] | Callable[[int], bool] = (),
        error: Raised | None = None,
    ) -> None:
        self.calls = 0
        self.tables: list[pa.Table] = []
        self._fails: Callable[[int], bool] = fails if callable(fails) else fails.__contains__
        self._error = error

    def __call__(self, table: pa.Table) -> None:
        self.calls += 1
        if self._fails(self.calls):
            raise _fresh(self._error) or RuntimeError("the consumer failed")
        self.tables.append(table)

    @property
    def rows(self) -> list[dict[str, object]]:
        """What it has taken, row by row."""
        return [row for table in self.tables for row in table.to_pylist()]


class Disk:
    """How much room there is on a disk; it counts down as something is written, and may be changed."""

    def __init__(self, room: int) -> None:
        self.room = room

    def take(self, size: int) -> None:
        """So many bytes are about to be written."""
        if size > self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room -= size


@contextmanager
def full_disk(room: int = 0) -> Iterator[Disk]:
    """Meanwhile there is room for so many bytes more, for all databases of this process.

    It is about what they write for rows that wait, and into directories (of engine ``spark``, not the state that its
    workers write). What exceeds the room fails as it does on a disk that is full. ``disk.room`` may be changed
    meanwhile, as if files had been removed.
    """
    disk = Disk(room)
    append, retry, put = files.append, storage.RETRY, store_files.write

    def appending(path: Path, size: int, content: pa.Buffer) -> None:
        disk.take(content.size)
        append(path, size, content)

    def putting(file: int, at: int, content: Sequence[store_files.Bytes]) -> int:
        disk.take(sum(map(len, content)))
        return put(file, at, content)

    files.append, storage.RETRY, store_files.write = appending, 0.0, putting
    try:
        yield disk
    finally:
        files.append, storage.RETRY, store_files.write = append, retry, put


def crash_copy(db: Database, to: str | Path) -> Path:
    """The directory of a database as it would be if the process were killed now, copied to a new place: open it there
    with the same engine. What is running goes on undisturbed."""
    host = core_of(db).host
    kept: Kept | None = getattr(host, "kept", None)
    if kept is None:
        raise StateError("the database has no directory", hint="name one: connect('directory')")
    to = Path(to)
    if to.exists():
        raise InputError(f"{to} is there already", hint="give a new place")
    # Nothing is written down meanwhile but deliveries and notes, so what is named is there; nor is a state saved.
    with kept.saver.still():
        shutil.copytree(kept.root, to, copy_function=_copied)
    return to


def _fresh(error: Raised | None) -> BaseException | None:
    """An exception that was never raised, or knows nothing of it: raised again and again, one would keep all calls."""
    return error() if isinstance(error, type) else error and error.with_traceback(None)


def _copied(source: str, target: str) -> None:
    with suppress(FileNotFoundError):  # it was given up and has just been removed
        shutil.copy2(source, target)
