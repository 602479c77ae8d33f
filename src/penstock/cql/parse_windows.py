"""What stands in brackets behind a source: ``s [RANGE 10 MINUTES SLIDE 1 MINUTE]``."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from penstock.cql.ast import StreamWindow
from penstock.cql.parse_expressions import ExpressionParser
from penstock.cql.parse_types import UNIT_NAMES, UNITS
from penstock.cql.words import WINDOWS
from penstock.model.errors import CqlSyntaxError

_FORMS = "ROWS, RANGE, NOW, UNBOUNDED, TUMBLING, HOPPING, SESSION, PARTITION BY or BEGIN WINDOW"


class WindowParser(ExpressionParser):
    def _parse_stream_window(self) -> StreamWindow | None:
        if not self._match(TokenType.L_BRACKET):
            return None
        start = self._prev
        window = self._parse_window_body()
        if not self._match(TokenType.R_BRACKET):
            if self._prev.token_type is TokenType.NUMBER and self._curr.token_type is TokenType.VAR:
                raise self._fail(f"{self._found()} is not a unit of time", hint=f"there are {UNIT_NAMES}")
            raise self._expected("]")
        self.expression(window)
        return window.update_positions(line=start.line, col=start.col, start=start.start, end=self._prev.end)

    def _parse_window_body(self) -> StreamWindow:
        if self._match(TokenType.PARTITION_BY):
            keys = self._parse_window_keys()
            if self._word("ROWS"):
                window = self._parse_rows_window()
            elif self._word("SESSION"):
                window = self._parse_session_window()
            else:
                raise self._expected("ROWS or SESSION GAP after PARTITION BY")
            window.set("partition_by", keys)
            return window
        if self._word("ROWS"):
            return self._parse_rows_window()
        if self._word("RANGE"):
            if self._word("UNBOUNDED"):
                return StreamWindow(kind="unbounded")
            size = self._parse_duration()
            return StreamWindow(kind="range", size=size, slide=self._parse_part("SLIDE"))
        if self._word("UNBOUNDED"):
            return StreamWindow(kind="unbounded")
        if self._word("NOW"):
            return StreamWindow(kind="now")
        if self._word("TUMBLING"):
            return StreamWindow(kind="tumbling", size=self._parse_duration())
        if self._word("HOPPING"):
            size, slide = self._parse_duration(), self._parse_part("EVERY")
            if slide is None:
                raise self._expected("EVERY")
            return StreamWindow(kind="hopping", size=size, slide=slide)
        if self._word("SESSION"):
            return self._parse_session_window()
        if self._word_ahead(("BEGIN",)):
            return self._parse_generic_window()
        raise self._no_form()

    def _no_form(self) -> CqlSyntaxError:
        """What is in brackets begins like no window; a length alone may be meant as one."""
        start, found = self._index, self._expected(_FORMS)
        self._word("LAST")
        amount = self._curr.text if self._curr and self._curr.token_type is TokenType.NUMBER else None
        if amount is None:
            self._retreat(start)
            return found
        unit = self._next.text.upper() if self._next and self._next.token_type is not TokenType.R_BRACKET else None
        self._retreat(start)
        if unit in (None, "ROWS", "ROW", "TUPLES"):
            meant = f"ROWS {amount}"
        elif unit in UNITS and UNITS[unit] not in ("MONTH", "QUARTER", "YEAR"):
            meant = f"RANGE {amount} {unit}"
        else:
            return found
        return self._fail(f"{self._found()} is the beginning of no window", hint=f"did you mean [{meant}]?")

    def _parse_window_keys(self) -> list[exp.Expr]:
        keys: list[exp.Expr] = []
        while True:
            column = self._parse_column()
            if not isinstance(column, exp.Column):
                raise self._expected("a column to partition by")
            keys.append(column)
            if not self._match(TokenType.COMMA) or self._size_ahead():
                return keys

    def _size_ahead(self) -> bool:
        """Whether a clause begins here rather than a column that happens to be called ROWS."""
        if self._word_ahead(("ROWS",)):
            return self._next.token_type in (TokenType.NUMBER, TokenType.DASH)
        return self._word_ahead(("SESSION",)) and self._next.text.upper() == "GAP"

    def _parse_rows_window(self) -> StreamWindow:
        if self._word("UNBOUNDED"):
            return StreamWindow(kind="unbounded")
        size = self._parse_rows()
        self._match(TokenType.COMMA)
        return StreamWindow(kind="rows", size=size, slide=self._parse_rows() if self._word("SLIDE") else None)

    def _parse_session_window(self) -> StreamWindow:
        self._take_words("GAP")
        return StreamWindow(kind="session", gap=self._parse_duration())

    def _parse_part(self, word: str) -> exp.Expr | None:
        self._match(TokenType.COMMA)
        return self._parse_duration() if self._word(word) else None

    def _parse_generic_window(self) -> StreamWindow:
        self._take_words("BEGIN", "WINDOW")
        tuples = False

        def bound() -> exp.Expr:
            nonlocal tuples
            this = self._parse_instant()
            tuples = self._match_texts(("TUPLE", "TUPLES")) or tuples
            return this

        window = StreamWindow(kind="generic", begin=bound())
        self._match(TokenType.COMMA)
        self._take_words("END", "WINDOW")
        window.set("end", bound())
        self._match(TokenType.COMMA)
        if self._word("HOP"):
            self._take_words("SIZE")
            self._take(TokenType.L_PAREN, "( and two distances, as in HOP SIZE (10, 10)")
            window.set("hop_low", bound())
            self._take(TokenType.COMMA, "`,` and a second distance")
            window.set("hop_high", bound())
            self._match_r_paren()
            self._match(TokenType.COMMA)
        if self._word("END"):
            self._take_words("QUERY")
            window.set("end_query", bound())
        window.set("tuples", tuples)
        return window

    def _bare_window(self) -> CqlSyntaxError:
        """``FROM s ROWS 2``: what was meant, or something like it."""
        start, index = self._curr, self._index
        hint = f"write {WINDOWS[start.text.upper()]}"
        try:
            self._parse_window_body()
            hint = f"write [{self._find_sql(start, self._prev)}]"
        except CqlSyntaxError:
            pass
        if self._index <= index + 1 and start.token_type in self.ID_VAR_TOKENS:
            hint += f"; write AS {start.text} if it is a name"
        self._retreat(index)
        return self._fail("a window is written in brackets", start, hint=hint)
