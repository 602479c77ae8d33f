"""JSON lines: one object per line, a key per column.

A key that an object lacks is NULL. A declared column that none of the first ``_LOOK_AHEAD`` objects has is
taken to be missing from the file.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from decimal import Decimal
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from penstock.errors import InputError
from penstock.io.columns import Target, bad_value, missing
from penstock.io.files import compression_of
from penstock.io.values import BadValue, convert_json
from penstock.types import Kind

_LOOK_AHEAD = 1_000
_KINDS = {list: "an array", str: "a string", bool: "true or false", type(None): "null"}


def read_json(path: Path, targets: list[Target], batch_rows: int) -> Iterator[pa.Table]:
    """Tables of the wanted columns, ``batch_rows`` lines at a time."""
    with pa.input_stream(str(path), compression=compression_of(path)) as source:
        # Floats stay exact where a DECIMAL is to be made of them.
        exact = any(t.kind is Kind.DECIMAL for target in targets for t in target.types)
        objects = json_objects(io.BufferedReader(source), path, exact=exact)
        ahead = list(islice(objects, _LOOK_AHEAD))
        if not ahead:
            return
        found = list(dict.fromkeys(key for _, row in ahead for key in row))
        lowered = {name.lower() for name in found}
        present = [t for t in targets if t.name.lower() in lowered]
        for target in targets:
            if target not in present and not target.optional:
                raise missing(target.name, found, path)
        rows = chain(ahead, objects)
        while batch := list(islice(rows, batch_rows)):
            yield _typed(path, batch, present)


def json_objects(source: IO[bytes], path: Path, *, exact: bool) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects with their line numbers; ``exact``: floats as Decimal."""
    decode = json.JSONDecoder(parse_float=Decimal if exact else None).decode
    for number, line in enumerate(iter(source.readline, b""), 1):
        if not line.strip():
            continue
        try:
            value = decode(line.decode("utf-8-sig" if number == 1 else "utf-8"))
        except UnicodeDecodeError:
            raise InputError(f"{path}, line {number}: the text is not UTF-8") from None
        except json.JSONDecodeError as problem:
            raise InputError(
                f"{path}, line {number}, column {problem.colno}: broken JSON: {problem.msg}",
                hint="a JSON lines file has one object on each line",
            ) from None
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
