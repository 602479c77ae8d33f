"""The pictures of the docs, made by running Penstock: `python -m scripts.pictures` writes docs/pictures/*.svg.

Each picture is a function that gives the text of an SVG file, the same each time: what is drawn is what a query
answered, or in which order, never how long it took.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from scripts.pictures import alarms, answers, architecture, graphs, progress, windows

FOLDER = Path(__file__).parents[2] / "docs/pictures"

PICTURES: dict[str, Callable[[], str]] = {
    **{f"window-{w.name}": partial(windows.draw, w) for w in windows.WINDOWS},
    "answers": answers.up_to_date,
    "relation-to-stream": answers.relation_to_stream,
    "progress": progress.draw,
    "alarms": alarms.draw,
    "graph-shared": graphs.shared,
    "graph-workers": graphs.buffered,
    "architecture": architecture.draw,
    "spark": architecture.on_spark,
}


def write(folder: Path = FOLDER) -> None:
    """All of them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        (folder / f"{name}.svg").write_text(draw(), encoding="utf-8")
