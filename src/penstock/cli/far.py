"""What somebody sees who waits for a run: how far each input is."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from penstock.cli.watch import STEP, clock

_QUIET = 1.0
"""Seconds without answers after which a line comes below them, where both are on one terminal."""


class HowFar:
    """A line for each input that changes, on a terminal; elsewhere a line of text now and then, in a run that is long.

    ``beside_answers``: answers go to the same terminal; ``hide`` takes the lines away before some are written.
    """

    def __init__(
        self, *, quiet: bool = False, beside_answers: bool = False, terminal: bool | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._quiet, self._beside = quiet, beside_answers
        self._terminal = sys.stderr.isatty() if terminal is None else terminal
        self._now = now
        self._began = self._said = self._hidden = now()
        self._rows: dict[str, tuple[int, str]] = {}
        self._lines: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> HowFar:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._take_away()

    def __call__(self, name: str, rows: int, doing: str = "") -> None:
        """So many rows of an input are done; ``doing``: what is done with them, if they are not yet pushed."""
        self._rows[name] = (rows, doing)
        if self._quiet:
            return
        now = self._now()
        if self._terminal and (not self._beside or now - self._hidden >= _QUIET):
            self._show()
        elif not self._terminal and now - self._said >= STEP:
            self._said = now
            print(f"penstock: {self._text()} after {clock(now - self._began)}", file=sys.stderr, flush=True)

    def hide(self) -> None:
        """Make room for answers."""
        if self._beside:
            self._take_away()
            self._hidden = self._now()

    def _text(self) -> str:
        return ", ".join(f"{name} {rows:,} rows{doing}" for name, (rows, doing) in self._rows.items())

    def _show(self) -> None:
        if self._lines is None:
            columns = (SpinnerColumn(), TextColumn("{task.description}"), TextColumn("{task.fields[rows]}"))
            console = Console(file=sys.stderr, force_terminal=True)
            self._lines = Progress(
                *columns, TimeElapsedColumn(), console=console, transient=True, redirect_stdout=False,
                redirect_stderr=False,
            )  # fmt: skip
            self._lines.start()
        for name, (rows, doing) in self._rows.items():
            text = f"{rows:,} rows{doing}"
            if name not in self._tasks:
                self._tasks[name] = self._lines.add_task(name.replace("[", r"\["), total=None, rows=text)
            self._lines.update(self._tasks[name], rows=text)

    def _take_away(self) -> None:
        if self._lines is not None:
            self._lines.stop()
            self._lines, self._tasks = None, {}
