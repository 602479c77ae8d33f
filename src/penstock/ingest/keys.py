"""Keys of pushes: a producer names what it sends with a number, and what comes twice is taken once.

A producer that does not know whether a push was taken sends it again with the same key. The stream, or the relation,
remembers the keys of what it has taken, together with the rows: both are there after a restart, or neither is.

Bounded by: the newest ``SEQUENCES`` sequences of each producer and ``PRODUCERS`` producers; the producer that has been
silent longest is forgotten.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import OrderedDict

import numpy as np
import pyarrow as pa

from penstock.model.errors import InputError

SEQUENCES = 1_000
PRODUCERS = 10_000
_LONGEST = 255
_LEAST, _MOST = -(2**63), 2**63 - 1
_HINT = "it is a producer and a sequence, such as ('sensor 7', 41)"
Key = tuple[str, int]
"""Who sends something, and which of its sequences it is."""
_SCHEMA = pa.schema([("producer", pa.string()), ("starts", pa.list_(pa.int64())), ("counts", pa.list_(pa.int64()))])


def checked_key(key: object) -> Key:
    """A key as a user gives it; InputError if it is none."""
    if not isinstance(key, tuple | list) or len(key) != 2:
        raise InputError(f"the key of a push is {key!r}", hint=_HINT)
    producer, sequence = key
    if not isinstance(producer, str) or not 0 < len(producer) <= _LONGEST:
        raise InputError(
            f"the producer in the key of a push is {producer!r}", hint=f"it is a text of 1 to {_LONGEST} characters"
        )
    if not producer.isascii():
        try:
            producer.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"the producer in the key of a push has half a character at place {error.start + 1}: {producer!r}",
                hint="it is a text of whole characters",
            ) from None
    if not isinstance(sequence, int) or isinstance(sequence, bool) or not _LEAST <= sequence <= _MOST:
        raise InputError(
            f"the sequence in the key of a push is {sequence!r}", hint="it is an integer of at most 64 bits"
        )
    return producer, sequence


class Keys:
    """The keys that have been taken. Each key makes a new object, and of these only one may go on: they share what they
    remember, and the last key is written into that when another one comes. So a push that is refused leaves nothing."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, array[int]] = OrderedDict()
        """The sequences of each producer, ascending; the producer that has been silent longest comes first."""
        self._last: Key | None = None

    def has(self, key: Key, where: str) -> bool:
        """Whether it has been taken; InputError if that cannot be known any more. ``where``: for the message."""
        producer, sequence = key
        found = self._written().get(producer)
        if found is None:
            return False
        at = bisect_left(found, sequence)
        if at < len(found) and found[at] == sequence:
            return True
        if at == 0 and len(found) >= SEQUENCES:
            raise InputError(
                f"{where}: sequence {sequence} of producer {producer!r} is older than the {SEQUENCES:,} newest, "
                f"which begin with {found[0]}, so it is not known whether it has been taken",
                hint="send what was not acknowledged before sending 1,000 others, or push it without a key",
            )
        return False

    def newest(self, producer: str) -> int | None:
        """The greatest sequence of a producer; None if none is known."""
        found = self._written().get(producer)
        return found[-1] if found else None

    def plus(self, key: Key) -> Keys:
        """With a key that has just been taken."""
        new = Keys()
        new._seen, new._last = self._written(), key
        return new

    def _written(self) -> OrderedDict[str, array[int]]:
        """What is remembered, with the last key. Doing it twice, or again after an interrupt, changes nothing."""
        if self._last is not None:
            producer, sequence = self._last
            found = self._seen.setdefault(producer, array("q"))
            at = bisect_left(found, sequence)
            if at == len(found) or found[at] != sequence:
                found.insert(at, sequence)
            while len(found) > SEQUENCES:
                found.pop(0)
            self._seen.move_to_end(producer)
            while len(self._seen) > PRODUCERS:
                self._seen.popitem(last=False)
            self._last = None
        return self._seen

    def table(self) -> pa.Table:
        """All of them: a row for each producer, with its sequences as runs of consecutive ones."""
        starts, counts = [], []
        seen = self._written()
        for sequences in seen.values():
            numbers = np.array(sequences, np.int64)
            begins = np.flatnonzero(np.concatenate(([True], numbers[1:] - 1 != numbers[:-1])))
            starts.append(numbers[begins])
            counts.append(np.diff(np.append(begins, len(numbers))))
        return pa.table([list(seen), starts, counts], schema=_SCHEMA)

    @classmethod
    def of(cls, table: pa.Table) -> Keys:
        """What ``table`` had."""
        found = cls()
        for row in table.to_pylist():
            runs = zip(row["starts"], row["counts"], strict=True)
            found._seen[row["producer"]] = array("q", [n for start, count in runs for n in range(start, start + count)])
        return found
