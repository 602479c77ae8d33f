"""Fenced code blocks of the Markdown files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@dataclass(frozen=True)
class Fence:
    """A block: its language, its text, the heading above it, and the line of the file it begins on."""

    language: str
    text: str
    heading: str
    line: int


class Unclosed(Exception):
    """A fence that the file does not close."""


def fences(text: str) -> Iterator[Fence]:
    """The blocks of a Markdown text in order."""
    heading, opened, body = "", None, list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        if opened is None and line.startswith("#"):
            heading = line
        if not line.startswith("```"):
            if opened is not None:
                body.append(line)
            continue
        if opened is None:
            opened, body = (line[3:].strip(), number), []
        else:
            yield Fence(opened[0], "\n".join(body) + "\n", heading, opened[1])
            opened = None
    if opened is not None:
        raise Unclosed(f"the block that begins on line {opened[1]} is never closed")
