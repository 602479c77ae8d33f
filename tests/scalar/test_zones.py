"""Time zones: what clocks show, and when; gaps, repeats, far dates, names."""

from __future__ import annotations

import pytest

from penstock.model.errors import BindError, InputError
from penstock.model.types import DATE, STRING, TIMESTAMP
from penstock.scalar.calendar import DAY, HOUR, MINUTE
from penstock.scalar.casts import cast_value, parse_timestamp, timestamp_text
from penstock.scalar.context import RowError
from penstock.scalar.dates import add_months, date_trunc, extract, make_timestamp, strftime, strptime, timestampdiff
from penstock.scalar.zones import checked, instant, local, offset_at, offset_text, zone_name

VIENNA = "Europe/Vienna"


def at(text: str) -> int:
    return parse_timestamp(text)


def shown(text: str, zone: str) -> str:
    return timestamp_text(local(at(text), zone))


@pytest.mark.parametrize(
    ("utc", "zone", "there"),
    [
        ("2024-01-01 12:00:00", VIENNA, "2024-01-01 13:00:00"),
        ("2024-07-01 12:00:00", VIENNA, "2024-07-01 14:00:00"),
        ("2024-03-31 00:59:59", VIENNA, "2024-03-31 01:59:59"),
        ("2024-03-31 01:00:00", VIENNA, "2024-03-31 03:00:00"),
        ("2024-10-27 00:59:59", VIENNA, "2024-10-27 02:59:59"),
        ("2024-10-27 01:00:00", VIENNA, "2024-10-27 02:00:00"),
        ("2024-07-01 12:00:00", "Asia/Kolkata", "2024-07-01 17:30:00"),
        ("2024-07-01 12:00:00", "-03:30", "2024-07-01 08:30:00"),
        # The mean time of the place, before there were zones.
        ("1850-01-01 00:00:00", VIENNA, "1850-01-01 01:05:21"),
        ("0001-01-01 00:00:00", VIENNA, "0001-01-01 01:05:21"),
        ("-4000-01-01 00:00:00", VIENNA, "-4000-01-01 01:05:21"),
        # The last rule goes on for ever, on the same Sundays.
        ("2400-07-01 12:00:00", VIENNA, "2400-07-01 14:00:00"),
        ("9999-12-31 23:30:00", VIENNA, "10000-01-01 00:30:00"),
        ("20024-03-31 01:00:00", VIENNA, "20024-03-31 03:00:00"),
        ("200024-03-31 00:59:59", VIENNA, "200024-03-31 01:59:59"),
        # A day that Samoa never had.
        ("2011-12-30 09:59:59", "Pacific/Apia", "2011-12-29 23:59:59"),
        ("2011-12-30 10:00:00", "Pacific/Apia", "2011-12-31 00:00:00"),
    ],
)
def test_what_clocks_show(utc: str, zone: str, there: str) -> None:
    assert shown(utc, zone) == there
    assert timestamp_text(instant(at(there), zone, offset_at(at(utc), zone))) == utc


@pytest.mark.parametrize(
    ("there", "zone", "utc"),
    [
        # A time in a gap is as much later as the gap is long.
        ("2024-03-31 02:00:00", VIENNA, "2024-03-31 01:00:00"),
        ("2024-03-31 02:30:00", VIENNA, "2024-03-31 01:30:00"),
        ("2024-03-31 03:30:00", VIENNA, "2024-03-31 01:30:00"),
        ("2011-12-30 12:00:00", "Pacific/Apia", "2011-12-30 22:00:00"),
        ("1893-04-01 00:03:00", "Europe/Berlin", "1893-03-31 23:09:32"),  # from mean time to that of the zone
        # Of a time that is there twice the earlier one is meant.
        ("2024-10-27 01:59:59", VIENNA, "2024-10-26 23:59:59"),
        ("2024-10-27 02:30:00", VIENNA, "2024-10-27 00:30:00"),
        ("2024-10-27 03:00:00", VIENNA, "2024-10-27 02:00:00"),
        ("12024-10-27 02:30:00", VIENNA, "12024-10-27 00:30:00"),
    ],
)
def test_gaps_and_repeats(there: str, zone: str, utc: str) -> None:
    assert timestamp_text(instant(at(there), zone)) == utc


def test_both_halves_of_an_hour_that_is_there_twice_stay_apart() -> None:
    first, second = at("2024-10-27 00:45:00"), at("2024-10-27 01:45:00")
    assert extract("hour", first, VIENNA) == extract("hour", second, VIENNA) == 2
    assert date_trunc("hour", first, VIENNA) == at("2024-10-27 00:00:00")
    assert date_trunc("hour", second, VIENNA) == at("2024-10-27 01:00:00")
    assert date_trunc("day", second, VIENNA) == at("2024-10-26 22:00:00")
    assert timestampdiff("hour", first, second, VIENNA) == 0
    assert add_months(second, 12, VIENNA) == at("2025-10-27 01:45:00")


