"""JSON lines: one object per line, a key per column.

A key that an object lacks is NULL. A declared column that none of the first ``LOOK_AHEAD`` objects has, of this file
and those that follow it, is taken to be missing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from penstock.errors import InputError
from penstock.io.columns import Target, bad_value, missing
from penstock.io.files import Leave, open_text
from penstock.io.values import BadValue, convert_json
from penstock.types import Kind

LOOK_AHEAD = 100_000
"""In so many rows a column is looked for."""
_A_FEW = 1_000
_OBJECTS = re.compile(rb"(\xef\xbb\xbf)?\s*\[\s*(\{|$)")
"""How an array of objects begins."""
_KINDS = {list: "an array", str: "a string", bool: "true or false", type(None): "null"}


def read_json(
    path: Path, targets: list[Target], batch_rows: int, after: Sequence[Path] = (), leave: Leave | None = None
) -> Iterator[pa.Table]:
    """Tables of the wanted columns, ``batch_rows`` lines at a time. ``after``: the files that follow in the folder."""
    with open_text(path, leave) as source:
        # Floats stay exact where a DECIMAL is to be made of them.
        exact = any(t.kind is Kind.DECIMAL for target in targets for t in target.types)
        objects = json_objects(source, path, exact=exact)
        ahead: list[tuple[int, dict[str, Any]]] = []
        names: dict[str, None] = {}
        # As a rule a few rows tell; where one lacks, it may still come.
        for count in (_A_FEW, LOOK_AHEAD - _A_FEW):
            if all(target.found for target in targets):
                break
            more = list(islice(objects, count))
            _find(more, targets, names)
            ahead += more
        if not ahead and not (ahead := list(islice(objects, 1))):
            return
        lacking = [target for target in targets if not target.found]
        if lacking:
            _look_on(after, LOOK_AHEAD - len(ahead), lacking, names)
            for target in lacking:
                if not (target.found or target.optional):
                    raise missing(target.name, list(names), path)
        present = [target for target in targets if target.found]
        rows = chain(ahead, objects)
        while batch := list(islice(rows, batch_rows)):
            yield _typed(path, batch, present)


def _find(rows: Sequence[tuple[int, dict[str, Any]]], targets: Sequence[Target], names: dict[str, None]) -> None:
    """Mark the targets that are in some rows, and add the names of their columns."""
    names |= dict.fromkeys(key for _, row in rows for key in row)
    lowered = {name.lower() for name in names}
    for target in targets:
        target.found = target.found or target.name.lower() in lowered


def _look_on(files: Sequence[Path], count: int, targets: Sequence[Target], names: dict[str, None]) -> None:
    """Look for targets in the next ``count`` rows of other files."""
    for path in files:
        with open_text(path) as source:
            objects = json_objects(source, path, exact=False)
            while count > 0 and (rows := list(islice(objects, min(count, _A_FEW)))):
                count -= len(rows)
                _find(rows, targets, names)
                if all(target.found for target in targets):
                    return


def json_objects(source: IO[bytes], path: Path, *, exact: bool) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects with their line numbers; ``exact``: floats as Decimal."""
    decode = json.JSONDecoder(parse_float=Decimal if exact else None).decode
    begun = False
    for number, line in enumerate(iter(source.readline, b""), 1):
        if not line.strip():
            continue
        if not begun and _OBJECTS.match(line):
            raise InputError(
                f"{path}: this is a JSON array, one object on each line is needed",
                hint=f"jq -c '.[]' {path.name} > {path.stem}.jsonl makes such a file of it",
            )
        begun = True
        try:
            value = decode(line.decode("utf-8-sig" if number == 1 else "utf-8"))
        except UnicodeDecodeError:
            raise InputError(f"{path}, line {number}: the text is not UTF-8") from None
        except json.JSONDecodeError as problem:
            raise InputError(
                f"{path}, line {number}, column {problem.colno}: broken JSON: {problem.msg}",
                hint="a JSON lines file has one object on each line",
            ) from None
        except ValueError:
            raise InputError(f"{path}, line {number}: a number has too many digits") from None
        except RecursionError:
            raise InputError(f"{path}, line {number}: the JSON is nested too deeply") from None
        if not isinstance(value, dict):
            kind = _KINDS.get(type(value), "a number")
            raise InputError(f"{path}, line {number}: an object is expected on each line, this is {kind}")
        yield number, value


_ABSENT = object()


def _value(row: dict[str, Any], name: str) -> Any:
    found = row.get(name, _ABSENT)
    if found is not _ABSENT:
        return found
    lowered = name.lower()
    return next((value for key, value in row.items() if key.lower() == lowered), None)


def _typed(path: Path, rows: list[tuple[int, dict[str, Any]]], targets: list[Target]) -> pa.Table:
    arrays = []
    for target in targets:
        name = target.name
        try:
            values = [row.get(name) for _, row in rows]
            if None in values:
                values = [_value(row, name) for _, row in rows]
            arrays.append(target.convert(values, convert_json))
        except BadValue as bad:
            raise bad_value(path, f"line {rows[bad.index][0]}", name, bad) from None
    return pa.table(arrays, names=[target.name for target in targets])
