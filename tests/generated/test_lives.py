"""Every engine gives the reference's answers for databases that change their relations while queries come and go; and
no query's answers depend on another query."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.budget import examples
from tests.generated.lives import STAMPED, Life, counted, lived, lives
from tests.generated.regressions import LIVES

RELAXED = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


def check(life: Life) -> None:
    wanted = lived(life, "reference")
    for name, rows in wanted[0].items():
        instants = [row[0] for row in rows]
        assert instants == sorted(instants), f"{name} goes back in time{life}"  # type: ignore[type-var]
    assert counted(lived(life, "local")) == counted(wanted), str(life)


@settings(max_examples=examples(400), deadline=None, suppress_health_check=RELAXED)
@given(life=lives())
def test_lives(life: Life) -> None:
    check(life)


@pytest.mark.parametrize("life", LIVES.values(), ids=LIVES)
def test_lives_that_once_failed(life: Life) -> None:
    check(life)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=RELAXED)
@given(life=lives(), data=st.data(), engine=st.sampled_from(["reference", "local"]))
def test_no_query_depends_on_another(life: Life, data: st.DataObject, engine: str) -> None:
    # With both kinds of clocks, who reads a relation decides of which kind its instants are.
    # Streams move on with the clock for queries that wait for them, and what they name is named for all.
    assume(len(life.queries) > 1 and STAMPED not in (*life.declare, *life.steps) and "idle" not in str(life))
    gone = data.draw(st.sampled_from(life.queries))
    answers, refused = counted(lived(life, engine))
    alone, refused_alone = counted(lived(life.without(gone), engine))
    # Whether an instant can still be given does depend on who has answered already.
    assume([r.partition(": ")[2] for r in refused] == [r.partition(": ")[2] for r in refused_alone])
    for what in (gone, f"{gone} lacks"):
        answers.pop(what, None)
    assert alone == answers, f"without {gone}:{life}"
