"""How the command line fails: exit codes, and one line on stderr that scripts can use."""

from __future__ import annotations

from typing import TextIO

from penstock.model.errors import PenstockError, QueryFailed, StateError

OK = 0
FAILED = 1
USAGE = 2
INTERRUPTED = 130
TERMINATED = 143


class Failure(Exception):
    """The end of a command: a line, perhaps a picture of the place, and the exit code."""

    def __init__(self, line: str, code: int = USAGE, picture: tuple[str, ...] = ()) -> None:
        super().__init__(line)
        self.line = line
        self.code = code
        self.picture = picture


def failure(error: PenstockError, source: str | None = None) -> Failure:
    """What to show for an error; ``source`` is the file that a position in it refers to."""
    line, *picture = str(error).splitlines()
    if source is not None and error.position is not None:
        line = f"{source}, {line}"
    code = FAILED if isinstance(error, QueryFailed | StateError) else USAGE
    return Failure(line, code, tuple(picture))


def report(failed: Failure, stderr: TextIO) -> None:
    """One line; the picture with the caret only for people."""
    print(f"penstock: error: {failed.line}", file=stderr)
    if stderr.isatty():
        for line in failed.picture:
            print(line, file=stderr)
