"""Prints trees of CQL back as text."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from sqlglot import exp, generator

from penstock.cql import ast
from penstock.cql.plain_values import PlainRows

# Clauses and operators that bind less than any predicate.
_APART = (exp.Where, exp.Having, exp.And, exp.Or, exp.Paren, exp.Join)
_RANGES = (exp.In, exp.Like, exp.ILike, exp.Between, exp.Is)


class CqlGenerator(generator.Generator):
    TYPE_MAPPING: ClassVar[dict[exp.DType, str]] = {
        **generator.Generator.TYPE_MAPPING,
        exp.DType.FLOAT: "REAL",
        exp.DType.TEXT: "STRING",
    }

    # Queries

    def select_sql(self, expression: exp.Select) -> str:
        words = ["SELECT"]
        words += [self.sql(word) for word in expression.args.get("operation_modifiers") or []]
        words += ["DISTINCT"] if expression.args.get("distinct") else []
        words.append(self.expressions(expression, flat=True))
        sql = self.query_modifiers(expression, " ".join(words), self.sql(expression, "from_"))
        return self.prepend_ctes(expression, sql)

    def after_limit_modifiers(self, expression: exp.Expr) -> list[str]:
        clauses = [self.sql(expression, key) for key in ("priority_by", "master")]
        return ["".join(f" {clause}" for clause in clauses if clause)]

    def priorityby_sql(self, expression: ast.PriorityBy) -> str:
        return f"PRIORITY BY {self.sql(expression, 'this')}"

    def master_sql(self, expression: ast.Master) -> str:
        return f"MASTER {self.expressions(expression, flat=True)}"

    def emit_sql(self, expression: ast.Emit) -> str:
        sql = f"{expression.args['kind']}({self.sql(expression, 'this')})"
        return self.prepend_ctes(expression, sql + self.after_limit_modifiers(expression)[0])

    def table_sql(self, expression: exp.Table, sep: str = " AS ") -> str:
        return self.sql(expression, "this") + self._source_suffix(expression)

    def subquery_sql(self, expression: exp.Subquery, sep: str = " AS ") -> str:
        bare = (
            isinstance(expression.this, ast.Emit)
            and isinstance(expression.parent, exp.From | exp.Join)
            and not any(expression.this.args.get(key) for key in ("master", "with_"))
        )
        sql = self.sql(expression, "this") if bare else self.wrap(expression)
        sql = self.query_modifiers(expression, sql, self._source_suffix(expression))
        return self.prepend_ctes(expression, sql)

    def _source_suffix(self, expression: exp.Expr) -> str:
        window, alias = self.sql(expression, "stream_window"), self.sql(expression, "alias")
        return (f" {window}" if window else "") + (f" AS {alias}" if alias else "")

    # Windows

    def streamwindow_sql(self, expression: ast.StreamWindow) -> str:
        keys = self.expressions(expression, key="partition_by", flat=True)
        body = self._window_body(expression)
        return f"[PARTITION BY {keys} {body}]" if keys else f"[{body}]"

    def _window_body(self, window: ast.StreamWindow) -> str:
        match window.args["kind"]:
            case "rows" | "range" as kind:
                return self._clauses(window, (kind.upper(), "size"), ("SLIDE", "slide"))
            case "tumbling":
                return self._clauses(window, ("TUMBLING", "size"))
            case "hopping":
                return self._clauses(window, ("HOPPING", "size"), ("EVERY", "slide"))
            case "session":
                return self._clauses(window, ("SESSION GAP", "gap"))
            case "generic":
                return self._generic_window(window)
            case kind:
                return str(kind).upper()

    def _generic_window(self, window: ast.StreamWindow) -> str:
        unit = " TUPLES" if window.args.get("tuples") else ""
        clauses = [
            f"BEGIN WINDOW {self.sql(window, 'begin')}{unit}",
            f"END WINDOW {self.sql(window, 'end')}{unit}",
        ]
        if window.args.get("hop_low") is not None:
            clauses.append(f"HOP SIZE ({self.sql(window, 'hop_low')}, {self.sql(window, 'hop_high')})")
        if window.args.get("end_query") is not None:
            clauses.append(f"END QUERY {self.sql(window, 'end_query')}{unit}")
        return " ".join(clauses)

    def _clauses(self, window: ast.StreamWindow, *clauses: tuple[str, str]) -> str:
        present = [(word, window.args[key]) for word, key in clauses if window.args.get(key) is not None]
        return " ".join(f"{word} {self._duration(node)}" for word, node in present)

    def _duration(self, node: exp.Expr) -> str:
        """``10 MINUTES`` rather than ``INTERVAL '10' MINUTE``, where nothing else is allowed."""
        if isinstance(node, exp.Neg) and isinstance(node.this, exp.Interval):
            return f"-{self._duration(node.this)}"
        if isinstance(node, exp.Interval) and node.args.get("unit") is not None:
            number = node.this.name
            return f"{number} {node.args['unit'].name}{'' if number == '1' else 'S'}"
        return self.sql(node)

    # Expressions

    def intdiv_sql(self, expression: exp.IntDiv) -> str:
        return self.binary(expression, "DIV")

    def not_sql(self, expression: exp.Not) -> str:
        """``a NOT IN (…)`` where nothing around could pull it apart, else ``NOT a IN (…)``."""
        inner = expression.this
        if isinstance(expression.parent, _APART) and isinstance(inner, _RANGES):
            left, sql = self.sql(inner, "this"), self.sql(inner)
            verb = " IS" if isinstance(inner, exp.Is) else ""
            return f"{left}{verb} NOT{sql[len(left + verb) :]}"
        return super().not_sql(expression)

    def cast_sql(self, expression: exp.Cast, safe_prefix: str | None = None) -> str:
        value, to = expression.this, expression.args["to"]
        literal = isinstance(value, exp.Literal) and value.is_string
        if literal and not safe_prefix and to.this in (exp.DType.DATE, exp.DType.TIMESTAMP):
            return f"{self.sql(to)} {self.sql(value)}"
        return super().cast_sql(expression, safe_prefix)

    def filter_sql(self, expression: exp.Filter) -> str:
        return f"{self.sql(expression, 'this')} FILTER ({self.sql(expression, 'expression').strip()})"

    def exists_sql(self, expression: exp.Exists) -> str:
        return f"EXISTS ({self.sql(expression, 'this')})"

    def trim_sql(self, expression: exp.Trim) -> str:
        characters = self.sql(expression, "expression")
        side = self.sql(expression, "position")
        return f"TRIM({side} {characters + ' ' if characters else ''}FROM {self.sql(expression, 'this')})"

    def anonymous_sql(self, expression: exp.Anonymous) -> str:
        args = expression.expressions
        if str(expression.this).upper() == "EXTRACT" and len(args) == 2 and args[0].name.isidentifier():
            return f"EXTRACT({args[0].name} FROM {self.sql(args[1])})"
        return super().anonymous_sql(expression)

    # Statements

    def option_sql(self, expression: ast.Option) -> str:
        return f"{self.sql(expression, 'this')} = {self.sql(expression, 'expression')}"

    def _options(self, expression: exp.Expr) -> str:
        options = self.expressions(expression, key="options", flat=True)
        return f"WITH ({options})" if options else ""

    def _words(self, *words: str) -> str:
        return " ".join(word for word in words if word)

    def _optional(self, expression: exp.Expr, words: str, key: str) -> str:
        sql = self.sql(expression, key)
        return f"{words} {sql}" if sql else ""

    def createstream_sql(self, expression: ast.CreateStream) -> str:
        columns = self.expressions(expression, key="columns", flat=True)
        slack = expression.args.get("slack")
        return self._words(
            "CREATE STREAM",
            "IF NOT EXISTS" if expression.args.get("exists") else "",
            self.sql(expression, "this"),
            f"({columns})" if columns else "",
            self._optional(expression, "AS", "expression"),
            self._optional(expression, "TIMESTAMP BY", "timestamp_by"),
            f"SLACK {self._duration(slack)}" if slack is not None else "",
            self._optional(expression, "PRIORITY BY", "priority_by"),
            self._optional(expression, "FROM", "source"),
            self._options(expression),
        )

    def sourceof_sql(self, expression: ast.SourceOf) -> str:
        return f"{self.sql(expression, 'this')} ({self.expressions(expression, key='options', flat=True)})"

    def createrelation_sql(self, expression: ast.CreateRelation) -> str:
        key = self.expressions(expression, key="key", flat=True)
        return self._words(
            "CREATE RELATION",
            "IF NOT EXISTS" if expression.args.get("exists") else "",
            self.sql(expression, "this"),
            f"({self.expressions(expression, key='columns', flat=True)})",
            f"KEY ({key})" if key else "",
            self._options(expression),
        )

    def createview_sql(self, expression: ast.CreateView) -> str:
        create = "CREATE OR REPLACE VIEW" if expression.args.get("replace") else "CREATE VIEW"
        return f"{create} {self.sql(expression, 'this')} AS {self.sql(expression, 'expression')}"

    def createquery_sql(self, expression: ast.CreateQuery) -> str:
        return self._words(
            "CREATE QUERY",
            "IF NOT EXISTS" if expression.args.get("exists") else "",
            self.sql(expression, "this"),
            self._optional(expression, "AS", "expression"),
            self._optional(expression, "INTO", "into"),
            self._options(expression),
        )

    def planobject_sql(self, expression: ast.PlanObject) -> str:
        return f"PLAN {self.sql(expression, 'this')}"

    def stopquery_sql(self, expression: ast.StopQuery) -> str:
        return f"STOP QUERY {self.sql(expression, 'this')}"

    def alterquery_sql(self, expression: ast.AlterQuery) -> str:
        options = self.expressions(expression, key="options", flat=True)
        return f"ALTER QUERY {self.sql(expression, 'this')} SET ({options})"

    def suspendquery_sql(self, expression: ast.SuspendQuery) -> str:
        return f"SUSPEND QUERY {self.sql(expression, 'this')}"

    def resumequery_sql(self, expression: ast.ResumeQuery) -> str:
        return f"RESUME QUERY {self.sql(expression, 'this')}"

    def dropobject_sql(self, expression: ast.DropObject) -> str:
        exists = "IF EXISTS" if expression.args.get("exists") else ""
        return self._words("DROP", expression.args["kind"], exists, self.sql(expression, "this"))

    def showobjects_sql(self, expression: ast.ShowObjects) -> str:
        return self._words("SHOW", "ALL" if expression.args.get("all") else "", expression.args["kind"])

    def describeobject_sql(self, expression: ast.DescribeObject) -> str:
        return self._words("DESCRIBE", expression.args.get("kind") or "", self.sql(expression, "this"))

    def explain_sql(self, expression: ast.Explain) -> str:
        style = expression.args["format"]
        said = ["ALTERNATIVES"] if expression.args.get("alternatives") else []
        said += [] if style == "TEXT" else [f"FORMAT {style}"]
        return self._words("EXPLAIN", f"({', '.join(said)})" if said else "", self.sql(expression, "this"))

    def insertinto_sql(self, expression: ast.InsertInto) -> str:
        columns = self.expressions(expression, key="columns", flat=True)
        return self._words(
            "INSERT INTO",
            self.sql(expression, "this"),
            f"({columns})" if columns else "",
            f"VALUES {self.expressions(expression, key='rows', flat=True)}",
            self._optional(expression, "AT", "at"),
        )

    def plainrows_sql(self, expression: PlainRows) -> str:
        return ", ".join(f"({', '.join(row)})" for row in expression.this.rows())

    def updaterelation_sql(self, expression: ast.UpdateRelation) -> str:
        return self._words(
            "UPDATE",
            self.sql(expression, "this"),
            f"SET {self.expressions(expression, key='assignments', flat=True)}",
            self._optional(expression, "WHERE", "where"),
            self._optional(expression, "AT", "at"),
        )

    def deletefrom_sql(self, expression: ast.DeleteFrom) -> str:
        return self._words(
            "DELETE FROM",
            self.sql(expression, "this"),
            self._optional(expression, "WHERE", "where"),
            self._optional(expression, "AT", "at"),
        )

    # sqlglot finds methods by name only for its own nodes.
    TRANSFORMS: ClassVar[dict[type[exp.Expr], Callable[..., str]]] = {
        **generator.Generator.TRANSFORMS,
        ast.CreateQuery: createquery_sql,
        ast.CreateRelation: createrelation_sql,
        ast.CreateStream: createstream_sql,
        ast.SourceOf: sourceof_sql,
        ast.CreateView: createview_sql,
        ast.DeleteFrom: deletefrom_sql,
        ast.DescribeObject: describeobject_sql,
        ast.DropObject: dropobject_sql,
        ast.Emit: emit_sql,
        ast.Explain: explain_sql,
        ast.InsertInto: insertinto_sql,
        ast.Master: master_sql,
        ast.PriorityBy: priorityby_sql,
        ast.Option: option_sql,
        ast.PlanObject: planobject_sql,
        PlainRows: plainrows_sql,
        ast.ShowObjects: showobjects_sql,
        ast.StopQuery: stopquery_sql,
        ast.SuspendQuery: suspendquery_sql,
        ast.ResumeQuery: resumequery_sql,
        ast.AlterQuery: alterquery_sql,
        ast.StreamWindow: streamwindow_sql,
        ast.UpdateRelation: updaterelation_sql,
    }
