"""Types, intervals, and the lengths of time and instants that windows are made of."""

from __future__ import annotations

import re
from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from penstock.cql.parse_base import TYPES, BaseParser

TYPE_NAMES = "BOOLEAN, INT, BIGINT, REAL, DOUBLE, DECIMAL, STRING, BINARY, DATE, TIMESTAMP, INTERVAL"
UNITS = {
    **dict.fromkeys(("MICROSECOND", "MICROSECONDS", "US", "µs".upper()), "MICROSECOND"),
    **dict.fromkeys(("MILLISECOND", "MILLISECONDS", "MS"), "MILLISECOND"),
    **dict.fromkeys(("SECOND", "SECONDS", "SEC", "SECS", "S"), "SECOND"),
    **dict.fromkeys(("MINUTE", "MINUTES", "MIN", "MINS"), "MINUTE"),
    **dict.fromkeys(("HOUR", "HOURS", "H"), "HOUR"),
    **dict.fromkeys(("DAY", "DAYS", "D"), "DAY"),
    **dict.fromkeys(("WEEK", "WEEKS", "W"), "WEEK"),
    **dict.fromkeys(("MONTH", "MONTHS"), "MONTH"),
    **dict.fromkeys(("QUARTER", "QUARTERS"), "QUARTER"),
    **dict.fromkeys(("YEAR", "YEARS"), "YEAR"),
}
UNIT_NAMES = "MICROSECONDS, MILLISECONDS, SECONDS, MINUTES, HOURS, DAYS, WEEKS"

_NUMBER_AND_UNIT = re.compile(r"\s*([+-]?)\s*(\d+(?:\.\d*)?|\.\d+)\s*([^\W\d_]+)\s*")
_NUMBER = re.compile(r"\s*([+-]?)\s*(\d+(?:\.\d*)?|\.\d+)\s*")


