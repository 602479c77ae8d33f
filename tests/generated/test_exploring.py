"""A few new cases in every run: the generated tests below begin from a seed that pytest prints.

``PENSTOCK_SEED=…`` repeats a run. ``make fuzz`` runs all generated tests with new cases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, seed, settings
from hypothesis import strategies as st

from tests.budget import SEED
from tests.generated import test_engines, test_lives, test_rewriting
from tests.generated.language import Case, cases
from tests.generated.lives import Life, counted, lived, lives
from tests.sessions import test_sessions
from tests.sessions.language import Step, sessions
from tests.spark.direct import directly

EXPLORING = settings(
    max_examples=20, derandomize=False, database=None, deadline=None, suppress_health_check=test_engines.RELAXED
)


def inside(test: Any) -> Callable[..., None]:
    """What a generated test does with one case."""
    found: Callable[..., None] = test.hypothesis.inner_test
    return found


@seed(SEED)
@EXPLORING
@given(case=cases(), data=st.data())
def test_new_cases_on_the_local_engine(case: Case, data: st.DataObject) -> None:
    inside(test_engines.test_the_answers_are_those_of_the_reference)("local", case, data)


@seed(SEED)
@EXPLORING
@given(case=cases())
def test_new_cases_for_the_optimiser(case: Case) -> None:
    inside(test_rewriting.test_the_optimiser_keeps_every_answer)(case)


@seed(SEED)
@EXPLORING
@given(life=lives())
def test_new_lives(life: Life) -> None:
    test_lives.check(life)
    with directly():
        assert counted(lived(life, "spark")) == counted(lived(life, "reference")), str(life)


@seed(SEED)
@EXPLORING
@given(steps=sessions())
def test_new_sessions(steps: list[Step]) -> None:
    inside(test_sessions.test_the_local_engine_says_and_answers_what_the_reference_does)(steps)


def test_the_seed_decides_which_cases_there_are() -> None:
    def drawn(number: int) -> list[str]:
        found: list[str] = []

        @seed(number)
        @EXPLORING
        @given(case=cases())
        def run(case: Case) -> None:
            found.append(str(case))

        run()
        return found

    assert drawn(1) == drawn(1) != drawn(2)
