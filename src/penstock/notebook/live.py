"""Watching queries while data arrives: one output of a notebook that is kept up to date."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from penstock.model.errors import EngineError, InputError
from penstock.notebook.html import query as query_html

if TYPE_CHECKING:
    from penstock.database.query import Query


def watch(*queries: Query, seconds: float = 10.0, interval: float = 0.5) -> None:
    """Show queries and their latest answers, anew when there are more, for so many seconds.

    It ends before that when all queries have ended, or by an interrupt (the square button). At most once in
    ``interval`` seconds something is shown. Answers stay where they are; somebody else must push, in another thread.
    """
    if not interval > 0:
        raise InputError(f"interval is {interval!r}", hint="give the seconds between two pictures, such as 0.5")
    try:
        from IPython.core.interactiveshell import InteractiveShell
        from IPython.display import display
    except ImportError:
        raise EngineError("watching needs IPython", hint="pip install penstock[notebook]") from None
    if not InteractiveShell.initialized():
        raise EngineError(
            "watching needs a notebook or IPython, and this is neither", hint="elsewhere use subscribe or fetch"
        )
    if not queries:
        return
    shown = _state(queries)  # before it is shown, so that nothing is missed
    handle: Any = display(_Shown(queries), display_id=True)  # type: ignore[no-untyped-call]
    end = time.monotonic() + seconds
    try:
        while (left := end - time.monotonic()) > 0 and any(q.status == "running" for q in queries):
            running = next(q for q in queries if q.status == "running")
            pause = min(interval, left)
            began = time.monotonic()
            running.wait(pause)
            if (state := _state(queries)) != shown:
                shown = state
                handle.update(_Shown(queries))
                time.sleep(max(0.0, pause - (time.monotonic() - began)))  # a page can take only so many pictures
    except KeyboardInterrupt:
        pass
    handle.update(_Shown(queries))


class _Shown:
    """Queries one below the other, as they are when somebody looks."""

    def __init__(self, queries: tuple[Query, ...]) -> None:
        self._queries = queries

    def _repr_html_(self) -> str:
        return _html(self._queries)

    def __repr__(self) -> str:
        return "\n".join(map(repr, self._queries))


def _html(queries: tuple[Query, ...]) -> str:
    return "".join(query_html(query) for query in queries)


def _state(queries: tuple[Query, ...]) -> list[tuple[int, int, str]]:
    return [(q.answered, q.waiting, q.status) for q in queries]
