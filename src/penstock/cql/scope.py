"""Which columns a name can mean at a place in a query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from penstock import functions
from penstock.catalog import Unread
from penstock.model.errors import BindError, suggest
from penstock.model.names import Names
from penstock.model.schema import Schema
from penstock.model.types import DataType
from penstock.scalar.expr import Column, Expr, transform

# A column of the enclosing query, seen from inside a sub-query, carries this on top of its index until
# the sub-query is attached to the enclosing plan.
OUTER = 1_000_000


@dataclass(frozen=True)
class Item:
    """One entry of FROM: its alias, what it is ("stream", "relation", "sub-query") and where its columns start."""

    alias: str
    what: str
    schema: Schema
    offset: int
    unread: Unread | None = None

    @cached_property
    def names(self) -> Names:
        """Those of its columns."""
        return Names(column.name for column in self.schema)

    def find(self, name: str) -> Column | None:
        place = self.names.find(name)
        if place is None:
            return None
        return Column(self.offset + place, self.schema[place].type, self.schema[place].name)

    def columns(self) -> list[tuple[str, Expr]]:
        return [(c.name, Column(self.offset + i, c.type, c.name)) for i, c in enumerate(self.schema)]


@dataclass
class Scope:
    """The items of one FROM, what ``*`` stands for, and the scope of the enclosing query.

    ``shown`` has a column that USING has merged once. ``before`` has the entries of FROM left of a comma, while what is
    joined right of it is bound.
    """

    items: list[Item] = field(default_factory=list)
    shown: list[tuple[str, Expr]] = field(default_factory=list)
    parent: Scope | None = None
    before: Scope | None = None
    window_bound: DataType | None = None

    @property
    def width(self) -> int:
        return sum(len(item.schema) for item in self.items)

    def add(self, alias: str, what: str, schema: Schema, unread: Unread | None = None) -> None:
        """Put an item to the right of the others."""
        if any(item.alias == alias for item in [*self.items, *(self.before.items if self.before else [])]):
            raise BindError(f"`{alias}` stands twice in FROM", hint="give one of them an alias")
        item = Item(alias, what, schema, self.width, unread=unread)
        self.items.append(item)
        self.shown += item.columns()

    def beside(self, right: Scope) -> Scope:
        """All of this one, and to the right of it all of another one."""
        by = self.width

        def moved(e: Expr) -> Expr:
            return replace(e, index=e.index + by) if isinstance(e, Column) else e

        items = [*self.items, *(replace(item, offset=item.offset + by) for item in right.items)]
        shown = [*self.shown, *((name, transform(e, moved)) for name, e in right.shown)]
        return Scope(items, shown, self.parent)

    def using(self, names: Sequence[str], place: int, kind: str) -> list[tuple[Expr, Expr]]:
        """Let each name mean one column although both sides have it; gives what is equal then.

        The columns of the right side are shown from ``place`` on. The merged ones are shown first, as SQL has it.
        """
        left, right = Scope(self.items[:-1], self.shown[:place]), Scope(self.items[-1:], self.shown[place:])
        pairs = [(left.resolve(name, None), right.resolve(name, None)) for name in names]
        both = [e for pair in pairs for e in pair]
        merged = [(next(n for n, e in left.shown if e == pair[0]), _merged(*pair, kind)) for pair in pairs]
        self.shown = [*merged, *((name, e) for name, e in self.shown if e not in both)]
        return pairs

    def star(self, alias: str | None = None, *, whole: bool = True) -> list[tuple[str, Expr]]:
        """The columns that ``*`` or ``alias.*`` stands for; ``whole``: refuse to leave one out."""
        items = [item for item in self.items if alias in (None, item.alias)]
        if alias is not None and not items:
            raise BindError(f"no `{alias}` in FROM", hint=suggest(alias, (i.alias for i in self.items)))
        for item in items:
            if whole and item.unread is not None:
                raise BindError(
                    f"`*` cannot stand for all columns of `{item.alias}`: CQL has no type for {item.unread}",
                    hint=f"name the columns that you need; {item.unread.hint}",
                )
        return self.shown if alias is None else items[0].columns()

    def unread(self) -> list[tuple[str, Unread]]:
        """The columns behind the items that CQL has no types for."""
        return [(name, item.unread) for item in self.items if item.unread for name in item.unread.columns]

    def resolve(self, name: str, qualifier: str | None) -> Expr:
        """The column a name means here or, failing that, in the enclosing query."""
        scope: Scope | None = self
        depth = 0
        while scope is not None:
            found = scope.find(name, qualifier)
            if found is not None:
                if depth == 0:
                    return found
                if depth > 1:
                    raise BindError(
                        f"`{name}` belongs to a query two levels further out",
                        hint="a sub-query may refer to the query directly around it",
                    )
                if not isinstance(found, Column):
                    raise BindError(f"`{name}` is merged by USING outside", hint="qualify it")
                return Column(found.index + OUTER, found.type, found.name)
            scope, depth = scope.parent, depth + 1
        raise self._unknown(name, qualifier)

    def case_matters(self, name: str) -> bool:
        """Whether an entry of FROM has two columns of this name that only case tells apart."""
        return any(item.names.case_matters(name) for item in self.items)

    def knows(self, alias: str) -> bool:
        """Whether FROM here or further out has an entry of that name."""
        inside = any(item.alias == alias for item in self.items)
        return inside or (self.parent is not None and self.parent.knows(alias))

    def find(self, name: str, qualifier: str | None) -> Expr | None:
        """The column a name means in this FROM, if there is one."""
        if qualifier is not None:
            found = [c for item in self.items if item.alias == qualifier and (c := item.find(name)) is not None]
            return found[0] if found else None
        exact = self.case_matters(name)
        lowered = name.lower()
        spelt = [e for shown, e in self.shown if shown == name] if name != lowered else []
        meant = spelt or [e for shown, e in self.shown if shown == name or (shown.lower() == lowered and not exact)]
        if len(meant) > 1:
            options = ", ".join(f"`{item.alias}.{name}`" for item in self.items if item.find(name) is not None)
            raise BindError(f"`{name}` could mean {options}", hint="say which one")
        return meant[0] if meant else None

    def _unknown(self, name: str, qualifier: str | None) -> BindError:
        chain: list[Scope] = []
        scope: Scope | None = self
        while scope is not None:
            chain.append(scope)
            scope = scope.parent
        if self.before is not None and self.before.find(name, qualifier) is not None:
            what = f"`{qualifier}`" if qualifier is not None else f"`{name}`"
            return BindError(
                f"{what} stands before a comma, and a comma binds less than JOIN",
                hint="write CROSS JOIN in place of the comma",
            )
        if qualifier is not None:
            items = [i for s in chain for i in s.items if i.alias == qualifier]
            if not items:
                aliases = [i.alias for s in chain for i in s.items]
                return self._no_such(f"no `{qualifier}` in FROM", name, qualifier, suggest(qualifier, aliases))
        else:
            items = [i for s in chain for i in s.items]
        if name in ("window_start", "window_end"):
            return BindError(
                f"`{name}` exists only where a window has bounds",
                hint="use TUMBLING, HOPPING, SESSION or BEGIN WINDOW … END WINDOW …",
            )
        where = f"{items[0].what} `{items[0].alias}`" if len(items) == 1 else "FROM"
        names = [c.name for i in items for c in i.schema]
        return self._no_such(f"no column `{name}` in {where}", name, qualifier, suggest(name, names))

    @staticmethod
    def _no_such(message: str, name: str, qualifier: str | None, hint: str | None) -> BindError:
        error = BindError(message, hint=hint)
        error.unknown = (name, qualifier)
        return error


def _merged(left: Expr, right: Expr, kind: str) -> Expr:
    if kind == "full":
        return functions.resolve("coalesce", [left, right])
    return right if kind == "right" else left
