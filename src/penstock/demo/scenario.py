"""The rows of the demo: the same on every machine, made in slices of a tenth of a second.

A slice is a function of the seed and its number alone, so it does not matter when, or together with which others, it is
made.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

START = 1_714_557_600_000_000
"""2024-05-01 10:00:00, in microseconds: the first instant."""
SLICE = 100_000
"""Microseconds of a slice."""
ALARM, WARM = 95.0, 70.0
"""Degrees of a bearing, as demo.cql has them."""
TURBINES = tuple(f"T{n}" for n in range(1, 9))
HOUSES = ("Ash", "Birch", "Cedar", "Elm", "Fir")
ROOMS = ("kitchen", "office", "bedroom")
_TECHNICIANS = ("Ada", "Ben", "Cleo", "Dan")
_WORN = 4
"""The turbine (T5) whose bearing runs warmer than that of the others."""
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Scenario:
    """``readings``: rows of turbines in a slice; ``burst``, ``alarms``: rows that come at once, and alarms among them;
    ``chunk``: rows of a burst in one push."""

    readings: int = 200
    burst: int = 200_000
    alarms: int = 3
    chunk: int = 10_000
    seed: int = 7

    def slice(self, number: int, *, turbines: bool = True) -> dict[str, pa.Table]:
        """The rows of a slice by stream, those without rows included; ``turbines``: not if their line is down."""
        start = instant(number)
        found = {
            "shifts": self._shifts(start if number == 0 else None),
            "meters": self._meters(number),
            "climate": self._climate(number),
            "motion": self._motion(number),
        }
        if turbines:
            found["turbines"] = self._turbines(start, instant(number + 1), self.readings, self._chance(0, number))
        return found

    def held_back(self, first: int, last: int) -> list[pa.Table]:
        """What the turbines send at once for the slices from ``first`` up to ``last``, in pushes; the alarms are in
        the middle of it."""
        rows = self._turbines(instant(first), instant(last), self.burst, self._chance(9, first))
        bearing = rows["bearing"].to_numpy().copy()
        places = self.burst // 3 + np.arange(self.alarms) * (self.burst // 3) // max(self.alarms, 1)
        bearing[places] = ALARM + 2 + np.arange(self.alarms)
        column = rows.schema.get_field_index("bearing")
        rows = rows.set_column(column, "bearing", pa.array(bearing))
        return [rows.slice(start, self.chunk) for start in range(0, self.burst, self.chunk)]

    @cached_property
    def a_second(self) -> int:
        """About how many rows come in a second, all streams together."""
        rows = sum(len(table) for number in range(1, 11) for table in self.slice(number).values())
        return int(rows * 1_000_000 // (10 * SLICE))

    def _chance(self, stream: int, number: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, stream, number])

    def _turbines(self, start: int, end: int, rows: int, chance: np.random.Generator) -> pa.Table:
        number = np.arange(rows, dtype=np.int64)
        at = start + number * (end - start) // max(rows, 1)
        which = number % len(TURBINES)
        seconds = (at - START) / 1e6
        wind = 10 + 3 * np.sin(seconds / 9 + which) + chance.normal(0, 0.5, rows)
        power = 3_000 * np.clip(wind / 13, 0, 1) ** 3
        bearing = 55 + power / 300 + 12 * (which == _WORN) + chance.normal(0, 2, rows)
        return pa.table({
            "at": _instants(at), "turbine": _texts(TURBINES, which), "wind": _rounded(wind, 1),
            "power": _rounded(power, 1), "bearing": _rounded(np.minimum(bearing, ALARM - 5), 1),
        })  # fmt: skip

    def _shifts(self, start: int | None) -> pa.Table:
        """At the very start each technician takes over two turbines."""
        which = np.arange(0 if start is None else len(TURBINES))
        return pa.table({
            "at": _instants((start or 0) + which), "turbine": _texts(TURBINES, which),
            "technician": _texts(_TECHNICIANS, which // 2),
        })  # fmt: skip

    def _meters(self, number: int) -> pa.Table:
        """Each house twice a second; its stove is on every now and then."""
        house = number % len(HOUSES)
        stove = (number // 60 + house) % 3 == 0
        watts = 450 + 60 * house + (2_900 if stove else 0) + self._chance(1, number).normal(0, 60)
        at = np.array([instant(number) + SLICE // 2])
        which = np.array([house])
        return pa.table({
            "at": _instants(at), "house": _texts(HOUSES, which), "turbine": _texts(TURBINES, which),
            "watts": _rounded(np.array([watts]), 1),
        })  # fmt: skip

    def _climate(self, number: int) -> pa.Table:
        """Two sensors in each slice, all in turn."""
        sensor = (2 * number + np.arange(2)) % (len(HOUSES) * len(ROOMS))
        house, room = sensor % len(HOUSES), sensor % len(ROOMS)
        at = instant(number) + (1 + np.arange(2)) * SLICE // 3
        warmth = 18.5 + 1.5 * room + 0.4 * house + np.sin(number / 50 + sensor)
        return pa.table({
            "at": _instants(at), "house": _texts(HOUSES, house), "room": _texts(ROOMS, room),
            "temperature": _rounded(warmth + self._chance(2, number).normal(0, 0.3, 2), 1),
        })  # fmt: skip

    def _motion(self, number: int) -> pa.Table:
        """Now and then somebody walks through a room."""
        chance = self._chance(3, number)
        rows = int(chance.random() < 0.4)
        house, room = chance.integers(len(HOUSES), size=rows), chance.integers(len(ROOMS), size=rows)
        at = np.full(rows, instant(number) + SLICE // 4)
        return pa.table({"at": _instants(at), "house": _texts(HOUSES, house), "room": _texts(ROOMS, room)})


def instant(number: int) -> int:
    """At which a slice begins, in microseconds."""
    return START + number * SLICE


def _instants(at: Ints) -> pa.Array:
    return pa.array(at.astype("datetime64[us]"))


def _texts(values: tuple[str, ...], which: Ints) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(which.astype(np.int32)), pa.array(values)).cast(pa.string())


def _rounded(values: Floats, digits: int) -> pa.Array:
    return pa.array(np.round(values, digits))
