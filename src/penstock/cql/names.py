"""Names of streams and columns as they are written in CQL."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from penstock.cql.text import parse
from penstock.model.errors import PenstockError


def written_name(name: str, among: Sequence[str] = ()) -> str:
    """A name as it is written in CQL: in quotes where it has to be, so that it is not another one ``among`` others."""
    if sum(other.lower() == name.lower() for other in among) > 1:
        return quoted(name)
    return name if _plain([name]) else quoted(name)


def written_names(names: Sequence[str]) -> list[str]:
    """The names of some columns as they are written in CQL, each so that it is not another one."""
    same = Counter(name.lower() for name in names)
    plain = set(_plain([name for name in names if same[name.lower()] == 1]))
    return [name if name in plain else quoted(name) for name in names]


def quoted(name: str) -> str:
    """A name that is taken as it is."""
    return '"' + name.replace('"', '""') + '"'


def _plain(names: Sequence[str]) -> list[str]:
    """Those that mean themselves without quotes: found with few texts, as nearly all do."""
    names = [name for name in names if _WORD.fullmatch(name)]
    if not names:
        return []
    columns, first = ", ".join(f"{name} INT" for name in names), names[0]
    try:
        parse(f"CREATE STREAM {first} ({columns}) TIMESTAMP BY {first}; SELECT {', '.join(names)} FROM {first}")
    except PenstockError:
        half = len(names) // 2
        return _plain(names[:half]) + _plain(names[half:]) if half else []
    return names


_WORD = re.compile(r"[a-zA-Z_]\w*")
