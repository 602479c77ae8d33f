"""JSON lines: one object per line, a key per column.

A key that an object lacks is NULL; one that is there twice, or in two cases, makes a bad row. A declared column that
none of the first ``LOOK_AHEAD`` objects has, of this file and those that follow it, is taken to be missing.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import partial
from itertools import chain, islice
from typing import IO, Any

import pyarrow as pa

from penstock.io.files import Format, Leave, Piece, Source, open_text
from penstock.model.errors import InputError, suggest
from penstock.model.names import Names, counted
from penstock.model.types import Kind
from penstock.rows.apart import BadRow, OnError, Rows, Sieve, Unknown, row_text, sifted_file
from penstock.rows.columns import TWICE, Target, bad_value, missing
from penstock.rows.values import BadValue, convert_json

LOOK_AHEAD = 100_000
"""In so many rows a column is looked for."""
_A_FEW = 1_000
_OBJECTS = re.compile(rb"(\xef\xbb\xbf)?\s*\[\s*(\{|$)")
"""How an array of objects begins."""
_KINDS = {list: "an array", str: "a string", bool: "true or false", type(None): "null"}


Item = tuple[int, "dict[str, Any] | BadRow", bytes]
"""The number of a line, the object on it or what is wrong with it, and the line if the object does not tell it."""


class _Twice(dict[str, Any]):
    """An object that has keys more than once: ``keys_twice``."""

    keys_twice: frozenset[str] = frozenset()


def _as_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    twice = _Twice(pairs)
    twice.keys_twice = frozenset(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
    return twice


def read_json(
    path: Source, sieve: Sieve, batch_rows: int, after: Sequence[Source] = (), leave: Leave | None = None
) -> Iterator[Rows]:
    """Rows of the wanted columns, ``batch_rows`` lines at a time. ``after``: the files that follow in the folder."""
    targets = sieve.targets
    with open_text(path, leave) as source:
        # Floats stay exact where a DECIMAL is to be made of them.
        exact = any(t.kind is Kind.DECIMAL for target in targets for t in target.types)
        objects = json_items(source, path, exact=exact)
        ahead: list[Item] = []
        names: dict[str, str | None] = {}
        known = Names(target.name for target in targets)
        # As a rule a few rows tell; where one lacks, it may still come.
        for count in (_A_FEW, LOOK_AHEAD - _A_FEW):
            if all(target.found for target in targets):
                break
            more = list(islice(objects, count))
            _find(more, targets, names, known)
            ahead += more
        if not ahead and not (ahead := list(islice(objects, 1))):
            return
        lacking = [target for target in targets if not target.found]
        if lacking and any(isinstance(found, dict) for _, found, _ in ahead):
            _look_on(after, LOOK_AHEAD - len(ahead), lacking, names, known)
            # Of a text that goes on, a later object may have it.
            for target in () if isinstance(path, Piece) else lacking:
                if not (target.found or target.optional):
                    raise missing(target.name, list(names), path)
        present = [target for target in targets if target.found or not target.optional]
        rows = chain(ahead, objects)

        def sift(batch: list[Item]) -> Rows:
            typed = partial(_typed, path, targets=present, known=known, unknown=sieve.unknown)
            return sifted_file(batch, typed, sieve, lambda row: f"line {batch[row][0]}", lambda row: _text(batch[row]))

        while batch := list(islice(rows, batch_rows)):
            found = sift(batch)
            yield found
            if found.stopped is not None:
                return


def _text(item: Item) -> str:
    """A line as it was, or the object on it as JSON."""
    _, found, line = item
    return row_text([found], 0) if isinstance(found, dict) and not line else line.decode("utf-8", "replace").strip()


def _find(rows: Sequence[Item], targets: Sequence[Target], names: dict[str, str | None], known: Names) -> None:
    """Mark the targets that are in some rows, and add the names of their columns with the targets that they mean."""
    for key in {key: None for _, row, _ in rows if isinstance(row, dict) for key in row}:
        if key not in names:
            names[key] = known.given(key)
    there = set(names.values())
    for target in targets:
        target.found = target.found or target.name in there


def _look_on(
    files: Sequence[Source], count: int, targets: Sequence[Target], names: dict[str, str | None], known: Names
) -> None:
    """Look for targets in the next ``count`` rows of other files."""
    for path in files:
        with open_text(path) as source:
            objects = json_items(source, path, exact=False)
            while count > 0 and (rows := list(islice(objects, min(count, _A_FEW)))):
                count -= len(rows)
                _find(rows, targets, names, known)
                if all(target.found for target in targets):
                    return


def json_objects(
    source: IO[bytes], path: Source, *, exact: bool, on_error: OnError = "refuse"
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects with their line numbers; ``exact``: floats as Decimal."""
    for number, found, _ in json_items(source, path, exact=exact):
        if not isinstance(found, BadRow):
            yield number, found
        elif on_error == "refuse":
            raise found
        elif on_error == "stop":
            return


def json_items(source: IO[bytes], path: Source, *, exact: bool) -> Iterator[Item]:
    """The objects with their line numbers, and the lines that are none."""
    decode = json.JSONDecoder(parse_float=Decimal if exact else None, object_pairs_hook=_as_object).decode
    begun = False
    first = 1 + (path.skipped if isinstance(path, Piece) else 0)
    for number, line in enumerate(iter(source.readline, b""), first):
        if not line.strip():
            continue
        if not begun and _OBJECTS.match(line):
            hint = "jq -c '.[]' makes such lines of it"
            if not isinstance(path, Piece):
                hint = f"jq -c '.[]' {path.name} > {path.stem}.jsonl makes such a file of it"
            raise InputError(f"{path}: this is a JSON array, one object on each line is needed", hint=hint)
        begun = True
        try:
            found = _object(path, number, line, decode)
            yield number, found, line if isinstance(found, _Twice) else b""
        except BadRow as bad:
            yield number, bad, line


