"""The inputs of a run: files and folders, and what comes bit by bit; how it ends when somebody stops it."""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from penstock.cli.failures import Failure
from penstock.cli.interrupts import handling
from penstock.database.core import Core
from penstock.database.play import Input
from penstock.io.files import Format
from penstock.io.live import STDIN, Arrivals, LiveText, is_live


class InputFormat(StrEnum):
    """What a text that comes bit by bit is written in."""

    csv = "csv"
    json = "json"


FollowOption = Annotated[
    bool,
    typer.Option("--follow", help="Go on reading files that grow and named pipes, until Ctrl-C; answers come at once."),
]
InputFormatOption = Annotated[
    InputFormat | None,
    typer.Option(help="What standard input and pipes are written in, if it is not seen from their beginning."),
]


class Terminated(KeyboardInterrupt):
    """A run was asked to end by SIGTERM."""


@contextmanager
def stoppable(arrivals: Arrivals, *, follow: bool) -> Iterator[list[Core]]:
    """Inside, SIGTERM interrupts as Ctrl-C does, but not while the main thread changes one of the databases in the list
    that this gives. With ``follow`` the first of them ends the run in order."""
    cores: list[Core] = []
    asked = False

    def heard(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if follow and not asked:
            asked = True
            arrivals.stop()
            return
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    def changes() -> bool:
        return any(core.is_inside for core in cores)

    with handling(heard, (signal.SIGINT, signal.SIGTERM), changes):
        yield cores


def open_inputs(
    paths: Mapping[str, Path], arrivals: Arrivals, stack: ExitStack, *, follow: bool, format: InputFormat | None,
    relations: Collection[str] = (),
) -> dict[str, Input]:  # fmt: skip
    """Inputs by name, those open that come bit by bit; ``stack`` closes them. Files of relations are not followed."""
    if [str(path) for path in paths.values()].count(STDIN) > 1:
        raise Failure("two inputs are standard input (-), which can be read once")
    found: dict[str, Input] = {}
    for name, path in paths.items():
        if follow and name not in relations and path.is_dir():
            raise Failure(f"--follow reads files and pipes, {path} is a folder")
        if is_live(path, follow=follow and name not in relations):
            text = LiveText(path, arrivals, format=None if format is None else Format(format.value), follow=follow)
            stack.callback(text.close)
            found[name] = text
        else:
            found[name] = path
    return found
