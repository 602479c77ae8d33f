"""The nodes CQL adds to sqlglot's syntax trees.

Queries are sqlglot's own ``Select``, set operations and ``Subquery``; what is new hangs on them as
``stream_window`` (of a ``Table`` or ``Subquery``), ``priority_by`` (of a ``Select``) and ``master`` (of a query).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sqlglot import exp


class Emit(exp.Expression, exp.Query):
    """``ISTREAM(query)``: the function form of a relation-to-stream operator; ``kind`` is its name."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "kind": True, "master": False, "with_": False}

    @property
    def selects(self) -> list[exp.Expr]:
        return self.this.selects if isinstance(self.this, exp.Query) else []


class Master(exp.Expression):
    """``MASTER s1, s2``: the streams whose arrivals are the instants of evaluation."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True}


class PriorityBy(exp.Expression):
    """``PRIORITY BY e``: how important each row is."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class StreamWindow(exp.Expression):
    """``[…]`` behind a source; ``kind`` says which of the other arguments are there."""

    arg_types: ClassVar[dict[str, bool]] = {
        "kind": True,
        "partition_by": False,
        "size": False,
        "slide": False,
        "begin": False,
        "end": False,
        "hop_low": False,
        "hop_high": False,
        "end_query": False,
        "gap": False,
        "tuples": False,
    }


class Option(exp.Expression):
    """``name = value`` inside ``WITH (…)``."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expression": True}


class CreateStream(exp.Expression):
    """A declared stream (``columns``) or a derived one (``expression`` is its query)."""

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "columns": False,
        "timestamp_by": False,
        "slack": False,
        "priority_by": False,
        "source": False,
        "options": False,
        "expression": False,
        "exists": False,
    }


class SourceOf(exp.Expression):
    """``FROM spark (…)`` of a stream."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "options": True}


class CreateView(exp.Expression):
    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expression": True, "replace": False}


class CreateRelation(exp.Expression):
    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "columns": True,
        "key": False,
        "options": False,
        "exists": False,
    }


class CreateQuery(exp.Expression):
    """A registered query; ``into`` names the stream its answers are pushed to."""

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "expression": True,
        "into": False,
        "options": False,
        "exists": False,
    }


class PlanObject(exp.Expression):
    """``PLAN '…'``: a plan object in the place of a query; ``this`` is the literal with its JSON form."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class StopQuery(exp.Expression):
    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class AlterQuery(exp.Expression):
    """``options``: those that the query has from now on; NULL takes one back."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "options": True}


class SuspendQuery(exp.Expression):
    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class ResumeQuery(exp.Expression):
    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class DropObject(exp.Expression):
    """``kind`` is STREAM, RELATION, VIEW or QUERY."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "kind": True, "exists": False}


class ShowObjects(exp.Expression):
    """``kind`` is STREAMS, RELATIONS, VIEWS, QUERIES or FUNCTIONS; ``all``: queries that were stopped, too."""

    arg_types: ClassVar[dict[str, bool]] = {"kind": True, "all": False}


class DescribeObject(exp.Expression):
    """``kind`` is STREAM, RELATION, VIEW, QUERY or FUNCTION, where it is said."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "kind": False}


class Explain(exp.Expression):
    """``this`` is a query, or the identifier of a registered one; ``format`` is TEXT, JSON or MERMAID;
    ``alternatives``: with the plans that could be run in its place."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "format": True, "alternatives": False}


class InsertInto(exp.Expression):
    """``rows`` are ``exp.Tuple``; ``at`` is the instant, where one is given."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "columns": False, "rows": True, "at": False}


class UpdateRelation(exp.Expression):
    """``assignments`` are ``exp.EQ`` with a column on the left."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "assignments": True, "where": False, "at": False}


class DeleteFrom(exp.Expression):
    arg_types: ClassVar[dict[str, bool]] = {"this": True, "where": False, "at": False}


@dataclass(frozen=True)
class FunctionCall:
    """A call as written: the name in lower case; ``args`` is empty for ``f(*)``."""

    name: str
    args: list[exp.Expr]
    distinct: bool = False
    star: bool = False
    filter: exp.Expr | None = None


def function_call(node: exp.Expr) -> FunctionCall | None:
    """What is called where the node is a call, else None.

    Every call is an ``exp.Anonymous``: ``f(DISTINCT a, b)`` has one ``exp.Distinct`` argument, ``f(*)`` one
    ``exp.Star``, and ``f(…) FILTER (WHERE c)`` is an ``exp.Filter`` around the call. ``EXTRACT(hour FROM x)``
    is a call of ``extract`` with the literal ``'hour'`` and ``x``.
    """
    condition: exp.Expr | None = None
    if isinstance(node, exp.Filter):
        where = node.expression
        condition = where.this if isinstance(where, exp.Where) else where
        node = node.this
    if not isinstance(node, exp.Anonymous):
        return None
    name = node.this if isinstance(node.this, str) else node.this.name
    args: list[exp.Expr] = node.expressions
    if len(args) == 1 and isinstance(args[0], exp.Star):
        return FunctionCall(name.lower(), [], star=True, filter=condition)
    if len(args) == 1 and isinstance(args[0], exp.Distinct):
        return FunctionCall(name.lower(), args[0].expressions, distinct=True, filter=condition)
    return FunctionCall(name.lower(), args, filter=condition)


STATEMENTS = (
    CreateStream, CreateRelation, CreateView, CreateQuery, AlterQuery, SuspendQuery, ResumeQuery, StopQuery, DropObject,
    ShowObjects, DescribeObject, Explain, InsertInto, UpdateRelation, DeleteFrom,
)  # fmt: skip
"""What is no query."""
