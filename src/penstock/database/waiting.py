"""What queries wait for that only the clock brings: how far streams must be for it, and when the clock says so."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from penstock.hosts.registered import Registered
from penstock.ingest.relations import RelationStore
from penstock.ingest.streams import StreamInput
from penstock.model.batch import Instant
from penstock.plan.nodes import declared_scans
from penstock.plan.waiting import Ends, Leaves

_PIECES = 1024
"""Intervals in which the rows of a stream are remembered; where there are more, two become one. A window in which
there are always rows is emptied in so many steps."""
_LONG = 100_000_000
"""Ticks of the longest window that is emptied in such steps, where rows come from queries; longer ones in more."""


@dataclass
class Recent:
    """When rows of a stream came lately: intervals of instants, in order, each with at least one row. Only a guess when
    a move of the clock is worth while, so it is not kept on disk. Bounded by ``_PIECES``."""

    spans: deque[tuple[Instant, Instant]] = field(default_factory=deque)

    def add(self, first: Instant, last: Instant) -> None:
        """Rows have come."""
        self.spans.append((first, last))
        if len(self.spans) > _PIECES:
            pairs = [*self.spans, (math.inf, -math.inf)][: 2 * (len(self.spans) // 2 + len(self.spans) % 2)]
            self.spans = deque((a, max(b, d)) for (a, b), (_, d) in zip(pairs[::2], pairs[1::2], strict=True))

    def next(self, after: Instant, grain: int) -> Instant:
        """About the first instant after another one at which there was a row; infinite if there was none."""
        for first, last in self.spans:
            if last > after:
                return first if first > after else min(last, after + grain)
        return math.inf

    def forget(self, before: Instant) -> None:
        """Nobody asks for instants up to this one any more."""
        while self.spans and self.spans[0][1] <= before:
            self.spans.popleft()


@dataclass(frozen=True)
class Need:
    """Something happens when each stream is at least as far as ``low`` says. Streams that are not as far as ``high``
    are moved on for it. ``likely``: the instant that they will have to reach, as far as that can be guessed."""

    low: Mapping[str, Instant]
    high: Mapping[str, Instant]
    likely: Instant = -math.inf


class Waiting:
    """What one query waits for. It is found from how far its streams are, so it is the same after a restart."""

    def __init__(
        self, query: Registered, inputs: Mapping[str, StreamInput], stores: Mapping[str, RelationStore],
        passed: Instant,
    ) -> None:  # fmt: skip
        """``passed``: the newest instant that any stream has named; relations forget changes up to it."""
        self._query, self._waits, self._stores, self._passed = query, query.waits, stores, passed
        self._inputs = {name: inputs[name] for name in query.inputs}
        self._moved = {name: source for name, source in self._inputs.items() if source.is_moved}
        others = [source.progress for name, source in self._inputs.items() if name not in self._moved]
        self._cap: Instant = min(others, default=math.inf)
        """How far the streams are that the clock does not move: what is beyond that does not wait for it."""

    def needs(self, recent: Mapping[str, Recent] | None = None) -> Iterator[Need]:
        """All that waits for the clock. ``recent``: to guess when."""
        if not self._moved:
            return
        for name, source in self._moved.items():
            if source.waiting:
                low = source.progress + 1 if source.held is None else int(source.held.ts[0])
                yield Need({name: low}, {name: source.newest_row})
        if self._waits.ordered:
            for position, at, own in self._elements():
                yield from self._behind(position, min(at, self._cap), own, newest=recent is not None)
        progress = min(source.progress for source in self._moved.values())
        for leaves in self._waits.leaves:
            yield from self._leaving(leaves, progress, recent)
        for ends in self._waits.ends:
            yield from self._ending(ends, progress)

    def _elements(self) -> Iterator[tuple[int, Instant, str]]:
        """The newest elements and changes: their places in the catalog, instants, and where they are of."""
        for scan in declared_scans(self._query.plan):
            if scan.name in self._inputs:
                source = self._inputs[scan.name]
                yield scan.position, min(source.newest_row, source.progress), scan.name
                continue
            store, slowest = self._stores[scan.name], min(source.progress for source in self._moved.values())
            yield scan.position, min(store.last_change, self._passed), scan.name
            later = (change.ts for change, _ in store.later if change.ts is not None and change.ts >= slowest)
            yield scan.position, next(later, -math.inf), scan.name
            if self._waits.nested:
                yield scan.position, 0, scan.name  # what reads relations alone is evaluated then

    def _behind(self, position: int, at: Instant, own: str, *, newest: bool) -> Iterator[Need]:
        """Streams that an element waits for, and those before it, unless the ``newest`` is to be looked at alone: the
        timer need not look for each, since few elements are ahead of the clock."""
        if at == -math.inf:
            return
        needed: dict[str, Instant] = {}
        for name, source in self._moved.items():
            if self._waits.nested or (name != own and source.definition.position < position):
                needed[name] = at + 1
            elif name != own:
                needed[name] = at
        if any(self._moved[name].progress < wanted for name, wanted in needed.items()):
            low = {name: min(wanted, self._moved[name].progress + 1) for name, wanted in needed.items()}
            yield Need(needed if newest else low, needed)

    def _newest(self, names: Iterable[str]) -> Instant:
        newest: Instant = -math.inf
        for name in names:
            if name in self._inputs:
                newest = max(newest, self._inputs[name].newest_row)
            else:
                newest = max(newest, self._stores[name].last_change, 0)
        return newest

    def _leaving(self, leaves: Leaves, progress: Instant, recent: Mapping[str, Recent] | None) -> Iterator[Need]:
        newest = self._newest(leaves.of)
        last = min(newest + leaves.most, self._cap) if newest > -math.inf else newest
        if not progress < last:
            return
        likely: Instant = -math.inf
        if recent is not None:
            grain = int(min(leaves.most, _LONG)) // _PIECES
            likely = progress + grain
            if leaves.least == leaves.most:
                came = (recent[name].next(progress - leaves.least, grain) for name in leaves.of if name in recent)
                likely = min(came, default=-math.inf) + leaves.least
        yield Need(dict.fromkeys(self._moved, progress + 1), dict.fromkeys(self._moved, last), likely)

    def _ending(self, ends: Ends, progress: Instant) -> Iterator[Need]:
        newest = self._newest(ends.of)
        begun = progress if progress > -math.inf else newest
        if begun == -math.inf or (ends.from_first and newest == -math.inf):
            return
        last = math.inf if ends.lasts == math.inf else newest + ends.lasts
        at = ends.after(begun)
        if at < math.inf and at <= min(last, self._cap):
            yield Need(dict.fromkeys(self._moved, at), dict.fromkeys(self._moved, at))

    def due(self, now: int, recent: Mapping[str, Recent] | None = None) -> set[str]:
        """The streams that are to be moved on, now that the clock says this. ``recent``: not where a later move will
        probably do."""
        found: set[str] = set()
        for need in self.needs(recent):
            if all(self._moved[name].reach(now) >= max(low, need.likely) for name, low in need.low.items()):
                behind = {name for name, high in need.high.items() if self._moved[name].progress < high}
                found |= {name for name in behind if self._moved[name].reach(now) > self._moved[name].progress}
        return found

    def next(self, recent: Mapping[str, Recent]) -> float:
        """What the clock says when something is due next; infinite if nothing waits for it."""
        return min((self._when(need) for need in self.needs(recent)), default=math.inf)

    def lags(self) -> dict[str, float]:
        """How many ticks after a row of each stream something may wait for the clock that does not now; 0: at once."""
        found = dict.fromkeys(self._inputs, math.inf)
        for name, source in self._inputs.items():
            if self._waits.ordered or source.definition.idle:
                found[name] = 0
        for leaves in self._waits.leaves:
            for name in leaves.of & found.keys():
                found[name] = min(found[name], leaves.least)
        progress = min((source.progress for source in self._moved.values()), default=-math.inf)
        for ends in self._waits.ends:
            if not any(self._ending(ends, progress)):
                found |= dict.fromkeys(ends.of & found.keys(), 0)
        return found

    def remembers(self) -> dict[str, Instant]:
        """The streams of which it matters when rows came, and since when."""
        progress = min((source.progress for source in self._moved.values()), default=-math.inf)
        found: dict[str, Instant] = {}
        for leaves in self._waits.leaves:
            for name in leaves.of & self._inputs.keys() if leaves.least == leaves.most else ():
                found[name] = min(progress - leaves.least, found.get(name, math.inf))
        return found

    def _when(self, need: Need) -> float:
        wanted = {name: max(low, need.likely) for name, low in need.low.items()}
        return max(self._moved[name].reached_at(at) for name, at in wanted.items())
