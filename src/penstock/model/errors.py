"""Every error a user can meet, with a stable code.

An error says where (a caret under the text, or the row of a batch), what is wrong, and what would
have been right. ``PenstockError`` is the root; catch that to catch them all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Position:
    """A place in a CQL text: 1-based line and column, and the length of what is pointed at."""

    line: int
    column: int
    length: int = 1


class PenstockError(Exception):
    """Root of all errors raised on purpose by Penstock."""

    code = "PS000"

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        position: Position | None = None,
        text: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.position = position
        self.text = text

    def at(self, position: Position | None, text: str | None) -> PenstockError:
        """Add where it happened, unless something closer to the place has said so already."""
        if self.position is None:
            self.position = position
        if self.text is None:
            self.text = text
        return self

    def __str__(self) -> str:
        parts = [self.message]
        if self.hint:
            parts[0] += f"; {self.hint}"
        if self.position is not None:
            parts[0] = f"line {self.position.line}, column {self.position.column}: {parts[0]}"
            if self.text is not None:
                lines = self.text.splitlines() or [""]
                if 1 <= self.position.line <= len(lines):
                    source = lines[self.position.line - 1]
                    pad = "".join("\t" if c == "\t" else " " for c in source[: self.position.column - 1])
                    parts += [f"  {source}", f"  {pad}{'^' * max(1, self.position.length)}"]
        return "\n".join(parts)

    @property
    def one_line(self) -> str:
        """The error without its picture, for scripts and logs."""
        return str(self).splitlines()[0]


class CqlSyntaxError(PenstockError):
    """The text is not CQL."""

    code = "PS101"


class BindError(PenstockError):
    """The text is CQL, but a name, a type or a combination in it makes no sense."""

    code = "PS102"
    unknown: tuple[str, str | None] | None = None
    """The column, and the source that qualifies it, if the error is that there is none."""


class CatalogError(PenstockError):
    """A stream, relation, view, query or function is missing, or there already."""

    code = "PS103"


class PlanError(PenstockError):
    """A plan object (JSON) is not a valid plan."""

    code = "PS104"


class InputError(PenstockError):
    """Rows, files or progress given to the system are not what was declared."""

    code = "PS201"


class StateError(PenstockError):
    """The call makes no sense now: a stopped query, a closed stream or database."""

    code = "PS202"


class CheckpointError(PenstockError):
    """Saved state is missing, damaged, or that of another query."""

    code = "PS203"


class BufferFullError(PenstockError):
    """There is no room for rows, neither in memory nor on disk; nothing of what was pushed has been taken."""

    code = "PS204"


class SpillError(PenstockError):
    """What waited on disk cannot be read back."""

    code = "PS205"


class ResultsGone(PenstockError):
    """A reader came too late for results of a query: more had come than are kept. The next call goes on."""

    code = "PS206"
    first: int | None = None
    """The position of the oldest result that is there."""


class StorageError(PenstockError):
    """A directory of a database is damaged, full, of another format, or cannot be read or written."""

    code = "PS207"


class QueryFailed(PenstockError):
    """A query stopped because evaluating it failed."""

    code = "PS301"


class EngineError(PenstockError):
    """The engine asked for is not there, or cannot run what it was given."""

    code = "PS302"


class AccessDenied(PenstockError):
    """Of a server: the user may not do this. What a user may not read is not there for it: that is a CatalogError."""

    code = "PS401"


class LoginFailed(AccessDenied):
    """Of a server: no credential was given, or it is wrong, expired or withdrawn."""

    code = "PS402"


class LimitExceeded(PenstockError):
    """Of a server: a request is over a limit that its settings name."""

    code = "PS403"


def suggest(name: str, known: Iterable[str]) -> str | None:
    """A hint naming what was probably meant, or everything where that is short."""
    known = sorted(set(known))
    if (match := typo(name, known)) is not None:
        return f"did you mean `{match}`?"
    if not known:
        return None
    return there_are([f"`{k}`" for k in known[:8]]) + (" …" if len(known) > 8 else "")


def there_are(names: Collection[str]) -> str:
    """A hint that names everything."""
    return f"there {'is' if len(names) == 1 else 'are'} {', '.join(names)}"


def typo(name: str, known: Iterable[str]) -> str | None:
    """Which of what exists the name is a slip of the keyboard for: one letter, or two of a longer word, are wrong."""
    limit = 1 if len(name) < 5 else 2
    near = [(_slips(name.lower(), k.lower()), k) for k in known if k[:1].lower() == name[:1].lower()]
    slips, match = min(near, default=(limit + 1, None))
    return match if slips <= limit else None


def _slips(a: str, b: str) -> int:
    """How many letters are missing, too many, wrong, or exchanged with their neighbour."""
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        older, before = before, row
        row = [i]
        for j, y in enumerate(b, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
    return row[-1]
