"""Symmetric hash join over row numbers: each row is looked up in the other table, then put into its own."""

from __future__ import annotations

import numba
import numpy as np

from penstock.model.delta import Ints


@numba.njit(nogil=True, cache=True)
def take(
    start: int, stop: int, codes: Ints, following: Ints, first: int, heads: Ints,
    other_following: Ints, other_first: int, other_heads: Ints, other_low: int,
) -> tuple[Ints, Ints]:  # fmt: skip
    """Pairs of the rows start … stop-1 with rows of the other table from number ``other_low`` on.

    ``codes`` and ``following`` begin with row ``first``. A table is ``heads[code]``, the last row with this code, and
    ``following``, the one with the same code before each; numbers that are too low end a chain, so nothing has to be
    taken out of a table.
    """
    room, n = max(16, stop - start), 0
    mine, theirs = np.empty(room, np.int64), np.empty(room, np.int64)
    for row in range(start, stop):
        code = codes[row - first]
        if code < 0:
            continue
        partner = other_heads[code]
        while partner >= other_low:
            if n == room:
                mine = np.concatenate((mine, np.empty(room, np.int64)))
                theirs = np.concatenate((theirs, np.empty(room, np.int64)))
                room *= 2
            mine[n] = row
            theirs[n] = partner
            n += 1
            partner = other_following[partner - other_first]
        following[row - first] = heads[code]
        heads[code] = row
    return mine[:n], theirs[:n]
