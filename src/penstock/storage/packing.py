"""Tables as bytes: Arrow's stream format."""

from __future__ import annotations

import pyarrow as pa

from penstock.storage.files import Bytes


def packed(table: pa.Table) -> bytes:
    """A table as one piece of bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def gathered(table: pa.Table) -> list[Bytes]:
    """The same as many pieces, most of them the columns themselves: nothing is copied."""
    pieces = _Pieces()
    with pa.ipc.new_stream(pa.PythonFile(pieces, mode="w"), table.schema) as writer:
        writer.write_table(table)
    return pieces.all


def unpacked(content: bytes | pa.Buffer) -> pa.Table:
    """What was packed, without copying it."""
    return pa.ipc.open_stream(content).read_all()


class _Pieces:
    """A file that keeps what is written to it."""

    closed = False

    def __init__(self) -> None:
        self.all: list[Bytes] = []

    def write(self, data: Bytes) -> int:
        self.all.append(data)
        return len(data)

    def flush(self) -> None:
        pass
