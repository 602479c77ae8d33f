"""What windows hold, as text for a terminal of 100 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.graph.draw.common import count, fit, one_line, size

if TYPE_CHECKING:
    from penstock.graph.view import MemoryView, WindowMemory

WIDTH = 100


def memory_text(view: MemoryView) -> str:
    """Streams with their windows, then queries."""
    lines = [fit(f"windows hold {size(view.bytes)}", WIDTH)]
    for stream in view.streams:
        lines += ["", fit(f"{one_line(stream.stream)}: {_rows(stream.rows)}, {size(stream.bytes)}", WIDTH)]
        lines += [fit(f"  {_window(window)}", WIDTH) for window in stream.windows]
    if view.queries:
        lines += ["", "for"]
        lines += [fit(f"  {one_line(query.name)}: {size(query.bytes)}", WIDTH) for query in view.queries]
    return "\n".join(lines)


def _window(window: WindowMemory) -> str:
    what = one_line(window.label).removeprefix("Window ").removesuffix(", smart")
    found = f"{window.operator} {what} {window.passing}: {_rows(window.rows)}"
    if window.passing != "all":
        found += f", {count(window.passed)} passed on, {count(window.waiting)} not"
        found += f", {count(window.leaving)} leaving" if window.leaving else ""
    return f"{found}; {size(window.bytes)} for {', '.join(map(one_line, window.queries))}"


def _rows(n: int) -> str:
    return f"{count(n)} {'row' if n == 1 else 'rows'}"
