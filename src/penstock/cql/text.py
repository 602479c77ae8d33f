"""CQL as text: parse it, print it back, and say where in it something stands."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from penstock.cql.dialect import CQL
from penstock.cql.parse_types import UNITS
from penstock.cql.parser import CqlParser
from penstock.cql.plain_values import PlainValues, plain_values
from penstock.cql.positions import Lines, position_at, position_of, record_positions
from penstock.model.durations import shortened
from penstock.model.errors import CqlSyntaxError

__all__ = ["ParsedStatement", "format_statement", "parse", "parse_rows", "position_of"]

_CLOSING = {"'": "'", '"': '"', "/*": "*/"}
_WHAT = {"'": "string", '"': "quoted name", "/*": "comment"}


@dataclass(frozen=True)
class ParsedStatement:
    """One statement; positions in the tree count from the start of ``text``, the whole script."""

    tree: exp.Expr
    text: str


def parse(text: str) -> list[ParsedStatement]:
    """The statements of a script, in order; a script of blanks and comments has none."""
    dialect = CQL()
    parser = CqlParser(dialect=dialect)
    parser.plain = {values.start: values for values in plain_values(text)}
    try:
        trees = parser.parse(_tokens(dialect, text, parser.plain.values()), text)
    except ParseError as error:
        raise CqlSyntaxError(error.errors[0]["description"] if error.errors else str(error), text=text) from None
    except RecursionError:
        raise parser.too_deep() from None
    statements = [tree for tree in trees if tree is not None]
    lines = Lines(text)
    for tree in statements:
        record_positions(tree, lines)
    return [ParsedStatement(tree, text) for tree in statements]


def parse_rows(values: PlainValues) -> list[exp.Expr]:
    """Plain rows as the parser reads them."""
    dialect = CQL()
    tokens = _shifted(dialect.tokenize(values.text[values.start : values.end]), values.start)
    rows = CqlParser(dialect=dialect).parse_rows(tokens, values.text)
    lines = Lines(values.text)
    for row in rows:
        record_positions(row, lines)
    return rows


def format_statement(tree: exp.Expr) -> str:
    """The statement on one line; parsing it gives an equal tree."""
    return CQL().generate(tree)


def _tokens(dialect: CQL, text: str, plain: Iterable[PlainValues]) -> list[Token]:
    """The tokens of a text; of plain rows only the parenthesis they begin with."""
    tokens: list[Token] = []
    at = 0
    try:
        for values in plain:
            tokens += _shifted(dialect.tokenize(text[at : values.start + 1]), at)
            at = values.end
        tokens += _shifted(dialect.tokenize(text[at:]), at)
    except TokenError as error:
        opened = _unclosed(text)
        if opened is None:
            raise CqlSyntaxError(str(error), text=text) from None
        start, delimiter = opened
        raise CqlSyntaxError(
            f"this {_WHAT[delimiter]} is not closed",
            hint=f"expected {_CLOSING[delimiter]} before the end of the text",
            position=position_at(text, start, start + len(delimiter)),
            text=text,
        ) from None
    for token, after in zip_longest(tokens, tokens[1:]):
        if token.token_type is TokenType.NUMBER and after is not None and after.start == token.end + 1:
            _check_number(text, token, after)
        if token.token_type is TokenType.VAR and not token.text.replace("$", "_").isidentifier():
            raise CqlSyntaxError(
                f"`{token.text}` is not a name",
                hint='names with other characters are written in double quotes: "…"',
                position=position_at(text, token.start, token.end + 1),
                text=text,
            )
    return tokens


def _check_number(text: str, token: Token, after: Token) -> None:
    """Refuse `1_000`, `0x1F` and `1.5.2`, which begin with a number and go on with something else."""
    is_word = after.text[:1].isidentifier() and after.token_type is not TokenType.IDENTIFIER
    if (is_word and after.text.upper() not in UNITS) or after.token_type in (TokenType.NUMBER, TokenType.DOT):
        raise CqlSyntaxError(
            f"`{shortened(text[token.start : after.end + 1])}` is not a number",
            hint="write for example 12, 0.5 or 1e6",
            position=position_at(text, token.start, after.end + 1),
            text=text,
        )


def _shifted(tokens: list[Token], by: int) -> list[Token]:
    """Tokens of a piece of text that begins there."""
    for token in tokens if by else ():
        token.start += by
        token.end += by
    return tokens


def _unclosed(text: str) -> tuple[int, str] | None:
    """Where the quote or comment begins that runs over the end of the text, and what opened it."""
    at = 0
    while at < len(text):
        if text[at] in "'\"":
            # A doubled quote reads as two adjacent strings, which end at the same place.
            end = text.find(text[at], at + 1)
            if end < 0:
                return at, text[at]
            at = end + 1
        elif text.startswith("--", at):
            at = min((i for i in (text.find("\n", at), text.find("\r", at)) if i >= 0), default=len(text))
        elif text.startswith("/*", at):
            start, depth, at = at, 1, at + 2
            while depth and at < len(text):
                step = {"/*": 1, "*/": -1}.get(text[at : at + 2], 0)
                depth += step
                at += 2 if step else 1
            if depth:
                return start, "/*"
        else:
            at += 1
    return None
