"""Interned keys: equal keys have equal codes, codes are dense, and released keys leave nothing behind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.intern import Interner
from penstock.model.types import BIGINT, BINARY, BOOLEAN, DOUBLE, INT, STRING, DataType, array, decimal
from penstock.model.values import to_arrow, to_python
from penstock.scalar import hashable
from tests.budget import examples

_VALUES: dict[DataType, st.SearchStrategy[Any]] = {
    INT: st.sampled_from([0, 1, -1, 2**31 - 1, None]),
    BIGINT: st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 1, None]),
    DOUBLE: st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf"), None]),
    STRING: st.sampled_from(["", "a", "ä", "a longer one", "a longer two", "eight by", "longer than those", None]),
    BINARY: st.binary(max_size=20) | st.sampled_from([b"", b"\0", b"\0\0", None]),
    BOOLEAN: st.sampled_from([True, False, None]),
    decimal(5, 2): st.decimals(-9, 9, places=2) | st.none(),
    array(DOUBLE): st.sampled_from([(), (1.0, float("nan")), (-0.0,), (0.0,), None]),
}
_KEYS: list[tuple[DataType, ...]] = [(t,) for t in _VALUES] + [(INT, STRING), (DOUBLE, BIGINT, STRING), ()]


@pytest.mark.parametrize("nulls_match", [True, False])
@pytest.mark.parametrize("types", _KEYS, ids=lambda types: " ".join(map(str, types)) or "none")
@settings(deadline=None, max_examples=examples(40))
@given(data=st.data())
def test_codes_stand_for_keys(types: tuple[DataType, ...], nulls_match: bool, data: st.DataObject) -> None:
    interner = Interner(types, nulls_match=nulls_match)
    known: dict[object, int] = {}
    most = 0
    for _ in range(data.draw(st.integers(1, 4))):
        n = data.draw(st.sampled_from([0, 1, 5, 40]))
        rows = [tuple(data.draw(_VALUES[t]) for t in types) for _ in range(n)]
        columns = [to_arrow([r[i] for r in rows], t) for i, t in enumerate(types)]
        # A REAL or DECIMAL may be stored otherwise than drawn.
        stored = [to_python(c, t) for c, t in zip(columns, types, strict=True)]
        keys = [hashable(tuple(c[i] for c in stored)) for i in range(n)]
        before = interner.lookup(columns, n).tolist()
        codes = interner.encode(columns, n).tolist()
        earlier = dict(known)
        for key, code, was in zip(keys, codes, before, strict=True):
            assert isinstance(key, tuple)
            if not nulls_match and None in key:
                assert code == was == -1
                continue
            assert was == earlier.get(key, -1) or not types
            assert known.setdefault(key, code) == code
        assert len(set(known.values())) == len(known)
        most = max(most, len(known))
        assert not types or (interner.live == len(known) and interner.capacity <= most)
        assert interner.lookup(columns, n).tolist() == codes
        decoded = interner.decode(np.array(codes, np.int64))
        whole = [to_python(c, t) for c, t in zip(decoded, types, strict=True)]
        nothing = (None,) * len(types)
        assert [hashable(tuple(c[i] for c in whole)) for i in range(n)] == [
            nothing if code < 0 else key for key, code in zip(keys, codes, strict=True)
        ]
        gone = data.draw(st.lists(st.sampled_from(sorted(known.values())), unique=True)) if known and types else []
        interner.release(np.array(gone, np.int64))
        known = {k: c for k, c in known.items() if c not in gone}
    if types:
        interner.release(np.array(list(known.values()), np.int64))
        assert interner.live == 0
        assert all(c.table.live == 0 for c in interner._columns)


def test_many_keys_come_and_go() -> None:
    interner = Interner([BIGINT])
    for turn in range(20):
        keys = to_arrow(list(range(turn * 5000, turn * 5000 + 5000)), BIGINT)
        codes = interner.encode([keys], 5000)
        assert sorted(codes.tolist()) == list(range(5000))
        interner.release(codes[::2].copy())
        assert (interner.lookup([keys], 5000) >= 0).tolist() == [False, True] * 2500
        interner.release(codes[1::2].copy())
    assert interner.nbytes < 400_000


def test_many_strings_come_and_go() -> None:
    interner = Interner([STRING])
    texts = np.random.default_rng(1)
    for turn in range(20):
        words = [f"{turn}:{i}" + "x" * int(texts.integers(0, 30)) for i in range(5000)]
        keys = to_arrow(words, STRING)
        codes = interner.encode([keys], 5000)
        assert sorted(codes.tolist()) == list(range(5000))
        interner.release(codes[::2].copy())
        assert (interner.lookup([keys], 5000) >= 0).tolist() == [False, True] * 2500
        # A part of a column, and more than once.
        part = keys.slice(4001, 500)
        again = interner.encode([part], 500)
        assert interner.encode([part], 500).tolist() == again.tolist()
        assert to_python(interner.decode(again)[0], STRING) == words[4001:4501]
        live = np.unique(np.concatenate([codes[1::2], again]))
        assert interner.live == len(live)
        interner.release(live)
        assert interner.live == 0
    assert interner.nbytes < 800_000


def test_keys_that_collide_in_a_full_table() -> None:
    """Long and short strings with common beginnings and ends, taken out in another order than they came."""
    interner = Interner([STRING])
    words = ["a" * n for n in range(300)] + ["b" + "a" * n for n in range(300)] + ["a" * n + "b" for n in range(1, 300)]
    order = np.random.default_rng(2).permutation(len(words))
    keys = to_arrow(words, STRING)
    codes = interner.encode([keys], len(words))
    assert len(np.unique(codes)) == len(words)
    for count, at in enumerate(order.tolist(), 1):
        interner.release(codes[at : at + 1].copy())
        if count % 100 == 0:
            left = interner.lookup([keys], len(words))
            assert ((left >= 0) == ~np.isin(np.arange(len(words)), order[:count])).all()
            assert (left[left >= 0] == codes[left >= 0]).all()
