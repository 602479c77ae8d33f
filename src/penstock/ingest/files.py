"""Rows of a stream that are in files of their own, since several processes have written them side by side.

The rows of a file are in order of their instants; of equal ones, as they were read. Which of them have had their turn
follows from how far the stream was, so a file is never written again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.model.batch import Instant

Columns = tuple[int, ...]
Bytes = tuple[int, int]
"""From where to where in a file."""


@dataclass(frozen=True)
class RowsFile:
    """A file with rows that came in time. Where ``oldest`` and ``newest`` are the same, that is the instant of all
    rows, whatever is in the file. ``arrival``: the number of the first of them. ``prioritised``: how many have a
    priority. ``splits``: by key columns, where the rows of each slot are; with no columns all rows are in one place.
    """

    path: str
    size: int
    rows: int
    oldest: int
    newest: int
    prioritised: int = 0
    splits: Mapping[Columns, tuple[Bytes, ...]] = field(default_factory=dict)
    arrival: int = 0

    def record(self) -> dict[str, Any]:
        """As JSON has it."""
        splits = [[list(columns), [list(b) for b in places]] for columns, places in self.splits.items()]
        return {**vars(self), "splits": splits}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> RowsFile:
        """What ``record`` had."""
        splits = {tuple(columns): tuple((b[0], b[1]) for b in places) for columns, places in record["splits"]}
        return cls(**{**record, "splits": splits})


@dataclass(frozen=True)
class Span:
    """The rows of a file whose turn came at once: those behind one instant, up to another."""

    file: RowsFile
    after: Instant
    upto: Instant

    @property
    def furthest(self) -> Instant:
        """No row of it is later."""
        return min(self.file.newest, self.upto)


def held(files: Sequence[RowsFile], progress: Instant) -> tuple[Span, ...]:
    """What of files with prioritised rows has not had its turn when a stream is at ``progress``."""
    return tuple(Span(file, progress, math.inf) for file in files if file.prioritised and file.newest > progress)


def cut(
    waiting: Sequence[RowsFile], new: Sequence[RowsFile], before: Instant, progress: Instant
) -> tuple[tuple[Span, ...], tuple[RowsFile, ...]]:
    """What has its turn when a stream goes on from ``before`` to ``progress``, and the files of which rows still wait.

    ``waiting``: files whose rows up to ``before`` have had it.
    """
    spans = [Span(file, before, progress) for file in waiting if progress > before]
    spans += [Span(file, -math.inf, progress) for file in new if file.oldest <= progress]
    return tuple(spans), tuple(file for file in (*waiting, *new) if file.newest > progress)
