"""What waits in buffers, in memory and on disk: every reader gets exactly what a plain queue would give it."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.graph.message import Data, Message, cut
from penstock.graph.vertex import Edge
from penstock.model.amounts import Bound
from penstock.model.delta import Arrivals, Delta
from penstock.model.schema import Field
from penstock.model.types import BIGINT
from penstock.runtime.buffer import Buffer
from penstock.runtime.station import Partition, Station
from penstock.runtime.storage.form import batch_of, data_of
from penstock.runtime.storage.line import Line
from penstock.runtime.storage.storage import Storage
from tests.runtime.fakes import Map, Row, Source, closing, message, rows_of

bounds = st.none() | st.builds(Bound, rows=st.integers(0, 12)) | st.builds(Bound, bytes=st.integers(0, 20_000))
budgets = st.none() | st.integers(0, 30_000)
batches = st.lists(st.integers(0, 3), max_size=6)
"""Of a message, how many rows each instant has."""
moves = st.lists(
    st.tuples(st.just("send"), batches)
    | st.tuples(st.just("send"), batches)
    | st.tuples(st.just("take"), st.integers(0, 3), st.none() | st.integers(1, 5), st.booleans())
    | st.tuples(st.just("join"))
    | st.tuples(st.just("leave"), st.integers(0, 3))
    | st.tuples(st.just("ahead"))
    | st.tuples(st.just("budget"), budgets, budgets),
    max_size=60,
)


def reader(source: Source, line: Line) -> Buffer:
    target = Map(len(source.outputs) + 1)
    edge = Edge(source, target, 0)
    source.outputs.append(edge)
    buffer = Buffer(edge, itertools.count(), Station(target, Partition(1)))
    buffer.station.signalled = True  # nobody is to be told
    buffer.queue.move(line)
    edge.buffer = buffer
    return buffer


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spill")


@dataclass
class World:
    """Buffers behind one sender, and what plain queues would have."""

    storage: Storage
    line: Line
    source: Source = field(default_factory=lambda: Source(0))
    buffers: list[Buffer] = field(default_factory=list)
    plain: list[deque[Row]] = field(default_factory=list)
    frontiers: list[int] = field(default_factory=list)
    time: int = 0

    def join(self) -> None:
        self.buffers.append(reader(self.source, self.line))
        self.plain.append(deque())
        self.frontiers.append(-1)

    def leave(self, i: int) -> None:
        buffer = self.buffers.pop(i)
        buffer.queue.leave()
        self.source.outputs.remove(buffer.edge)
        del self.plain[i], self.frontiers[i]

    def send(self, sizes: list[int]) -> None:
        rows = [(self.time + j, k, self.time) for j, n in enumerate(sizes) for k in range(n)]
        self.time += 10
        sent = message(rows, self.time)
        self.source.send(sent)
        for plain in self.plain:
            plain.extend(rows)

    def take(self, i: int, limit: int | None, train: bool) -> None:
        if not self.buffers:
            return
        i %= len(self.buffers)
        buffer, plain = self.buffers[i], self.plain[i]
        if not buffer.queue:
            assert not plain
            return
        taken = buffer.take(limit, train)
        rows = rows_of(taken)
        assert rows == [plain.popleft() for _ in rows]
        assert taken.mark.frontier > (self.frontiers[i], 0)
        assert all(r[:2] < taken.mark.frontier for r in rows)
        self.frontiers[i] = taken.mark.frontier[0] - (1 if taken.mark.frontier[1] else 0)
        assert buffer.waiting == len(plain) == sum(node.rows for node, *_ in buffer.queue)


@given(moves, bounds, budgets, budgets)
def test_every_reader_gets_what_a_plain_queue_gives(
    parent: Path, moves: list[tuple[object, ...]], bound: Bound | None, memory: int | None, disk: int | None
) -> None:
    storage = Storage(parent)
    storage.configure(memory, disk, 50)
    world = World(storage, storage.line("stream `s`"))
    storage.bind(world.line, bound, False)
    world.join()
    stayed = 0
    """Rows in memory when the budgets were changed: they stay there."""
    try:
        for kind, *what in moves:
            match kind, what:
                case "send", [list() as sizes]:
                    world.send(sizes)
                    check_bounds(world, stayed)
                case "take", [int() as i, (int() | None) as limit, bool() as train]:
                    world.take(i, limit, train)
                case "join", _:
                    world.join()
                case "leave", [int() as i] if len(world.buffers) > 1:
                    world.leave(i % len(world.buffers))
                case "ahead", _:
                    world.line.read_ahead()
                case "budget", [(int() | None) as more, (int() | None) as other]:
                    storage.configure(more, other, 50)
                    stayed = world.line.memory_rows
        for i, buffer in enumerate(world.buffers):
            while buffer.queue:
                world.take(i, None, False)
            assert not world.plain[i]
        world.line.settle()
        assert world.line.rows_in == world.line.rows_out
        assert world.line.memory_bytes == storage.disk_used == 0
        assert files(storage) == []
    finally:
        storage.close()
    assert list(parent.iterdir()) == []


def check_bounds(world: World, stayed: int) -> None:
    """After something was sent, no more is on disk than may be, and no more in memory unless there was no room."""
    storage, line = world.storage, world.line
    waiting = {id(node): node for buffer in world.buffers for node, *_ in buffer.queue}.values()
    assert line.rows_in - line.rows_out <= sum(len(n) for n in waiting) + 1_000
    if storage.disk is None and line.bound is not None and line.bound.rows is not None:
        assert line.memory_rows <= max(line.bound.rows, stayed)


def files(storage: Storage) -> list[str]:
    path = storage.directory.path
    return [] if path is None else sorted(f.name for f in path.iterdir() if f.name != "owner")


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Storage]:
    made = Storage(tmp_path)
    made.configure(None, None, 50)
    yield made
    made.close()
    assert list(tmp_path.iterdir()) == []


def bounded(storage: Storage, bound: Bound, dropping: bool = False) -> tuple[Source, Line]:
    line = storage.line("stream `s`", "s")
    storage.bind(line, bound, dropping)
    return Source(0), line


def many(first: int, count: int) -> Message:
    return message([(i, 0, i) for i in range(first, first + count)])


def test_a_message_for_several_readers_is_held_once(storage: Storage) -> None:
    source, line = bounded(storage, Bound(rows=10))
    readers = [reader(source, line) for _ in range(3)]
    source.send(many(0, 10))
    source.send(many(10, 10))
    assert (line.rows_in, line.disk_rows) == (20, 10)
    assert len(files(storage)) == 1
    first, second = (readers[0].queue[i][0] for i in (0, 1))
    assert all(r.queue[0][0] is first and r.queue[1][0] is second for r in readers)
    for n, one in enumerate(readers):
        assert (line.memory_rows, line.disk_rows) == (10, 10)
        assert rows_of(one.take())[0] == (0, 0, 0)
        assert rows_of(one.take())[-1] == (19, 0, 19)
        assert line.rows_out == (20 if n == 2 else 0)
    assert files(storage) == []


def test_whole_segments_go_with_the_slowest_reader(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.runtime.storage.storage.SEGMENT", 4_000)
    source, line = bounded(storage, Bound(rows=0))
    fast, slow = reader(source, line), reader(source, line)
    for i in range(20):
        source.send(many(20 * i, 20))
    names = files(storage)
    assert len(names) > 3
    written = {name: (storage.directory.path / name).read_bytes() for name in names}  # type: ignore[operator]
    for _ in range(20):
        fast.take()
    assert files(storage) == names
    while slow.queue:
        slow.take()
        left = files(storage)
        assert left == names[len(names) - len(left) :]  # the oldest go, nothing is written again
        assert all((storage.directory.path / name).read_bytes() == written[name] for name in left)  # type: ignore[operator]
    assert files(storage) == []
    assert storage.disk_used == 0


def test_one_who_leaves_holds_nothing_back(storage: Storage) -> None:
    source, line = bounded(storage, Bound(rows=0))
    fast, slow = reader(source, line), reader(source, line)
    for i in range(5):
        source.send(many(10 * i, 10))
        fast.take()
    assert line.disk_rows == 50
    slow.queue.leave()
    assert line.disk_rows == 0
    assert files(storage) == []


def test_small_messages_count_for_what_they_take(storage: Storage) -> None:
    storage.configure(1_000_000, None, 50)
    source, line = Source(0), storage.line("stream `s`")
    buffer = reader(source, line)
    for i in range(5_000):
        source.send(many(i, 1))
    assert line.memory_rows < 1_000
    assert line.disk_rows > 4_000
    assert [rows_of(buffer.take())[0][2] for _ in range(5_000)] == list(range(5_000))


def test_messages_without_rows_take_little(storage: Storage) -> None:
    source, line = bounded(storage, Bound(rows=5))
    reader(source, line)
    for i in range(10):
        source.send(message([], i))
    assert 0 < line.memory_bytes <= 2_000


def test_lines_share_the_memory(storage: Storage) -> None:
    storage.configure(200_000, None, 50)
    sources = [(Source(i), storage.line(f"stream `{i}`")) for i in range(4)]
    buffers = [reader(source, line) for source, line in sources]
    for i in range(40):
        for source, _ in sources:
            source.send(many(100 * i, 100))
        assert storage.used <= 200_000 + 512 * 160  # and what finds the rest again
    assert storage.disk_used > 100_000
    for buffer in buffers:
        assert [r for _ in range(40) for r in rows_of(buffer.take())] == [(i, 0, i) for i in range(4_000)]


def test_what_comes_next_is_read_ahead(storage: Storage) -> None:
    source, line = bounded(storage, Bound(rows=100))
    buffer = reader(source, line)
    for i in range(30):
        source.send(many(10 * i, 10))
    assert line.disk_rows == 200
    line.wanted = True  # the thread has been told already
    for _ in range(10):
        buffer.take()
    line.read_ahead()
    assert line.cached_rows == 100  # as much as there is room for
    for _ in range(10):
        assert buffer.queue[0][0].message is not None
        buffer.take()
    assert buffer.queue[0][0].message is None
    assert rows_of(buffer.take())[0] == (200, 0, 200)


def test_a_thread_reads_ahead_when_enough_is_empty(storage: Storage) -> None:
    looked = threading.Event()
    storage.configure(None, None, 40)
    source, line = bounded(storage, Bound(rows=100))
    buffer = reader(source, line)
    for i in range(30):
        source.send(many(10 * i, 10))
    line.read_ahead, read = looked.set, line.read_ahead  # type: ignore[method-assign]
    taken = [buffer.take() for _ in range(3)]
    assert not line.wanted
    taken.append(buffer.take())
    assert looked.wait(30)
    assert line.cached_rows == 0
    read()
    assert line.cached_rows == 40
    taken += [buffer.take() for _ in range(26)]
    assert [r for t in taken for r in rows_of(t)] == [(i, 0, i) for i in range(300)]


def test_beyond_the_disk_budget_it_stays_in_memory(storage: Storage) -> None:
    storage.configure(10_000, 10_000, 50)
    source, line = Source(0), storage.line("operator 1 (Filter)")
    buffer = reader(source, line)
    for i in range(50):
        source.send(many(20 * i, 20))
    assert storage.disk_used <= 10_000
    assert storage.is_exceeded
    assert not storage.has_room(5_000)
    assert [r for _ in range(50) for r in rows_of(buffer.take())] == [(i, 0, i) for i in range(1_000)]
    assert storage.has_room(1_000_000)


@pytest.mark.parametrize("bound", [Bound(rows=25), Bound(bytes=5_000)])
def test_the_oldest_go_where_a_stream_says_so(storage: Storage, bound: Bound) -> None:
    source, line = bounded(storage, bound, dropping=True)
    buffer = reader(source, line)
    for i in range(10):
        source.send(many(10 * i, 10))
    source.send(closing())
    dropped = storage.dropped_rows["s"]
    assert dropped == buffer.queue.dropped >= 60
    assert buffer.waiting == 100 - dropped == line.rows_in - line.rows_out
    rows: list[Row] = []
    while buffer.queue:
        taken = buffer.take()
        rows += rows_of(taken)
    assert [r[0] for r in rows] == list(range(dropped, 100))
    assert taken.mark.closed
    assert line.disk_rows == 0


def test_the_last_word_is_never_dropped(storage: Storage) -> None:
    source, line = bounded(storage, Bound(rows=0), dropping=True)
    buffer = reader(source, line)
    source.send(many(0, 10))
    assert (buffer.waiting, len(buffer.queue)) == (0, 1)
    source.send(message([], 50))
    assert buffer.waiting == 0
    buffer.take()
    assert buffer.take().mark.frontier == (50, 0)


@given(
    st.integers(0, 12),
    st.none() | st.just(0),
    st.lists(
        st.tuples(st.just(-1), st.integers(0, 30)) | st.tuples(st.integers(0, 1), st.none() | st.integers(1, 5)),
        max_size=30,
    ),
)
def test_the_newest_rows_stay(
    parent: Path, bound: int, memory: int | None, moves: list[tuple[int, int | None]]
) -> None:
    storage = Storage(parent)
    storage.configure(memory, None, 50.0)
    try:
        source, line = bounded(storage, Bound(rows=bound), dropping=True)
        buffers = [reader(source, line), reader(source, line)]
        waiting: list[list[int]] = [[], []]
        sent = 0
        for i, count in moves:
            if i < 0:
                assert count is not None
                source.send(many(sent, count) if count else message([], sent))
                waiting = [(w + list(range(sent, sent + count)))[-bound or sent + count :] for w in waiting]
                sent += count
            elif buffers[i].queue:
                taken = [r[0] for r in rows_of(buffers[i].take(count))]
                assert taken == waiting[i][: len(taken)]
                del waiting[i][: len(taken)]
            assert [b.waiting for b in buffers] == list(map(len, waiting))
        for buffer, left in zip(buffers, waiting, strict=True):
            while buffer.queue:
                left = left[len(buffer.take().data) :]
            assert not left
        assert line.rows_in == line.rows_out
        assert line.bytes_in == line.bytes_out
        assert sum(b.queue.dropped for b in buffers) == storage.dropped_rows.get("s", 0)
        assert files(storage) == []
    finally:
        storage.close()


@pytest.mark.parametrize("kind", ["arrivals", "prioritised", "changes", "ending"])
def test_rows_are_the_same_afterwards(kind: str) -> None:
    columns = (
        pa.array([[1, None], None, [], [3]], pa.list_(pa.int64())),
        pa.array([[["é"], None], None, [], [[]]], pa.list_(pa.list_(pa.string()))),
        pa.nulls(4),
        pa.array([True, None, False, True]),
        pa.array([b"", None, b"ab", b"\x00"]),
        pa.array([Decimal("1.50"), None, Decimal("-3.00"), Decimal(0)], pa.decimal128(38, 2)),
        pa.array(["x", "y", None, "žluť"]).slice(0, 4),
    )
    schema = tuple(Field(f"f{i}", BIGINT) for i in range(len(columns)))
    ts, sub, sign = np.arange(4), np.arange(4) + 7, np.array([1, -1, 1, -1], np.int8)
    more = np.arange(4) * 3
    data: Data
    if kind in ("arrivals", "prioritised"):
        data = Arrivals(schema, columns, ts, sub, None if kind == "arrivals" else more)
    else:
        data = Delta(schema, columns, ts, sub, sign, ts + 1, sub + 1, more, None if kind == "changes" else ts + 9)
    for part in (data, cut(data, 1, 3), cut(data, 2, 2)):
        batch = batch_of(part)
        back = data_of(pa.ipc.read_record_batch(batch.serialize(), batch.schema), schema)
        assert type(back) is type(part)
        assert back.columns == part.columns
        for name in ("ts", "sub", "sign", "moment_ts", "moment_sub", "priority", "end"):
            found, wanted = getattr(back, name, None), getattr(part, name, None)
            assert repr(found) == repr(wanted)


def test_messages_of_different_form_go_into_different_segments(storage: Storage) -> None:
    source, line = bounded(storage, Bound(rows=0))
    buffer = reader(source, line)
    for i in range(6):
        source.send(message([(i, 0, i)], priority=i if i % 3 == 0 else None))
    assert len(files(storage)) == 4
    taken = [buffer.take() for _ in range(6)]
    assert [None if t.data.priority is None else t.data.priority.tolist() for t in taken] == [
        [0], None, None, [3], None, None
    ]  # fmt: skip
