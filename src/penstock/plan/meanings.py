"""Functions whose meaning has changed, so that what was stored before is refused by name and never means something new.

A stored plan or text says at which number of meanings it was written. A change gets the next number: add it to
``CHANGES``, and give ``NUMBER`` its number. Plans keep what was bound, so a function that is only bound otherwise (its
calls in old plans mean what they meant) has no ``calls``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

NUMBER = 3
"""Of the meanings that this release has."""

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """``names`` in texts and ``calls`` in plans mean something else since a number of meanings.

    ``in_text`` gets the texts of a call's arguments, ``in_plan`` the JSON form of a call: whether the change can be
    noticed on it.
    """

    since: int
    what: str
    names: tuple[str, ...]
    calls: tuple[str, ...] = ()
    in_text: Callable[[Sequence[str]], bool] = lambda args: True
    in_plan: Callable[[Json], bool] = lambda call: True


def _constant(call: Json, position: int) -> object:
    """The value of an argument that is a literal; None for other ones."""
    args = call["args"]
    found = args[position] if position < len(args) else {}
    return found.get("value") if found.get("expr") == "Literal" else None


def _may_be(position: int, test: Callable[[int], bool]) -> Callable[[Json], bool]:
    """Whether an argument may be a number for which the test holds."""

    def may(call: Json) -> bool:
        value = _constant(call, position)
        return not isinstance(value, int) or test(value)

    return may


_SAME = re.compile(r"[a-zA-Z0-9_ ^*+|\-/:,;=@<>!%~]*")
"""What Java and Python read alike."""


def _not_simple(call: Json) -> bool:
    """Whether a pattern may be one that Java reads in another way than Python, or a replacement names a group."""
    texts = [_constant(call, i) for i in range(1, len(call["args"])) if call["args"][i]["type"] == "STRING"]
    return not all(isinstance(t, str) and _SAME.fullmatch(t) for t in texts)


CHANGES: tuple[Change, ...] = (
    Change(2, "its patterns are Spark's, like yyyy-MM-dd; those with % are strftime's", ("date_format",)),
    Change(2, "its patterns are Spark's, like yyyy-MM-dd; those with % are strptime's", ("to_timestamp", "to_date"),
           ("to_timestamp", "to_date"), lambda args: len(args) == 2),
    Change(3, "it reads texts as Spark does, such as 2024-2-9 and 2024", ("to_timestamp", "to_date"),
           in_text=lambda args: len(args) == 1),
    Change(2, "it counts whole units, not how many of them begin", ("date_diff", "datediff"), ("date_diff",),
           lambda args: len(args) == 3),
    Change(2, "a second has its fraction", ("extract", "date_part"),
           in_text=lambda args: bool(args) and "sec" in args[0].lower() and "milli" not in args[0].lower()
           and "micro" not in args[0].lower()),
    Change(2, "it gives a DATE", ("add_months",)),
    Change(2, "second 60 is the next minute", ("make_timestamp",), ("make_timestamp",)),
    Change(2, "a start of 0 is the first character", ("substr", "substring"), ("substr",),
           in_plan=_may_be(1, lambda start: start == 0)),
    Change(2, "it is '' for a negative number", ("left", "right"), ("left", "right"),
           in_plan=_may_be(1, lambda count: count < 0)),
    Change(2, "patterns are Java's", ("regexp_like", "regexp_matches", "regexp", "rlike"), ("regexp_like",),
           in_plan=_not_simple),
    Change(2, "patterns are Java's, and groups of the replacement are $1", ("regexp_replace",), ("regexp_replace",),
           in_plan=_not_simple),
    Change(2, "patterns are Java's, and the group is 1 unless told", ("regexp_extract",), ("regexp_extract",),
           in_plan=lambda call: len(call["args"]) == 2 or _not_simple(call)),
    Change(2, "it knows 256 characters", ("chr", "char"), ("chr",), in_plan=_may_be(0, lambda c: not 0 <= c < 256)),
    Change(2, "it is -1 for ''", ("unicode", "ord")),
    Change(2, "an odd number of digits has a leading 0", ("unhex", "from_hex"), ("unhex",)),
    Change(2, "an element that is NULL is not equal", ("list_contains",)),
    Change(2, "NULL is not NaN: it gives FALSE", ("is_nan", "isnan"), ("is_nan",)),
    Change(2, "1 to an infinite power is NaN", ("power", "pow"), ("power",)),
    Change(2, "-0.0 counts as 0.0", ("atan2",), ("atan2",)),
    Change(2, "a REAL or DOUBLE is rounded as it is written", ("round", "trunc", "truncate"), ("round", "trunc"),
           lambda args: len(args) == 2,
           lambda call: call["type"] in ("REAL", "DOUBLE") and _constant(call, 1) != 0),
)  # fmt: skip
GONE = frozenset({"to_timestamp", "to_date", "date_diff"})
"""Calls of old plans that no function has any more."""

_IN_TEXTS = {name: [c for c in CHANGES if name in c.names] for change in CHANGES for name in change.names}
_IN_PLANS = {call: change for change in CHANGES for call in change.calls}


def number_of(plan: object) -> int:
    """The least number of meanings with which the JSON form of a plan says what it means."""
    return max((change.since for _, change in _changed_calls(plan)), default=1)


def changed_in_plan(plan: object, number: int) -> tuple[str, str] | None:
    """A function of the plan whose meaning has changed since the number, and how."""
    return next(((name, change.what) for name, change in _changed_calls(plan) if change.since > number), None)


def changed_in_text(name: str, args: Sequence[str], number: int) -> str | None:
    """What has changed about a call in a text since the number."""
    changes = (c for c in _IN_TEXTS.get(name, ()) if c.since > number and c.in_text(args))
    return next((change.what for change in changes), None)


def _changed_calls(plan: object) -> Iterator[tuple[str, Change]]:
    """The calls in a plan to which one of the changes matters."""
    waiting = [plan]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            if value.get("expr") == "Call":
                change = _IN_PLANS.get(value["function"])
                if change is not None and change.in_plan(value):
                    yield value["function"], change
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
