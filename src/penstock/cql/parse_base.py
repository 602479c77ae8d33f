"""What every part of the parser uses: errors in CQL's words, contextual keywords, and names."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Set
from typing import ClassVar, TypeVar

from sqlglot import exp, parser
from sqlglot.tokenizer_core import Token, TokenType

from penstock.cql.positions import position_at
from penstock.cql.words import INSTEAD, NOT_CQL, WINDOWS
from penstock.model.errors import CqlSyntaxError, typo

T = TypeVar("T")

TYPES = {
    TokenType.BOOLEAN,
    TokenType.INT,
    TokenType.BIGINT,
    TokenType.FLOAT,
    TokenType.DOUBLE,
    TokenType.DECIMAL,
    TokenType.TEXT,
    TokenType.BINARY,
    TokenType.DATE,
    TokenType.TIMESTAMP,
    TokenType.INTERVAL,
}
EMITS = ("ISTREAM", "DSTREAM", "RSTREAM")

CLAUSES = (
    "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "OFFSET", "PRIORITY BY", "MASTER", "UNION", "EXCEPT",
    "INTERSECT", "JOIN", "SELECT", "DISTINCT", *EMITS,
)  # fmt: skip
# Behind a word that is reserved, these say that a column of that name was meant.
CONTINUES_COLUMN = {
    TokenType.DOT, TokenType.COMMA, TokenType.FROM, TokenType.ALIAS, TokenType.R_PAREN, TokenType.SENTINEL,
    TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.LTE, TokenType.GT, TokenType.GTE, TokenType.SLASH,
    TokenType.MOD, TokenType.DIV, TokenType.DPIPE, TokenType.DCOLON, TokenType.IS, TokenType.IN,
    TokenType.LIKE, TokenType.ILIKE, TokenType.BETWEEN, TokenType.AND, TokenType.OR, TokenType.PLUS,
    TokenType.L_BRACKET, TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT,
}  # fmt: skip

# No alias is followed by one of these.
_NOT_BEHIND_ALIAS = {
    TokenType.VAR, TokenType.NUMBER, TokenType.STRING, TokenType.L_PAREN, TokenType.INTERVAL, TokenType.SELECT,
    TokenType.ALIAS, TokenType.ALL, TokenType.UPDATE,
}  # fmt: skip
_MISSING = re.compile(r"Required keyword: '\w+' missing for <class '.*\.(\w+)'>")


class BaseParser(parser.Parser):
    ID_VAR_TOKENS: ClassVar[set[TokenType]] = {
        TokenType.VAR, TokenType.FILTER, TokenType.ISNULL, TokenType.NOTNULL, *TYPES,
    }  # fmt: skip

    # Errors

    def _fail(self, message: str, token: Token | None = None, hint: str | None = None) -> CqlSyntaxError:
        """An error at the token, by default the one to come, or behind the last where there is none."""
        token = token or (self._curr if self._curr else None)
        if token is not None:
            position = position_at(self.sql, token.start, token.end + 1)
        else:
            last = self._prev.end + 1 if self._prev else 0
            position = position_at(self.sql, last, last)
        return CqlSyntaxError(message, hint=hint, position=position, text=self.sql)

    def _expected(self, what: str) -> CqlSyntaxError:
        if self._word_ahead(NOT_CQL):
            return self._not_cql(self._curr, f"expected {what}")
        return self._fail(f"expected {what}, found {self._found()}", hint=self._quoting())

    def _not_cql(self, token: Token, otherwise: str | None = None) -> CqlSyntaxError:
        word = token.text.upper()
        return self._fail(f"{word} is not part of CQL", token, hint=INSTEAD.get(word, otherwise))

    def _no_alias(self) -> CqlSyntaxError:
        """An error about a word that only AS makes an alias."""
        token, word = self._curr, self._curr.text.upper()
        hints = [INSTEAD[word]] if word in INSTEAD else []
        # What comes next may leave no doubt that it is no name.
        sure = self._next.token_type in _NOT_BEHIND_ALIAS or (
            self._next.token_type is TokenType.JOIN and word in ("ASOF", "POSITIONAL", "GLOBAL")
        )
        if not sure and self._prev.token_type is not TokenType.STAR:
            hints.append(f"write AS {token.text} if it is a name")
        return self._fail(
            f"{word} is not part of CQL" if word in NOT_CQL else f"{word} cannot stand here",
            hint="; ".join(hints) or None,
        )

    def _quoting(self) -> str | None:
        """A hint for a reserved word that stands where only a column can be meant."""
        token = self._curr
        if not token or token.token_type in (TokenType.VAR, TokenType.IDENTIFIER, *self.PRIMARY_PARSERS):
            return None
        if not token.text.isidentifier() or self._next.token_type not in CONTINUES_COLUMN:
            return None
        return f'a reserved word is quoted to be a name: "{token.text}"'

    def _found(self, token: Token | None = None) -> str:
        token = token or (self._curr if self._curr else None)
        return "the end of the statement" if token is None else f"`{self._find_sql(token, token)}`"

    def _unexpected(self) -> CqlSyntaxError:
        """An error about what is left over, naming the likely slip where there is one."""
        if self._word_ahead(WINDOWS):
            return self._bare_window()
        for token in (self._curr, self._prev):
            if token and token.text.upper() in NOT_CQL and token.token_type is not TokenType.IDENTIFIER:
                return self._not_cql(token)
        for token in (self._prev, self._curr):
            if token and token.token_type is TokenType.VAR:
                meant = typo(token.text.upper(), [clause.partition(" ")[0] for clause in CLAUSES])
                clause = next((c for c in CLAUSES if c.partition(" ")[0] == meant), None)
                if clause and clause != token.text.upper():
                    return self._fail(f"unexpected {self._found(token)}", token, hint=f"did you mean {clause}?")
        hint = "expected another clause, `;` or the end of the statement"
        if self._curr and self._curr.token_type is TokenType.WITH:
            hint = "options go with CREATE QUERY name AS SELECT … WITH (…), in Python with db.query(text, priority=9)"
        return self._fail(f"unexpected {self._found()}", hint=hint)

    @abstractmethod
    def _bare_window(self) -> CqlSyntaxError:
        """An error about a window without its brackets, which is next."""

    def raise_error(self, message: str, token: Token | None = None) -> None:
        """What sqlglot's own code complains about, in the words used here."""
        if missing := _MISSING.match(message):
            raise self._expected("a query" if missing[1] in ("Union", "Except", "Intersect") else "an expression")
        for prefix in ("Expecting ", "Expected "):
            if message.startswith(prefix):
                raise self._expected(message.removeprefix(prefix))
        raise self._fail(message[:1].lower() + message[1:], token if token else None)

    # Words and names

    def _word(self, *words: str) -> bool:
        """Take these words if they are next; none of them may be quoted."""
        return self._match_text_seq(*words)

    def _word_ahead(self, words: tuple[str, ...] | Set[str] | Mapping[str, object]) -> bool:
        return self._match_texts(words, advance=False)

    def _clause_ahead(self) -> bool:
        """Whether a clause is next that begins with a word which could be a name."""
        if self._word_ahead(("PRIORITY",)):
            return bool(self._next) and self._next.text.upper() == "BY"
        return self._word_ahead(("MASTER",))

    def _take(self, token_type: TokenType, text: str) -> Token:
        if not self._match(token_type):
            raise self._expected(text)
        return self._prev

    def _take_words(self, *words: str) -> Token:
        start = self._curr
        for word in words:
            if not self._word(word):
                raise self._expected(word)
        return start

    def _name(self, what: str = "a name") -> exp.Identifier:
        name = self._parse_id_var()
        if isinstance(name, exp.Identifier):
            return name
        if self._curr and self._curr.text.isidentifier() and self._curr.token_type not in self.PRIMARY_PARSERS:
            raise self._fail(
                f"expected {what}, found {self._found()}",
                hint=f'a reserved word is quoted to be a name: "{self._curr.text}"',
            )
        raise self._expected(what)

    def _parse_id_var(self, any_token: bool = True, tokens: Collection[TokenType] | None = None) -> exp.Expr | None:
        if not self._match(TokenType.IDENTIFIER) and not self._match_set(self.ID_VAR_TOKENS):
            return None
        quoted = self._prev.token_type is TokenType.IDENTIFIER
        return self.expression(exp.Identifier(this=self._prev.text, quoted=quoted), self._prev)

    def _parse_csv(self, parse_method: Callable[[], T | None], sep: TokenType = TokenType.COMMA) -> list[T]:
        items: list[T] = []
        while (item := parse_method()) is not None:
            items.append(item)
            if not self._match(sep):
                return items
        if items:
            raise self._expected("one more after the comma")
        return items

    def _required(self, node: exp.Expr | None, what: str = "an expression") -> exp.Expr:
        if node is None:
            raise self._expected(what)
        return node

    def _parse_scalar(self) -> exp.Expr:
        return self._required(self._parse_disjunction())
