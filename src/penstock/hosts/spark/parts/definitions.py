"""Queries as workers run them: files that the database writes once and every worker that meets them reads.

    shards/queries/ID.json     its plan, and what it is told besides
    shards/queries/ID.past     what it is given before its first entry: relations as they were, the history of streams
    shards/programs/ID.json    the queries of a part, and the slot of each that has one to itself

Nothing of it is code: functions are named by version, and their code is where ``storage.store`` keeps it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from penstock.catalog import StreamDef
from penstock.graph.relations import changes_from, changes_table
from penstock.graph.sharing import demands, raised
from penstock.hosts.durable import forms
from penstock.model.batch import Batch, Instant
from penstock.model.change import Change
from penstock.model.errors import CheckpointError, EngineError, QueryFailed, StorageError
from penstock.model.schema import Schema
from penstock.operators.identity import Named
from penstock.plan.nodes import Query, declared_scans
from penstock.plan.serial import from_json
from penstock.storage.files import Files
from penstock.storage.objects import Root, files_at
from penstock.storage.packing import packed, unpacked
from penstock.storage.records import Record, put_record, read_record
from penstock.storage.segments import Segment, frame_bytes, head_bytes
from penstock.storage.shards import PROGRAMS, QUERIES, definition_path, past_path
from penstock.storage.store import code_path, read_code

_PAST = pa.schema([("kind", pa.string()), ("name", pa.string()), ("rows", pa.large_binary())])
_KEPT = 8_192
"""Definitions that a process keeps."""


class FunctionError(QueryFailed):
    """The code of a function that a query calls cannot be loaded in a worker."""


@dataclass(frozen=True)
class Past:
    """What a query is given before its first entry: relations as they are, and the history that streams retain."""

    changes: Mapping[str, Sequence[Change]]
    rows: Mapping[str, Sequence[Batch]]


@dataclass(frozen=True)
class Definition:
    """A query as workers run it. ``past``: how many bytes the file has with what it is given before its first entry.
    ``apart``: it is not given the history that others are."""

    id: str
    plan: Query
    functions: Mapping[str, Callable[..., object]]
    strict: bool
    progress: Mapping[str, Instant]
    relations: frozenset[str]
    past: int
    apart: bool = False
    shared: tuple[int, ...] = ()
    """Of a query from the local engine: which of its windows are not its own, but hold all rows for several."""

    @property
    def raised(self) -> tuple[Query, Mapping[str, Callable[..., object]]]:
        """The plan with such windows, and the functions that it calls."""
        wants = demands(self.plan, self.functions)
        return raised(self.plan, {wants[i].window for i in self.shared}), self.functions

    @cached_property
    def sources(self) -> dict[str, Schema]:
        """The columns of each stream and relation that it reads."""
        return {scan.name: scan.schema for scan in declared_scans(self.plan)}


def write_definition(
    files: Files, id: str, plan: Mapping[str, object], *, versions: Mapping[str, int], strict: bool, apart: bool,
    progress: Mapping[str, Instant], schemas: Mapping[str, Schema], past: Past, shared: Sequence[int] = (),
    relations: Collection[str] = (),
) -> None:  # fmt: skip
    """Put a query where workers find it. What is there under its id is replaced."""
    files.make(QUERIES, sync=True)
    tables = [("change", name, changes_table(schemas[name], changes)) for name, changes in past.changes.items()]
    tables += [("rows", name, forms.batch_table(b)) for name, batches in past.rows.items() for b in batches]
    content: list[pa.Buffer | bytes] = [head_bytes(0, 0, _PAST)]
    for i, (kind, name, table) in enumerate(tables):
        values = ([kind], [name], [packed(table)])
        columns = [pa.array(v, f.type) for v, f in zip(values, _PAST, strict=True)]
        batch = pa.RecordBatch.from_arrays(columns, schema=_PAST)
        content += frame_bytes(i, i, batch, {}, safe=0)[0]
    for path in (past_path(id), definition_path(id)):
        files.remove(path)
    files.put(past_path(id), content, sync=True)
    put_record(files, definition_path(id), {
        "plan": plan, "functions": dict(versions), "strict": strict, "apart": apart,
        "progress": {name: forms.instant(at) for name, at in progress.items()},
        "relations": sorted({*past.changes, *relations}), "shared": [*shared],
        "past": sum(map(len, content)),
    }, sync=True)  # fmt: skip


def forget_definition(files: Files, id: str) -> None:
    """A query is no more."""
    for path in (definition_path(id), past_path(id)):
        files.remove(path)


def read_definition(root: str, id: str) -> Definition:
    """The query that was put there."""
    key = root, id
    found = _definitions.get(key)
    if found is None:
        files = files_at(root)
        record = _seen(files, definition_path(id))
        calls = {name: _code(files, name, version) for name, version in record["functions"].items()}
        functions = Named(calls, {name: f"{name}@{version}" for name, version in record["functions"].items()})
        progress = {name: forms.instant_again(at) for name, at in record["progress"].items()}
        found = _definitions[key] = Definition(
            id, from_json(record["plan"]), functions, record["strict"], progress, frozenset(record["relations"]),
            record["past"], record["apart"], tuple(record["shared"]),
        )  # fmt: skip
        while len(_definitions) > _KEPT:
            _definitions.popitem(last=False)
    return found


def read_past(root: str, definition: Definition) -> Past:
    """What a query is given before its first entry."""
    segment = Segment(files_at(root), past_path(definition.id), definition.past)
    changes: dict[str, list[Change]] = {name: [] for name in definition.relations}
    rows: dict[str, list[Batch]] = {}
    for frame in segment.frames():
        _, batch = segment.batch(frame, _PAST)
        kind, name = batch.column(0)[0].as_py(), batch.column(1)[0].as_py()
        table = unpacked(batch.column(2)[0].as_buffer())
        if kind == "change":
            changes[name] += changes_from(definition.sources[name], table)
        else:
            rows.setdefault(name, []).append(forms.batch_again(table, definition.sources[name]))
    return Past(changes, rows)


def write_program(files: Files, id: str, queries: Mapping[str, int | None]) -> None:
    """Put the queries of a part where workers find them."""
    files.make(PROGRAMS, sync=True)
    put_record(files, f"{PROGRAMS}/{id}.json", {"queries": dict(queries)}, sync=False)


def read_program(root: str, id: str) -> Mapping[str, int | None]:
    """The queries of a part, and the slot of each that has one to itself."""
    key = root, id
    found = _programs.get(key)
    if found is None:
        found = _programs[key] = _seen(files_at(root), f"{PROGRAMS}/{id}.json")["queries"]
        while len(_programs) > _FEW:
            _programs.popitem(last=False)
    return found


_FEW = 16
_definitions: OrderedDict[tuple[str, str], Definition] = OrderedDict()
_programs: OrderedDict[tuple[str, str], Mapping[str, int | None]] = OrderedDict()


def forget_all() -> None:
    """Make this process one that has not met any query."""
    _definitions.clear()
    _programs.clear()


def _seen(files: Files, path: str) -> Record:
    try:
        return read_record(files, path)
    except StorageError as error:
        if not error.message.endswith("missing"):
            raise
        raise CheckpointError(
            f"{files.name}/{path}: this worker does not see the query",
            hint="on a cluster the directory of the database must be one that all machines share",
        ) from None


def _code(files: Files, name: str, version: int) -> Callable[..., object]:
    from pyspark import cloudpickle

    code = read_code(files, code_path(f"{name}@{version}"))
    try:
        found: Callable[..., object] = cloudpickle.loads(code)
    except Exception as error:
        raise FunctionError(
            f"function `{name}` cannot be loaded in a Python worker of Spark: {type(error).__name__}: {error}",
            hint="set PYTHONPATH to the folder of the module that it is in before Python starts, on all machines, or "
            "define it in the script itself",
        ) from error
    return found


def check_stream(definition: StreamDef, root: Root) -> None:
    """Refuse a stream that this engine cannot have."""
    if definition.drops:
        raise EngineError(
            f"stream `{definition.name}`: engine `spark` drops no rows, they wait in the stream's log",
            hint="leave `overflow` out, or use engine='local'",
        )
    if definition.source is not None and not isinstance(root, Path):
        raise EngineError(
            f"stream `{definition.name}`: how far Spark has read FROM spark is kept in files, "
            f"and {root} is in an object store",
            hint="keep the database in a directory, or push the rows",
        )
