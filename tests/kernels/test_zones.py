"""Kernels of functions that depend on a time zone have the values of the reference, on all instants."""

from __future__ import annotations

import random
from itertools import pairwise
from zoneinfo import available_timezones
from zoneinfo._zoneinfo import ZoneInfo as PlainZone  # type: ignore[import-not-found, unused-ignore]

import numpy as np
import pyarrow as pa
import pytest

from penstock.kernels.batch import RowErrors
from penstock.kernels.expressions import compile_project
from penstock.kernels.zones import instants_in, shown_in, zone_table
from penstock.model.types import BIGINT, DATE, DOUBLE, STRING, TIMESTAMP
from penstock.model.values import to_arrow, to_python
from penstock.scalar import Context, evaluate
from penstock.scalar.calendar import DAY, HOUR, SECOND, days_of
from penstock.scalar.dates import PARTS, TRUNC_UNITS
from penstock.scalar.expr import Call, Cast, Column, Expr, Literal
from penstock.scalar.zones import instant, local

ZONES = (
    "Europe/Vienna", "America/New_York", "America/Sao_Paulo", "Asia/Kolkata", "Australia/Lord_Howe", "Pacific/Apia",
    "Africa/Casablanca", "Asia/Gaza", "Africa/Freetown", "America/St_Johns", "+05:45", "UTC",
)  # fmt: skip
FAR = (2**63 - 1, -(2**63), 2**62, -(2**62))


def changes(name: str) -> list[int]:
    """The seconds at which the offset of a zone changes, of those that its file lists."""
    if name[0] == "+":
        return []
    zone = PlainZone.no_cache(name)
    offsets = [t.utcoff for t in zone._ttinfos]
    before = [zone._tti_before.utcoff if zone._tti_before is not None else None, *offsets]
    return [at for at, old, new in zip(zone._trans_utc, before, offsets, strict=False) if old != new]


def instants(name: str) -> list[int]:
    chance = random.Random(name)
    near = [at * SECOND + d for at in changes(name) for d in (-HOUR, -1, 0, 1, HOUR // 2, HOUR)]
    near = chance.sample(near, min(len(near), 600))
    years = (-290_000, -1, 1, 1800, 1900, 2099, 2100, 2101, 9999, 10_000, 290_000)
    ends = [days_of(year, 3, 1) * DAY for year in years]
    return [*near, *ends, *FAR, *(chance.randrange(ends[3], ends[6]) for _ in range(200)),
            *(chance.randrange(-(2**63), 2**63) for _ in range(50))]  # fmt: skip


def values(exprs: list[Expr], column: pa.Array, dtype: object) -> list[list[object]]:
    run = RowErrors()
    found = compile_project(exprs, {})([column], len(column), run)
    return [to_python(array, e.type) for array, e in zip(found, exprs, strict=True)]


@pytest.mark.parametrize("zone", ZONES)
def test_functions(zone: str) -> None:
    ticks = instants(zone)
    t, z = Column(0, TIMESTAMP), Literal(zone, STRING)
    other = Literal(days_of(2024, 3, 31) * DAY + HOUR // 2, TIMESTAMP)
    exprs: list[Expr] = [
        *(Call("extract", (Literal(part, STRING), t, z), DOUBLE if part == "epoch" else BIGINT) for part in PARTS),
        *(Call("date_trunc", (Literal(unit, STRING), t, z), TIMESTAMP) for unit in TRUNC_UNITS),
        *(Call("timestampdiff", (Literal(unit, STRING), t, other, z), BIGINT) for unit in TRUNC_UNITS),
        *(Call("timestampdiff", (Literal(unit, STRING), other, t, z), BIGINT) for unit in TRUNC_UNITS),
        Call("from_utc_timestamp", (t, z), TIMESTAMP),
        Call("to_utc_timestamp", (t, z), TIMESTAMP),
        Cast(t, DATE, zone=zone),
        Cast(t, STRING, zone=zone),
    ]
    got = values(exprs, to_arrow(ticks, TIMESTAMP), TIMESTAMP)
    for expr, column in zip(exprs, got, strict=True):
        wanted = [evaluate(expr, (tick,), Context()) for tick in ticks]
        assert column == wanted, [x for x in zip(ticks, column, wanted, strict=True) if x[1] != x[2]][:3]


@pytest.mark.parametrize("zone", ZONES)
def test_days(zone: str) -> None:
    days = sorted({tick // DAY for tick in instants(zone) if abs(tick // DAY) < 2**31})
    expr = Cast(Column(0, DATE), TIMESTAMP, zone=zone)
    (got,) = values([expr], to_arrow(days, DATE), DATE)
    assert got == [evaluate(expr, (day,), Context()) for day in days]


@pytest.mark.parametrize("zone", ZONES)
def test_columns_for_people(zone: str) -> None:
    ticks = [None, *(tick for tick in instants(zone) if abs(tick) < 2**63 - 10 * DAY)]
    column = to_arrow(ticks, TIMESTAMP)
    assert to_python(shown_in(column, zone), TIMESTAMP) == [t if t is None else local(t, zone) for t in ticks]
    assert to_python(instants_in(column, zone), TIMESTAMP) == [t if t is None else instant(t, zone) for t in ticks]


def test_rows_of_one_season_and_of_several_have_the_same_values() -> None:
    table = zone_table("Europe/Vienna")
    day = np.arange(100, dtype=np.int64) * HOUR + days_of(2024, 7, 1) * DAY
    alone, _ = table.local(day)
    together, _ = table.local(np.concatenate((day, day - 180 * DAY)))
    assert (alone == together[:100]).all()


def test_no_zone_has_two_changes_within_three_days() -> None:
    """Tables of zones are made by looking at every third day."""
    for name in available_timezones():
        at = changes(name)
        assert all(b - a > 3 * 86_400 for a, b in pairwise(at)), name
        assert not at or at[0] > (days_of(1800, 1, 2) * DAY) // SECOND, name
