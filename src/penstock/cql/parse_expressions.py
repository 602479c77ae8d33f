"""Expressions of CQL: PostgreSQL's operator precedence, CQL's own calls and stricter forms.

Calls are never turned into sqlglot's typed functions, so names stay as written and the binder decides.
Where sqlglot forgives (a missing operand, a trailing comma, BETWEEN without AND) this parser does not.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import exp, parser
from sqlglot.parser import binary_range_parser
from sqlglot.tokenizer_core import Token, TokenType

from penstock.cql.parse_base import CONTINUES_COLUMN, EMITS, TYPES
from penstock.cql.parse_types import UNITS, TypeParser
from penstock.cql.words import AFTER_VALUE
from penstock.model.errors import CqlSyntaxError

_SIDES = ("BOTH", "LEADING", "TRAILING")
_AFTER_A_NAME = (TokenType.R_PAREN, TokenType.COMMA, TokenType.DOT)
_NO_CALL = {"ROLLUP", "CUBE", "UNNEST"}
_COMPARISONS: dict[TokenType, type[exp.Binary]] = {**parser.Parser.EQUALITY, **parser.Parser.COMPARISON}
# What would belong to the operand of NOT, and comes too late for it.
_TIGHT = {
    TokenType.DPIPE, TokenType.PLUS, TokenType.DASH, TokenType.STAR, TokenType.SLASH, TokenType.MOD, TokenType.DIV,
}  # fmt: skip


class ExpressionParser(TypeParser):
    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {}
    NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {"CASE": lambda self: self._parse_case()}
    PLACEHOLDER_PARSERS: ClassVar[dict[TokenType, Any]] = {}
    LAMBDAS: ClassVar[dict[TokenType, Any]] = {}
    ASSIGNMENT: ClassVar[dict[TokenType, type[exp.Expr]]] = {}
    TYPE_TOKENS: ClassVar[set[TokenType]] = TYPES
    FUNC_TOKENS: ClassVar[set[TokenType]] = {
        TokenType.VAR,
        TokenType.IDENTIFIER,
        TokenType.LEFT,
        TokenType.RIGHT,
        TokenType.FILTER,
        TokenType.EXISTS,
        TokenType.ISNULL,
        TokenType.NOTNULL,
        *TYPES,
    }
    TERM: ClassVar[dict[TokenType, type[exp.Binary]]] = {
        TokenType.DASH: exp.Sub,
        TokenType.PLUS: exp.Add,
    }
    FACTOR: ClassVar[dict[TokenType, type[exp.Binary]]] = {
        TokenType.DIV: exp.IntDiv,
        TokenType.MOD: exp.Mod,
        TokenType.SLASH: exp.Div,
        TokenType.STAR: exp.Mul,
    }
    UNARY_PARSERS: ClassVar[dict[TokenType, Any]] = {
        **{token: parser.Parser.UNARY_PARSERS[token] for token in (TokenType.PLUS, TokenType.DASH)},
        TokenType.NOT: lambda self: self._parse_not(),
    }
    BRACKETS: ClassVar[frozenset[TokenType]] = frozenset({TokenType.L_BRACKET})
    COLUMN_OPERATORS: ClassVar[dict[TokenType, Any]] = {
        token: parser.Parser.COLUMN_OPERATORS[token] for token in (TokenType.DOT, TokenType.DCOLON)
    }
    RANGE_PARSERS: ClassVar[dict[TokenType, Any]] = {
        TokenType.BETWEEN: lambda self, this: self._parse_between(this),
        TokenType.ILIKE: binary_range_parser(exp.ILike),
        TokenType.IN: lambda self, this: self._parse_in(this),
        TokenType.LIKE: binary_range_parser(exp.Like),
    }
    PRIMARY_PARSERS: ClassVar[dict[TokenType, Any]] = {
        TokenType.STRING: parser.Parser.PRIMARY_PARSERS[TokenType.STRING],
        TokenType.NUMBER: parser.Parser.PRIMARY_PARSERS[TokenType.NUMBER],
        TokenType.NULL: lambda self, token: self.expression(exp.Null(), token),
        TokenType.TRUE: lambda self, token: self.expression(exp.Boolean(this=True), token),
        TokenType.FALSE: lambda self, token: self.expression(exp.Boolean(this=False), token),
        TokenType.STAR: lambda self, token: self.expression(exp.Star(), token),
    }

    # Operators

    def _parse_bitwise(self) -> exp.Expr | None:
        this = self._parse_term()
        while self._match(TokenType.DPIPE):
            this = self.expression(exp.DPipe(this=this, expression=self._parse_term(), safe=True))
        return this

    def _parse_unary(self) -> exp.Expr | None:
        this = super()._parse_unary()
        while this is not None and self._word("AT", "TIME", "ZONE"):
            zone = self._required(super()._parse_unary(), "the name of a time zone")
            this = self.expression(exp.AtTimeZone(this=this, zone=zone))
        return this

    def _parse_at_time_zone(self, this: exp.Expr | None) -> exp.Expr | None:
        return this  # _parse_unary has done it, for the operands on both sides

    def _parse_equality(self, parse_is: bool = True) -> exp.Expr | None:
        """IS binds less than the comparisons, which bind less than BETWEEN, IN and LIKE, as in PostgreSQL."""
        this = self._parse_comparison()
        while parse_is and self._match_set((TokenType.IS, TokenType.ISNULL, TokenType.NOTNULL)):
            # What IS makes may be compared in turn: `x IS NULL = FALSE`.
            this = self._parse_comparison(self._parse_range(self._parse_is(this)))
        return this

    def _parse_comparison(self, this: exp.Expr | None = None) -> exp.Expr | None:
        this = this or self._parse_range()
        if not self._match_set(_COMPARISONS):
            return this
        compare = _COMPARISONS[self._prev.token_type]
        compared = self.expression(compare(this=_grouped(this), expression=_grouped(self._parse_range())))
        if self._match_set(_COMPARISONS, advance=False):
            raise self._fail("comparisons do not chain", hint="join two of them with AND, or put one in parentheses")
        return compared

    def _parse_range(self, this: exp.Expr | None = None, parse_is: bool = False) -> exp.Expr | None:
        this = this or self._parse_bitwise()
        while True:
            negated = self._match(TokenType.NOT)
            if not self._match_set(self.RANGE_PARSERS):
                if negated:
                    self._retreat(self._index - 1)
                return this
            word = self._prev
            this = self.RANGE_PARSERS[word.token_type](self, _grouped(this))
            this = self.expression(exp.Not(this=this)) if negated else this
            ahead = self._next if self._curr.token_type is TokenType.NOT else self._curr
            # IN ends with its parenthesis; what LIKE and BETWEEN end with could belong to either.
            if word.token_type is not TokenType.IN and ahead.token_type in self.RANGE_PARSERS:
                raise self._fail(
                    f"{ahead.text.upper()} behind {word.text.upper()}", ahead, hint="put one of them in parentheses"
                )

    def _parse_is(self, this: exp.Expr | None) -> exp.Expr:
        if self._prev.token_type is not TokenType.IS:
            found = self.expression(exp.Is(this=_grouped(this), expression=exp.Null()))
            return found if self._prev.token_type is TokenType.ISNULL else self.expression(exp.Not(this=found))
        negated = self._match(TokenType.NOT)
        if self._word("DISTINCT", "FROM"):
            klass = exp.NullSafeEQ if negated else exp.NullSafeNEQ
            return self.expression(klass(this=_grouped(this), expression=_grouped(self._parse_comparison())))
        if not self._match_set((TokenType.NULL, TokenType.TRUE, TokenType.FALSE)):
            raise self._expected("NULL, TRUE, FALSE or DISTINCT FROM")
        value = self.PRIMARY_PARSERS[self._prev.token_type](self, self._prev)
        found = self.expression(exp.Is(this=_grouped(this), expression=value))
        return self.expression(exp.Not(this=found)) if negated else found

    def _parse_not(self) -> exp.Expr:
        this = self.expression(exp.Not(this=self._parse_equality()))
        if self._match_set(_TIGHT, advance=False):
            raise self._fail(f"`{self._curr.text}` behind NOT …", hint="put what NOT belongs to in parentheses")
        return this

    def _parse_between(self, this: exp.Expr | None) -> exp.Between:
        low = self._required(self._parse_bitwise())
        self._take(TokenType.AND, "AND between the bounds of BETWEEN")
        high = self._required(self._parse_bitwise())
        return self.expression(exp.Between(this=this, low=low, high=high))

    def _parse_primary(self) -> exp.Expr | None:
        token = self._curr
        this = super()._parse_primary()
        if isinstance(this, exp.Concat):
            raise self._fail("two strings side by side", token, hint="join them with ||")
        return this

    def _parse_column(self) -> exp.Expr | None:
        token = self._curr
        this = super()._parse_column()
        if isinstance(this, exp.Dot) or (isinstance(this, exp.Column) and this.args.get("db")):
            raise self._fail("a column is written `name` or `source.name`", token)
        return this

    def _parse_bracket(self, this: exp.Expr | None = None) -> exp.Expr | None:
        if this is None or not self._match(TokenType.L_BRACKET):
            return this
        this = self.expression(exp.Bracket(this=this, expressions=[self._parse_scalar()]))
        self._take(TokenType.R_BRACKET, "]")
        return self._parse_bracket(this)

    def _parse_case(self) -> exp.Expr | None:
        token = self._prev
        if self._curr.token_type in CONTINUES_COLUMN - {TokenType.PLUS}:
            self._retreat(self._index - 1)
            raise self._expected("an expression")
        this = None if self._match(TokenType.WHEN, advance=False) else self._parse_scalar()
        ifs: list[exp.Expr] = []
        while self._match(TokenType.WHEN):
            condition = self._parse_scalar()
            self._take(TokenType.THEN, "THEN")
            ifs.append(self.expression(exp.If(this=condition, true=self._parse_scalar())))
        if not ifs:
            raise self._expected("WHEN")
        default = self._parse_scalar() if self._match(TokenType.ELSE) else None
        self._take(TokenType.END, "WHEN, ELSE or END" if default is None else "END")
        return self.expression(exp.Case(this=this, ifs=ifs, default=default), token)

    def _parse_alias(self, this: exp.Expr | None, explicit: bool = False) -> exp.Expr | None:
        if self._match(TokenType.ALIAS):
            alias: exp.Expr | None = self._name("a name after AS")
        elif explicit or self._clause_ahead():
            alias = None
        else:
            if self._word_ahead(AFTER_VALUE):
                raise self._no_alias()
            if self._prev.token_type in (TokenType.NUMBER, TokenType.STRING) and self._word_ahead(UNITS):
                length = f"INTERVAL '{self._prev.text}' {self._curr.text.upper()}"
                raise self._fail("a length of time is an INTERVAL", hint=f"write {length}")
            alias = self._parse_id_var()
        return self.expression(exp.Alias(this=this, alias=alias)) if this and alias else this

    # Calls

    def _parse_function_call(
        self,
        functions: dict[str, Callable[..., Any]] | None = None,
        anonymous: bool = False,
        optional_parens: bool = True,
        any_token: bool = False,
    ) -> exp.Expr | None:
        token = self._curr
        after_dot = self._prev.token_type is TokenType.DOT
        if token.token_type is TokenType.CASE and not after_dot:
            self._advance()
            return self._parse_case()
        if self._next.token_type is not TokenType.L_PAREN or token.token_type not in self.FUNC_TOKENS:
            return None
        word = "" if token.token_type is TokenType.IDENTIFIER else token.text.upper()
        if word in EMITS:
            raise self._fail(
                f"{word} is no function of a value", token, hint=f"write SELECT {word} … or {word}(SELECT …)"
            )
        if word in _NO_CALL:
            raise self._fail(f"{word} is not part of CQL", token)
        self._advance(2)
        match word:
            case "CAST" | "TRY_CAST":
                call = self._parse_cast(strict=word == "CAST", safe=word == "TRY_CAST")
            case "EXTRACT":
                call = self._parse_extract_call()
            case "TRIM":
                call = self._parse_trim_call(token)
            case "EXISTS":
                call = exp.Exists(this=self._parse_query())
            case _:
                name = exp.Identifier(this=token.text, quoted=True) if not word else token.text
                call = exp.Anonymous(this=name, expressions=self._parse_call_args())
        self._take(TokenType.R_PAREN, ")" if word else "`,` or )")
        call = self.expression(call, token)
        return self._parse_call_suffix(call) if isinstance(call, exp.Anonymous) else call

    def _parse_call_args(self) -> list[exp.Expr]:
        if self._match(TokenType.R_PAREN, advance=False):
            return []
        if self._match(TokenType.DISTINCT):
            token = self._prev
            return [self.expression(exp.Distinct(expressions=self._parse_csv(self._parse_scalar)), token)]
        if self._match(TokenType.STAR):
            return [self.expression(exp.Star(), self._prev)]
        self._match(TokenType.ALL)
        return self._parse_csv(self._parse_scalar)

    def _parse_call_suffix(self, call: exp.Expr) -> exp.Expr:
        if self._match_pair(TokenType.FILTER, TokenType.L_PAREN):
            token = self._prev
            self._take(TokenType.WHERE, "WHERE")
            where = self.expression(exp.Where(this=self._parse_scalar()), token)
            self._match_r_paren()
            call = self.expression(exp.Filter(this=call, expression=where))
        if self._word_ahead(("OVER",)) and self._next.token_type in (
            TokenType.L_PAREN,
            TokenType.VAR,
            TokenType.IDENTIFIER,
        ):
            raise self._fail("OVER is not part of CQL")
        if self._word_ahead(("WITHIN",)) and self._next.text.upper() == "GROUP":
            raise self._within_group(call)
        return call

    def _within_group(self, call: exp.Expr) -> CqlSyntaxError:
        token, hint = self._curr, None
        self._advance(2)
        if self._match(TokenType.L_PAREN) and self._match(TokenType.ORDER_BY):
            start = self._curr
            self._parse_scalar()
            ascending = self._match(TokenType.R_PAREN, advance=False)
            if ascending and isinstance(call, exp.Anonymous) and call.name.lower() == "percentile_cont":
                hint = f"write percentile({self._find_sql(start, self._prev)}, {call.expressions[0].sql()})"
        return self._fail("WITHIN GROUP is not part of CQL", token, hint=hint)

    def _parse_cast(self, strict: bool, safe: bool | None = None) -> exp.Expr:
        this = self._parse_scalar()
        self._take(TokenType.ALIAS, "AS and a type")
        to = self._parse_types()
        return exp.TryCast(this=this, to=to, safe=True) if safe else exp.Cast(this=this, to=to)

    def _parse_extract_call(self) -> exp.Expr:
        """``EXTRACT(unit FROM x)``, or the plain call ``EXTRACT('unit', x)``."""
        token = self._curr
        if not self._match(TokenType.STRING) and not self._match(TokenType.VAR):
            raise self._expected("a part of a time, like hour")
        part = self.expression(exp.Literal.string(token.text.lower()), token)
        if not self._match(TokenType.FROM) and not self._match(TokenType.COMMA):
            raise self._expected("FROM")
        return exp.Anonymous(this="EXTRACT", expressions=[part, self._parse_scalar()])

    def _parse_trim_call(self, token: Token) -> exp.Expr:
        """``TRIM([BOTH | LEADING | TRAILING] [characters] FROM text)``, or the plain call."""
        side = None
        if self._word_ahead(_SIDES) and self._next.token_type not in _AFTER_A_NAME:
            side = self._curr.text.upper()
            self._advance()
        characters = [] if self._match(TokenType.FROM, advance=False) else self._parse_call_args()
        if len(characters) > 1 or (side is None and not self._match(TokenType.FROM, advance=False)):
            return exp.Anonymous(this=token.text, expressions=characters)
        self._take(TokenType.FROM, "FROM")
        text = self._parse_scalar()
        return exp.Trim(this=text, expression=characters[0] if characters else None, position=side or "BOTH")

    @abstractmethod
    def _parse_query(self) -> exp.Expr:
        """A query, which may stand inside an expression."""


def _grouped(operand: exp.Expr | None) -> exp.Expr | None:
    """`a NOT IN (1) = b` would print as `NOT a IN (1) = b`, where NOT reaches further: keep the grouping."""
    return exp.Paren(this=operand) if isinstance(operand, exp.Not) else operand
