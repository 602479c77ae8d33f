"""Time zones over columns, with exactly the values of ``scalar.zones``: the changes of a zone's offset as a table.

The table goes from 1800, before which no zone has a change, to 2100; what is later is left to the row-wise meaning. It
is made by asking for the offset of every third day: no zone of the tz database has two changes within that time, and
the tests look whether that is so. Tables of the ``_KEPT`` zones that were used last are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Any, Literal
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from penstock.kernels.vectors import Bools, Data
from penstock.scalar.calendar import DAY, SECOND, days_of
from penstock.scalar.expr import Call
from penstock.scalar.expr import Literal as Constant
from penstock.scalar.zones import UTC, instant, local, offset_at, zone_info

_KEPT = 64
_FIRST, _END = (days_of(year, 1, 1) * DAY for year in (1800, 2100))
_STEP = 3 * DAY // SECOND
_LEAST = -(2**63) + 2 * DAY
"""Before it, adding an offset may go beyond 64 bits."""


class ZoneTable:
    """The offsets of a zone. ``_starts``: since when each is valid; ``_shown``: from which time of its clocks on."""

    def __init__(self, name: str) -> None:
        zone = zone_info(name)
        starts, offsets = [-(2**63)], [offset_at(_FIRST, name)]
        known = datetime.fromtimestamp(_FIRST // SECOND, zone).utcoffset()
        for second in range(_FIRST // SECOND, _END // SECOND, _STEP) if isinstance(zone, ZoneInfo) else ():
            found = datetime.fromtimestamp(second, zone).utcoffset()
            if found != known:
                starts.append(_change(name, second, offsets[-1]))
                offsets.append(offset_at(second * SECOND, name))
                known = found
        self._starts = np.array(starts, np.int64)
        self._offsets = np.array(offsets, np.int64)
        # In a gap, and for what clocks show twice, the offset before the change is valid.
        later = self._starts[1:] + np.maximum(self._offsets[1:], self._offsets[:-1])
        self._shown = np.concatenate((self._starts[:1], later))

    def offsets(self, ticks: Data) -> tuple[Data, Bools]:
        """By how much clocks are ahead of UTC, and where that is not known."""
        return self._at(self._starts, ticks)

    def local(self, ticks: Data) -> tuple[Data, Bools]:
        """What clocks show at instants, and where that is not known."""
        offsets, far = self.offsets(ticks)
        return ticks + offsets, far

    def instant(self, shown: Data, near: Data | None = None) -> tuple[Data, Bools]:
        """The instants at which clocks show something, and where that is not known; ``near`` as in ``scalar.zones``."""
        offsets, far = self._at(self._shown, shown)
        if near is None:
            return shown - offsets, far
        kept, unknown = self.offsets(shown - near)
        return shown - np.where(kept == near, near, offsets), far | unknown

    def _at(self, starts: Data, times: Data) -> tuple[Data, Bools]:
        far: Bools = (times >= _END - DAY) | (times < _LEAST)
        if times.ndim and len(times):
            # Rows of one batch are mostly of one summer or winter.
            first, last = np.searchsorted(starts, (times.min(), times.max()), side="right")
            if first == last:
                return self._offsets[first - 1], far
        return self._offsets[np.searchsorted(starts, times, side="right") - 1], far


def _change(name: str, high: int, offset: int) -> int:
    """The instant in the days up to the second ``high`` from which on clocks no more have the offset."""
    low = high - _STEP
    while high - low > 1:
        middle = (low + high) // 2
        if offset_at(middle * SECOND, name) == offset:
            low = middle
        else:
            high = middle
    return high * SECOND


@lru_cache(maxsize=_KEPT)
def zone_table(name: str) -> ZoneTable:
    """The table of a zone."""
    return ZoneTable(name)


def shown_in(column: pa.Array | pa.ChunkedArray, zone: str) -> Any:
    """What clocks of a zone show at the instants of a column, as TIMESTAMPs."""
    return _moved(column, zone, zone_table(zone).local, local)


def instants_in(column: pa.Array | pa.ChunkedArray, zone: str) -> Any:
    """The instants at which clocks of a zone show what a column has, as TIMESTAMPs."""
    return _moved(column, zone, zone_table(zone).instant, instant)


def _moved(
    column: pa.Array | pa.ChunkedArray, zone: str, by: Callable[[Data], tuple[Data, Bools]], one: Callable[..., int]
) -> Any:
    if zone == UTC or not len(column):
        return column
    ticks = column.cast(pa.timestamp("us")).cast(pa.int64())
    ticks = ticks.combine_chunks() if isinstance(ticks, pa.ChunkedArray) else ticks
    mask = np.asarray(ticks.is_null())
    given = ticks.fill_null(0).to_numpy(zero_copy_only=False)
    found, far = by(given)
    found[far] = [max(-(2**63), min(one(int(t), zone), 2**63 - 1)) for t in given[far]]
    return pa.array(found, mask=mask).cast(pa.timestamp("us"))


def zone_of(call: Call, before: int) -> ZoneTable | Literal[False] | None:
    """The zone that stands behind ``before`` arguments of a call; False: there is none, so UTC; None: it varies."""
    if len(call.args) == before:
        return False
    zone = call.args[before]
    return zone_table(zone.value) if isinstance(zone, Constant) and isinstance(zone.value, str) else None
