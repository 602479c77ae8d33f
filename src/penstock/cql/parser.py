"""Statements of CQL."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from penstock.cql import ast
from penstock.cql.parse_queries import QueryParser
from penstock.cql.plain_values import PlainRows, PlainValues
from penstock.model.errors import CqlSyntaxError

_STATEMENTS = (
    "SELECT, WITH, CREATE, DROP, SHOW, DESCRIBE, INSERT, UPDATE, DELETE, ALTER QUERY, SUSPEND QUERY, RESUME QUERY, "
    "STOP QUERY or EXPLAIN"
)
_SHOWN = ("STREAMS", "RELATIONS", "QUERIES", "VIEWS", "FUNCTIONS")
_KINDS = ("STREAM", "RELATION", "VIEW", "QUERY")
_DESCRIBED = (*_KINDS, "FUNCTION")
_FORMATS = ("TEXT", "JSON", "MERMAID")
_OF_QUERIES = {"STOP": ast.StopQuery, "SUSPEND": ast.SuspendQuery, "RESUME": ast.ResumeQuery}


class CqlParser(QueryParser):
    plain: Mapping[int, PlainValues] = MappingProxyType({})
    """Rows of VALUES that have been read already, by the place of their first parenthesis."""

    def too_deep(self) -> CqlSyntaxError:
        """An error where the parser has come to in a statement that is deeper than Python's stack."""
        return self._fail("the statement is nested too deeply")

    def parse_rows(self, tokens: list[Token], text: str) -> list[exp.Expr]:
        """The rows of VALUES that the tokens are."""

        def parse(parser: CqlParser) -> exp.Expr:
            return exp.Tuple(expressions=parser._parse_csv(parser._parse_row_of_values))

        (rows,) = self._parse(parse, tokens, text)  # type: ignore[arg-type]
        assert rows is not None
        return rows.expressions

    def _parse_statement(self) -> exp.Expr | None:
        if not self._curr or self._match(TokenType.SEMICOLON):
            return None
        start = self._curr
        tree = self._parse_any_statement()
        if self._curr:
            raise self._unexpected()
        if tree.meta_get("start") is None:
            tree.update_positions(start)
        tree.add_comments([c for c in start.comments if c not in (tree.comments or [])], prepend=True)
        return tree

    def _parse_any_statement(self) -> exp.Expr:
        if self._match(TokenType.CREATE):
            return self._parse_create_object()
        if self._match(TokenType.DROP):
            kind = self._parse_word(_KINDS)
            exists = self._word("IF", "EXISTS")
            return ast.DropObject(this=self._name(), kind=kind, exists=exists)
        if self._match(TokenType.INSERT):
            return self._parse_insert_into()
        if self._match(TokenType.UPDATE):
            return self._parse_update_relation()
        if self._match(TokenType.DELETE):
            self._take(TokenType.FROM, "FROM")
            return ast.DeleteFrom(this=self._name("a relation"), where=self._parse_filter(), at=self._parse_at())
        if self._match_set((TokenType.DESCRIBE, TokenType.DESC)):
            described: str | None = None
            if self._word_ahead(_DESCRIBED) and self._next.token_type in (TokenType.VAR, TokenType.IDENTIFIER):
                described = self._parse_word(_DESCRIBED)
            return ast.DescribeObject(this=self._name(), kind=described)
        if self._word("SHOW"):
            if self._word("ALL"):
                return ast.ShowObjects(kind=self._parse_word(("QUERIES",)), all=True)
            return ast.ShowObjects(kind=self._parse_word(_SHOWN, also="ALL QUERIES"))
        for word, node in _OF_QUERIES.items():
            if self._word(word):
                self._take_words("QUERY")
                return node(this=self._name("the name of a query"))
        if self._word("ALTER"):
            return self._parse_alter_query()
        if self._word("EXPLAIN"):
            return self._parse_explain()
        if self._query_ahead():
            return self._parse_query()
        raise self._expected(f"a statement ({_STATEMENTS})")

    def _query_ahead(self) -> bool:
        return self._emit_ahead() or self._match_set(
            (TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN), advance=False
        )

    def _parse_word(self, words: tuple[str, ...], also: str | None = None) -> str:
        """One of the words; ``also``: what else could have stood there."""
        if not self._match_texts(words):
            *others, last = (*words, also) if also else words
            raise self._expected(" or ".join(filter(None, (", ".join(others), last))))
        return self._prev.text.upper()

    # CREATE

    def _parse_create_object(self) -> exp.Expr:
        if self._match(TokenType.OR):
            self._take_words("REPLACE")
            if not self._word_ahead(("VIEW",)):
                raise self._fail(f"expected VIEW, found {self._found()}", hint="only a view can be replaced")
            self._advance()
            return self._parse_create_view(replace=True)
        match self._parse_word(_KINDS):
            case "STREAM":
                return self._parse_create_stream()
            case "RELATION":
                return self._parse_create_relation()
            case "VIEW":
                return self._parse_create_view(replace=False)
        return self._parse_create_query()

    def _parse_create_stream(self) -> exp.Expr:
        exists = self._word("IF", "NOT", "EXISTS")
        name = self._name("a name for the stream")
        if self._match(TokenType.ALIAS):
            return ast.CreateStream(this=name, expression=self._parse_query(), exists=exists)
        stream = ast.CreateStream(this=name, exists=exists, columns=self._parse_columns("AS and a query"))
        if self._word("TIMESTAMP", "BY"):
            stream.set("timestamp_by", self._name("a column after TIMESTAMP BY"))
            if self._word("SLACK"):
                stream.set("slack", self._parse_duration())
        if self._word("PRIORITY", "BY"):
            stream.set("priority_by", self._parse_scalar())
        if self._match(TokenType.FROM):
            stream.set("source", self._parse_source())
        stream.set("options", self._parse_options())
        return stream

    def _parse_source(self) -> ast.SourceOf:
        """Where the rows of a stream come from: an engine that reads them, and options."""
        engine = self._name("spark")
        self._take(TokenType.L_PAREN, "( and options, as in FROM spark (format = 'rate')")
        options = self._parse_csv(self._parse_option)
        self._match_r_paren()
        return self.expression(ast.SourceOf(this=engine, options=options))

    def _parse_create_relation(self) -> exp.Expr:
        exists = self._word("IF", "NOT", "EXISTS")
        name = self._name("a name for the relation")
        columns = self._parse_columns(keyed=True)
        key: list[exp.Identifier] = []
        if self._word("KEY"):
            self._take(TokenType.L_PAREN, "( and the columns of the key")
            key = self._parse_csv(lambda: self._name("a column name"))
            self._match_r_paren()
        return ast.CreateRelation(this=name, columns=columns, key=key, options=self._parse_options(), exists=exists)

    def _parse_create_view(self, replace: bool) -> exp.Expr:
        name = self._name("a name for the view")
        self._take(TokenType.ALIAS, "AS and a query")
        return ast.CreateView(this=name, expression=self._parse_query(), replace=replace)

    def _parse_create_query(self) -> exp.Expr:
        exists = self._word("IF", "NOT", "EXISTS")
        name = self._name("a name for the query")
        self._take(TokenType.ALIAS, "AS and a query")
        query = self._parse_plan() if self._word("PLAN") else self._parse_query()
        into = self._name("a stream after INTO") if self._match(TokenType.INTO) else None
        return ast.CreateQuery(this=name, expression=query, into=into, options=self._parse_options(), exists=exists)

    def _parse_plan(self) -> ast.PlanObject:
        text = self._take(TokenType.STRING, "a text with a plan object in JSON")
        return self.expression(ast.PlanObject(this=exp.Literal.string(text.text)), text)
    def _parse_alter_query(self) -> exp.Expr:
        self._take_words("QUERY")
        name = self._name("the name of a query")
        self._take(TokenType.SET, "SET and options, as in SET (priority = 9)")
        self._take(TokenType.L_PAREN, "( and options, as in SET (priority = 9)")
        options = self._parse_csv(self._parse_option)
        self._match_r_paren()
        return ast.AlterQuery(this=name, options=options)

    def _parse_columns(self, otherwise: str | None = None, keyed: bool = False) -> list[exp.ColumnDef]:
        what = "( and the columns" + (f", or {otherwise}" if otherwise else "")
        self._take(TokenType.L_PAREN, what)
        columns = self._parse_csv(lambda: self._parse_column_declaration(keyed))
        if not self._match(TokenType.R_PAREN):
            raise self._expected("`,`, NOT NULL or )")
        return columns

    def _parse_column_declaration(self, keyed: bool) -> exp.ColumnDef:
        name = self._name("a column name")
        column = exp.ColumnDef(this=name, kind=self._parse_types())
        if self._match(TokenType.NOT):
            start = self._prev
            self._take(TokenType.NULL, "NULL")
            constraint = exp.ColumnConstraint(kind=exp.NotNullColumnConstraint())
            column.set("constraints", [self.expression(constraint, start)])
        elif self._word_ahead(("PRIMARY", "KEY", "UNIQUE")):
            hint = "write KEY (…) behind the columns" if keyed else "only a relation has a KEY"
            raise self._fail(f"{self._curr.text.upper()} of a column", hint=hint)
        return self.expression(column)

    def _parse_options(self) -> list[ast.Option]:
        if not self._match(TokenType.WITH):
            return []
        self._take(TokenType.L_PAREN, "( and options, as in WITH (priority = 3)")
        options = self._parse_csv(self._parse_option)
        self._match_r_paren()
        return options

    def _parse_option(self) -> ast.Option:
        name = self._name("the name of an option")
        self._take(TokenType.EQ, "=")
        return self.expression(ast.Option(this=name, expression=self._parse_instant()))

    # Changes of data

    def _parse_insert_into(self) -> exp.Expr:
        self._take(TokenType.INTO, "INTO")
        name = self._name("a stream or relation")
        columns: list[exp.Identifier] | None = None
        if self._match(TokenType.L_PAREN):
            columns = self._parse_csv(lambda: self._name("a column name"))
            self._match_r_paren()
        self._take(TokenType.VALUES, "VALUES")
        rows: list[exp.Expr]
        if self._match(TokenType.L_PAREN, advance=False) and self._curr.start in self.plain:
            self._advance()
            rows = [self.expression(PlainRows(this=self.plain[self._prev.start]), self._prev)]
        else:
            rows = [*self._parse_csv(self._parse_row_of_values)]
        return ast.InsertInto(this=name, columns=columns, rows=rows, at=self._parse_at())

    def _parse_row_of_values(self) -> exp.Tuple:
        start = self._take(TokenType.L_PAREN, "( and the values of a row")
        values = self._parse_csv(self._parse_scalar)
        if not self._match(TokenType.R_PAREN):
            raise self._expected("`,` or )")
        return self.expression(exp.Tuple(expressions=values), start)

    def _parse_update_relation(self) -> exp.Expr:
        name = self._name("a relation")
        self._take(TokenType.SET, "SET")
        assignments = self._parse_csv(self._parse_set_column)
        return ast.UpdateRelation(this=name, assignments=assignments, where=self._parse_filter(), at=self._parse_at())

    def _parse_set_column(self) -> exp.EQ:
        column = self.expression(exp.Column(this=self._name("a column name")))
        self._take(TokenType.EQ, "=")
        return self.expression(exp.EQ(this=column, expression=self._parse_scalar()))

    def _parse_filter(self) -> exp.Expr | None:
        return self._parse_scalar() if self._match(TokenType.WHERE) else None

    def _parse_at(self) -> exp.Expr | None:
        return self._parse_instant() if self._word("AT") else None

    # EXPLAIN

    def _parse_explain(self) -> exp.Expr:
        said: dict[str, str | bool] = {"format": "TEXT"}
        if self._match(TokenType.L_PAREN, advance=False) and self._next.text.upper() in ("FORMAT", "ALTERNATIVES"):
            self._advance()
            while True:
                if self._parse_word(("ALTERNATIVES", "FORMAT")) == "FORMAT":
                    said["format"] = self._parse_word(_FORMATS)
                else:
                    said["alternatives"] = True
                if not self._match(TokenType.COMMA):
                    break
            self._match_r_paren()
        if self._query_ahead():
            return ast.Explain(this=self._parse_query(), **said)
        if self._word_ahead(("PLAN",)) and self._next and self._next.token_type == TokenType.STRING:
            self._advance()
            return ast.Explain(this=self._parse_plan(), **said)
        return ast.Explain(this=self._name("a query, or the name of a registered one"), **said)
