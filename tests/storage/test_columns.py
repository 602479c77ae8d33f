"""Large pieces of the state are stored by columns, and each column once: what comes back is what was saved, to the bit,
whoever else had the same column, and whatever became of him."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import StorageError
from penstock.operators.pieces import BLOCK, RowPieces
from penstock.operators.state import Loaded, Piece, Saved
from penstock.storage import states
from penstock.storage.states import States
from tests.storage.forgetful import Forgetful

BITS = [struct.unpack("d", struct.pack("Q", b))[0] for b in (0, 1 << 63, 0x7FF8000000000001, 0x7FF8000000000002)]
INTS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-3, 3))
KINDS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): INTS,
    pa.timestamp("us"): st.integers(-(2**60), 2**60),
    pa.duration("us"): st.integers(-3, 3).map(lambda n: timedelta(microseconds=n)),
    pa.float64(): st.one_of(st.sampled_from(BITS), st.floats()),
    pa.int32(): st.integers(-3, 3),
    pa.bool_(): st.booleans(),
    pa.string(): st.sampled_from(["", "a", "ü", "long " * 20]),
    pa.list_(pa.int64()): st.lists(st.integers(0, 3), max_size=3),
}


@pytest.fixture(autouse=True)
def _by_columns() -> Iterator[None]:
    """Pieces are large, and files small."""
    with patch.object(states, "_LARGE", 1), patch.object(states, "_FILE", 2_000):
        yield


@st.composite
def columns(draw: st.DrawFn, rows: int) -> pa.Array:
    if draw(st.booleans()):
        first, step = draw(INTS), draw(st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63)))
        values = [first + step * i for i in range(rows)]
        if all(-(2**63) <= v < 2**63 for v in values):
            return pa.array(values, draw(st.sampled_from([pa.int64(), pa.timestamp("us")])))
    kind = draw(st.sampled_from(list(KINDS)))
    some: list[Any] = draw(st.lists(st.one_of(st.none(), KINDS[kind]), min_size=rows, max_size=rows))
    return pa.array(some, kind, from_pandas=False)


@st.composite
def tables(draw: st.DrawFn, pool: list[pa.Array]) -> pa.Table:
    """Some of their columns are those of others, under another type perhaps, or in several chunks."""
    rows = draw(st.sampled_from([1, 2, 3, 40]))
    found: list[Any] = []
    for i in range(draw(st.integers(1, 4))):
        same = [c for c in pool if len(c) == rows]
        shared = bool(same) and draw(st.booleans())
        column: Any = draw(st.sampled_from(same)) if shared else draw(columns(rows))
        if column.type == pa.int64() and draw(st.booleans()):
            column = column.view(pa.timestamp("us"))
        pool.append(column)
        cut = draw(st.integers(0, rows))
        found.append((f"c{i}", pa.chunked_array([column.slice(0, cut), column.slice(cut)], column.type)))
    return pa.table(dict(found))


def bits(table: pa.Table) -> list[object]:
    """A table so that equal ones are equal to the bit."""
    found: list[Any] = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        whole = column.combine_chunks()
        plain = whole.view(pa.int64()) if pa.types.is_float64(whole.type) else whole
        if pa.types.is_timestamp(plain.type):
            plain = plain.view(pa.int64())
        found.append((name, str(column.type), plain.to_pylist()))
    return found


def loaded(files: Forgetful) -> dict[str, dict[str, list[object]]]:
    found = States(files, "state", epoch=9)
    return {
        path: {name: bits(one.tables[name]) for name in one.tables}
        for path, one in found.load(found.versions[-1]).items()
    }


@given(st.data())
def test_what_was_saved_is_there_to_the_bit(data: st.DataObject) -> None:
    files = Forgetful()
    files.make("state")
    there = States(files, "state", epoch=1)
    pool: list[pa.Array] = []
    kept: dict[str, dict[str, list[object]]] = {"a": {}, "b": {}, "c": {}}
    for number in range(1, data.draw(st.integers(2, 6))):
        state = {}
        for path, pieces in kept.items():
            for name in data.draw(st.lists(st.sampled_from(sorted(pieces)), unique=True)) if pieces else ():
                del pieces[name]
            new = {}
            if data.draw(st.booleans()):
                new[f"{number}"] = data.draw(tables(pool))
            state[path] = Saved({}, tuple(Piece(name) for name in pieces) + tuple(Piece(*n) for n in new.items()))
            pieces |= {name: bits(table) for name, table in new.items()}
        there.save(number, state)
        assert loaded(files) == kept
        if data.draw(st.booleans()):  # another process goes on
            there = States(files, "state", epoch=number + 1)
            for one in there.load(there.versions[-1]).values():
                dict(one.tables)


def rows(start: int, stop: int) -> pa.Table:
    """Rows that have their instant in a column, come unevenly and are numbered."""
    numbers = np.arange(start, stop)
    at = numbers * 10 + numbers * numbers % 7
    values = np.sin(numbers)
    return pa.table({"at": pa.array(at, pa.timestamp("us")), "v": values, "_ts": at, "_sub": numbers + 2**44})


def size(files: Forgetful) -> int:
    return sum(files.size(path) for path in files.now if path.endswith(".segment"))


def test_operators_that_keep_the_same_rows_store_them_once() -> None:
    files = Forgetful()
    files.make("state")
    there = States(files, "state", epoch=1)
    window, join = RowPieces(), RowPieces()
    with patch.object(states, "_LARGE", 1 << 20):
        for number, (head, behind) in enumerate([(300_000, 280_000), (600_000, 570_000), (900_000, 900_000)], 1):
            there.save(number, {"w": window.save(0, head, rows), "j": join.save(0, behind, rows)})
    live = 900_000 * 16
    whole = 900_000 // BLOCK * BLOCK * 16
    assert size(files) < live + 2 * (live - whole) + 100_000, (
        "of the last rows, which are no block yet, each has a copy"
    )
    again = States(files, "state", epoch=2)
    state = again.load(again.versions[-1])
    for path in ("w", "j"):
        parts = RowPieces().load(Loaded(state[path].meta, state[path].tables))[2]
        assert pa.concat_tables(parts).equals(rows(0, 900_000))


def test_what_one_forgets_stays_for_the_other() -> None:
    files = Forgetful()
    files.make("state")
    there = States(files, "state", epoch=1)
    table = rows(0, 500)
    there.save(1, {"a": Saved({}, (Piece("0", table),)), "b": Saved({}, (Piece("0", table),))})
    alone = size(files)
    assert alone < 1.3 * 500 * 16
    there.save(2, {"b": Saved({}, (Piece("0"),))})
    there.save(3, {"b": Saved({}, (Piece("0"),))})
    assert loaded(files) == {"b": {"0": bits(table)}}
    there.save(4, {})
    there.save(5, {})
    assert size(files) == 0


def test_a_flipped_byte_of_a_column_that_two_have_is_told() -> None:
    files = Forgetful()
    files.make("state")
    table = rows(0, 500)
    there = States(files, "state", epoch=1)
    there.save(1, {"a": Saved({}, (Piece("0", table),)), "b": Saved({}, (Piece("0", table),))})
    path = next(p for p in files.now if p.endswith(".segment"))
    files.now[path].now[2_000] ^= 4
    again = States(files, "state", epoch=2)
    state = again.load(again.versions[-1])
    for one in ("a", "b"):
        with pytest.raises(StorageError, match="damaged"):
            dict(state[one].tables)


def test_equal_checksums_are_not_taken_for_equal_columns() -> None:
    files = Forgetful()
    files.make("state")
    there = States(files, "state", epoch=1)
    one, other = pa.table({"a": [1, 5, 2]}), pa.table({"a": [7, 5, 9]})
    with patch("penstock.storage.segments.zlib.crc32", lambda data, start=0: 7):
        there.save(1, {"a": Saved({}, (Piece("0", one),)), "b": Saved({}, (Piece("0", other),))})
        assert loaded(files) == {"a": {"0": bits(one)}, "b": {"0": bits(other)}}
