"""Every setting is checked, and says what would have been right."""

from __future__ import annotations

from typing import Any

import experiments  # noqa: F401 - more names
import pytest

import penstock
from penstock.database.database import core_of
from penstock.hosts.local.host import LocalHost
from penstock.model.errors import InputError
from penstock.runtime.settings import Settings
from penstock.runtime.strategy import Quantum


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"threading": "grph"}, "threading is 'grph'; did you mean `graph`.*direct, graph, operator, hybrid"),
        ({"threading": None}, "threading is None; there are direct, graph, operator, hybrid"),
        ({"strategy": "chian"}, "unknown strategy 'chian'; did you mean `chain`"),
        ({"strategy": 5}, "unknown strategy 5; the strategies are fifo"),
        ({"architecture": "x"}, "architecture is 'x'; there are worker, pool"),
        ({"placement": "segments"}, "placement is 'segments'; did you mean `segment`"),
        ({"workers": 0}, "workers is 0; it is a number of threads, 1 or more"),
        ({"workers": 100_000}, "workers is 100000; it is a number of threads, 1 or more and 1,000 at most"),
        ({"queues": {(1.5, 2): True}}, r"\(1.5, 2\) in queues is no edge; as in queues="),
        ({"queues": {(True, 2): True}}, r"\(True, 2\) in queues is no edge"),
        ({"queues": {"1--2": True}}, "'1--2' in queues is no edge"),
        ({"queues": {(1, 2): True, "1-2": False}}, "queues says True and False of the edge '1-2'; give it once"),
        ({"workers": True}, "workers is True"),
        ({"workers": 1.5}, "workers is 1.5"),
        ({"quantum": 0}, "quantum is 0; an operator must get 1 element at least"),
        ({"quantum": -0.5}, "quantum is -0.5; it is a number of elements, seconds as a number above 0"),
        ({"quantum": True}, "quantum is True"),
        ({"quantum": "5 parsecs"}, "quantum: `parsecs` is not a unit of time; there are microseconds"),
        ({"latency": "0 ms"}, "latency is 0.0; it is seconds as a number above 0"),
        ({"latency": None}, "latency is None"),
        ({"queries": {"q": {"workers": 2}}}, "`workers` cannot be set for the query `q` alone; there are threading"),
        ({"queries": {"q": {"threading": "x"}}}, "threading is 'x'"),
        ({"treading": "graph"}, "there is no setting `treading`; did you mean `threading`"),
    ],
)
def test_what_is_wrong_is_refused(change: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        Settings().changed(**change)


@pytest.mark.parametrize(
    ("given", "quantum"),
    [(None, None), (10, Quantum(elements=10)), (0.5, Quantum(seconds=0.5)), ("5 ms", Quantum(seconds=0.005))],
)
def test_quantum(given: Any, quantum: Quantum | None) -> None:
    assert Settings(quantum=given).new_strategy().quantum == quantum


def test_a_strategy_is_made_as_set() -> None:
    made = Settings(strategy="chain-flush+", latency="20 ms").new_strategy()
    assert (made.name, made.train, made.latency) == ("chain-flush+", True, 0.02)


def test_queries_have_their_own() -> None:
    settings = Settings(threading="graph", queries={"a": {"strategy": "chain"}, "b": {"strategy": "chain"}})
    assert settings.of_query("a").strategy == "chain"
    assert settings.of_query("a").threading == "graph"
    assert settings.of_queries(["a", "b"]).strategy == "chain"
    assert settings.of_queries(["a", "c"]) is settings  # shared, and they do not agree
    assert settings.of_queries([]) is settings


def test_workers_are_as_many_as_processors_unless_set() -> None:
    assert Settings().threads >= 1
    assert Settings(workers=3).threads == 3


def test_the_latency_of_a_query_is_that_of_its_strategy() -> None:
    with penstock.connect(engine="local") as db:
        db.execute("CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t")
        db.configure(threading="graph", strategy="chain-flush")
        db.execute("CREATE QUERY soon AS SELECT sum(v) AS t FROM s [ROWS 3] WITH (latency = '20 ms')")
        db.execute("CREATE QUERY late AS SELECT max(v) AS m FROM s [ROWS 2]")
        db.push("s", [(1, 1)])
        db.settle()
        host = core_of(db).host
        assert isinstance(host, LocalHost)
        settings = host.runtime.settings
        assert [settings.of_query(name).new_strategy().latency for name in ("soon", "late")] == [0.02, 0.1]
        db.configure(query="soon", experiments={"latency": "5 ms"})
        assert host.runtime.settings.of_query("soon").new_strategy().latency == 0.005
        db.queries["soon"].stop()
        db.configure(workers=1)
        assert "soon" not in host.runtime.settings.queries
