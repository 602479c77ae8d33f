"""What every script of another system shares: its data, what it says, and operators written by hand for systems that
have none. Runs on any Python with pyarrow; nothing here is of Penstock."""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

clock = time.perf_counter


class Data:
    """The folder of a job: its constants, and the files of its streams."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        for name, value in json.loads((self.folder / "job.json").read_text(encoding="utf-8")).items():
            setattr(self, name, value)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def csv(self, stream: str, *, names: bool = True) -> str:
        """With times as milliseconds."""
        return str(self.folder / (f"{stream}.csv" if names else f"{stream}.plain.csv"))

    def tables(self, stream: str) -> Iterator[Any]:
        """Files of Arrow, in order, with times as microseconds."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        for path in sorted((self.folder / "data" / stream).glob("*.parquet")):
            table = pq.read_table(path)
            yield table.set_column(0, "ts", table["ts"].cast(pa.int64()))

    def rows(self, stream: str, size: int = 1_000) -> Iterator[list[tuple[Any, ...]]]:
        """Lists of tuples, in the order of the columns."""
        for table in self.tables(stream):
            for batch in table.to_batches(max_chunksize=size):
                yield list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


class Tally:
    """How many answers, and a sum over them."""

    def __init__(self) -> None:
        self.answers = 0
        self.checksum = 0.0

    def add(self, value: float) -> None:
        self.answers += 1
        self.checksum += value


class Sliding:
    """Count and average of one key's rows of the last window; the values are integers."""

    __slots__ = ("_held", "_sum", "_window")

    def __init__(self, window: int) -> None:
        self._window = window
        self._held: deque[tuple[int, int]] = deque()
        self._sum = 0

    def add(self, t: int, v: int) -> tuple[int, float]:
        """With this row."""
        held, old = self._held, t - self._window
        while held and held[0][0] <= old:
            self._sum -= held.popleft()[1]
        held.append((t, v))
        self._sum += v
        return len(held), self._sum / len(held)


class Join:
    """Pairs of one key that are less than a window apart. Rows of a side come in order of time."""

    __slots__ = ("_sides", "_window")

    def __init__(self, window: int) -> None:
        self._window = window
        self._sides: tuple[deque[tuple[int, int]], deque[tuple[int, int]]] = (deque(), deque())

    def add(self, side: int, t: int, v: int) -> list[int]:
        """The sum of both values for each new pair."""
        other, window = self._sides[1 - side], self._window
        while other and other[0][0] <= t - window:
            other.popleft()
        self._sides[side].append((t, v))
        return [v + w for u, w in other if u < t + window]


class Hopping:
    """Count and sum of one key in panes as long as a hop; a window is told when a row behind its end comes."""

    __slots__ = ("_hop", "_panes", "_size", "_told")

    def __init__(self, window: int, hop: int) -> None:
        self._size, self._hop = window // hop, hop
        self._panes: dict[int, list[int]] = {}
        self._told: int | None = None

    def add(self, t: int, v: int) -> list[tuple[int, int, float]]:
        """End, count and average of each window that has ended now."""
        pane = t // self._hop
        ended = self.until(pane)
        found = self._panes.setdefault(pane, [0, 0])
        found[0] += 1
        found[1] += v
        return ended

    def until(self, pane: int | None = None) -> list[tuple[int, int, float]]:
        """The windows that end before this pane does; without one, all."""
        if self._told is None:
            self._told = pane
        elif pane != self._told:
            ended, size, panes = [], self._size, self._panes
            last = max(panes) + size if pane is None else min(pane, max(panes) + size)
            for end in range(self._told + 1, last + 1):
                some = [panes[p] for p in range(end - size, end) if p in panes]
                if some:
                    count = sum(n for n, _ in some)
                    ended.append((end * self._hop, count, sum(s for _, s in some) / count))
                panes.pop(end - size, None)
            self._told = pane
            return ended
        return []


def paced(rate: float, count: int) -> Iterator[tuple[int, int]]:
    """First and last of the rows that are due, as often as there are some; sleeps in between."""
    start, done = clock(), 0
    while done < count:
        due = min(count, int((clock() - start) * rate) + 1)
        if due > done:
            yield done, due
            done = due
        ahead = start + done / rate - clock()
        if ahead > 0:
            time.sleep(ahead)


class Latencies:
    """When rows were due and when their answers came; the first half does not count."""

    def __init__(self, rate: float, count: int) -> None:
        self._rate, self._count = rate, count
        self.start = 0.0
        self.came: list[float] = []

    def begin(self) -> None:
        self.start = clock()

    def middle(self) -> dict[str, float]:
        """Milliseconds; answers come in the order of rows."""
        waited = sorted(
            1000 * (came - self.start - i / self._rate) for i, came in enumerate(self.came) if i >= self._count // 2
        )
        return {"p50": waited[len(waited) // 2], "p99": waited[int(len(waited) * 0.99)]}


def tell(**about: object) -> None:
    print(json.dumps({"event": "measured", **about}), flush=True)


def main(jobs: list[Callable[[Data], dict[str, object]]], lacking: dict[str, str], loaded: float) -> None:
    """Run the job whose folder the command line names. ``loaded``: seconds that the system took to load."""
    data = Data(sys.argv[1])
    if data.job in lacking:
        tell(job=data.job, why=lacking[data.job])
        return
    (job,) = (job for job in jobs if job.__name__ == data.job)
    tell(job=data.job, start_up=loaded, **job(data))


def result(tally: Tally, seconds: float | None = None, note: str = "", **more: float) -> dict[str, object]:
    """What a job gives back."""
    found: dict[str, object] = {"answers": tally.answers, "checksum": tally.checksum, "note": note, **more}
    return found if seconds is None else {**found, "seconds": seconds}