def read_json_array(text: bytes, sieve: Sieve) -> Rows:
    """The rows of a JSON array, or of one object. A row is an object, or an array of values in the order of columns."""
    where, targets = sieve.where, sieve.targets
    exact = any(t.kind is Kind.DECIMAL for target in targets for t in target.types)
    decode = json.JSONDecoder(parse_float=Decimal if exact else None, object_pairs_hook=_as_object).decode
    try:
        found = decode(text.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise InputError(f"{where}: the text is not UTF-8") from None
    except json.JSONDecodeError as problem:
        place = f"line {problem.lineno}, column {problem.colno}"
        raise InputError(f"{where}, {place}: broken JSON: {problem.msg}") from None
    except ValueError:
        raise InputError(f"{where}: a number has too many digits") from None
    except RecursionError:
        raise InputError(f"{where}: the JSON is nested too deeply") from None
    if not isinstance(found, dict | list):
        kind = _KINDS.get(type(found), "a number")
        raise InputError(f"{where}: this is {kind}", hint="an array of objects is needed")
    order = [target.name for target in targets if not target.optional]
    rows = [found] if isinstance(found, dict) else found
    items: list[Item] = [(i, _as_row(row, i, order, where), b"") for i, row in enumerate(rows, 1)]
    names: dict[str, str | None] = {}
    known = Names(target.name for target in targets)
    _find(items, targets, names, known)
    present = [target for target in targets if target.found or not target.optional]
    nowhere = Piece(where, Format.JSON, b"")
    typed = partial(_typed, nowhere, targets=present, known=known, unknown=sieve.unknown)
    return sifted_file(items, typed, sieve, lambda row: f"row {row + 1}", lambda row: row_text(rows, row))


def _as_row(row: object, number: int, order: Sequence[str], where: str) -> dict[str, Any] | BadRow:
    if isinstance(row, dict):
        return row
    if isinstance(row, list) and len(row) == len(order):
        return dict(zip(order, row, strict=True))
    reason = f"an object is expected for each row, this is {_KINDS.get(type(row), 'a number')}"
    if isinstance(row, list):
        reason = f"{counted(len(row), 'value')} for {counted(len(order), 'column')}"
    return BadRow(where, 0, reason, place=f"row {number}")


def _object(path: Source, number: int, line: bytes, decode: Callable[[str], Any]) -> dict[str, Any]:
    def bad(reason: str, hint: str | None = None, column: int | None = None) -> BadRow:
        place = f"line {number}" if column is None else f"line {number}, column {column}"
        return BadRow(str(path), 0, reason, hint=hint, place=place)

    try:
        value = decode(line.decode("utf-8-sig" if number == 1 else "utf-8"))
    except UnicodeDecodeError:
        raise bad("the text is not UTF-8") from None
    except json.JSONDecodeError as problem:
        hint = "a JSON lines file has one object on each line"
        raise bad(f"broken JSON: {problem.msg}", hint, problem.colno) from None
    except ValueError:
        raise bad("a number has too many digits") from None
    except RecursionError:
        raise bad("the JSON is nested too deeply") from None
    if not isinstance(value, dict):
        raise bad(f"an object is expected on each line, this is {_KINDS.get(type(value), 'a number')}")
    return value


def _typed(path: Source, items: list[Item], targets: list[Target], known: Names, unknown: Unknown) -> pa.Table:
    """Objects as a table; ``known``: the names of all columns."""
    rows: list[dict[str, Any]] = []
    keys: list[dict[str, str]] = []
    shapes: dict[tuple[str, ...], dict[str, str]] = {}
    for i, (_, found, _) in enumerate(items):
        if isinstance(found, BadRow):
            raise BadRow(str(path), i, found.reason, hint=found.hint, place=found.place)
        shape = tuple(found)
        if shape not in shapes:
            shapes[shape] = _keys(found, path, i, known, unknown)
        if isinstance(found, _Twice):
            for column, key in shapes[shape].items():
                if key in found.keys_twice:
                    raise BadRow(str(path), i, f"column `{column}` is there twice")
        rows.append(found)
        keys.append(shapes[shape])
    arrays = []
    for target in targets:
        name = target.name
        try:
            values = [row.get(name) for row in rows]
            if None in values:
                values = [row[of[name]] if name in of else None for row, of in zip(rows, keys, strict=True)]
            arrays.append(target.convert(values, convert_json))
        except BadValue as bad:
            raise bad_value(path, bad.index, name, bad) from None
    return pa.table(arrays, names=[target.name for target in targets])


def _keys(row: dict[str, Any], path: Source, number: int, known: Names, unknown: Unknown) -> dict[str, str]:
    """The key of each column that an object has."""
    found: dict[str, str] = {}
    for key in row:
        column = known.given(key)
        if column is None:
            if unknown == "refuse":
                raise BadRow(str(path), number, f"no column `{key}`", hint=suggest(key, known))
            continue
        if column in found:
            raise BadRow(str(path), number, f"column `{column}` is there twice", hint=TWICE)
        found[column] = key
    return found
