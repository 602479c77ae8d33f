"""When a change of a stored relation happens: decided once, as it comes in, for all engines alike.

The instant of a change is a function of what has come in, never of which queries there are or of how far an engine has
worked. Rule 7.2 of docs/concepts/semantics.md says it in words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from penstock.catalog import Catalog
from penstock.ingest.relations import At, RelationStore, When
from penstock.ingest.streams import StreamInput
from penstock.model.batch import Instant
from penstock.model.change import Change, Dating
from penstock.model.errors import CatalogError, InputError
from penstock.model.schema import Clock
from penstock.plan.nodes import Query, QueryStream, RelationScan, sources, stream_scans

_LAST = 2**62 - 1
"""The last instant that can be given."""
_KINDS: Mapping[Clock, str] = {"ticks": "a clock that counts ticks", "timestamp": "a TIMESTAMP clock"}


class Running(Protocol):
    """What matters here of a registered query."""

    dating: Dating
    name: str
    plan: Query

    @property
    def inputs(self) -> frozenset[str]:
        """The declared streams that it reads."""

    @property
    def relations(self) -> frozenset[str]:
        """The relations that it reads."""


@dataclass
class Instants:
    """The time of the relations of one database. Its tables are the database's own."""

    catalog: Catalog
    streams: Mapping[str, StreamInput]
    stores: Mapping[str, RelationStore]
    queries: Mapping[str, Running]
    counted: int = 0
    """How many changes came before any instant was named."""
    gone: dict[Clock, Instant] = field(default_factory=dict)
    """What streams that are no more have named."""

    # -- changes ------------------------------------------------------------------------------------

    def readers(self, relation: str) -> list[Running]:
        """The queries to which a change of a relation may still make a difference."""
        return [q for q in self._reading() if relation in q.relations]

    def when(self, relation: str, at: At | None) -> When:
        """When a change that comes in now happens, which says ``at`` an instant, or nothing."""
        readers = self.readers(relation)
        when = When(
            None if at is None else at.instant,
            given=at is not None,
            clock=self.clock_of(relation) if at is None or not at.time else self._clock_of(relation, "timestamp"),
            floor=max((self._floor(q, relation) for q in readers), default=-math.inf),
            number=self.counted + 1,
            read=any(q.inputs for q in readers),
        )
        newest = self._newest(relation)
        if at is not None or not math.isfinite(newest):
            return when
        if newest >= _LAST:
            raise InputError(
                f"relation `{relation}`: there is no instant after {int(newest)}, which has been named already",
                hint="say when the change happens, as in INSERT … AT 5",
            )
        return replace(when, at=int(newest) + 1)

    def changed(self, relation: str, changes: Sequence[Change]) -> None:
        """Changes have been made."""
        self.counted = max(self.counted, self.stores[relation].early)
        for query in self.readers(relation):
            if not query.inputs:
                query.dating.dated(changes)

    def passed(self, clock: Clock) -> Instant:
        """The newest instant that any stream of this kind of clock has ever named: changes up to it have happened."""
        named = (i.named for i in self.streams.values() if i.definition.clock == clock)
        return max(self.gone.get(clock, -math.inf), *named, -math.inf)

    def dropping(self, name: str) -> None:
        """A stream is about to go; what it has named stays named."""
        source = self.streams.get(name)
        if source is not None:
            clock = source.definition.clock
            self.gone[clock] = max(self.gone.get(clock, -math.inf), source.named)

    def _newest(self, relation: str) -> Instant:
        """The newest instant that an open stream or a relation of the same kind of clock has named."""
        clock = self.clock_of(relation)
        named = [i.newest for i in self.streams.values() if i.definition.clock == clock]
        return max([*named, *(s.last_change for name, s in self.stores.items() if self.clock_of(name) == clock)])

    def _floor(self, query: Running, relation: str) -> Instant:
        """Up to where the answers of whoever reads a relation in a query are final."""
        if query.inputs:
            return self._settled(query.plan, relation, math.inf)
        # It has been evaluated at 0, and at every change since, which may have got a later instant than it had.
        return max(query.dating.last, *(self.stores[name].last_change for name in query.relations))

    def _settled(self, query: Query, relation: str, outside: Instant) -> Instant:
        """How far the innermost query is, of those that read streams, around whoever reads the relation; if there are
        several, the furthest. Where all streams are closed nothing more is answered."""
        streams = {scan.stream for scan in stream_scans(query)}
        here = min((self.streams[name].progress for name in streams), default=outside)
        found: Instant = -math.inf
        for source in sources(query):
            if isinstance(source, QueryStream):
                found = max(found, self._settled(source.query, relation, here))
            elif isinstance(source, RelationScan) and source.relation == relation and here < math.inf:
                found = max(found, here)
        return found

    # -- kinds of clocks ----------------------------------------------------------------------------

    def clock_of(self, relation: str) -> Clock:
        """The kind of clock that the instants of a relation are of: that of the streams it is read with; ticks, where a
        query without streams reads it in ticks; else that of its last change, or of all streams that are declared;
        ticks where these have both kinds."""
        kinds = {i.definition.clock for i in self.streams.values()}
        return self._clock_of(relation, self.stores[relation].clock or ("ticks" if len(kinds) != 1 else kinds.pop()))

    def check(self, query: Running) -> None:
        """Refuse a query that would read a relation under another kind of clock than others do."""
        known = self._clocks(query)
        mine = [(name, *known[name]) for name in sorted(query.relations) if name in known]
        for name in sorted(query.relations) if query.plan.clock == "ticks" else ():
            if self.stores[name].clock == "timestamp" and name not in known:
                raise CatalogError(
                    f"relation `{name}` has changed at instants of a TIMESTAMP clock, and this query counts ticks",
                    hint="a change has an instant of one kind: use a relation of its own",
                )
        for name, clock, reader in mine:
            if query.inputs and clock != query.plan.clock:
                other = f"this query has {_KINDS[query.plan.clock]}"
            elif clock != mine[0][1]:
                other = f"`{mine[0][0]}` under {_KINDS[mine[0][1]]} by query `{mine[0][2]}`"
            else:
                continue
            raise CatalogError(
                f"relation `{name}` is read under {_KINDS[clock]} by query `{reader}`, and {other}",
                hint=f"a change has an instant of one kind: use a relation of its own, or STOP QUERY {reader}",
            )

    def _clock_of(self, relation: str, otherwise: Clock) -> Clock:
        found = self._clocks().get(relation)
        return otherwise if found is None else found[0]

    def _clocks(self, but: Running | None = None) -> dict[str, tuple[Clock, str]]:
        """Under which kind of clock relations are read, and by whom. What a query without streams reads together is of
        one kind: of ticks, where it was registered in ticks."""
        reading = [q for q in self._reading() if q is not but]
        deciding = [q for q in reading if q.inputs or q.plan.clock == "ticks"]
        known = {r: (q.plan.clock, q.name) for q in reversed(deciding) for r in q.relations}
        together = [q for q in reading if not q.inputs]
        while True:
            size = len(known)
            for query in together:
                some = next((known[r] for r in sorted(query.relations) if r in known), None)
                if some is not None:
                    known |= {r: known.get(r, some) for r in query.relations}
            if len(known) == size:
                return known

    def _reading(self) -> list[Running]:
        """The queries that have not been stopped and whose streams are not all closed. Whether one of them has ended or
        failed meanwhile depends on how far it has been worked on, so nobody asks."""
        there = {*self.streams, *self.stores}
        queries = [q for q in self.queries.values() if there >= q.inputs | q.relations]
        return [q for q in queries if not q.inputs or any(not self.streams[n].closed for n in q.inputs)]
