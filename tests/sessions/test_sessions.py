"""Whole sessions of statements, right and wrong ones: every engine says and answers what the reference does.

A refused step leaves no trace, rows may be cut into any batches, and a query does not notice other queries.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import HealthCheck, given, settings

from tests.budget import examples
from tests.sessions.language import Fetch, Say, Step, sessions
from tests.sessions.running import live
from tests.spark.direct import directly

ORDERS = ("STOP", "ALTER", "SUSPEND", "RESUME", "DESCRIBE")
RELAXED = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


@settings(max_examples=examples(300), suppress_health_check=RELAXED)
@given(steps=sessions())
def test_the_local_engine_says_and_answers_what_the_reference_does(steps: list[Step]) -> None:
    wanted, found = live("reference", steps), live("local", steps)
    assert found.refused == wanted.refused, listed(steps)
    assert found.fetched == wanted.fetched, listed(steps)
    assert found.results == wanted.results, listed(steps)


@settings(max_examples=examples(60), suppress_health_check=RELAXED)
@given(steps=sessions())
def test_spark_says_and_answers_what_the_reference_does(steps: list[Step]) -> None:
    wanted = live("reference", steps)
    with directly():
        found = live("spark", steps)
    assert found.refused == wanted.refused, listed(steps)
    assert found.results == wanted.results, listed(steps)


@settings(max_examples=examples(150), suppress_health_check=RELAXED)
@given(steps=sessions())
def test_a_refused_step_leaves_no_trace_and_batches_do_not_matter(steps: list[Step]) -> None:
    life = live("local", steps)
    taken = [place for place in range(len(steps)) if place not in life.refused]
    alone = live("local", [steps[place] for place in taken], row_by_row=True)
    assert alone.refused == {}, listed(steps)
    assert alone.results == life.of(taken), listed(steps)


@settings(max_examples=examples(150), suppress_health_check=RELAXED)
@given(steps=sessions())
def test_a_query_does_not_notice_other_queries(steps: list[Step]) -> None:
    life = live("local", steps)
    taken = [place for place in range(len(steps)) if place not in life.refused]
    for query in life.results:
        kept = [place for place in taken if place == query or not about_queries(steps[place])]
        made = [place for place in kept if words(steps[place])[:2] == ["CREATE", "QUERY"]]
        kept = sorted({*kept, *(order for place in made for order in orders(steps, taken, place))})
        by_itself = live("local", [steps[place] for place in kept])
        assert by_itself.refused == {}, listed(steps)
        assert by_itself.results.get(kept.index(query)) == life.results[query], f"step {query} of\n{listed(steps)}"


def orders(steps: Sequence[Step], taken: Sequence[int], made: int) -> list[int]:
    """What is said to the query that a step makes, up to where it is stopped."""
    name = words(steps[made])[2]
    said = [p for p in taken if p > made and words(steps[p])[:1] and words(steps[p])[0] in ORDERS]
    said = [p for p in said if words(steps[p])[1:3] == ["QUERY", name]]
    end = next((n for n, p in enumerate(said) if words(steps[p])[0] == "STOP"), len(said))
    return said[: end + 1]


def about_queries(step: Step) -> bool:
    """The step makes a query, looks at one or says something to one."""
    said = words(step)
    makes = said[:2] == ["CREATE", "QUERY"] and "made" not in said
    return isinstance(step, Fetch) or makes or said[:1] == ["SELECT"] or (said[1:2] == ["QUERY"] and said[0] in ORDERS)


def words(step: Step) -> list[str]:
    return step.text.split() if isinstance(step, Say) else []


def listed(steps: Sequence[Step]) -> str:
    return "\n".join(f"  {place}: {step}" for place, step in enumerate(steps))
