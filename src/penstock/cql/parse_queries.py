"""Queries: SELECT and what may follow it, set operations, WITH, and the function form ``ISTREAM(…)``."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from penstock.cql.ast import Emit, Master, PriorityBy
from penstock.cql.parse_base import CONTINUES_COLUMN, EMITS
from penstock.cql.parse_windows import WindowParser
from penstock.cql.words import AFTER_SOURCE, NOT_CQL, WINDOWS
from penstock.model.errors import CqlSyntaxError

_SELECT_ONLY = ("where", "group", "having")
_CLAUSES = {
    "where": "WHERE",
    "group": "GROUP BY",
    "having": "HAVING",
    "order": "ORDER BY",
    "limit": "LIMIT",
    "offset": "OFFSET",
    "priority_by": "PRIORITY BY",
    "master": "MASTER",
}

_SEMI = ("SEMI", "ANTI")
# Windows as functions of Flink, with how many lengths of time they take, and what is written here.
_WINDOW_FUNCTIONS = {
    "TUMBLE": ("TUMBLING {0}", 1),
    "HOP": ("HOPPING {1} EVERY {0}", 2),
    "SESSION": ("SESSION GAP {0}", 1),
}


class QueryParser(WindowParser):
    SET_OP_MODIFIERS: ClassVar[set[str]] = {"order", "limit", "offset", "priority_by", "master"}
    QUERY_MODIFIER_PARSERS: ClassVar[dict[TokenType, Any]] = {}

    def _parse_query(self) -> exp.Expr:
        query = self._parse_select(nested=True, parse_subquery_alias=False, parse_set_operation=True)
        query = self._required(query, "a query (SELECT, WITH, ISTREAM(…), DSTREAM(…), RSTREAM(…))")
        query = self._required(self._parse_set_operations(query))
        self._parse_query_modifiers(query)
        return query

    def _parse_select_query(
        self,
        nested: bool = False,
        table: bool = False,
        parse_subquery_alias: bool = True,
        parse_set_operation: bool = True,
    ) -> exp.Expr | None:
        this: exp.Expr | None
        if self._match(TokenType.WITH):
            return self._parse_with_query()
        if self._match(TokenType.SELECT):
            this = self._parse_select_body(self._prev)
        elif self._emit_ahead():
            this = self._parse_emit()
        elif nested and self._match(TokenType.L_PAREN):
            start = self._prev
            subquery = exp.Subquery(this=self._parse_query())
            self._match_r_paren()
            return self.expression(subquery, start)
        else:
            return None
        return self._parse_set_operations(this) if parse_set_operation else this

    def _parse_with_query(self) -> exp.Expr:
        start = self._prev
        if self._word_ahead(("RECURSIVE",)) and self._next.token_type is not TokenType.ALIAS:
            raise self._expected("a name")
        ctes = self._parse_csv(self._parse_named_query)
        query = self._parse_query()
        if query.args.get("with_"):
            raise self._fail("a second WITH directly behind the first", start, hint="separate the queries by commas")
        query.set("with_", self.expression(exp.With(expressions=ctes), start))
        return query

    def _parse_named_query(self) -> exp.CTE:
        name = self._name("a name for the query")
        self._take(TokenType.ALIAS, "AS")
        self._take(TokenType.L_PAREN, "( and a query")
        query = self._parse_query()
        self._match_r_paren()
        return self.expression(exp.CTE(this=query, alias=exp.TableAlias(this=name)))

    # SELECT

    def _parse_select_body(self, start: Token) -> exp.Expr:
        emit = self._parse_emit_word()
        distinct = None
        if self._match(TokenType.DISTINCT):
            distinct = self.expression(exp.Distinct(), self._prev)
            if self._match(TokenType.ON, advance=False):
                raise self._fail("DISTINCT ON is not part of CQL")
            emit = emit or self._parse_emit_word()
        else:
            self._match(TokenType.ALL)
        projections = self._parse_expressions()
        if not projections:
            raise self._expected("the columns of the answer, or *")
        select = exp.Select(expressions=projections, distinct=distinct, operation_modifiers=[emit] if emit else None)
        if self._match(TokenType.FROM):
            select.set("from_", exp.From(this=self._parse_table()))
            while (join := self._parse_join()) is not None:
                select.append("joins", join)
        self._parse_query_modifiers(self.expression(select, start, comments=start.comments))
        return select

    def _parse_emit_word(self) -> exp.Expr | None:
        if not self._is_emit_word():
            return None
        self._advance()
        emit = self.expression(exp.var(self._prev.text.upper()), self._prev)
        if self._is_emit_word():
            raise self._fail("only one of ISTREAM, DSTREAM and RSTREAM can be given")
        return emit

    def _is_emit_word(self) -> bool:
        if not self._word_ahead(EMITS) or self._next.token_type in CONTINUES_COLUMN:
            return False
        if self._next.token_type is TokenType.STAR:
            after = self._tokens[self._index + 2 : self._index + 3]
            return not after or after[0].token_type in (TokenType.FROM, TokenType.COMMA, TokenType.R_PAREN)
        return True

    def _parse_query_modifiers(self, this: Any) -> Any:
        """The clauses behind a query, in their order; only MASTER goes with ``ISTREAM(…)``."""
        if not isinstance(this, exp.Query):
            return this
        done = max((i for i, key in enumerate(_CLAUSES) if this.args.get(key)), default=-1)
        for i, (key, text) in enumerate(_CLAUSES.items()):
            if isinstance(this, Emit) and key != "master":
                continue
            if key in _SELECT_ONLY and not isinstance(this, exp.Select):
                continue
            if key == "priority_by" and not isinstance(this, exp.Select | exp.SetOperation):
                continue
            start = self._curr
            clause = self._parse_clause(key)
            if clause is None:
                continue
            if i <= done:
                raise self._fail(f"{text} is out of place", start, hint=f"the order is {', '.join(_CLAUSES.values())}")
            this.set(key, clause)
        return this

    def _parse_clause(self, key: str) -> exp.Expr | None:
        start = self._curr
        clause: exp.Expr
        if key == "where" and self._match(TokenType.WHERE):
            clause = exp.Where(this=self._parse_scalar())
        elif key == "group" and self._match(TokenType.GROUP_BY):
            clause = exp.Group(expressions=self._parse_csv(self._parse_scalar))
        elif key == "having" and self._match(TokenType.HAVING):
            clause = exp.Having(this=self._parse_scalar())
        elif key == "order" and self._match(TokenType.ORDER_BY, advance=False):
            clause = self._required(self._parse_order())
            if not clause.expressions:
                raise self._expected("an expression")
        elif key == "limit" and self._match(TokenType.LIMIT):
            clause = exp.Limit(expression=self._required(self._parse_term(), "a number"))
        elif key == "offset" and self._match(TokenType.OFFSET):
            clause = exp.Offset(expression=self._required(self._parse_term(), "a number"))
        elif key == "priority_by" and self._word("PRIORITY", "BY"):
            clause = PriorityBy(this=self._parse_scalar())
        elif key == "master" and self._word("MASTER"):
            clause = Master(expressions=self._parse_csv(lambda: self._name("a stream")))
        else:
            return None
        return self.expression(clause, start)

    # FROM

    def _parse_table(
        self,
        schema: bool = False,
        joins: bool = False,
        alias_tokens: Collection[TokenType] | None = None,
        parse_bracket: bool = False,
        is_db_reference: bool = False,
        parse_partition: bool = False,
        consume_pipe: bool = False,
    ) -> exp.Expr | None:
        start = self._curr
        source: exp.Expr
        if self._match(TokenType.L_PAREN):
            source = exp.Subquery(this=self._parse_query())
            self._match_r_paren()
        elif self._emit_ahead():
            source = exp.Subquery(this=self._parse_emit(masters=False))
        else:
            source = exp.Table(this=self._parse_source_name())
        window = self._parse_stream_window()
        alias = self._parse_table_alias()
        if window is None:
            window = self._parse_stream_window()
        if self._match(TokenType.L_BRACKET, advance=False):
            raise self._fail("a source has one window")
        source.set("alias", alias)
        source = self.expression(source, start)
        # Set last: sqlglot's own nodes do not list this argument, and validation looks at the list.
        source.set("stream_window", window)
        return source

    def _parse_source_name(self) -> exp.Identifier:
        if self._next.token_type is TokenType.L_PAREN and self._word_ahead(("TABLE", *_WINDOW_FUNCTIONS)):
            raise self._window_function()
        word = self._curr.text.upper()
        if word in NOT_CQL and self._next.token_type in (TokenType.L_PAREN, TokenType.VAR):
            raise self._expected("a stream, relation or view")
        name = self._name("a stream, relation, view or query in FROM")
        if self._match(TokenType.DOT, advance=False):
            raise self._fail("names of streams, relations and views have one part")
        if self._match(TokenType.L_PAREN, advance=False):
            raise self._fail("a function in FROM is not part of CQL")
        return name

    def _window_function(self) -> CqlSyntaxError:
        """``TABLE(TUMBLE(TABLE s, DESCRIPTOR(at), INTERVAL '10' MINUTE))`` is ``s [TUMBLING …]`` here."""
        token = self._curr
        self._word("TABLE")
        self._match(TokenType.L_PAREN)
        function = self._curr.text.upper()
        if function not in _WINDOW_FUNCTIONS:
            return self._fail("a function in FROM is not part of CQL", token)
        self._advance()
        self._match(TokenType.L_PAREN)
        source: str | None = None
        keys, lengths = "", []
        while self._curr and self._curr.token_type is not TokenType.SEMICOLON:
            start, begins = self._curr, self._prev.token_type is TokenType.L_PAREN and source is None
            if self._word("TABLE") and self._curr:
                source = self._find_sql(self._curr, self._curr)
            elif begins and start.token_type in (TokenType.VAR, TokenType.IDENTIFIER):
                source = self._find_sql(start, start)
                self._advance()
            elif self._match(TokenType.PARTITION_BY):
                while self._curr and self._curr.token_type not in (TokenType.COMMA, TokenType.R_PAREN):
                    self._advance()
                keys = f"{self._find_sql(start, self._prev)} "
            elif start.token_type is TokenType.INTERVAL and self._parse_interval() is not None:
                lengths.append(self._find_sql(start, self._prev))
            else:
                self._advance()
        form, wanted = _WINDOW_FUNCTIONS[function]
        known = source is not None and len(lengths) == wanted
        hint = f"write {source} [{keys}{form.format(*lengths)}]" if known else None
        return self._fail(f"{function} is written as a window in brackets", token, hint=hint)

    def _parse_table_alias(self, alias_tokens: Collection[TokenType] | None = None) -> exp.TableAlias | None:
        if self._match(TokenType.ALIAS):
            name: exp.Expr | None = self._name("a name after AS")
        elif self._clause_ahead() or self._semi_ahead():
            return None
        else:
            if self._word_ahead(WINDOWS):
                raise self._bare_window()
            if self._word_ahead(AFTER_SOURCE):
                raise self._no_alias()
            name = self._parse_id_var()
        if name is None:
            return None
        columns: list[exp.Identifier] = []
        if self._match(TokenType.L_PAREN):
            columns = self._parse_csv(lambda: self._name("a column name"))
            self._match_r_paren()
        return self.expression(exp.TableAlias(this=name, columns=columns or None))

    def _semi_ahead(self) -> bool:
        return self._word_ahead(_SEMI) and self._next.token_type is TokenType.JOIN

    def _parse_join(self, *_: Any, **__: Any) -> exp.Join | None:
        start = self._curr
        if self._match(TokenType.COMMA):
            return self.expression(exp.Join(this=self._parse_table()), start)
        join = exp.Join()
        if self._match(TokenType.NATURAL):
            join.set("method", "NATURAL")
        if self._match_set((TokenType.LEFT, TokenType.RIGHT, TokenType.FULL)):
            side = self._prev.text.upper()
            if side == "LEFT" and self._semi_ahead():
                self._advance()
                join.set("kind", self._prev.text.upper())
            else:
                join.set("side", side)
                self._match(TokenType.OUTER)
        elif self._match_set((TokenType.INNER, TokenType.CROSS)):
            join.set("kind", self._prev.text.upper())
        elif self._semi_ahead():
            self._advance()
            join.set("kind", self._prev.text.upper())
        elif not self._match(TokenType.JOIN, advance=False) and not join.args.get("method"):
            return None
        if self._semi_ahead():
            word = self._curr.text.upper()
            raise self._fail(f"{start.text.upper()} {word} JOIN is not part of CQL", start,
                             hint=f"exchange the two sides, with {word} JOIN between them")  # fmt: skip
        self._take(TokenType.JOIN, "JOIN")
        join.set("this", self._parse_table())
        if join.args.get("kind") == "CROSS" or join.args.get("method"):
            return self.expression(join, start)
        if self._match(TokenType.ON):
            join.set("on", self._parse_scalar())
        elif self._match(TokenType.USING):
            self._take(TokenType.L_PAREN, "(")
            join.set("using", self._parse_csv(lambda: self._name("a column name")))
            self._match_r_paren()
        else:
            raise self._expected("ON and a condition, or USING and columns")
        return self.expression(join, start)

    # ISTREAM(…), sub-queries and set operations

    def _emit_ahead(self) -> bool:
        return self._word_ahead(EMITS) and self._next.token_type is TokenType.L_PAREN

    def _parse_emit(self, masters: bool = True) -> exp.Expr:
        """``masters`` is off in FROM, where MASTER belongs to the query around."""
        start = self._curr
        self._advance(2)
        emit = self.expression(Emit(this=self._parse_query(), kind=start.text.upper()), start)
        self._match_r_paren()
        return self._parse_query_modifiers(emit) if masters else emit

    def _parse_paren(self) -> exp.Expr | None:
        this = super()._parse_paren()
        if isinstance(this, exp.Paren) and isinstance(this.this, Emit):
            return self.expression(exp.Subquery(this=this.this))
        return this

    def _parse_in(self, this: exp.Expr | None, alias: bool = False) -> exp.In:
        self._take(TokenType.L_PAREN, "( and a list or a query after IN")
        query = self._parse_select()
        if query is not None:
            node = exp.In(this=this, query=exp.Subquery(this=query))
        else:
            values = self._parse_csv(self._parse_scalar)
            if len(values) == 1 and isinstance(values[0], exp.Subquery):
                # Parentheses around the query may be the first operand of a set operation.
                query = self._parse_query_modifiers(self._parse_set_operations(values[0]))
                node = exp.In(this=this, query=exp.Subquery(this=query))
            else:
                node = exp.In(this=this, expressions=values)
        self._match_r_paren()
        return self.expression(node)

    def parse_set_operation(
        self, this: exp.Expr | None, consume_pipe: bool = False, intersect_only: bool = False
    ) -> exp.SetOperation | None:
        start = self._curr
        operation = super().parse_set_operation(this, consume_pipe, intersect_only)
        if operation is None:
            return None
        operation.update_positions(start)
        if this is not None and not isinstance(this, exp.Subquery):
            for key in self.SET_OP_MODIFIERS:
                if this.args.get(key):
                    raise self._fail(
                        f"{_CLAUSES[key]} before {start.text.upper()}",
                        start,
                        hint="put the query on the left in parentheses, or the clause at the end",
                    )
        return operation

    def _parse_set_operations(self, this: exp.Expr | None) -> exp.Expr | None:
        this = super()._parse_set_operations(this)
        return self._parse_query_modifiers(this) if isinstance(this, exp.SetOperation) else this
