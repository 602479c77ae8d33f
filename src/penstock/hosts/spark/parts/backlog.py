"""What waits in front of a part: the frames that no micro-batch has taken, and what of them may overtake."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.hosts.spark.parts.task import Frame

Named = tuple[str, Frame]
"""A frame, and the stream or relation whose it is."""


@dataclass(frozen=True)
class Admitted:
    """Frames whose prioritised rows a micro-batch gets although their turn has not come, by stream.

    ``ahead``: whoever reads them has had those of all frames up to this number. ``rows``: how many rows that are; of
    those that wait for slack, at most.
    """

    frames: Mapping[str, list[Frame]] = field(default_factory=dict)
    ahead: int = 0
    rows: int = 0

    def waiting(self, taken: Mapping[str, Sequence[Frame]], had: Mapping[str, int]) -> Admitted:
        """The same and, of the frames whose turn it is, the prioritised rows that wait for slack."""
        found: dict[str, list[Frame]] = {}
        for name, frames in taken.items():
            if not frames[-1].closed:
                found[name] = [f for f in frames if f.urgent and f.number > had.get(name, f.number)]
        found = {name: frames for name, frames in found.items() if frames}
        if not found:
            return self
        rows = self.rows + sum(f.urgent for frames in found.values() for f in frames)
        together = {name: [*found.get(name, ()), *self.frames.get(name, ())] for name in {*found, *self.frames}}
        return Admitted(together, self.ahead, rows)


NOBODY = Admitted()


_HELD, TOLD = 4 << 20, 256 << 10
"""Bytes of small entries that a part holds, and that it tells each task of a micro-batch: these are not read."""


class Backlog:
    """Frames of streams and relations in order. Bounded by: what no micro-batch has taken; what they contain by
    ``_HELD``."""

    def __init__(self, frames: Iterable[Named] = ()) -> None:
        self._frames: deque[Named] = deque()
        self._ranked: deque[Named] = deque()
        """Those of them with prioritised rows that somebody may not have had."""
        self._changes: deque[Named] = deque()
        """Those with changes of relations."""
        self._held = 0
        for name, frame in frames:
            self.add(name, frame)

    def __bool__(self) -> bool:
        return bool(self._frames)

    def __iter__(self) -> Iterator[Named]:
        return iter(self._frames)

    @property
    def first(self) -> int:
        """The number of the first frame; there must be one."""
        return self._frames[0][1].number

    def add(self, name: str, frame: Frame) -> None:
        """A frame has come; again, if an interrupt came while it did."""
        frame = frame.within(_HELD - self._held)
        ranked, changes = _is_ranked(frame), frame.kind == "changes"
        if not _is_last(self._frames, frame):
            self._frames.append((name, frame))
            self._held += len(frame.place.content)
        for frames, belongs in ((self._ranked, ranked), (self._changes, changes)):
            if belongs and not _is_last(frames, frame):
                frames.append((name, frame.within(0)))

    def taken(self, last: int, ahead: int) -> None:
        """Frames up to ``last`` have been taken, and the prioritised rows of those up to ``ahead``."""
        while self._frames and self._frames[0][1].number <= last:
            self._held -= len(self._frames.popleft()[1].place.content)
        while self._ranked and self._ranked[0][1].number <= max(last, ahead):
            self._ranked.popleft()
        while self._changes and self._changes[0][1].number <= last:
            self._changes.popleft()

    def admitted(self, last: int, had: Mapping[str, int], most: float, upto: float = math.inf) -> Admitted:
        """The prioritised rows behind frame ``last``, about ``most`` of them, of frames up to number ``upto``. None
        comes before a change of a relation that is read here: it may be joined with what has changed.

        ``had``: of each stream and relation the number of the frame up to which all its readers have had them.
        """
        changes = [frame.number for name, frame in self._changes if frame.number > last and name in had]
        upto = min(upto, min(changes, default=math.inf))
        found: dict[str, list[Frame]] = {}
        rows, ahead = 0, 0
        for name, frame in self._ranked:
            if frame.number <= last:
                continue
            if frame.number > upto:
                break
            if rows and rows + frame.fresh > most:
                break
            ahead = frame.number
            if frame.number > had.get(name, ahead):
                found.setdefault(name, []).append(frame)
                rows += frame.fresh
        return Admitted(found, ahead, rows) if rows else NOBODY


def _is_ranked(frame: Frame) -> bool:
    return frame.prioritised > 0 or frame.urgent > 0


def _is_last(frames: deque[Named], frame: Frame) -> bool:
    return bool(frames) and frames[-1][1].number == frame.number