class TypeParser(BaseParser):
    def _parse_types(
        self,
        check_func: bool = False,
        schema: bool = False,
        allow_identifiers: bool = True,
        with_collation: bool = False,
    ) -> exp.Expr | None:
        # sqlglot asks with check_func whether an expression begins with a type; see _parse_type.
        if check_func:
            return None
        if not self._match_set(TYPES):
            raise self._fail(f"expected a type, found {self._found()}", hint=f"the types are {TYPE_NAMES}")
        token = self._prev
        dtype = exp.DataType(this=exp.DType[token.token_type.name])
        if token.token_type is TokenType.TIMESTAMP:
            self._word("WITH", "TIME", "ZONE")
            if self._word("WITHOUT", "TIME", "ZONE"):
                raise self._fail("every TIMESTAMP is an instant", token, hint="write TIMESTAMP")
        if token.token_type in (TokenType.DECIMAL, TokenType.TEXT) and self._match(TokenType.L_PAREN):
            numbers = self._parse_csv(self._parse_type_number)
            self._match_r_paren()
            if token.token_type is TokenType.TEXT:
                raise self._fail("a STRING has no length", token, hint="write STRING")
            if len(numbers) not in (1, 2):
                raise self._fail("DECIMAL has a precision and a scale", token, hint="write DECIMAL(10, 2)")
            dtype.set("expressions", numbers)
        return self.expression(dtype, token)

    def _parse_type_number(self) -> exp.DataTypeParam:
        token = self._take(TokenType.NUMBER, "a number")
        return self.expression(exp.DataTypeParam(this=exp.Literal.number(token.text)), token)

    def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> exp.Expr | None:
        token = self._curr
        if token.token_type in TYPES - {TokenType.INTERVAL} and (
            self._next.token_type is TokenType.STRING
            or (token.token_type is TokenType.TIMESTAMP and self._zone_ahead())
        ):
            to = self._parse_types()
            cast = exp.Cast(this=self._required(self._parse_primary(), "a text"), to=to)
            # sqlglot would cast the string first in `TIMESTAMP '…'::STRING`.
            return self._parse_column_ops(self.expression(cast, token))
        return super()._parse_type(parse_interval, fallback_to_identifier)

    def _zone_ahead(self) -> bool:
        words = [token.text.upper() for token in self._tokens[self._index + 1 : self._index + 3]]
        return words in (["WITH", "TIME"], ["WITHOUT", "TIME"])

    def _parse_interval(self, require_interval: bool = True, parse_function_unit: bool = True) -> Any:
        """``INTERVAL '10' MINUTE``, ``INTERVAL 10 MINUTES`` or ``INTERVAL '10 minutes'``.

        The unit becomes singular and upper case; a sign goes around the interval as ``exp.Neg``.
        """
        after = self._tokens[self._index + 2] if self._index + 2 < self._tokens_size else None
        signed = self._next.token_type is TokenType.DASH and after and after.token_type is TokenType.NUMBER
        if not self._match(TokenType.INTERVAL, advance=False):
            return None
        if self._next.token_type not in (TokenType.STRING, TokenType.NUMBER) and not signed:
            return None
        self._advance()
        token = self._prev
        negative = self._match(TokenType.DASH)
        self._advance()
        return self._interval(self._prev, token, negative)

    def _interval(self, value: Token, start: Token, negative: bool) -> exp.Expr:
        """The interval of a number or string just taken, with the unit in the string or next."""
        text, unit = value.text, None
        if value.token_type is TokenType.STRING:
            whole = _NUMBER_AND_UNIT.fullmatch(text)
            number = _NUMBER.fullmatch(text)
            if whole and whole[3].upper() in UNITS:
                negative, text, unit = negative != (whole[1] == "-"), whole[2], UNITS[whole[3].upper()]
            elif number:
                negative, text = negative != (number[1] == "-"), number[2]
            elif self._is_several_parts(text):
                return self.expression(exp.Interval(this=exp.Literal.string(text)), start)
            else:
                raise self._fail(f"'{text}' is not a length of time", value, hint="write for example '10 minutes'")
        if unit is None:
            if not self._word_ahead(UNITS):
                raise self._expected(f"a unit of time ({UNIT_NAMES})")
            unit = UNITS[self._curr.text.upper()]
            self._advance()
        interval = self.expression(exp.Interval(this=exp.Literal.string(text), unit=exp.var(unit)), start)
        return self.expression(exp.Neg(this=interval), start) if negative else interval

    @staticmethod
    def _is_several_parts(text: str) -> bool:
        """Whether the text is like ``1 hour 30 minutes``."""
        parts = list(_NUMBER_AND_UNIT.finditer(text))
        return (
            len(parts) > 1
            and "".join(part[0] for part in parts) == text
            and all(part[3].upper() in UNITS for part in parts)
        )

    def _parse_duration(self) -> exp.Expr:
        """A length of time as windows take it: also a bare number, ``10 MINUTES`` or ``'10 minutes'``."""
        start, negative = self._curr, self._match(TokenType.DASH)
        if self._match(TokenType.INTERVAL, advance=False):
            interval: exp.Expr = self._required(self._parse_interval(), "a length of time")
            return self.expression(exp.Neg(this=interval), start) if negative else interval
        if self._match(TokenType.STRING):
            return self._interval(self._prev, start, negative)
        return self._parse_count(start, negative)

    def _parse_count(self, start: Token, negative: bool, what: str = "a length of time") -> exp.Expr:
        if not self._match(TokenType.NUMBER):
            raise self._expected(f"{what}, like 10 SECONDS" if what == "a length of time" else what)
        if what == "a length of time" and self._word_ahead(UNITS):
            return self._interval(self._prev, start, negative)
        number = self.expression(exp.Literal.number(self._prev.text), self._prev)
        return self.expression(exp.Neg(this=number), start) if negative else number

    def _parse_rows(self) -> exp.Expr:
        start, negative = self._curr, self._match(TokenType.DASH)
        return self._parse_count(start, negative, "a number of rows")

    def _parse_instant(self) -> exp.Expr:
        """A point in time, a row number or a distance: sums in which a number may carry a unit."""
        this = self._parse_instant_part()
        while self._match_set(self.TERM):
            klass = self.TERM[self._prev.token_type]
            this = self.expression(klass(this=this, expression=self._parse_instant_part()))
        return this

    def _parse_instant_part(self) -> exp.Expr:
        at = self._index + (1 if self._match(TokenType.DASH, advance=False) else 0)
        ahead = self._tokens[at : at + 2]
        if len(ahead) == 2 and ahead[0].token_type is TokenType.NUMBER and ahead[1].text.upper() in UNITS:
            return self._parse_duration()
        return self._required(self._parse_factor())
