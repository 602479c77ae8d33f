"""Operators that are called as one: many filters over one input, and what leads straight to a query."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np

from penstock.graph.message import Data, Mark, Message
from penstock.graph.operators import Emitting, Stateless, Windowed
from penstock.graph.sink import Sink
from penstock.model.delta import NEVER, Arrivals, Delta, Step
from penstock.model.schema import Schema
from penstock.operators.filter_group import FilterGroup

_clock = time.perf_counter_ns
_ONES = np.ones(1 << 16, np.int8)


class Filters:
    """Filters and projections over one vertex's results, worked on together: see ``FilterGroup``."""

    def __init__(self, schema: Schema) -> None:
        self._group = FilterGroup(schema)
        self._members: dict[int, Stateless] = {}

    def become(self, members: Mapping[int, Stateless]) -> None:
        """Be a group of just these, by number."""
        for id in self._members.keys() - members.keys():
            self._group.remove(id)
            del self._members[id]
        for id in members.keys() - self._members.keys():
            self._group.add(id, members[id].chain)
            self._members[id] = members[id]

    def take(self, message: Message) -> None:
        data, mark = message.data, message.mark
        began = _clock()
        results = self._group.process(data, Step(mark.frontier))
        count, share = len(data), (_clock() - began) // len(results)
        closing = mark.frontier == NEVER
        for id, out in results:
            member = self._members[id]
            if member.state == "stopped":
                continue
            stats = member.stats
            stats.calls += 1
            if began > stats.due:
                stats.fade(began)
            stats.elements_in += count
            stats.busy += share
            stats.until = began
            if isinstance(out, Exception):
                member.failed(out, [data])
            elif member.tail is not None and not closing:
                if len(out):
                    stats.elements_out += len(out)
                    member.tail.take(out, mark)
            elif len(out) or not member.quiet or closing:
                member.send(out, mark)


class Tail:
    """A window that keeps nothing, the emission of its rows as they are, and queries, called as one operator."""

    def __init__(self, window: Windowed, emitting: Emitting, sinks: Sequence[Sink]) -> None:
        self._window, self._emitting, self._sinks = window, emitting, sinks

    def take(self, data: Data, mark: Mark) -> None:
        """Elements become answers. Time is counted for whoever calls."""
        assert isinstance(data, Arrivals)
        ts, sub, count = data.ts, data.sub, len(data.ts)
        sign = _ONES[:count] if count <= len(_ONES) else np.ones(count, np.int8)
        delta = Delta(data.schema, data.columns, ts, sub, sign, ts, sub, data.priority)
        for vertex in (self._window, self._emitting):
            vertex.mark = vertex.sent = mark
            stats = vertex.stats
            stats.calls += 1
            stats.elements_in += count
            stats.elements_out += count
        message = Message(delta, mark)
        for sink in self._sinks:
            sink.take(0, message)


def tail_of(vertex: Stateless) -> Tail | None:
    """What follows a filter, if it is as short as a ``Tail``."""
    if not vertex.elements or len(vertex.outputs) != 1:
        return None
    window = vertex.outputs[0].target
    if not isinstance(window, Windowed) or not window.passes or len(window.outputs) != 1:
        return None
    emitting = window.outputs[0].target
    if not isinstance(emitting, Emitting) or not emitting.as_it_is:
        return None
    sinks = [e.target for e in emitting.outputs if isinstance(e.target, Sink)]
    edges = (*vertex.outputs, *window.outputs, *emitting.outputs)
    if len(sinks) != len(emitting.outputs) or any(e.buffer is not None or e.since is not None for e in edges):
        return None
    return Tail(window, emitting, sinks)
