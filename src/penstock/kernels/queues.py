"""Reading the queues of groups out of their nodes, making nodes of them again, and going from a state of them to a
later one; see ``kernels.aggregate``."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from penstock.kernels.aggregate import COUNT, FREE, FRESH, HEAD, LEFT, NO_NODE, RARE, TAIL
from penstock.model.delta import Ints


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


@nb.njit(nogil=True, cache=True)
def _give_back(node: Any, links: Any, state: Ints) -> None:
    links[node, 0] = state[FREE]
    state[FREE] = node


@nb.njit(nogil=True, cache=True)
def _take(state: Ints, links: Any) -> Any:
    node = state[FREE]
    if node >= 0:
        state[FREE] = links[node, 0]
        return node
    node = state[FRESH]
    state[FRESH] += 1
    return node


@nb.njit(nogil=True, cache=True)
def clear(codes: Ints, places: Ints, ints: Any, links: Any, state: Ints) -> None:
    """Give back the nodes of groups that are no more."""
    for g in codes:
        for at in places:
            node = ints[g, at + HEAD] if ints[g, at + COUNT] > 0 else np.int64(NO_NODE)
            while node >= 0:
                following = np.int64(links[node, 0])
                _give_back(node, links, state)
                node = following


@nb.njit(nogil=True, cache=True)
def settle(
    codes: Ints, rows: Any, queued: Ints, best: Ints, ints: Any, keys: Ints, numbers: Ints, links: Any, state: Ints
) -> None:
    """Groups become what ``rows`` say, their queues what is left of them; what has entered since is not in them yet.

    For queues of one node (``best``) the rows say its value.
    """
    rare = ints.shape[1] - RARE
    for i in range(len(codes)):
        g = codes[i]
        left = rows[i, rare + LEFT]
        for at in queued:
            head = tail = np.int64(NO_NODE)
            if ints[g, at + COUNT] > 0:
                head, tail = ints[g, at + HEAD], ints[g, at + TAIL]
                while head >= 0 and numbers[head] < left:
                    following = np.int64(links[head, 0])
                    _give_back(head, links, state)
                    head = following
                if head >= 0:
                    links[head, 1] = NO_NODE
                else:
                    tail = np.int64(NO_NODE)
            rows[i, at + HEAD], rows[i, at + TAIL] = head, tail
        for at in best:
            node = ints[g, at + HEAD] if ints[g, at + COUNT] > 0 else np.int64(NO_NODE)
            if rows[i, at + COUNT] > 0:
                if node < 0:
                    node = _take(state, links)
                    numbers[node], links[node, 0], links[node, 1] = 0, NO_NODE, NO_NODE
                keys[node] = rows[i, at + HEAD]
            elif node >= 0:
                _give_back(node, links, state)
                node = np.int64(NO_NODE)
            rows[i, at + HEAD] = rows[i, at + TAIL] = node
        for place in range(ints.shape[1]):
            ints[g, place] = rows[i, place]


@nb.njit(nogil=True, cache=True)
def enter(
    codes: Ints, places: Ints, number: Ints, value: Ints, ints: Any, keys: Ints, numbers: Ints, links: Any, state: Ints
) -> Any:
    """Values enter queues, those of each in the order of their numbers; the node of each, -1 if it has left again."""
    rare = ints.shape[1] - RARE
    nodes = np.full(len(codes), -1, np.int64)
    for i in range(len(codes)):
        g, at = codes[i], places[i]
        if number[i] < ints[g, rare + LEFT]:
            continue
        tail = ints[g, at + TAIL]
        while tail >= 0 and keys[tail] >= value[i]:
            before = np.int64(links[tail, 1])
            _give_back(tail, links, state)
            tail = before
        node = _take(state, links)
        keys[node], numbers[node] = value[i], number[i]
        links[node, 0], links[node, 1] = NO_NODE, tail
        if tail >= 0:
            links[tail, 0] = node
        else:
            ints[g, at + HEAD] = node
        ints[g, at + TAIL] = node
        nodes[i] = node
    return nodes
