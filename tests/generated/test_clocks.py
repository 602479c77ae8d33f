"""Streams that move on with the clock: no answer waits for a clock that has passed it, and all engines answer alike."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

import penstock
from tests.budget import examples
from tests.generated.clocks import Life, lived, lives

RELAXED = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


def nothing_waits(life: Life, db: penstock.Database) -> None:
    """To let all streams move on, whether or not a query waits for them, brings no answer."""
    before = {name: query.answered for name, query in db.queries.items()}
    db.heartbeat()
    assert {name: query.answered for name, query in db.queries.items()} == before, str(life)


@pytest.mark.parametrize("engine", ["reference", "local"])
@settings(max_examples=examples(300), deadline=None, suppress_health_check=RELAXED)
@given(life=lives())
def test_nothing_waits_for_a_clock_that_has_passed_it(engine: str, life: Life) -> None:
    lived(life, engine, after=lambda db: nothing_waits(life, db))


@settings(max_examples=examples(300), deadline=None, suppress_health_check=RELAXED)
@given(life=lives())
def test_engines_answer_alike(life: Life) -> None:
    assert lived(life, "local") == lived(life, "reference"), str(life)
