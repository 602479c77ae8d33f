"""A part as a streaming source of Spark.

Spark runs the reader in a Python process of its own for each streaming query, beside its driver; it asks the database's
process, through a socket, up to where the next micro-batch goes and what its tasks are. So this module imports nothing
that takes long or much memory; only ``read``, which runs in Spark's workers, does.
"""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

NAME = "penstock"
SOCKET, PART, BEGIN = "socket", "part", "begin"
"""Options: where the database listens, which part it is, and the offset that it begins at."""


class PartSource(DataSource):
    """Gives a report for each slot of a micro-batch."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return "slot INT, report BINARY"

    def streamReader(self, schema: StructType) -> PartReader:
        return PartReader(self.options[SOCKET], int(self.options[PART]), self.options[BEGIN])


class PartReader(DataSourceStreamReader):
    """Asks the database. What it is sent to workers with is where to ask; there it is not asked."""

    def __init__(self, path: str, part: int, begin: str) -> None:
        self._path, self._part, self._begin = path, part, begin
        self._file: Any = None

    def __reduce__(self) -> tuple[type[PartReader], tuple[str, int, str]]:
        return PartReader, (self._path, self._part, self._begin)

    def _asked(self, what: str, **more: Any) -> Any:
        if self._file is None:
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(self._path)
            self._file = connection.makefile("rwb")
        self._file.write(json.dumps({"part": self._part, "ask": what, **more}).encode() + b"\n")
        self._file.flush()
        line = self._file.readline()
        if not line:
            raise ConnectionError("the database is closed")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"the database cannot say what a micro-batch consists of: {answer['error']}")
        return answer["said"]

    def initialOffset(self) -> dict[str, int]:
        found: dict[str, int] = json.loads(self._begin)
        return found

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()  # the database knows how much a micro-batch takes

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        found: dict[str, int] = self._asked("offset", start=start)
        return found

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(base64.b64decode(task)) for task in self._asked("tasks", end=end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from penstock.hosts.spark.parts.working import worked

        yield worked(partition.value)

    def commit(self, end: dict[str, int]) -> None:
        pass  # the log of results says what counts
