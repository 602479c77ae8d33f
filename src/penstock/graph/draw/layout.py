"""Where things stand in the picture of the graph.

Data flows from left to right. Boxes are in columns by the longest path from a source; boxes of a group stand in one
rectangle, and no two rectangles overlap. A line runs freely only between columns; where it has to pass a column, it
has a lane there in which no box is. Lines from one box that go the same way share a lane.

Both the boxes of a group and the groups among each other are arranged by the same means: blocks, which take up some
columns and some height, are stacked in an order, drawn to where their lines come from and go to as far as there is
room, and ordered anew by that, a few times; the arrangement with the shortest lines is kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

_SWEEPS = 12
_LANE = 10.0


@dataclass(frozen=True)
class Box:
    """What is placed: its group (None for a group of its own without a frame), and its height."""

    id: str
    group: int | None
    height: float


@dataclass(frozen=True)
class Spacing:
    """Heights. ``gap``: between blocks; ``frame``: of a group around its boxes; ``title``: above them in addition."""

    gap: float
    frame: float
    title: float


@dataclass
class Layout:
    """Positions: boxes as (column, top), groups as (first column, last column, top, height), and for each line the
    middle of its lane in each column that it passes."""

    boxes: dict[str, tuple[int, float]] = field(default_factory=dict)
    groups: dict[int, tuple[int, int, float, float]] = field(default_factory=dict)
    lanes: dict[tuple[str, str], list[tuple[int, float]]] = field(default_factory=dict)
    columns: int = 0
    height: float = 0.0


@dataclass
class _Block:
    """Takes the columns ``first`` to ``last`` and a height there."""

    first: int
    last: int
    height: float
    top: float = 0.0


@dataclass(frozen=True)
class _Link:
    """A line from a height in a block to a height in another, which stands further right."""

    source: int
    target: int
    leaves: float
    enters: float


def layout(boxes: Sequence[Box], lines: Sequence[tuple[str, str]], spacing: Spacing) -> Layout:
    """Place the boxes; ``lines`` have no circles. Deterministic."""
    column = _columns([box.id for box in boxes], lines)
    found = Layout(columns=max(column.values(), default=-1) + 1)
    groups: dict[object, list[Box]] = {}
    for box in boxes:
        groups.setdefault(box.id if box.group is None else box.group, []).append(box)
    owner = {box.id: name for name, members in groups.items() for box in members}
    lines = list(dict.fromkeys(lines))

    # Each group by itself.
    blocks: list[_Block] = []
    index: dict[object, int] = {}
    inside: dict[object, float] = {}  # the middle of a box or lane below the top of its group
    for name, members in groups.items():
        own = [line for line in lines if owner[line[0]] == owner[line[1]] == name]
        placed, lanes = _arrange(members, own, column, spacing.gap)
        framed = members[0].group is not None
        top = spacing.frame + spacing.title if framed else 0.0
        for box in members:
            inside[box.id] = top + placed[box.id].top + box.height / 2
        for sender, lane in lanes.items():
            inside[name, sender] = top + lane.top + lane.height / 2
        used = [*placed.values(), *lanes.values()]
        height = top + max(b.top + b.height for b in used) + (spacing.frame if framed else 0.0)
        index[name] = len(blocks)
        blocks.append(_Block(min(b.first for b in used), max(b.last for b in used), height))

    # The groups, and the lanes between them.
    between = [line for line in lines if owner[line[0]] != owner[line[1]]]
    passing = _lanes(between, column)
    for sender, (first, last) in passing.items():
        index["lane", sender] = len(blocks)
        blocks.append(_Block(first, last, _LANE))
    links = []
    for source, target in between:
        a, b = index[owner[source]], index[owner[target]]
        if column[target] - column[source] > 1:
            by = index["lane", source]
            links += [_Link(a, by, inside[source], _LANE / 2), _Link(by, b, _LANE / 2, inside[target])]
        else:
            links.append(_Link(a, b, inside[source], inside[target]))
    _settle_all(blocks, list(dict.fromkeys(links)), spacing.gap)

    for box in boxes:
        found.boxes[box.id] = (column[box.id], blocks[index[owner[box.id]]].top + inside[box.id] - box.height / 2)
        if box.group is not None:
            block = blocks[index[box.group]]
            found.groups[box.group] = (block.first, block.last, block.top, block.height)
    for source, target in lines:
        name = owner[source]
        if name == owner[target]:
            middle = blocks[index[name]].top + inside.get((name, source), 0.0)
        else:
            middle = blocks[index["lane", source]].top + _LANE / 2 if ("lane", source) in index else 0.0
        found.lanes[source, target] = [(c, middle) for c in range(column[source] + 1, column[target])]
    found.height = max((b.top + b.height for b in blocks), default=0.0)
    return found


def _columns(ids: Sequence[str], lines: Sequence[tuple[str, str]]) -> dict[str, int]:
    """The longest path to each box; where nothing comes in, as far right as what it sends to allows."""
    inputs: dict[str, list[str]] = {id: [] for id in ids}
    outputs: dict[str, list[str]] = {id: [] for id in ids}
    for source, target in lines:
        inputs[target].append(source)
        outputs[source].append(target)
    missing = {id: len(inputs[id]) for id in ids}
    order = [id for id in ids if not missing[id]]
    column: dict[str, int] = {}
    for id in order:  # grows meanwhile
        column[id] = max((column[sender] + 1 for sender in inputs[id]), default=0)
        for target in outputs[id]:
            missing[target] -= 1
            if not missing[target]:
                order.append(target)
    for id in ids:
        if not inputs[id] and outputs[id]:
            column[id] = min(column[target] for target in outputs[id]) - 1
    return column


def _lanes(lines: Sequence[tuple[str, str]], column: dict[str, int]) -> dict[str, tuple[int, int]]:
    """For each sender whose lines pass columns, the first and the last of them."""
    lanes: dict[str, tuple[int, int]] = {}
    for source, target in lines:
        first, last = column[source] + 1, column[target] - 1
        if first <= last:
            lanes[source] = (first, max(last, lanes.get(source, (0, 0))[1]))
    return lanes


def _arrange(
    members: Sequence[Box], lines: Sequence[tuple[str, str]], column: dict[str, int], gap: float
) -> tuple[dict[str, _Block], dict[str, _Block]]:
    """The boxes of a group and the lanes among them, by box and by sender."""
    boxes = {box.id: _Block(column[box.id], column[box.id], box.height) for box in members}
    lanes = {s: _Block(first, last, _LANE) for s, (first, last) in _lanes(lines, column).items()}
    blocks = [*boxes.values(), *lanes.values()]
    index = {id: i for i, id in enumerate(boxes)}
    lane_index = {id: len(boxes) + i for i, id in enumerate(lanes)}
    links = []
    for source, target in lines:
        a, b = index[source], index[target]
        leaves, enters = boxes[source].height / 2, boxes[target].height / 2
        if column[target] - column[source] > 1:
            by = lane_index[source]
            links += [_Link(a, by, leaves, _LANE / 2), _Link(by, b, _LANE / 2, enters)]
        else:
            links.append(_Link(a, b, leaves, enters))
    _settle_all(blocks, list(dict.fromkeys(links)), gap)
    return boxes, lanes


def _settle_all(blocks: list[_Block], links: Sequence[_Link], gap: float) -> None:
    """Give each block its top. The least is zero."""
    if not blocks:
        return
    inward: list[list[_Link]] = [[] for _ in blocks]
    outward: list[list[_Link]] = [[] for _ in blocks]
    for link in links:
        outward[link.source].append(link)
        inward[link.target].append(link)

    # One of many lines counts little, so that a path stays level although it begins at a crossroads.
    weight = {k: max(len(outward[k.source]), len(inward[k.target])) ** -2 for k in links}

    def wanted(*, before: bool = True, after: bool = True) -> list[float]:
        """For each block the top at which its lines, to the left or right or both, would be level on average."""
        found = []
        for i, block in enumerate(blocks):
            tops = [(blocks[k.source].top + k.leaves - k.enters, weight[k]) for k in inward[i] if before]
            tops += [(blocks[k.target].top + k.enters - k.leaves, weight[k]) for k in outward[i] if after]
            whole = math.fsum(w for _, w in tops)
            found.append(math.fsum(top * w for top, w in tops) / whole if tops else block.top)
        return found

    order = _first_order(blocks, outward, inward)
    best, least = [0.0] * len(blocks), math.inf
    for sweep in range(_SWEEPS):
        _stack(blocks, order, gap)
        for _ in range(3):
            _draw_down(blocks, order, gap, wanted())
            _draw_up(blocks, order, gap, wanted())
        length = math.fsum(
            weight[k] * abs(blocks[k.source].top + k.leaves - blocks[k.target].top - k.enters) for k in links
        )
        if length < least - 1e-6:
            best, least = [block.top for block in blocks], length
        tops = wanted(before=sweep % 2 == 0, after=sweep % 2 == 1)
        middle = [top + block.height / 2 for top, block in zip(tops, blocks, strict=True)]
        place = {i: n for n, i in enumerate(order)}
        order = sorted(order, key=lambda i: (round(middle[i], 3), place[i]))
    shift = min(best)
    for block, top in zip(blocks, best, strict=True):
        block.top = top - shift


def _first_order(blocks: list[_Block], outward: list[list[_Link]], inward: list[list[_Link]]) -> list[int]:
    """Blocks as one comes to them when one follows the lines: what belongs together is near each other."""
    order: list[int] = []
    seen: set[int] = set()
    for start in sorted(range(len(blocks)), key=lambda i: (bool(inward[i]), i)):
        stack = [start]
        while stack:
            i = stack.pop()
            if i not in seen:
                seen.add(i)
                order.append(i)
                stack += [link.target for link in reversed(outward[i])]
    return order


def _stack(blocks: list[_Block], order: Sequence[int], gap: float) -> None:
    """Each block as high up as those before it allow."""
    free: dict[int, float] = {}
    for i in order:
        block = blocks[i]
        span = range(block.first, block.last + 1)
        block.top = max(free.get(c, 0.0) for c in span)
        free.update(dict.fromkeys(span, block.top + block.height + gap))


def _draw_down(blocks: list[_Block], order: Sequence[int], gap: float, wanted: Sequence[float]) -> None:
    """Each block down to where it is wanted, or as far as those after it allow."""
    free: dict[int, float] = {}
    for i in reversed(order):
        block = blocks[i]
        span = range(block.first, block.last + 1)
        room = min(free.get(c, math.inf) for c in span) - block.height
        block.top = max(block.top, min(wanted[i], room))
        free.update(dict.fromkeys(span, block.top - gap))


def _draw_up(blocks: list[_Block], order: Sequence[int], gap: float, wanted: Sequence[float]) -> None:
    """Each block up to where it is wanted, or as far as those before it allow."""
    free: dict[int, float] = {}
    for i in order:
        block = blocks[i]
        span = range(block.first, block.last + 1)
        room = max(free.get(c, -math.inf) for c in span)
        block.top = min(block.top, max(wanted[i], room))
        free.update(dict.fromkeys(span, block.top + block.height + gap))
