"""``penstock demo``: the scenario of the package, live."""

from __future__ import annotations

import sys
import time
from bisect import bisect_left
from datetime import datetime, timedelta
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pyarrow as pa
import pyarrow.compute as pc
import typer

from penstock.cli.run import summarize
from penstock.cli.script import EngineOption, MasterOption, open_database, run_script
from penstock.demo.scenario import FILES, SECONDS, START
from penstock.io.readers import read_batches
from penstock.io.text import plain
from penstock.play import load_relation

if TYPE_CHECKING:
    from penstock.database import Database
    from penstock.query import Query

_STEP = timedelta(seconds=5)
_LASTS = 15.0


def demo(
    engine: EngineOption = None,
    master: MasterOption = None,
    seconds: Annotated[
        float | None,
        typer.Option(min=0, help="How long it lasts; by default 15 on a terminal, and no waiting in a pipe."),
    ] = None,
) -> None:
    """Play five minutes of a smart house and its energy through six queries."""
    lasts = seconds if seconds is not None else _LASTS if sys.stdout.isatty() else 0.0
    started = time.perf_counter()
    with as_file(files("penstock.demo")) as folder, open_database(engine, master, None) as db:
        run_script(db, folder / "demo.cql")
        print((folder / "demo.cql").read_text(encoding="utf-8"))
        load_relation(db, "rooms", folder / "data" / FILES["rooms"])
        streams = {name: _Arrivals(db, name, folder / "data" / FILES[name]) for name in db.catalog.streams}
        queries = list(db.queries.values())
        answered = dict.fromkeys(db.queries, 0)
        count = timedelta(seconds=SECONDS) // _STEP
        for step in range(1, count + 1):
            for stream in streams.values():
                stream.push_until(START + step * _STEP, last=step == count)
            _print_answers(queries, answered)
            time.sleep(max(0.0, started + lasts * step / count - time.perf_counter()))
        rows = {name: stream.rows.num_rows for name, stream in streams.items()}
        print()
        print(summarize(db, queries, answered, rows, time.perf_counter() - started))


class _Arrivals:
    """The rows of a stream in the order of their arrival, given out as the evening goes on."""

    def __init__(self, db: Database, name: str, path: Path) -> None:
        self._db = db
        self._stream = db.catalog.streams[name]
        self.rows = pa.concat_tables(read_batches(path, self._stream.schema))
        # A row that was delayed arrives with the one after which it stands in the file.
        self._arrival = pc.cumulative_max(self.rows["at"].cast(pa.int64())).to_pylist()
        self._given = 0

    def push_until(self, moment: datetime, *, last: bool) -> None:
        name, until = self._stream.name, (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)
        end = bisect_left(self._arrival, until, self._given)
        self._db.push(name, self.rows.slice(self._given, end - self._given))
        self._given = end
        if last:
            self._db.close_stream(name)
        else:
            self._db.heartbeat(name, until - self._stream.slack)


def _print_answers(queries: list[Query], answered: dict[str, int]) -> None:
    """One line for each answer, all queries together in the order of time."""
    lines = []
    width = max(len(query.name) for query in queries)
    for query in queries:
        answers = query.fetch()
        answered[query.name] += answers.num_rows
        texts = [plain(column, separator=" ") for column in answers.columns]
        for ts, op, *values in zip(*texts, strict=True):
            row = "  ".join(f"{n} {v}" for n, v in zip(answers.column_names[2:], values, strict=True))
            lines.append((str(ts), f"{str(ts)[11:19]}  {query.name:{width}}  {op} {row}"))
    for _, line in sorted(lines, key=lambda pair: pair[0]):
        print(line, flush=True)
