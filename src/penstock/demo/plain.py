"""Snapshots as lines of text, for pipes, logs and terminals that can do no more."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from penstock.demo import tree, words
from penstock.demo.snapshot import Snapshot

EVERY = 4.0
"""Seconds between two reports."""
_WIDTH = 100
_PLAIN = str.maketrans("µ·–═─│├└▶…⋈", "u--=-|+`>.*")


class Lines:
    """Writes what is new in each snapshot: events at once, figures every few seconds."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._events = 0
        self._reported = 0.0

    def say(self, line: str = "") -> None:
        """A line, at once; with other characters in the place of those that the output does not have."""
        print(fitting(line, self._out.encoding), file=self._out, flush=True)

    def introduce(self, abouts: Sequence[tuple[str, str, str]]) -> None:
        """The queries in words."""
        self.say(words.ABOUT)
        for name, kind, sentence in abouts:
            self.say(f"  {name:<14}  {kind}: {sentence}")

    @contextmanager
    def busy(self, what: str, done: str) -> Iterator[None]:
        """While something takes its time: what it is, and in the end that it is done."""
        began = time.monotonic()
        self.say(f"{what} ...")
        yield
        self.say(f"{done}: {time.monotonic() - began:.1f} s")

    @contextmanager
    def live(self) -> Iterator[Callable[[Snapshot], object]]:
        """Something to call with snapshots."""
        yield self.show

    def show(self, snapshot: Snapshot) -> None:
        """What is new."""
        for event in snapshot.events[self._events :]:
            self.say(f"{event.seconds:5.1f} s  {event.text}")
        self._events = len(snapshot.events)
        if snapshot.seconds >= self._reported + EVERY:
            self._reported = snapshot.seconds
            self.say(f"{snapshot.seconds:5.1f} s  {words.title(snapshot)}")
            for query in snapshot.queries:
                name, *_, answers, p50, p99, memory = words.cells(query)
                latest = query.latest[-1] if query.latest else "no answer yet"
                self.say(f"         {name:<14} {answers:>6} answers/s  p50 {p50}  p99 {p99}  {memory}  {latest}")

    def summarize(self, snapshot: Snapshot) -> None:
        """The end."""
        for line in summary(snapshot):
            self.say(line)


def fitting(line: str, encoding: str | None) -> str:
    """A line as it can be written: drawn things become the like of them in ASCII, others question marks."""
    if encoding is None:  # texts are kept as they are
        return line
    try:
        line.encode(encoding)
    except UnicodeEncodeError:
        return line.translate(_PLAIN).encode(encoding, "replace").decode(encoding)
    return line


def summary(snapshot: Snapshot) -> list[str]:
    """What remains: the graph, the figures of each query, the alarms of the burst, and where to go from here."""
    lines = [""]
    if snapshot.graph is not None:
        lines += ["query graph (#: virtual operator, ═n═▶: queue in which n rows wait)"]
        lines += [*tree.text(tree.tree(snapshot.graph)), ""]
    lines += [words.ended(snapshot), ""]
    rows = [words.HEAD, *(words.cells(query) for query in snapshot.queries)]
    kept = [i for i, name in enumerate(words.HEAD) if not name.endswith("/s")]
    widths = [max(len(row[i]) for row in rows) for i in kept]
    for row in rows:
        first, *others = (row[i] for i in kept)
        lines.append(f"{first:<{widths[0]}}" + "".join(f"  {c:>{w}}" for c, w in zip(others, widths[1:], strict=True)))
    lines += [*textwrap.wrap(words.NOTE, _WIDTH), "", *textwrap.wrap(words.verdict(snapshot.burst), _WIDTH), ""]
    width = max(len(command) for command, _ in words.NEXT)
    return lines + [f"{command:<{width}}  {does}" for command, does in words.NEXT]
