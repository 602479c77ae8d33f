"""Every engine gives the reference's answers, however the rows are cut into batches."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.budget import examples
from tests.generated.language import Case, Row, cases
from tests.generated.regressions import REGRESSIONS
from tests.generated.running import Feed, answers

FAST = ["local"]
"""Databases on Spark have their own, in ``tests.spark``."""
RELAXED = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


@st.composite
def feeds(draw: st.DrawFn, case: Case) -> Feed:
    """The streams cut into batches, empty ones among them, taking turns at random."""
    pending: dict[str, list[Row]] = {name: list(rows) for name, rows in case.streams.items() if rows}
    feed: Feed = []
    while pending:
        name = draw(st.sampled_from(sorted(pending)))
        n = draw(st.integers(0, len(pending[name])))
        feed.append((name, pending[name][:n]))
        pending[name] = pending[name][n:]
        if not pending[name]:
            del pending[name]
    return feed


def single_rows(case: Case) -> Feed:
    """Row by row, the streams taking turns."""
    queues = {name: list(rows) for name, rows in case.streams.items()}
    feed: Feed = []
    while any(queues.values()):
        feed += [(name, [rows.pop(0)]) for name, rows in queues.items() if rows]
    return feed


@pytest.mark.parametrize("engine", FAST)
@settings(max_examples=examples(250), deadline=None, suppress_health_check=RELAXED)
@given(case=cases(), data=st.data())
def test_the_answers_are_those_of_the_reference(engine: str, case: Case, data: st.DataObject) -> None:
    wanted = answers(case, "reference")
    assert answers(case, engine) == wanted, str(case)
    feed = data.draw(feeds(case))
    assert answers(case, engine, feed) == wanted, f"{case}\n  {feed}"


@pytest.mark.parametrize("engine", FAST)
@settings(max_examples=examples(60), deadline=None, suppress_health_check=RELAXED)
@given(case=cases())
def test_single_rows_give_the_same_answers(engine: str, case: Case) -> None:
    assert answers(case, engine, single_rows(case)) == answers(case, "reference"), str(case)


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("case", REGRESSIONS, ids=lambda c: c.query[:60])
def test_cases_that_once_failed(engine: str, case: Case) -> None:
    wanted = answers(case, "reference")
    assert answers(case, engine) == wanted
    assert answers(case, engine, single_rows(case)) == wanted
