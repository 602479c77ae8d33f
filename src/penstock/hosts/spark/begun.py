"""What a checkpoint was begun with, so that a query that has changed is refused when it starts.

    penstock/job.json                 queries, sources and shards, written with the state after the first micro-batch
    penstock/closed                   the number of the micro-batch with which the inputs end, if they do

The state itself says whose it is, but a task reads it only when there are rows. Before Spark has committed a first
micro-batch there is nothing to go on from, and the query may still change.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Mapping
from typing import Any

from pyarrow import fs

from penstock.hosts.spark.job import Job
from penstock.model.errors import CheckpointError
from penstock.storage.versions import fingerprint, folded_name

_FILE = "penstock/job.json"
_CLOSED = "penstock/closed"


def note(job: Job, system: fs.FileSystem, path: str) -> None:
    """Write what the job is into the checkpoint at ``path``."""
    file = posixpath.join(path, _FILE)
    with system.open_output_stream(f"{file}.part") as stream:
        stream.write(json.dumps(_facts(job), indent=1).encode())
    if system.get_file_info(file).type != fs.FileType.NotFound:
        system.delete_file(file)  # HDFS does not replace files
    system.move(f"{file}.part", file)


def check(job: Job, system: fs.FileSystem, path: str) -> None:
    """Refuse a job that cannot go on from the checkpoint at ``path``."""
    file = posixpath.join(path, _FILE)
    found = system.get_file_info(file).type
    if not numbers(system, posixpath.join(path, "commits")) or found == fs.FileType.NotFound:
        return
    with system.open_input_stream(file) as stream:
        before = json.loads(stream.read())
    now = _facts(job)
    if before["fingerprint"] != now["fingerprint"]:
        raise CheckpointError(
            f"{path}: this checkpoint is that of another query: {'; '.join(_changes(before, now))}",
            hint="use another checkpoint location for the changed query, or run the query that it belongs to",
        )
    last = closes(system, path)
    if last is not None and last in numbers(system, posixpath.join(path, "commits")):
        raise CheckpointError(
            f"{path}: the inputs of this query were closed with micro-batch {last}, and the last answers given",
            hint="use another checkpoint location, whose query reads everything from the beginning",
        )


def ended(system: fs.FileSystem, path: str) -> int | None:
    """The last micro-batch of a query that does not run; None if it has had none."""
    offsets, commits = (numbers(system, posixpath.join(path, folder)) for folder in ("offsets", "commits"))
    if commits and max(offsets) > max(commits):
        raise CheckpointError(
            f"{path}: micro-batch {max(offsets)} has begun and not ended",
            hint="start the query again and let it end, as with trigger(availableNow=True)",
        )
    return max(commits, default=None)


def close(system: fs.FileSystem, path: str, batch: int) -> None:
    """Say that the inputs end with a micro-batch."""
    with system.open_output_stream(posixpath.join(path, _CLOSED)) as stream:
        stream.write(str(batch).encode())


def closes(system: fs.FileSystem, path: str) -> int | None:
    """The micro-batch with which the inputs end, None if there is none yet."""
    file = posixpath.join(path, _CLOSED)
    if system.get_file_info(file).type == fs.FileType.NotFound:
        return None
    with system.open_input_stream(file) as stream:
        return int(stream.read())


def numbers(system: fs.FileSystem, folder: str) -> list[int]:
    """Of the micro-batches in one of Spark's logs."""
    found = system.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    return [int(f.base_name) for f in found if f.base_name.isdigit()]


def _facts(job: Job) -> dict[str, Any]:
    queries = (q for part in job.parts for q in part.queries)
    return {
        "fingerprint": job.fingerprint,
        "queries": {q.name: {"text": " ".join(q.text.split()), "plan": fingerprint(q.plan)} for q in queries},
        "sources": {
            s.name: {
                "columns": {folded_name(f.name): str(f.type) for f in s.schema},
                "timestamp": None if s.timestamp is None else folded_name(s.schema[s.timestamp].name),
                "slack": s.slack,
            }
            for s in job.sources
        },
        "shards": job.shards,
        "idle": job.idle,
    }


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """What is no more as it was, in words; something always is."""
    said = False
    for text in _of_queries(before["queries"], now["queries"]):
        said = True
        yield text
    for name, was in before["sources"].items():
        found = now["sources"].get(name)
        if found is None:
            continue
        for what, old, new in _of_source(was, found):
            said = True
            yield f"{what} of `{name}` was {old} and is {new}"
    for what in ("shards", "idle"):
        if before[what] != now[what]:
            said = True
            yield f"{what} was {before[what]} and is {now[what]}"
    if not said:
        yield "its DataFrames come in another order"


def _of_queries(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for name, was in before.items():
        if name not in now:
            yield f"there was a query `{name}`"
        elif was["text"] != now[name]["text"] and was["plan"] != now[name]["plan"]:
            yield f"`{name}` was {was['text']}"
        elif was["plan"] != now[name]["plan"]:
            yield f"`{name}` has the same text, but a view, a column or the time zone that it goes by is another"
    yield from (f"there was no query `{name}`" for name in now if name not in before)


def _of_source(was: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[tuple[str, object, object]]:
    for what in ("timestamp", "slack"):
        if was[what] != found[what]:
            yield f"the {what}", was[what], found[what]
    for column, dtype in was["columns"].items():
        if found["columns"].get(column, dtype) != dtype:
            yield f"the column `{column}`", dtype, found["columns"][column]
