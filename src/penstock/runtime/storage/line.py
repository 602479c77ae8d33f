"""What one operator has sent and somebody has not taken yet.

One thread adds, and each reader takes in a thread of its own. As long as all of it is in memory and there is one
reader, nobody needs a lock: every count is written by one side only. A lock is taken for what is on disk, and by
several readers to let a message go.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.graph.early import Early, parted
from penstock.graph.message import Message
from penstock.model.amounts import Bound
from penstock.model.errors import SpillError
from penstock.model.schema import Schema
from penstock.runtime.storage.files import DamageError, EndedError, Segment
from penstock.runtime.storage.form import batch_of, data_of
from penstock.runtime.storage.node import Node, Spilled
from penstock.runtime.storage.sizes import MESSAGE, Measure

if TYPE_CHECKING:
    from penstock.runtime.storage.queue import Queue
    from penstock.runtime.storage.storage import Storage


EMPTY = 200
"""Bytes of a message without rows, about."""
AGAIN = (0.01, 0.02, 0.05, 0.1, 0.3)
"""Seconds after which reading is tried again that has failed for a reason that may pass."""


class Line:
    """Bounded by ``bound`` and by the storage's budgets as far as memory goes; what exceeds them is on disk.

    ``label`` is for people, ``stream`` the name of the stream if these are the rows of one as they came.
    """

    def __init__(self, storage: Storage | None = None, label: str = "", stream: str | None = None) -> None:
        self.storage, self.label, self.stream = storage, label, stream
        self.lock = threading.Lock()
        self.readers: list[Queue] = []
        self.shared = False
        self.bound: Bound | None = None
        self.dropping = False
        """Whether the oldest is dropped where there is no room."""
        self.crowded = False
        """Whether the last message that did not fit into memory found no room on disk either."""
        self.allowed: float = 0 if storage is not None else float("inf")
        """Bytes that may be in memory before the storage is asked."""
        self.easy: float = self.allowed
        """Bytes that may wait before anything is looked at."""
        self.rows_in = self.bytes_in = 0  # written by who adds
        self.rows_out = self.bytes_out = 0  # written by who takes, under the lock if there are several
        self.disk_rows = self.disk_bytes = self.disk_count = 0  # of what still waits; these under the lock
        self.cached_rows = self.cached_bytes = 0  # of that, what has been read again
        self.wanted = False
        self.measure = Measure()
        self._cold: deque[Node] = deque()  # on disk and not read yet, in order; under the lock
        self._segment: Segment | None = None  # the one that grows
        self._schema: Schema = ()
        self._tail: Node | None = None
        self.recent: Message | None = None
        self._unshared = 0
        self._parted: tuple[Message, bool, tuple[list[Early], Message], int] | None = None

    # -- adding -------------------------------------------------------------------------------------

    def add(self, message: Message) -> Node:
        """A message that was sent; the one that another reader has been given already, if that is it."""
        if self.recent is not None:
            if self.recent is message:
                assert self._tail is not None
                self._unshared -= 1
                if not self._unshared:
                    self.recent = None
                return self._tail
            self.settle()
        data = message.data
        rows, others = len(data), len(self.readers) - 1
        size = self.measure(data) if rows else EMPTY
        node = Node(self, message, rows, size, 1 if others < 1 else others + 1)
        if rows and self.bytes_in - self.bytes_out + size > self.easy and not self._fits(rows, size):
            self._spill(node, message)
            self.crowded = node.disk is None  # it stays in memory, and counts
        self.rows_in += rows
        self.bytes_in += size
        if others > 0:
            self._tail, self.recent, self._unshared = node, message, others
        return node

    def parted(self, message: Message, *, by_level: bool) -> tuple[list[Early], Message]:
        """The prioritised rows of a message and the message without them: the same for all readers."""
        known = self._parted
        if known is not None and known[0] is message and known[1] == by_level:
            self._parted = None if known[3] == 1 else (*known[:3], known[3] - 1)
            return known[2]
        found = parted(message, by_level=by_level)
        others = len(self.readers) - 1
        self._parted = (message, by_level, found, others) if others > 0 else None
        return found

    def join(self, reader: Queue) -> None:
        """One more reads what is added from now on."""
        self.settle()
        self.readers.append(reader)
        self.shared = self.shared or len(self.readers) > 1 or self.dropping

    def leave(self, reader: Queue) -> None:
        """A reader takes nothing more that is added."""
        self.settle()
        self.readers.remove(reader)

    def settle(self) -> None:
        """Those who have not been given the last message will not be."""
        node, count = self._tail, self._unshared
        self.recent, self._unshared, self._tail = None, 0, None
        if node is not None:
            for _ in range(count):
                self.release(node)

    @property
    def memory_bytes(self) -> int:
        """Bytes in memory, those included by which what is on disk is found again."""
        on_disk = self.disk_bytes - self.disk_count * MESSAGE
        return self.bytes_in - self.bytes_out - on_disk + self.cached_bytes + self.early_bytes

    @property
    def early_bytes(self) -> int:
        """Bytes of rows that overtake."""
        return sum([reader.early for reader in self.readers])

    @property
    def memory_rows(self) -> int:
        return self.rows_in - self.rows_out - self.disk_rows + self.cached_rows

    def _fits(self, rows: int, size: int) -> bool:
        """Whether so much more may be in memory."""
        bound = self.bound
        memory = self.memory_bytes + size
        if bound is not None and not self.dropping:
            if bound.rows is not None and self.memory_rows + rows > bound.rows:
                return False
            if bound.bytes is not None and memory > bound.bytes:
                return False
        return memory <= self.allowed or (self.storage is not None and self.storage.grants(self, memory))

    def allow(self, bytes: float) -> None:
        """So much may be in memory before the storage is asked."""
        self.allowed = bytes
        self.easy = -1 if self.bound is not None else bytes

    # -- disk ---------------------------------------------------------------------------------------

    def _spill(self, node: Node, message: Message) -> None:
        """Write the rows of a message, which is not kept, unless there is no room on disk either."""
        storage = self.storage
        if storage is None or storage.directory.ended.is_set() or not storage.may_spill(node.size):
            return
        batch = batch_of(message.data)
        if not self._write(storage, node, message, batch, again=True):
            return
        node.message, self._schema = None, message.data.schema
        with self.lock:
            self.disk_rows += node.rows
            self.disk_bytes += node.size
            self.disk_count += 1
            self._cold.append(node)

    def _write(self, storage: Storage, node: Node, message: Message, batch: pa.RecordBatch, again: bool) -> bool:
        """Whether it could be written. ``again``: if the files are gone, others are made."""
        segment: Segment | None = None
        before = 0
        try:
            segment = self._growing(storage, batch)
            before = segment.size
            last = int(message.data.ts[-1])
            node.disk = Spilled(segment, segment.write(batch), message.mark, message.first, last)
            return True
        except FileNotFoundError as error:
            self._segment = None  # nothing is added to what is gone
            again = again and not storage.directory.ended.is_set()
            if not again and not storage.directory.ended.is_set():
                storage.failed(self, error)
        except OSError as error:
            again = False
            storage.failed(self, error)
        finally:
            if segment is not None:
                storage.wrote(segment.size - before)
                if node.disk is None:
                    with self.lock:
                        segment.left -= 1
                        self._drop(segment)
        return again and self._write(storage, node, message, batch, again=False)

    def _growing(self, storage: Storage, batch: pa.RecordBatch) -> Segment:
        """The segment to write to; it counts one more."""
        with self.lock:
            segment = self._segment
            if segment is not None and segment.size < storage.segment_size and segment.schema.equals(batch.schema):
                segment.left += 1
                return segment
        segment = Segment(storage.directory.file(), batch.schema)
        segment.left = 1
        with self.lock:
            self._segment = segment
        return segment

    def _drop(self, segment: Segment) -> None:
        """Remove a file that nobody needs."""
        if segment.left:
            return
        segment.drop()
        if self._segment is segment:
            self._segment = None
        if self.storage is not None:
            self.storage.freed(segment.size)

    def load(self, node: Node) -> Message:
        """The message of a node that is on disk; kept if others need it soon and there is room."""
        message = self.read(node)
        if node.left > 1:
            with self.lock:
                self._keep(node, message)
        return message

    def read(self, node: Node) -> Message:
        disk, storage = node.disk, self.storage
        assert disk is not None
        assert storage is not None
        waits = iter(AGAIN)
        while True:
            try:
                return Message(data_of(disk.segment.read(disk.place), self._schema), disk.mark)
            except (OSError, DamageError, pa.ArrowException, ValueError) as error:
                said = f"{self.label}: {node.rows:,} rows that waited on disk cannot be read back: {error}"
                hint = "nothing else may change the files of a database that is in use"
                if storage.directory.ended.is_set():
                    raise EndedError(said) from error
                if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
                    wait = next(waits, None)
                    if wait is not None:
                        storage.directory.ended.wait(wait)
                        continue
                    hint = "it was tried several times"
                raise SpillError(said, hint=hint) from error

    def _keep(self, node: Node, message: Message) -> None:
        if node.left and node.message is None and self._fits(node.rows, node.size):
            node.message = message
            self.cached_rows += node.rows
            self.cached_bytes += node.size

    def read_ahead(self) -> None:
        """Read what will be needed next, as long as there is room in memory."""
        while True:
            with self.lock:
                cold = self._cold
                while cold and (not cold[0].left or cold[0].message is not None):
                    cold.popleft()
                if not cold or not self._fits(cold[0].rows, cold[0].size):
                    return
                node = cold.popleft()
            try:
                message = self.read(node)
            except SpillError:
                return  # whoever takes it will say so
            with self.lock:
                self._keep(node, message)

    # -- letting go -----------------------------------------------------------------------------------

    def release(self, node: Node) -> None:
        """It has been taken once more."""
        with self.lock:
            node.left -= 1
            if node.disk is not None:
                self._uncache(node)
            if not node.left:
                self.rows_out += node.rows
                self.bytes_out += node.size
                if node.disk is not None:
                    self._release_disk(node, node.disk.segment)
        if self._cold and self.storage is not None:
            self.storage.look(self)

    def _uncache(self, node: Node) -> None:
        """What was read again is not kept longer than it is needed, or fits."""
        if node.message is not None and (not node.left or not self._fits(0, 0)):
            node.message = None
            self.cached_rows -= node.rows
            self.cached_bytes -= node.size

    def _release_disk(self, node: Node, segment: Segment) -> None:
        self.disk_rows -= node.rows
        self.disk_bytes -= node.size
        self.disk_count -= 1
        while self._cold and not self._cold[0].left:
            self._cold.popleft()
        segment.left -= 1
        self._drop(segment)
