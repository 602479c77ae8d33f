"""The CQL of the demo, and what its comments say about each query."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files

_QUERY = re.compile(r"((?:^--[^\n]*\n)+)CREATE QUERY (\w+)", re.MULTILINE)


@dataclass(frozen=True)
class About:
    """A query in words: what kind it is, and in one sentence what it answers."""

    kind: str
    sentence: str


def text() -> str:
    """The streams and queries, as the file has them."""
    return files("penstock.demo").joinpath("demo.cql").read_text(encoding="utf-8")


def abouts() -> dict[str, About]:
    """What the comment in front of each query says, by its name: ``-- A kind: the sentence.``"""
    found = {}
    for comment, name in _QUERY.findall(text()):
        said = " ".join(line.removeprefix("--").strip() for line in comment.splitlines())
        kind, _, sentence = said.partition(": ")
        found[name] = About(kind.removeprefix("A ").lower(), sentence)
    return found
