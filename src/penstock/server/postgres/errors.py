"""Errors as PostgreSQL's clients know them: SQLSTATE, position and hint."""

from __future__ import annotations

from penstock.model import errors

_STATES: tuple[tuple[type[Exception], str], ...] = (
    (errors.CqlSyntaxError, "42601"), (errors.PlanError, "42000"), (errors.BufferFullError, "53200"),
    (errors.ResultsGone, "55000"), (errors.StateError, "55000"), (errors.CheckpointError, "XX001"),
    (errors.SpillError, "58030"), (errors.StorageError, "58030"), (errors.QueryFailed, "38000"),
    (errors.EngineError, "0A000"), (errors.LoginFailed, "28P01"), (errors.AccessDenied, "42501"),
    (errors.LimitExceeded, "54000"), (errors.InputError, "22000"), (errors.CatalogError, "42P01"),
    (errors.BindError, "42000"), (errors.PenstockError, "XX000"),
)  # fmt: skip
"""From the more special to the more general."""


class Refused(Exception):
    """An error of the protocol itself, with its SQLSTATE."""

    def __init__(self, state: str, message: str, hint: str | None = None, *, fatal: bool = False) -> None:
        super().__init__(message)
        self.state, self.message, self.hint, self.fatal = state, message, hint, fatal


def state_of(error: Exception) -> str:
    """The SQLSTATE of an error."""
    if isinstance(error, Refused):
        return error.state
    if isinstance(error, TimeoutError):
        return "57014"
    if isinstance(error, errors.BindError) and error.unknown is not None:
        return "42703"
    if isinstance(error, errors.QueryFailed) and "did not end within" in error.message:
        return "57014"
    if isinstance(error, errors.CatalogError) and "already" in error.message:
        return "42710"
    return next((state for kind, state in _STATES if isinstance(error, kind)), "XX000")


def fields(error: Exception, text: str = "") -> list[tuple[str, str]]:
    """The fields of an ErrorResponse; ``text``: what the client sent, which the position counts in."""
    severity = "FATAL" if isinstance(error, Refused) and error.fatal else "ERROR"
    found = [("S", severity), ("V", severity), ("C", state_of(error))]
    if isinstance(error, Refused | errors.PenstockError):
        found.append(("M", error.message))
        if error.hint:
            found.append(("H", error.hint))
    else:
        found.append(("M", str(error) if isinstance(error, TimeoutError) and str(error) else _UNKNOWN))
    if isinstance(error, errors.PenstockError):
        if error.position is not None and text:
            found.append(("P", str(_place(text, error.position))))
        found.append(("R", type(error).__name__))
    return found


_UNKNOWN = "the server failed; its log says how"


def _place(text: str, position: errors.Position) -> int:
    """The character of a text, from 1, that a line and a column mean."""
    lines = text.splitlines(keepends=True)
    return sum(map(len, lines[: position.line - 1])) + position.column


def notice(message: str, *, warning: bool = False, hint: str | None = None) -> list[tuple[str, str]]:
    """The fields of a NoticeResponse."""
    severity, state = ("WARNING", "01000") if warning else ("NOTICE", "00000")
    found = [("S", severity), ("V", severity), ("C", state), ("M", message)]
    return [*found, ("H", hint)] if hint else found
