"""Which columns a name can mean at a place in a query."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from penstock.catalog import Unread
from penstock.errors import BindError, suggest
from penstock.plan.expr import Call, Column, Expr
from penstock.plan.nodes import Schema
from penstock.types import DataType

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
    hidden: frozenset[str] = frozenset()
    unread: Unread | None = None

    def find(self, name: str) -> Column | None:
        for i, column in enumerate(self.schema):
            if column.name == name:
                return Column(self.offset + i, column.type, column.name)
        return None


@dataclass
class Scope:
    """The items of one FROM, the columns merged by USING, and the scope of the enclosing query."""

    items: list[Item] = field(default_factory=list)
    merged: dict[str, Expr] = field(default_factory=dict)
    parent: Scope | None = None
    window_bound: DataType | None = None

    @property
    def width(self) -> int:
        return sum(len(item.schema) for item in self.items)

    def add(self, alias: str, what: str, schema: Schema, unread: Unread | None = None) -> Item:
        """Put an item to the right of the others."""
        if any(item.alias == alias for item in self.items):
            raise BindError(f"`{alias}` stands twice in FROM", hint="give one of them an alias")
        item = Item(alias, what, schema, self.width, unread=unread)
        self.items.append(item)
        return item

    def merge_using(self, name: str, left: Column, right: Column, kind: str) -> None:
        """Let a name that stands in USING mean one column although both sides have it."""
        merged: Expr = left
        if kind == "right":
            merged = right
        elif kind == "full":
            merged = Call("coalesce", (left, right), left.type)
        self.merged[name] = merged
        last = self.items[-1]
        self.items[-1] = replace(last, hidden=last.hidden | {name})

    def star(self, alias: str | None = None, *, whole: bool = True) -> Iterator[tuple[str, Expr]]:
        """The columns that ``*`` or ``alias.*`` stands for; ``whole``: refuse to leave one out."""
        items = self.items
        if alias is not None:
            items = [item for item in items if item.alias == alias]
            if not items:
                raise BindError(f"no `{alias}` in FROM", hint=suggest(alias, (i.alias for i in self.items)))
        for item in items:
            if whole and item.unread is not None:
                raise BindError(
                    f"`*` cannot stand for all columns of `{item.alias}`: CQL has no type for {item.unread}",
                    hint=f"name the columns that you need; {item.unread.hint}",
                )
            for i, column in enumerate(item.schema):
                if alias is None and column.name in item.hidden:
                    continue
                if alias is None and column.name in self.merged:
                    yield column.name, self.merged[column.name]
                else:
                    yield column.name, Column(item.offset + i, column.type, column.name)

    def resolve(self, name: str, qualifier: str | None) -> Expr:
        """The column a name means here or, failing that, in the enclosing query."""
        scope: Scope | None = self
        depth = 0
        while scope is not None:
            found = scope._find(name, qualifier)
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

    def knows(self, alias: str) -> bool:
        """Whether FROM here or further out has an entry of that name."""
        inside = any(item.alias == alias for item in self.items)
        return inside or (self.parent is not None and self.parent.knows(alias))

    def _find(self, name: str, qualifier: str | None) -> Expr | None:
        if qualifier is None and name in self.merged:
            return self.merged[name]
        items = [i for i in self.items if qualifier is None or i.alias == qualifier]
        found = [(item, c) for item in items if (c := item.find(name)) is not None]
        if len(found) > 1:
            options = ", ".join(f"`{item.alias}.{name}`" for item, _ in found)
            raise BindError(f"`{name}` could mean {options}", hint="say which one")
        return found[0][1] if found else None

    def _unknown(self, name: str, qualifier: str | None) -> BindError:
        chain: list[Scope] = []
        scope: Scope | None = self
        while scope is not None:
            chain.append(scope)
            scope = scope.parent
        if qualifier is not None:
            items = [i for s in chain for i in s.items if i.alias == qualifier]
            if not items:
                aliases = [i.alias for s in chain for i in s.items]
                return BindError(f"no `{qualifier}` in FROM", hint=suggest(qualifier, aliases))
        else:
            items = [i for s in chain for i in s.items]
        if name in ("window_start", "window_end"):
            return BindError(
                f"`{name}` exists only where a window has bounds",
                hint="use TUMBLING, HOPPING, SESSION or BEGIN WINDOW … END WINDOW …",
            )
        where = f"{items[0].what} `{items[0].alias}`" if len(items) == 1 else "FROM"
        names = [c.name for i in items for c in i.schema]
        return BindError(f"no column `{name}` in {where}", hint=suggest(name, names))
