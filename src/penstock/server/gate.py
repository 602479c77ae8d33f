"""Whether a user may do what a statement does. What it may not read is not there for it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from sqlglot import exp

from penstock.catalog import Catalog
from penstock.cql import ast
from penstock.cql.declarations import definition, query_of
from penstock.cql.expressions import identifier
from penstock.cql.queries import bind_query
from penstock.database.core import Core
from penstock.hosts.registered import Registered
from penstock.model.errors import AccessDenied, BindError, CatalogError, LoginFailed, PenstockError, suggest
from penstock.server.access import Access, Right
from penstock.server.session import Session

_KINDS: Mapping[type[exp.Expr], str] = {
    ast.CreateStream: "stream", ast.CreateRelation: "relation", ast.CreateView: "view",
}  # fmt: skip
_NAMED = re.compile(r"`([^`]+)`")


class Gate:
    """What users see of a database, and what they may do with it."""

    def __init__(self, access: Access, core: Core) -> None:
        self._access, self._core = access, core

    # -- one thing ------------------------------------------------------------------------------------

    def check(self, session: Session) -> None:
        """Refuse a session whose user or token is gone or has expired."""
        if not self._access.is_valid(session.user, session.token, session.token_id):
            raise LoginFailed("the session is over: its credential has expired or was withdrawn", hint="log in again")

    def administers(self, session: Session) -> bool:
        return self._access.administers(session.user)

    def check_administers(self, session: Session, what: str) -> None:
        if not self.administers(session):
            raise AccessDenied(f"user `{session.user}` may not {what}", hint="an administrator may")

    def check_defines(self, session: Session) -> None:
        if not self._access.may(session.user, "define"):
            raise AccessDenied(
                f"user `{session.user}` may not define anything", hint=f"GRANT DEFINE TO {session.user}"
            )

    def may(self, session: Session, right: Right, kind: str, name: str) -> bool:
        return self._access.may(session.user, right, kind, name)

    def sees(self, session: Session, kind: str, name: str) -> bool:
        """Whether a thing is there for the user: it may read it, or write to it."""
        return self.may(session, "read", kind, name) or self.may(session, "write", kind, name)

    def owns(self, session: Session, kind: str, name: str) -> bool:
        return self._access.owns(session.user, kind, name)

    def owner(self, kind: str, name: str) -> str | None:
        return self._access.owner(kind, name)

    def there(self, kind: str) -> Mapping[str, object]:
        """All things of a kind, by name."""
        catalog = self._core.catalog
        match kind:
            case "stream":
                return catalog.streams
            case "relation":
                return catalog.relations
            case "view":
                return catalog.views
        return self._core.queries

    def seen(self, session: Session, *kinds: str) -> list[str]:
        """The names of what the user sees."""
        return [name for kind in kinds for name in self.there(kind) if self.sees(session, kind, name)]

    def find(
        self, session: Session, name: str, *kinds: str, right: Right | None = "read", exact: bool = False
    ) -> tuple[str, str]:
        """The kind and name of a thing, in any case, that the user has a right on; ``right`` None: owns. ``exact``: the
        name is that of a statement, which the database looks up as it is written."""
        for spelt in (name,) if exact else dict.fromkeys((name, name.lower())):
            for kind in kinds:
                if spelt in self.there(kind) or (kind != "query" and self._core.catalog.kind_of(spelt) == kind):
                    if not self.sees(session, kind, spelt):
                        continue
                    self._check_right(session, right, kind, spelt)
                    return kind, spelt
        what = " or ".join([", ".join(kinds[:-1]), kinds[-1]] if len(kinds) > 1 else kinds)
        raise CatalogError(f"no {what} `{name}`", hint=suggest(name, self.seen(session, *kinds)))

    def seen_as(self, session: Session, name: str, kind: str) -> str:
        """The name of a thing, in any case, that the user may read or write to."""
        for spelt in (name, name.lower()):
            if spelt in self.there(kind) and self.sees(session, kind, spelt):
                return spelt
        raise CatalogError(f"no {kind} `{name}`", hint=suggest(name, self.seen(session, kind)))

    def _check_right(self, session: Session, right: Right | None, kind: str, name: str) -> None:
        if right is None and not self.owns(session, kind, name):
            raise AccessDenied(
                f"user `{session.user}` may not change {kind} `{name}`", hint="its owner and administrators may"
            )
        if right is not None and not self.may(session, right, kind, name):
            how = "write to" if right == "write" else right
            raise AccessDenied(
                f"user `{session.user}` may not {how} {kind} `{name}`",
                hint=f"GRANT {right.upper()} ON {kind.upper()} {name} TO {session.user}",
            )

    def catalog(self, session: Session) -> Catalog:
        """What of the catalog the user may read."""
        return self._core.catalog.seen_by(lambda kind, name: self.may(session, "read", kind, name))

    def reads_all(self, session: Session, names: Iterable[str]) -> bool:
        """Whether a user may read everything that something reads: then it may see its text."""
        catalog = self._core.catalog
        kinds = ((catalog.kind_of(name), name) for name in names)
        return all(kind is None or self.may(session, "read", kind, name) for kind, name in kinds)

    def knows(self, session: Session, query: Registered) -> bool:
        """Whether a user may see how a query is made, not only its results."""
        return self.owns(session, "query", query.name) or (
            self.may(session, "read", "query", query.name) and self.reads_all(session, query.reads)
        )

    # -- statements -----------------------------------------------------------------------------------

    def check_statement(self, session: Session, tree: exp.Expr) -> list[tuple[str, str]]:
        """Refuse a statement of CQL that the user may not run; gives what it defines: kinds and names."""
        match tree:
            case ast.CreateStream() | ast.CreateRelation() | ast.CreateView():
                return self._check_created(session, tree)
            case ast.CreateQuery():
                self.check_defines(session)
                query_of(tree, self.catalog(session))
                name, into = identifier(tree.this), tree.args.get("into")
                made = [] if name in self._core.queries else [("query", name)]
                return made + ([] if into is None else [("stream", identifier(into))])
            case ast.StopQuery() | ast.AlterQuery() | ast.SuspendQuery() | ast.ResumeQuery():
                self.find(session, identifier(tree.this), "query", right=None, exact=True)
            case ast.DropObject():
                self._check_dropped(session, tree)
            case ast.InsertInto():
                self.find(session, identifier(tree.this), "stream", "relation", right="write", exact=True)
            case ast.UpdateRelation() | ast.DeleteFrom():
                name = identifier(tree.this)
                self.find(session, name, "relation", "stream", right="write", exact=True)
                # What a condition or a new value tells of the rows that are there is read.
                self.find(session, name, "relation", "stream", right="read", exact=True)
            case ast.DescribeObject():
                self._check_described(session, tree)
            case ast.Explain():
                self._check_explained(session, tree.this)
            case ast.ShowObjects():
                pass
            case _:
                raise BindError(
                    "a continuous query needs a name here",
                    hint="CREATE QUERY name AS …; a plain SELECT is answered once, over what stands now",
                )
        return []

    def _check_created(self, session: Session, tree: exp.Expr) -> list[tuple[str, str]]:
        self.check_defines(session)
        kind, name = _KINDS[type(tree)], identifier(tree.this)
        if tree.args.get("source") is not None:
            self.check_administers(session, "let the server read files and other systems (FROM spark)")
        if tree.args.get("expression") is not None:
            definition(tree, self.catalog(session))
        there = self._core.catalog.kind_of(name)
        if there == kind and tree.args.get("replace"):
            self.find(session, name, kind, right=None, exact=True)
        return [] if there is not None else [(kind, name)]

    def passes_over(self, session: Session, tree: exp.Expr) -> bool:
        """Whether a statement is DROP … IF EXISTS of what is not there for the user."""
        if not isinstance(tree, ast.DropObject) or not tree.args.get("exists"):
            return False
        kind, name = tree.args["kind"].lower(), identifier(tree.this)
        known = name in self.there(kind) or self._core.catalog.kind_of(name) is not None
        return not known or not any(self.sees(session, each, name) for each in _ALL)

    def _check_dropped(self, session: Session, tree: exp.Expr) -> None:
        kind, name = tree.args["kind"].lower(), identifier(tree.this)
        others = [] if kind == "query" else [each for each in ("stream", "relation", "view") if each != kind]
        self.find(session, name, kind, *others, right=None, exact=True)

    def _check_described(self, session: Session, tree: exp.Expr) -> None:
        name, kind = identifier(tree.this), (tree.args.get("kind") or "").lower()
        if kind == "function":
            return
        if not kind:
            calls = self._core.catalog.functions.keys() | _built_in()
            if name.lower() in calls and not any(self.sees(session, k, name) for k in _ALL if name in self.there(k)):
                return
        found = self.find(session, name, *((kind,) if kind else _ALL), right="read", exact=True)
        if not self._may_know(session, *found):
            raise AccessDenied(
                f"user `{session.user}` may read {found[0]} `{name}`, but not all that it is made of",
                hint="SELECT * FROM it shows its columns",
            )

    def _may_know(self, session: Session, kind: str, name: str) -> bool:
        if kind == "query":
            return self.knows(session, self._core.queries[name])
        if self.owns(session, kind, name):
            return True
        found = self._core.catalog.streams.get(name) or self._core.catalog.views.get(name)
        return found is None or self.reads_all(session, found.reads)

    def _check_explained(self, session: Session, what: exp.Expr) -> None:
        if isinstance(what, exp.Identifier):
            _, name = self.find(session, identifier(what), "query", exact=True)
            self.check_knows(session, name)
        else:
            bind_query(what, self.catalog(session))

    def check_knows(self, session: Session, query: str) -> None:
        """Refuse who may read a query's results, but not all that it reads."""
        if not self.knows(session, self._core.queries[query]):
            raise AccessDenied(
                f"user `{session.user}` may read the results of query `{query}`, but not all that it reads",
                hint="its owner and administrators see its plan",
            )

    # -- errors ---------------------------------------------------------------------------------------

    def told(self, session: Session, error: PenstockError, *given: str) -> PenstockError:
        """An error without names of what the user may not read, unless it has said them itself in ``given``."""
        if self.administers(session):
            return error
        hidden = {
            name for kind in _ALL for name in self.there(kind) if not self.sees(session, kind, name)
        } - {name for kind in _ALL for name in self.seen(session, kind)}
        said = " ".join(given)

        def without(text: str) -> str:
            return _NAMED.sub(lambda m: m[0] if m[1] not in hidden or m[1] in said else "`…`", text)

        error.message = without(error.message)
        error.hint = None if error.hint is None else without(error.hint)
        error.args = (error.message,)
        return error


_ALL: Sequence[str] = ("stream", "relation", "view", "query")


def _built_in() -> set[str]:
    from penstock import functions

    return {*functions.SCALARS, *functions.AGGREGATES}
