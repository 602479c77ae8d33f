"""Pieces hold exactly what was saved, are few, and are not written again more often than a logarithm allows."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.operators.pieces import KeyedPieces, RowPieces, Tracked, Whole
from penstock.operators.state import Loaded, Piece, Saved, below, together, under, with_meta
from penstock.operators.tables import from_number, number
from tests.budget import examples


class Shelf:
    """Keeps the tables of saves; a piece is never written twice under one name."""

    def __init__(self) -> None:
        self._tables: dict[str, pa.Table] = {}
        self.rows = 0
        self.pieces = 0

    def keep(self, saved: Saved) -> Loaded:
        for piece in saved.pieces:
            if piece.table is not None:
                assert piece.name not in self._tables
                self._tables[piece.name] = piece.table
                self.rows += piece.table.num_rows
        self.pieces = len(saved.pieces)
        tables: Mapping[str, pa.Table] = {p.name: self._tables[p.name] for p in saved.pieces}
        return Loaded(saved.meta, tables)


def numbers(start: int, stop: int) -> pa.Table:
    return pa.table({"n": np.arange(start, stop)})


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.booleans()), max_size=60))
def test_rows_come_back(steps: list[tuple[int, int, bool]]) -> None:
    shelf, pieces, tail, head = Shelf(), RowPieces(), 0, 0
    for appended, dropped, reload in steps:
        head += appended
        tail = min(head, tail + dropped)
        loaded = shelf.keep(pieces.save(tail, head, numbers))
        fresh = RowPieces()
        assert fresh.load(loaded)[:2] == (tail, head)
        rows = [n for t in RowPieces().load(loaded)[2] for n in t.column("n").to_pylist()]
        assert rows == list(range(tail, head))
        if reload:
            pieces = fresh


def test_rows_that_get_other_numbers_are_written_again() -> None:
    shelf, pieces = Shelf(), RowPieces()
    shelf.keep(pieces.save(0, 100, numbers))
    loaded = shelf.keep(pieces.save(100, 160, numbers))
    assert [t.num_rows for t in RowPieces().load(loaded)[2]] == [60]


@pytest.mark.parametrize("window", [100_000, 10**9])
def test_many_small_saves_of_rows(window: int) -> None:
    shelf, pieces, saves = Shelf(), RowPieces(), 2000
    for i in range(1, saves + 1):
        shelf.keep(pieces.save(max(0, i * 100 - window), i * 100, numbers))
        assert shelf.pieces <= 8 * 5
    assert shelf.rows < 6 * saves * 100


Change = tuple[int, list[int], list[int], bool, bool]


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 30),
            st.lists(st.integers(0, 10_000), max_size=20),
            st.lists(st.integers(0, 10_000), max_size=30),
            st.booleans(),
            st.booleans(),
        ),
        max_size=40,
    )
)
def test_entries_come_back(steps: list[Change]) -> None:
    shelf = Shelf()

    def table(entries: list[int]) -> pa.Table:
        return pa.table({"v": pa.array(entries, pa.int64())})

    def entries(table: pa.Table) -> list[list[int]]:
        return [[v] for v in table.column("v").to_pylist()]

    def new_one() -> Tracked[list[int]]:
        return Tracked(table, entries, lambda entry: entry[0])

    tracked, version = new_one(), 0
    waiting: list[tuple[dict[int, list[int]], Saved]] = []
    for new, changed, gone, reload, later in steps:
        for _ in range(new):
            version += 1
            tracked.add([version])
        ids = list(tracked.entries)
        for place in changed:
            if ids:
                version += 1
                tracked.change(ids[place % len(ids)])
                tracked.entries[ids[place % len(ids)]][0] = version
        for place in gone:
            if ids:
                tracked.remove(ids.pop(place % len(ids)))
        waiting.append(({id: list(e) for id, e in tracked.entries.items()}, tracked.save()))
        if later:  # tables are made while the entries have gone on, or by the next save
            continue
        for wanted, saved in waiting:
            loaded = shelf.keep(saved)
            fresh = new_one()
            assert dict(fresh.load(loaded)) == wanted
        waiting.clear()
        if reload:
            tracked = fresh


def test_entries_change_while_their_table_is_made() -> None:
    def table(entries: list[int]) -> pa.Table:
        return pa.table({"v": pa.array(entries, pa.int64())})

    def entries(table: pa.Table) -> list[list[int]]:
        return [[v] for v in table.column("v").to_pylist()]

    tracked: Tracked[list[int]] = Tracked(table, entries, lambda entry: entry[0])
    for i in range(20_000):
        tracked.add([i])
    random = np.random.default_rng(1)
    for turn in range(5):
        wanted = [entry[0] for entry in tracked.entries.values()]
        piece = tracked.save().pieces[-1]
        made: list[pa.Table] = []
        thread = threading.Thread(target=lambda piece, made: made.append(piece.table), args=(piece, made))
        thread.start()
        for id in random.permutation(20_000).tolist() if turn % 2 else range(20_000):
            tracked.change(id)
            tracked.entries[id][0] += 1
        thread.join()
        assert made[0].column("v").to_pylist() == wanted


def test_many_small_saves_of_entries() -> None:
    shelf, pieces, live, saves = Shelf(), KeyedPieces(), 10_000, 1000
    none = np.empty(0, np.int64)

    def table(ids: npt.NDArray[np.int64]) -> pa.Table:
        return pa.table({"v": ids})

    shelf.keep(pieces.save(np.arange(live), none, live, table))
    random = np.random.default_rng(1)
    first = shelf.rows
    for _ in range(saves):
        shelf.keep(pieces.save(random.choice(live, 20, replace=False), none, live, table))
        assert shelf.pieces <= 8 * 5
    assert shelf.rows - first < 8 * saves * 20


def test_what_does_not_count_is_thrown_away() -> None:
    shelf, pieces = Shelf(), KeyedPieces()
    none = np.empty(0, np.int64)

    def table(ids: npt.NDArray[np.int64]) -> pa.Table:
        return pa.table({"v": ids})

    shelf.keep(pieces.save(np.arange(1000), none, 1000, table))
    loaded = shelf.keep(pieces.save(none, np.arange(900), 100, table))
    assert sum(t.num_rows for t in loaded.tables.values()) == 100
    loaded = shelf.keep(pieces.save(none, np.arange(900, 1000), 0, table))
    assert not loaded.tables


def test_a_whole_is_written_when_it_is_another() -> None:
    shelf, whole, content = Shelf(), Whole(), [1]
    shelf.keep(whole.save(content, lambda: numbers(0, 1)))
    loaded = shelf.keep(whole.save(content, lambda: numbers(0, 1)))
    assert shelf.rows == 1
    fresh = Whole()
    made = fresh.load(loaded, lambda t: t.column("n").to_pylist())
    shelf.keep(fresh.save(made, lambda: numbers(0, 1)))
    assert shelf.rows == 1
    shelf.keep(fresh.save([2], lambda: numbers(0, 2)))
    assert shelf.rows == 3


def test_parts_and_paths() -> None:
    part = Saved({"x": 1}, (Piece("0", numbers(0, 2)), Piece("1", numbers(0, 3))))
    loaded = Shelf().keep(with_meta(together(a=part, b=Saved()), more=2))
    assert loaded.meta["more"] == 2
    assert loaded.part("a").meta == {"x": 1}
    assert [(n, t.num_rows) for n, t in loaded.part("a").tables.items()] == [("0", 2), ("1", 3)]
    assert len(loaded.part("b").tables) == 0
    assert below("in", dict.fromkeys(under("in", {"x/y": part}), loaded)) == {"x/y": loaded}


@pytest.mark.parametrize("value", [0, -5, 1.5, float("inf"), float("-inf")])
def test_numbers(value: float) -> None:
    assert from_number(number(value)) == value
