"""A query that goes on from its saved state gives the answers it would have given."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.hosts.reference import ReferenceHost
from tests.budget import examples
from tests.generated.language import Case, cases
from tests.generated.regressions import REGRESSIONS
from tests.generated.running import Feed, answers
from tests.generated.test_engines import feeds, single_rows
from tests.state.restarting import Event, RestartingRunner

RELAXED = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
EVENTS: tuple[Event, ...] = ("nothing", "save", "restart", "retry", "forget")


def restarted(case: Case, feed: Feed, events: Sequence[Event], *, mapped: bool = True) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            ReferenceHost,
            "runner",
            lambda _, query, schema, chosen: RestartingRunner(query, schema, chosen, events, mapped=mapped),
        )
        return answers(case, "reference", feed)


@settings(max_examples=examples(200), deadline=None, suppress_health_check=RELAXED)
@given(case=cases(), data=st.data())
def test_answers_after_any_restarts_are_those_of_the_reference(case: Case, data: st.DataObject) -> None:
    feed = data.draw(feeds(case))
    events = data.draw(st.lists(st.sampled_from(EVENTS), min_size=2, max_size=12))
    found = restarted(case, feed, events, mapped=data.draw(st.booleans()))
    assert found == answers(case, "reference"), f"{case}\n  {feed}\n  {events}"


@settings(max_examples=examples(60), deadline=None, suppress_health_check=RELAXED)
@given(case=cases())
def test_a_restart_after_every_row(case: Case) -> None:
    feed = single_rows(case)
    assert restarted(case, feed, ["restart"] * 100) == answers(case, "reference"), str(case)


@pytest.mark.parametrize("event", ["restart", "retry"])
@pytest.mark.parametrize("case", REGRESSIONS, ids=lambda c: c.query[:60])
def test_cases_that_once_failed_elsewhere(case: Case, event: Event) -> None:
    assert restarted(case, single_rows(case), [event] * 100) == answers(case, "reference")
