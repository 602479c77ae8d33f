"""Reading the queues of groups out of their nodes, and making nodes of them again; see ``kernels.aggregate``."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from penstock.delta import Ints
from penstock.kernels.aggregate import COUNT, HEAD, NO_NODE, TAIL


@nb.njit(nogil=True, cache=True)
def unsaved(
    codes: Ints, ids: Ints, places: Ints, ints: Any, keys: Ints, numbers: Ints, links: Any, owner: Ints, number: Ints,
    value: Ints,
) -> Any:  # fmt: skip
    """The nodes of these groups that are not in ``owner``, ``number`` and ``value`` yet, where they are put.

    What is saved of a queue is a part from its beginning, so each is looked at from its end.
    """
    count = 0
    found = np.empty(64, np.int64)
    for i in range(len(codes)):
        g = codes[i]
        for q in range(len(places)):
            if ints[g, places[q] + COUNT] == 0:
                continue
            whose = ids[i] * len(places) + q
            node = ints[g, places[q] + TAIL]
            while node >= 0 and (owner[node] != whose or number[node] != numbers[node]):
                owner[node], number[node], value[node] = whose, numbers[node], keys[node]
                if count == len(found):
                    longer = np.empty(2 * count, np.int64)
                    longer[:count] = found
                    found = longer
                found[count] = node
                count += 1
                node = np.int64(links[node, 1])
    return found[:count]


@nb.njit(nogil=True, cache=True)
def queue_up(owner: Ints, number: Ints, value: Ints, codes: Ints, places: Ints, ints: Any, links: Any) -> Any:
    """Queues of what has entered, in order of owner and number; ``codes`` are those of the groups.

    Nodes are those entries that no later one of their queue makes useless; their places in the input are given.
    """
    n = len(owner)
    kept = np.empty(n, np.int64)
    count, first = 0, 0
    for i in range(n):
        if i == 0 or owner[i] != owner[i - 1]:
            first = count
        while count > first and value[kept[count - 1]] >= value[i]:
            count -= 1
        kept[count] = i
        count += 1
        if i + 1 == n or owner[i + 1] != owner[i]:
            at = places[owner[i] % len(places)]
            for node in range(first, count):
                links[node, 0] = node + 1 if node + 1 < count else NO_NODE
                links[node, 1] = node - 1 if node > first else NO_NODE
            ints[codes[i], at + HEAD], ints[codes[i], at + TAIL] = first, count - 1
    return kept[:count]
