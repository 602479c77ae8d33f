"""Which column of a file is which declared column, and of what type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from penstock.model.errors import InputError, suggest
from penstock.model.names import Names
from penstock.model.schema import Field
from penstock.model.types import DataType, Kind, from_arrow
from penstock.rows.apart import BadRow, Unknown
from penstock.rows.times import TimeForm, check_microseconds
from penstock.rows.values import BadValue, convertible, is_value

_FROM_NUMBERS = {
    unit: f"declare the column as BIGINT; timestamp_{function}(…) makes times of its {unit} in a query"
    for unit, function in (("seconds", "seconds"), ("milliseconds", "millis"), ("microseconds", "micros"))
}
TWICE = "case makes no difference in names"


@dataclass
class Target:
    """A column wanted from the files. The first of ``types`` that takes the first rows is its type.

    ``time``: how times are written in it.
    """

    name: str
    types: tuple[DataType, ...]
    optional: bool = False
    not_null: bool = False
    time: TimeForm | None = None
    options: bool = True
    """Whether ``WITH (time = …)`` can say how times are written: relations have no such option."""
    found: bool = False
    """Whether a JSON file has it."""
    begun: bool = False
    """Whether a value that is not NULL has been seen."""

    def takes(self, held: pa.DataType, dtype: DataType) -> bool:
        """Whether a column of an Arrow type can be read as this type at all."""
        if self._written is not None and (found := from_arrow(held)) is not None and found.is_numeric:
            return True
        return convertible(held, dtype)

    def is_text_of(self, text: str) -> bool:
        """Whether a text is surely a value of the column."""
        return self._written is None and is_value(text, self.types[-1]) and not (self.not_null and text == "")

    @property
    def _written(self) -> TimeForm | None:
        """How times are written that are not in ISO 8601."""
        return None if self.time is None or self.time.is_iso else self.time

    def convert(self, column: pa.Array, by: Callable[..., pa.Array]) -> pa.Array:
        """The column as this target's type, settling which type that is."""
        try:
            return self._convert(column, by)
        except BadValue as bad:
            if not self.options:
                bad.option = _FROM_NUMBERS.get(bad.unit or "")
            raise

    def _convert(self, column: pa.Array, by: Callable[..., pa.Array]) -> pa.Array:
        if self._written is not None:
            by = self._as_written
        elif self.time is not None:
            by = partial(by, zone=self.time.zone)
        *others, last = self.types
        for dtype in others:
            try:
                converted = by(column, dtype)
            except BadValue:
                continue
            self.types = (dtype,)
            break
        else:
            converted = by(column, last)
            self.types = (last,)
        if not self.begun and converted.null_count < len(converted):
            if self._written is None and self.types[0].kind is Kind.TIMESTAMP:
                _check_first(column, converted.is_valid().index(True).as_py())
            self.begun = True
        if self.not_null and converted.null_count:
            index = converted.is_null().index(True).as_py()
            raise BadValue(index, None, self.types[0], "may not stand in the column that orders the stream")
        return converted

    def _as_written(self, column: pa.Array, dtype: DataType) -> pa.Array:
        assert self.time is not None
        return self.time.read(column)


def _check_first(column: Sequence[object] | pa.Array, first: int) -> None:
    """BadValue if the first value of a column of times is a whole number, as JSON or Arrow have them, and looks wrong.

    Later ones may be anything: microseconds that count from a beginning of their own pass every range.
    """
    if isinstance(column, pa.Array):
        found = from_arrow(column.type)
        # Python may have no value for a time.
        value = column[first].as_py() if found is not None and found.is_integer else None
    else:
        value = column[first]
    if isinstance(value, int):
        check_microseconds(first, value)


def targets_for(
    schema: Sequence[Field], extra: Sequence[Field], not_null: frozenset[str], time: TimeForm | None,
    *, options: bool = True,
) -> list[Target]:  # fmt: skip
    """Declared columns, then extra ones; an extra name given more than once lists its possible types."""
    targets = [
        Target(
            f.name, (f.type,), not_null=f.name in not_null, time=time if f.type.kind is Kind.TIMESTAMP else None,
            options=options,
        )
        for f in schema
    ]  # fmt: skip
    declared = {f.name.lower() for f in schema}
    extras: dict[str, Target] = {}
    for f in extra:
        if f.name.lower() in declared:
            continue
        iso = time if time is not None and time.is_iso else None
        known = extras.setdefault(f.name, Target(f.name, (), True, f.name in not_null, iso, options))
        known.types = (*known.types, f.type)
    return targets + list(extras.values())


def match(
    found: Sequence[str], targets: Sequence[Target], path: object, unknown: Unknown = "ignore"
) -> list[tuple[Target, int]]:
    """Each target with the position of its column: the same name, or one that differs in case alone.

    ``unknown``: whether a column that is no target is refused.
    """
    known = Names(target.name for target in targets)
    places: dict[str, list[int]] = {}
    for i, name in enumerate(found):
        column = known.given(name)
        if column is not None:
            places.setdefault(column, []).append(i)
        elif unknown == "refuse":
            raise InputError(f"{path}: no column `{name}` is declared", hint=suggest(name, known))
    matched: list[tuple[Target, int]] = []
    for target in targets:
        there = places.get(target.name, [])
        if len(there) > 1:
            hint = TWICE if len({found[at] for at in there}) > 1 else None
            raise InputError(f"{path}: column `{target.name}` is there {len(there)} times", hint=hint)
        if there:
            matched.append((target, there[0]))
        elif not target.optional:
            raise missing(target.name, found, path)
    return matched


def missing(name: str, found: Sequence[str], path: object) -> InputError:
    """The error for a declared column that a file does not have, with what it does have."""
    columns = ", ".join(f"`{c}`" for c in found[:20]) + (" …" if len(found) > 20 else "")
    hint = suggest(name, found)
    close = hint if hint and hint.startswith("did you mean") else None
    return InputError(f"{path}: no column `{name}`; the file has {columns or 'no columns'}", hint=close)


def bad_value(path: object, row: int, column: str, bad: BadValue, place: str | None = None) -> BadRow:
    """The error for a value, with where in which file it stands."""
    return BadRow(str(path), row, str(bad), column=column, hint=bad.hints, place=place)


def check_texts(column: pa.ChunkedArray, name: str, where: str) -> None:
    """Refuse bytes that are said to be a text and are not UTF-8, and a date64 within a day, before they are where
    nobody expects them."""
    reason = "it is not a whole number of days" if pa.types.is_date64(column.type) else "the text is not UTF-8"
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as problem:
        row = 0
        for chunk in column.chunks:
            for i in range(len(chunk)):
                try:
                    chunk.slice(i, 1).validate(full=True)
                except pa.ArrowInvalid:
                    raise BadRow(where, row + i, reason, column=name) from None
            row += len(chunk)
        raise InputError(f"{where}: column `{name}` is damaged: {str(problem).splitlines()[0]}") from None


def whole(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
