"""The tables of a plain SELECT, all taken at one moment; each is as of its own progress, which ``sys.queries``
shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa

from penstock.database.database import Database, core_of, query_of
from penstock.database.query import Query, prepare, standing
from penstock.model.waiting import taken
from penstock.server.gate import Gate
from penstock.server.looking import Looking, is_table
from penstock.server.session import Session
from penstock.server.statements import tokens
from penstock.server.stop import Patience

Make = Callable[[], pa.Table]


class Moment(Mapping[str, Make]):
    """What a user may read, by name: a query hides a stream or relation of its name. When the first table is asked for,
    all whose names stand in the text are taken."""

    def __init__(
        self, db: Database, gate: Gate, looking: Looking, session: Session, text: str, sys: Callable[[str], Make],
        names: Sequence[str], patience: Patience | None = None,
    ) -> None:  # fmt: skip
        """``sys``: what makes a table of ``sys`` as it is when this is called, by its short name; ``names``: all;
        ``patience``: for which tables wait until what was pushed before is worked on."""
        self._patience = patience
        self._db, self._gate, self._looking, self._session, self._sys = db, gate, looking, session, sys
        self._words = {t.value for t in tokens(text) if t.sort in ("word", "quoted")}
        self._words |= {word.lower() for word in self._words}
        queries = [(name, "query") for name in gate.seen(session, "query")]
        others = [(name, kind) for kind in ("relation", "stream") for name in gate.seen(session, kind)]
        read = {name: kind for name, kind in [*others, *queries] if gate.may(session, "read", kind, name)}
        self._kinds = {**read, **{f"sys.{name}": "sys" for name in names}}
        self._taken: dict[str, Make] | None = None

    def __getitem__(self, name: str) -> Make:
        if name not in self._kinds:
            raise KeyError(name)
        return lambda: self._table(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)

    def _table(self, name: str) -> pa.Table:
        if self._taken is None:
            self._take({name})
        assert self._taken is not None
        if name not in self._taken:  # it stands in the text in another way
            self._take({name, *self._taken})
        return self._taken[name]()

    def _take(self, more: set[str]) -> None:
        wanted = {name for name in self._kinds if name in more or name.removeprefix("sys.") in self._words}
        held: dict[str, Query] = {}
        patience = self._patience
        for name in wanted:
            if self._kinds[name] == "query" and (found := query_of(self._db, name)) is not None:
                held[name] = found
                prepare(found, None if patience is None else patience.for_query(name))
        core = core_of(self._db)
        core.check_open()
        with taken(core.lock, None if patience is None else patience.for_database()):
            self._taken = {name: self._one(name, held.get(name)) for name in sorted(wanted)}

    def _one(self, name: str, query: Query | None) -> Make:
        match self._kinds[name]:
            case "sys":
                return self._sys(name.removeprefix("sys."))
            case "relation":
                rows = self._looking.relation_rows(name)
                return lambda: rows
            case "stream":
                return self._looking.stream_rows(name)
        if query is None:
            return lambda: pa.table({})  # it was stopped just now
        if query.error is not None:
            error = query.error

            def failed() -> pa.Table:
                raise error

            return failed
        if is_table(query.plan):
            return standing(query)
        first, next = query.retained
        results = query.read(first, next - first)
        return lambda: results

    def schemas(self) -> dict[str, pa.Schema]:
        """The columns of every table, without its rows."""
        core = core_of(self._db)
        found: dict[str, pa.Schema] = {}
        for name, kind in self._kinds.items():
            if kind == "relation":
                found[name] = self._looking.relation_schema(core.catalog.relations[name])
            elif kind == "stream":
                found[name] = self._looking.stream_schema(core.catalog.streams[name])
            elif kind == "query" and (query := query_of(self._db, name)) is not None:
                found[name] = pa.schema(list(query.schema)[2:]) if is_table(query.plan) else query.schema
            elif kind == "sys":
                found[name] = self._sys(name.removeprefix("sys."))().schema
        return found