def test_units() -> None:
    # Brazil put clocks forward at midnight: that day began at 01:00.
    assert date_trunc("day", at("2018-11-04 12:00:00"), "America/Sao_Paulo") == at("2018-11-04 03:00:00")
    assert date_trunc("hour", at("2024-07-01 12:10:00"), "Asia/Kolkata") == at("2024-07-01 11:30:00")
    assert date_trunc("week", at("2024-07-07 23:00:00"), VIENNA) == at("2024-07-07 22:00:00")
    assert date_trunc("month", at("2024-07-31 23:00:00"), VIENNA) == at("2024-07-31 22:00:00")
    assert date_trunc("year", at("2023-12-31 23:30:00"), VIENNA) == at("2023-12-31 23:00:00")
    # What clocks show is counted, as in Spark: the day had 23 hours.
    midnights = at("2024-03-30 23:00:00"), at("2024-03-31 22:00:00")
    assert timestampdiff("day", *midnights, VIENNA) == 1
    assert timestampdiff("hour", *midnights, VIENNA) == 24
    assert timestampdiff("minute", *midnights, VIENNA) == 24 * 60
    assert add_months(at("2024-02-29 12:00:00"), 1, VIENNA) == at("2024-03-29 12:00:00")
    assert add_months(at("2024-02-29 12:00:00"), 2, VIENNA) == at("2024-04-29 11:00:00")
    assert extract("epoch", 5_000_000, VIENNA) == 5.0
    assert strftime(at("2024-07-01 22:30:00"), "%F %T %s", VIENNA) == "2024-07-02 00:30:00 1719873000"
    assert make_timestamp(2024, 3, 31, 2, 30, 0.0, VIENNA) == at("2024-03-31 01:30:00")
    assert strptime("31.03.2024 02:30", "%d.%m.%Y %H:%M", VIENNA) == at("2024-03-31 01:30:00")
    assert strptime("31.03.2024 02:30 +0100", "%d.%m.%Y %H:%M %z", VIENNA) == at("2024-03-31 01:30:00")


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2024-05-01 10:00:00", "2024-05-01 08:00:00"),
        ("2024-05-01", "2024-04-30 22:00:00"),
        ("2024-05-01 10:00:00+02:00", "2024-05-01 08:00:00"),
        ("2024-05-01 10:00:00 +05:30", "2024-05-01 04:30:00"),
        ("2024-05-01T10:00:00-0330", "2024-05-01 13:30:00"),
        ("2024-05-01 10:00:00-3", "2024-05-01 13:00:00"),
        ("2024-05-01T10:00:00Z", "2024-05-01 10:00:00"),
        ("2024-05-01T10:00z", "2024-05-01 10:00:00"),
        ("2024-05-01 10:00:00 UTC", "2024-05-01 10:00:00"),
        ("2024-05-01 10:00:00 America/New_York", "2024-05-01 14:00:00"),
        ("2024-05-01 10:00:00.25 America/Argentina/Buenos_Aires", "2024-05-01 13:00:00.250000"),
        ("2024-05-01 10:00:00 UTC+01:00", "2024-05-01 09:00:00"),
    ],
)
def test_texts(text: str, utc: str) -> None:
    assert timestamp_text(parse_timestamp(text, VIENNA)) == utc


def test_casts() -> None:
    noon = at("2024-05-01 22:30:00")
    assert cast_value(noon, TIMESTAMP, STRING, VIENNA) == "2024-05-02 00:30:00"
    assert cast_value(noon, TIMESTAMP, DATE, VIENNA) == at("2024-05-02 00:00:00") // DAY
    assert cast_value(at("2024-05-02 00:00:00") // DAY, DATE, TIMESTAMP, VIENNA) == at("2024-05-01 22:00:00")
    assert cast_value("2024-05-02 00:30:00", STRING, TIMESTAMP, VIENNA) == noon
    assert cast_value("2024-05-02", STRING, DATE, VIENNA) == at("2024-05-02 00:00:00") // DAY


@pytest.mark.parametrize(
    ("given", "name"),
    [("UTC", "UTC"), ("z", "UTC"), ("Etc/UTC", "UTC"), ("GMT", "UTC"), ("+00:00", "UTC"), (VIENNA, VIENNA),
     (" Europe/Vienna ", VIENNA), ("+2", "+02:00"), ("-0530", "-05:30"), ("GMT+2", "+02:00"), ("UTC-03:00", "-03:00"),
     ("CET", "CET"), ("Etc/GMT+2", "Etc/GMT+2")],
)  # fmt: skip
def test_names(given: str, name: str) -> None:
    assert zone_name(given) == name


@pytest.mark.parametrize(
    ("given", "hint"),
    [("europe/vienna", "did you mean `Europe/Vienna`?"), ("Vienna", "did you mean `Europe/Vienna`?"),
     ("New York", "did you mean `America/New_York`?"), ("Europe/Viena", "did you mean `Europe/Vienna`?"),
     ("CEST", "such as Europe/Vienna"), ("", "such as Europe/Vienna"), ("../etc/passwd", "such as"),
     ("localtime", "such as"), ("+25:00", "such as"), ("Europe", "such as")],
)  # fmt: skip
def test_unknown_names(given: str, hint: str) -> None:
    with pytest.raises(InputError, match=f"there is no time zone `{given.replace('+', '.')}`") as raised:
        checked(given, InputError)
    assert raised.value.hint is not None
    assert hint in raised.value.hint
    with pytest.raises(RowError, match="there is no time zone"):
        zone_name(given)


def test_names_that_are_no_texts() -> None:
    with pytest.raises(BindError, match="7 is not a time zone"):
        checked(7, BindError)


def test_offsets_as_text() -> None:
    assert [offset_text(o) for o in (0, 2 * HOUR, -(3 * HOUR + 30 * MINUTE), 3_921_000_000)] == [
        "Z", "+02:00", "-03:30", "+01:05:21",
    ]  # fmt: skip
