"""A streaming source in Python as plain as can be: a row for each number that it is told through a socket."""

from __future__ import annotations

import json
import os
import socketserver
import tempfile
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit


class Numbers:
    """Tells readers how many numbers there are; ``more`` adds one."""

    def __init__(self) -> None:
        self._count = 0
        self._changed = threading.Condition()
        self.path = os.path.join(tempfile.mkdtemp(prefix="penstock-"), "numbers")
        numbers = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                for line in self.rfile:
                    start = json.loads(line)
                    self.wfile.write(json.dumps(numbers.beyond(start)).encode() + b"\n")

        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True

        self._server = Server(self.path, Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def beyond(self, start: int) -> int:
        """How many there are, after at most a second in which there are no more than ``start``."""
        with self._changed:
            self._changed.wait_for(lambda: self._count > start, 1.0)
            return self._count

    def more(self) -> None:
        """There is one more."""
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def close(self) -> None:
        """Tell nobody any more."""
        self._server.shutdown()
        self._server.server_close()


class PlainSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "plain_numbers"

    def schema(self) -> str:
        return "t BIGINT, v DOUBLE"

    def streamReader(self, schema: Any) -> PlainReader:
        return PlainReader(self.options["socket"], int(self.options["partitions"]))


class PlainReader(DataSourceStreamReader):
    def __init__(self, path: str, partitions: int) -> None:
        self._path, self._partitions = path, partitions
        self._file: Any = None

    def __reduce__(self) -> tuple[type[PlainReader], tuple[str, int]]:
        return PlainReader, (self._path, self._partitions)

    def initialOffset(self) -> dict[str, int]:
        return {"n": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        import socket

        if self._file is None:
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(self._path)
            self._file = connection.makefile("rwb")
        self._file.write(json.dumps(start["n"]).encode() + b"\n")
        self._file.flush()
        return {"n": json.loads(self._file.readline())}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition((start["n"], end["n"], i)) for i in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, float]]:
        start, end, first = partition.value
        for n in range(start + first, end, self._partitions):
            yield n, 1.0
