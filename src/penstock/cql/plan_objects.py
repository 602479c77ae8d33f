"""Plan objects for a database: what a plan leaves out of its scans is looked up, what it says of them has to be right.

A scan needs no more than its name, ``{"node": "StreamScan", "stream": "s"}``. Its columns, its position and its clock
are those of the catalog; a plan that gives others is refused. The scan of a derived stream becomes the stream's query.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from penstock.catalog import Catalog, FunctionDef
from penstock.model.errors import PlanError, suggest
from penstock.model.schema import Clock, Schema
from penstock.model.types import DataType
from penstock.plan.nodes import Query, Source, is_stream, sources, stream_scans, walk
from penstock.plan.serial import field_from_json, from_json, node_to_json, to_json
from penstock.plan.serial_expr import Json, Reader

_Clocks = dict[str, Clock | None]
"""The streams that a query reads itself, and the kind of clock of each; None for one that reads relations alone."""


def plan_of_object(plan: object, catalog: Catalog) -> tuple[Query, frozenset[str]]:
    """The plan that an object describes (a plan, its JSON form, or the text of that), and the names that it reads."""
    given = to_json(plan) if isinstance(plan, Query) else _parsed(plan)
    if not isinstance(given, Mapping) or "query" not in given:
        from_json(given)  # says what is wrong
    assert isinstance(given, Mapping)
    lookup = _Lookup(catalog)
    tree, _ = lookup.value(given["query"], "query")
    # The queries of derived streams have the meanings of now, whatever the number that the plan has.
    found = from_json({**given, "query": tree}, meant=given["query"])
    _check_sub_queries(found, catalog)
    return found, frozenset(lookup.reads)


def by_name(plan: Any) -> Any:
    """The JSON form of a plan without what is looked up: it fits wherever the same is declared, in whatever order."""
    if isinstance(plan, list):
        return [by_name(part) for part in plan]
    if not isinstance(plan, Mapping):
        return plan
    left_out = {"StreamScan": ("schema", "position", "clock"), "RelationScan": ("schema", "position")}
    left_out["QueryStream"] = ("position",)
    given = {key: part for key, part in plan.items() if key not in left_out.get(plan.get("node", ""), ())}
    if "penstock_plan" in given:
        given.pop("annotations", None)  # estimates, for readers
    return {key: by_name(part) for key, part in given.items()}


def _parsed(plan: object) -> object:
    if not isinstance(plan, str):
        return plan
    try:
        return json.loads(plan)
    except json.JSONDecodeError as error:
        raise PlanError(f"the plan is not JSON: {error}", hint="db.explain(…, format='json') gives one") from None


def _check_sub_queries(plan: Query, catalog: Catalog) -> None:
    """The rows of a sub-query come behind those of the same instant of everything declared that is read with it."""
    for query in (node for node in walk(plan) if isinstance(node, Query)):
        read = {source: is_stream(source) and source.name not in catalog.streams for source in sources(query)}
        last = max((source.position for source, is_sub_query in read.items() if not is_sub_query), default=-1)
        for source, is_sub_query in read.items():
            if is_sub_query and source.position <= last:
                raise PlanError(
                    f"sub-query `{source.name}` has position {source.position}, a source beside it {last}",
                    hint="a sub-query comes behind everything that is declared: leave `position` out",
                )


class _Lookup:
    """Goes through the JSON form of one plan. ``reads``: the names of the catalog that it has met."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._next = catalog.next_position
        self.reads: set[str] = set()

    def value(self, value: object, path: str) -> tuple[Any, _Clocks]:
        """The same with everything that was left out, and the streams in it."""
        clocks: _Clocks = {}
        if isinstance(value, list):
            items = [self.value(item, f"{path}[{i}]") for i, item in enumerate(value)]
            for _, found in items:
                clocks |= found
            return [item for item, _ in items], clocks
        if not isinstance(value, Mapping):
            return value, clocks
        match value.get("node"):
            case "StreamScan" | "RelationScan":
                return self._scan(value, path)
            case "QueryStream" if "query" not in value:
                return self._scan(value, path)
        made: Json = dict(value)
        for key in sorted(made, key=str):  # left before right, however it is written
            made[key], found = self.value(made[key], f"{path}.{key}")
            clocks |= found
        match made.get("node"), made.get("expr"):
            case "Query", _:
                return self._query(made, path, clocks)
            case "QueryStream", _:
                return self._query_stream(made, path, clocks)
            case _, "UserCall":
                self._check_function(made, path)
        return made, clocks

    # -- sources --------------------------------------------------------------------------------------

    def _scan(self, given: Mapping[str, Any], path: str) -> tuple[Json, _Clocks]:
        obj = Reader(given, path)
        kind = obj.text("node")
        name = obj.text({"StreamScan": "stream", "RelationScan": "relation"}.get(kind, "name"))
        known = self._source(name, kind, path)
        schema = obj.items("schema", field_from_json) if "schema" in given else None
        position, clock = obj.take("position", None), obj.take("clock", None)
        obj.done()
        what = f"{_kind(known)} `{known.name}`"
        if schema is not None and not _same_columns(schema, known.schema):
            raise PlanError(f"{path}.schema: {what} has columns {_shown(known.schema)}, not {_shown(schema)}")
        _check_position(position, known, path)
        right = known.clock if is_stream(known) else None
        if clock is not None and clock != right:
            kinds = "a relation has no clock" if right is None else f"{what} has the clock {right!r}, not {clock!r}"
            raise PlanError(f"{path}.clock: {kinds}", hint="leave `clock` out, and it is looked up")
        self.reads.add(known.name)
        if not is_stream(known):
            return node_to_json(known), {}
        # One that reads relations alone goes with either kind of clock.
        return node_to_json(known), {known.name: known.clock if stream_scans(known) else None}

    def _source(self, name: str, kind: str, path: str) -> Source:
        known = self._catalog.scan_of(name)
        if known is None:
            if self._catalog.kind_of(name) == "view" or self._catalog.kind_of(name.lower()) == "view":
                hint = f"EXPLAIN (FORMAT JSON) SELECT * FROM {name} gives what to write in its place"
                raise PlanError(f"{path}: `{name}` is a view, a plan reads streams and relations", hint=hint)
            error = self._catalog.unknown(name)
            error.message = f"{path}: {error.message}"
            raise error
        is_relation = known.name in self._catalog.relations
        right = json.dumps({"node": "RelationScan" if is_relation else "StreamScan", _kind(known): known.name})
        if is_relation != (kind == "RelationScan"):
            raise PlanError(f"{path}: `{name}` is a {_kind(known)}, not what a {kind} reads", hint=f"write {right}")
        if kind == "QueryStream" and not self._catalog.streams[known.name].derived:
            raise PlanError(f"{path}: stream `{name}` is not derived from a query", hint=f"write {right}")
        return known

    def _query_stream(self, made: Json, path: str, below: _Clocks) -> tuple[Json, _Clocks]:
        """A stream of a query that is all there: a derived one, or a sub-query."""
        inner = made["query"]
        clock = inner.get("clock") if isinstance(inner, Mapping) and any(below.values()) else None
        name = made.get("name")
        if not isinstance(name, str):
            return made, {}  # the reader says what is wrong
        known = self._catalog.streams.get(name)
        if known is not None and not known.derived:
            wrong = f"stream `{name}` is not derived from a query"
            raise PlanError(f"{path}.name: {wrong}", hint="give the sub-query another name")
        if known is not None:
            _check_position(made.setdefault("position", known.position), known.scan, path)
            self.reads.add(name)
        elif "position" not in made:
            made["position"] = self._next
            self._next += 1
        return made, {name: clock}

    # -- queries and calls ----------------------------------------------------------------------------

    def _query(self, made: Json, path: str, clocks: _Clocks) -> tuple[Json, _Clocks]:
        kinds = {clock: name for name, clock in clocks.items() if clock is not None}
        if len(kinds) > 1:
            raise PlanError(
                f"{path}: stream `{kinds['ticks']}` counts ticks and `{kinds['timestamp']}` has a TIMESTAMP clock",
                hint="streams of one query need one kind of clock",
            )
        # What reads relations alone goes with either kind.
        right = next(iter(kinds), made.get("clock", self._catalog.clock))
        if made.setdefault("clock", right) != right:
            raise PlanError(
                f"{path}.clock: stream `{kinds[right]}` has the clock {right!r}, not {made['clock']!r}",
                hint="leave `clock` out, and it is looked up",
            )
        if isinstance(made.get("masters"), list):
            made["masters"] = [
                m.lower() if isinstance(m, str) and m not in clocks and m.lower() in clocks else m
                for m in made["masters"]
            ]
        return made, clocks

    def _check_function(self, made: Json, path: str) -> None:
        name, known = made.get("function"), self._catalog.functions
        if not isinstance(name, str):
            return  # the reader says what is wrong
        if name not in known and name.lower() not in known:
            hint = suggest(name, known) or "db.create_function declares one"
            raise PlanError(f"{path}.function: there is no function `{name}` of yours", hint=hint)
        made["function"] = name = name if name in known else name.lower()
        args = made.get("args", ())
        types = [arg.get("type") for arg in args if isinstance(arg, Mapping)]
        right = known[name]
        if types != [str(t) for t in right.args] or made.get("type") != str(right.returns):
            said = _signature(name, types, made.get("type"))
            raise PlanError(f"{path}: the function is {signature(right)}, not {said}")


def _kind(source: Source) -> str:
    return "stream" if is_stream(source) else "relation"


def _check_position(given: object, known: Source, path: str) -> None:
    if given is not None and given != known.position:
        raise PlanError(
            f"{path}.position: {_kind(known)} `{known.name}` has position {known.position}, not {given!r}",
            hint="leave `position` out, and it is looked up",
        )


def _same_columns(given: Schema, declared: Schema) -> bool:
    """Case matters in no name, since columns go by place."""
    return [(f.name.lower(), f.type) for f in given] == [(f.name.lower(), f.type) for f in declared]


def _shown(schema: Schema) -> str:
    return f"({', '.join(f'{f.name} {f.type}' for f in schema)})"


def signature(function: FunctionDef) -> str:
    """A function of the user's with its types."""
    return _signature(function.name, function.args, function.returns)


def _signature(name: str, args: list[Any] | tuple[DataType, ...], returns: object) -> str:
    return f"{name}({', '.join(map(str, args))}) → {returns}"
