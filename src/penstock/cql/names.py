"""Names of streams and columns as they are written in CQL."""

from __future__ import annotations

import re
from collections.abc import Sequence

from penstock.cql.text import parse
from penstock.errors import PenstockError


def written_name(name: str, among: Sequence[str] = ()) -> str:
    """A name as it is written in CQL: in quotes where it has to be, so that it is not another one ``among`` others."""
    quoted = '"' + name.replace('"', '""') + '"'
    if not re.fullmatch(r"[a-zA-Z_]\w*", name) or sum(other.lower() == name.lower() for other in among) > 1:
        return quoted
    try:
        parse(f"CREATE STREAM {name} ({name} INT) TIMESTAMP BY {name}; SELECT {name} FROM {name}")
    except PenstockError:
        return quoted
    return name
