"""The rows of the demo, and what its CQL says about itself."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import penstock
from penstock.demo import script
from penstock.demo.scenario import ALARM, SLICE, TURBINES, Scenario, instant


def test_a_slice_is_the_same_whenever_it_is_made() -> None:
    first, second = Scenario(), Scenario()
    later = [second.slice(number) for number in (7, 3, 0)][::-1]
    for number, tables in zip((0, 3, 7), later, strict=True):
        for stream, rows in first.slice(number).items():
            assert rows.equals(tables[stream]), stream
    assert not first.slice(3)["turbines"].equals(Scenario(seed=8).slice(3)["turbines"])


@pytest.mark.parametrize("number", [0, 1, 17])
def test_rows_of_a_slice_come_in_order_and_within_it(number: int) -> None:
    slices = Scenario().slice(number)
    assert {"turbines", "shifts", "meters", "climate", "motion"} == set(slices)
    for rows in slices.values():
        at = rows["at"].cast(pa.int64()).to_pylist()
        assert at == sorted(at)
        assert all(instant(number) <= t < instant(number) + SLICE for t in at)


def test_technicians_come_once() -> None:
    scenario = Scenario()
    assert scenario.slice(0)["shifts"]["turbine"].to_pylist() == list(TURBINES)
    assert scenario.slice(1)["shifts"].num_rows == 0


def test_what_was_held_back_has_its_alarms_in_the_middle_and_nothing_else_has_any() -> None:
    scenario = Scenario(burst=9_000, alarms=4, chunk=2_000)
    pushes = scenario.held_back(20, 32)
    assert [len(push) for push in pushes] == [2_000, 2_000, 2_000, 2_000, 1_000]
    rows = pa.concat_tables(pushes)
    at = rows["at"].cast(pa.int64()).to_numpy()
    assert (at[1:] > at[:-1]).all()
    assert instant(20) <= at[0]
    assert at[-1] < instant(32)
    alarms = [i for i, bearing in enumerate(rows["bearing"].to_pylist()) if bearing > ALARM]
    assert len(alarms) == 4
    assert alarms[0] >= 3_000
    assert alarms[-1] < 6_000
    assert pc.max(scenario.slice(5)["turbines"]["bearing"]).as_py() < ALARM


def test_the_line_may_be_down() -> None:
    assert "turbines" not in Scenario().slice(4, turbines=False)


def test_the_rows_fit_the_streams_and_every_query_says_what_it_is() -> None:
    with penstock.connect(engine="local") as db:
        db.execute(script.text())
        for stream, rows in Scenario(readings=8).slice(0).items():
            db.push(stream, rows)
        abouts = script.abouts()
        assert list(abouts) == list(db.queries)
    kinds = [about.kind for about in abouts.values()]
    assert kinds == [
        "count window", "sliding average", "shared window", "window join", "designated stream", "prioritised alarms",
    ]  # fmt: skip
    assert all(about.sentence.endswith(".") for about in abouts.values())
