"""States of operators, settings of sub-graphs, and the numbers for people."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.model.errors import StateError
from penstock.runtime.run import PUSHED, Runtime
from penstock.runtime.settings import Settings
from tests.runtime.fakes import THREADED, Map, Merge, Sink, Source, link, message, pipeline


@pytest.mark.parametrize("settings", [{"threading": "direct"}, *THREADED])
def test_suspended_operators_keep_what_comes(runtimes: Callable[..., Runtime], settings: dict[str, Any]) -> None:
    runtime = runtimes(**settings)
    source, vertices, sink = pipeline()
    middle = vertices[1]
    runtime.place(vertices, [source], {1: 1, 2: 1, 3: 1})
    runtime.suspend(middle)
    states = [middle.state]
    for ts in range(3):
        source.send(message([(ts, 0, ts)]))
    runtime.settle()
    assert sink.rows == {}
    assert runtime.buffers[middle.inputs[0]].elements == 3
    with pytest.raises(StateError, match="suspended already"):
        runtime.suspend(middle)
    runtime.resume(middle)
    runtime.settle()
    assert [r[2] for r in sink.rows[0]] == [0, 1, 2]
    assert [*states, middle.state] == ["suspended", "ready"]
    with pytest.raises(StateError, match="not suspended"):
        runtime.resume(middle)
    middle.state = "stopped"
    for change in (runtime.suspend, runtime.resume):
        with pytest.raises(StateError, match="stopped"):
            change(middle)


def test_idle_operators_are_suspended_under_flow_only(runtimes: Callable[..., Runtime]) -> None:
    runtime = runtimes(threading="graph", strategy="flow")
    source, vertices, _ = pipeline()
    runtime.place(vertices, [source], {})
    source.send(message([(1, 0, 0)]))
    runtime.settle()
    assert [v.state for v in vertices] == ["suspended"] * 3
    runtime.place(vertices, [source], {}, Settings(threading="graph", strategy="fifo"))
    assert [v.state for v in vertices] == ["ready"] * 3


def test_partitions_and_buffers_for_people(runtimes: Callable[..., Runtime]) -> None:
    runtime = runtimes(threading="hybrid", strategy="chain+", workers=2)
    source, vertices, _ = pipeline()
    vertices[1].priority = 8
    runtime.place(vertices, [source], {1: 5, 2: 5, 3: 6})
    pushing, first, second = runtime.partitions()
    assert (pushing.id, pushing.operators, pushing.worker, pushing.strategy) == (PUSHED, (0,), None, None)
    assert (first.operators, first.worker, first.strategy, first.priority) == (
        (1, 2), "penstock-worker-1…2", "chain+", 8,  # partitions of different priority share the threads
    )  # fmt: skip
    assert second.operators == (3,)
    assert first.capacity is None
    assert runtime.partition_of == {0: PUSHED, 1: first.id, 2: first.id, 3: second.id}
    vertices[0].stats.elements_in, vertices[0].stats.busy = 10, int(1e9)
    vertices[0].stats.until = vertices[0].stats.since + int(10e9)
    assert runtime.partitions()[1].capacity == pytest.approx(0.9)


def test_sub_graphs_have_their_own_settings(runtimes: Callable[..., Runtime]) -> None:
    """One branch is run directly, the other by a thread of its own, a merge of both by one thread."""
    runtime = runtimes(threading="direct")
    source, left, right, merge, sink = Source(0), Map(1), Map(2), Merge(3), Sink(4)
    link(source, left, right)
    link(left, merge)
    link(right, merge)
    link(merge, sink)
    operator = Settings(threading="operator", strategy="flow")
    runtime.place([left, right, merge, sink], [source], {}, settings_of={2: operator})
    runs = runtime.partition_of
    assert runs[1] == PUSHED
    assert runs[3] == runs[4] != PUSHED
    assert runs[2] not in (PUSHED, runs[3])
    by_id = {p.id: p for p in runtime.partitions()}
    assert by_id[runs[2]].strategy == "flow"
    source.send(message([(1, 0, 5)]))
    runtime.settle()
    assert sink.rows == {0: [(1, 0, 15), (1, 0, 16)]}
