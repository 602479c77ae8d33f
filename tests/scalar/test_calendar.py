"""The calendar beyond what ``datetime`` knows, and in agreement with it where it does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from penstock.scalar.calendar import DAY, civil, day_of_year, days_of, iso_week, iso_weekday, moment
from penstock.scalar.casts import interval_text, parse_interval, parse_timestamp, timestamp_text
from penstock.scalar.dates import add_months, date_trunc, strftime, timestampdiff

TICKS = st.integers(-(2**63), 2**63 - 1)
MODERN = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31))


def ticks(at: datetime) -> int:
    return (at - datetime(1970, 1, 1)) // timedelta(microseconds=1)


@given(MODERN)
def test_agrees_with_datetime(at: datetime) -> None:
    t = ticks(at)
    m = moment(t)
    assert (m.year, m.month, m.day, m.hour, m.minute, m.second, m.microsecond) == (
        at.year, at.month, at.day, at.hour, at.minute, at.second, at.microsecond,
    )  # fmt: skip
    days = t // DAY
    assert (*iso_week(days), iso_weekday(days)) == tuple(at.isocalendar())
    assert day_of_year(days) == at.timetuple().tm_yday
    assert parse_timestamp(at.isoformat()) == t
    assert parse_timestamp(at.replace(tzinfo=UTC).isoformat()) == t
    directives = "%m %d %H %M %S %f %j %a %A %b %B %I %p %u %w %V"
    assert strftime(t, directives) == at.strftime(directives)


@given(TICKS)
def test_texts_read_back(t: int) -> None:
    assert parse_timestamp(timestamp_text(t)) == t
    assert parse_interval(interval_text(t)) == t
    assert days_of(*civil(t // DAY)) == t // DAY


@given(TICKS, st.sampled_from(["second", "hour", "day", "week", "month", "quarter", "year"]))
def test_truncation_begins_the_same_unit(t: int, unit: str) -> None:
    begin = date_trunc(unit, t)
    assert begin <= t
    assert timestampdiff(unit, begin, t) == 0
    assert date_trunc(unit, begin) == begin
    assert date_trunc(unit, begin - 1) < begin


@given(TICKS, st.integers(-5000, 5000))
def test_adding_months_moves_by_months(t: int, months: int) -> None:
    moved = add_months(t, months)
    # From the 31st to the 28th the last month is not whole.
    assert timestampdiff("month", t, moved) in (months, months - (months > 0))
    assert timestampdiff("month", moved, t) in (-months, -months + (months > 0))
    if moment(moved).day == moment(t).day:
        assert timestampdiff("month", t, moved) == months
    assert moved % DAY == t % DAY
    assert moment(moved).day <= moment(t).day
