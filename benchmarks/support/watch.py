"""What somebody sees who waits for measurements: what runs and since when, and tables of what was found."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import TracebackType

from rich.cells import cell_len
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from penstock.cli.watch import STEP, clock

GOOD, BAD = {"ok", "equal"}, {"MISSED", "DIFFERENT"}


class Watch:
    """A line that changes on a terminal; else a line at the beginning, at the end, and now and then between them."""

    def __init__(self, total: int, *, terminal: bool | None = None) -> None:
        self._total = total
        self._number = 0
        self._name = self._doing = ""
        self._said = 0.0
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        if sys.stderr.isatty() if terminal is None else terminal:
            columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
            self._progress = Progress(*columns, console=Console(stderr=True), transient=True)

    def __enter__(self) -> Watch:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._progress is not None:
            self._progress.stop()

    def begin(self, name: str) -> None:
        """The next one of all."""
        self._number += 1
        self._name, self._doing, self._said = name, "", 0.0
        if self._progress is not None:
            if self._task is not None:
                self._progress.remove_task(self._task)
            self._task = self._progress.add_task(self._text())
        else:
            self._say("begins")

    def doing(self, text: str) -> None:
        """What it is at."""
        self._doing = text
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, description=self._text())

    def tick(self, seconds: float) -> None:
        """So long it has run."""
        if self._progress is None and seconds - self._said >= STEP:
            self._said = seconds
            self._say(f"{clock(seconds)} {self._doing}".rstrip())

    def end(self, text: str) -> None:
        """How it ended."""
        if self._progress is not None:
            self._progress.console.print(Text(f"{self._name}: {text}"))
        else:
            self._say(text)

    def _text(self) -> str:
        doing = f": {self._doing}" if self._doing else ""
        return f"{self._number} of {self._total}  {self._name}{doing}".replace("[", r"\[")

    def _say(self, text: str) -> None:
        print(f"{self._number} of {self._total}  {self._name}: {text}", file=sys.stderr, flush=True)


def print_table(
    title: str, names: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = (), *,
    terminal: bool | None = None,
) -> None:  # fmt: skip
    """A table, in colours on a terminal; the columns ``right`` are of numbers."""
    if sys.stdout.isatty() if terminal is None else terminal:
        table = Table(title=title, title_justify="left", title_style="bold")
        for at, name in enumerate(names):
            table.add_column(name, justify="right" if at in right else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text(cell, style=_style(cell)) for cell in row))
        Console(file=sys.stdout).print(table)
        return
    widths = [max(map(cell_len, column)) for column in zip(names, *rows, strict=True)]
    print(title)
    for row in (names, ["-" * width for width in widths], *rows):
        cells = []
        for at, (cell, width) in enumerate(zip(row, widths, strict=True)):
            pad = " " * (width - cell_len(cell))
            cells.append(pad + cell if at in right else cell + pad)
        print("  ".join(cells).rstrip())
    print(flush=True)


def _style(cell: str) -> str:
    return "green" if cell in GOOD else "bold red" if cell in BAD else ""
