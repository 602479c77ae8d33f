"""Who there is, and who may do what: users, roles, grants, tokens. Durable: a note of the database.

A right is given to a user or to a role, on one thing or in general. The owner of a thing, who has defined it, has all
rights on it; who administers has all rights. Of tokens only the SHA-256 of 256 random bits is kept, of passwords only
the SCRAM verifier.

A change is made aside, written down, and counts then: what cannot be written down has not happened.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from penstock.model.errors import AccessDenied, CatalogError, InputError, LoginFailed, suggest
from penstock.server import scram
from penstock.server.scram import Verifier

Right = Literal["define", "write", "read", "administer"]
Kind = Literal["stream", "relation", "view", "query"]
RIGHTS: Mapping[str, tuple[str, ...]] = {
    "define": (), "administer": (), "write": ("stream", "relation"), "read": ("stream", "relation", "view", "query"),
}  # fmt: skip
"""The rights, and on what kinds of things each is; none: in general."""
ADMIN = "admin"
"""The user that the first start makes."""
NOTE = "server.access"
TOKEN = "pst_"
"""What every token begins with, so that people and scanners know one."""
_NAME = re.compile(r"[^\W\d][\w.@-]{0,62}")
_SHORTEST = 8


@dataclass(frozen=True)
class User:
    """``password``: its verifier as text, None: it has none. ``roles``: those it is in."""

    password: str | None = None
    roles: tuple[str, ...] = ()


@dataclass(frozen=True)
class Token:
    """``digest``: its SHA-256. ``verifier``: with it the token is a password, for protocols with SCRAM. Instants in
    microseconds since 1970."""

    user: str
    digest: str
    verifier: str
    created: int
    expires: int | None = None


@dataclass(frozen=True, order=True)
class Grant:
    """A right of a user or role; ``kind`` and ``name``: on what, None: in general."""

    to: str
    right: str
    kind: str | None = None
    name: str | None = None

    def __str__(self) -> str:
        on = "" if self.kind is None else f" ON {self.kind.upper()} {self.name}"
        return f"{self.right.upper()}{on}"


@dataclass(frozen=True)
class State:
    """All of it; replaced as a whole."""

    users: Mapping[str, User] = field(default_factory=dict)
    roles: frozenset[str] = frozenset()
    grants: frozenset[Grant] = frozenset()
    owners: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """(kind, name) of a thing: who has defined it."""
    tokens: Mapping[str, Token] = field(default_factory=dict)
    secret: str = ""
    """What the verifiers of users that are not there are made from."""

    def to_json(self) -> dict[str, Any]:
        return {
            "version": 1,
            "users": {name: asdict(user) for name, user in self.users.items()},
            "roles": sorted(self.roles),
            "grants": [[g.to, g.right, g.kind, g.name] for g in sorted(self.grants, key=str)],
            "owners": [[kind, name, owner] for (kind, name), owner in self.owners.items()],
            "tokens": {name: asdict(token) for name, token in self.tokens.items()},
            "secret": self.secret,
        }

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> State:
        return State(
            {n: User(u["password"], tuple(u["roles"])) for n, u in found["users"].items()},
            frozenset(found["roles"]),
            frozenset(Grant(*g) for g in found["grants"]),
            {(kind, name): owner for kind, name, owner in found["owners"]},
            {n: Token(**t) for n, t in found["tokens"].items()},
            found["secret"],
        )


class Access:
    """See above. Reading takes no lock: the state is replaced as a whole. Bounded by what administrators declare."""

    def __init__(
        self, load: Callable[[], Mapping[str, Any] | None], save: Callable[[Mapping[str, Any]], None],
        clock: Callable[[], int],
    ) -> None:  # fmt: skip
        """``load``, ``save``: the note of the database. ``clock``: microseconds since 1970."""
        self._save, self._clock = save, clock
        self._changing = threading.RLock()
        """One changes it at a time; saving takes the database's lock with it."""
        found = load()
        self.is_new = found is None
        self.state = State(secret=secrets.token_hex(32)) if found is None else State.from_json(found)
        self._digests = {token.digest: name for name, token in self.state.tokens.items()}

    @contextmanager
    def _change(self) -> Iterator[list[State]]:
        with self._changing:
            made = [self.state]
            yield made
            if made[0] is not self.state:
                self._save(made[0].to_json())
                self.state = made[0]
                self._digests = {token.digest: name for name, token in self.state.tokens.items()}

    # -- who it is ------------------------------------------------------------------------------------

    def first_start(self) -> str | None:
        """Make the admin and its token, which is given once; None where there are users already."""
        with self._changing:
            if self.state.users:
                return None
            with self._change() as made:
                made[0] = replace(
                    made[0], users={ADMIN: User()}, grants=made[0].grants | {Grant(ADMIN, "administer")}
                )
            return self.create_token(ADMIN, ADMIN)

    def recover(self) -> str:
        """A new token for the admin, instead of all that it had; it administers again."""
        with self._change() as made:
            state = made[0]
            users = {**state.users, ADMIN: state.users.get(ADMIN, User())}
            tokens = {n: t for n, t in state.tokens.items() if t.user != ADMIN}
            made[0] = replace(
                state, users=users, tokens=tokens, grants=state.grants | {Grant(ADMIN, "administer")}
            )
        return self.create_token(ADMIN, ADMIN)

    def of_token(self, token: str) -> tuple[str, str, int | None]:
        """The user of a token, the token's name, and when it expires."""
        name = self._digests.get(_digest(token))
        found = None if name is None else self.state.tokens.get(name)
        if name is None or found is None:
            raise LoginFailed("this token is not known here", hint="an administrator makes one: CREATE TOKEN")
        if not self._valid(found):
            raise LoginFailed(f"token `{name}` has expired", hint="an administrator makes one: CREATE TOKEN")
        return found.user, name, found.expires

    def token_as_password(self, user: str, password: str) -> tuple[str, int | None] | None:
        """The name of a token of the user that stands in the place of its password, and when it expires; None: none."""
        name = self._digests.get(_digest(password))
        token = None if name is None else self.state.tokens.get(name)
        if name is None or token is None or token.user != user or not self._valid(token):
            return None
        return name, token.expires

    def check_password(self, user: str, password: str) -> None:
        """LoginFailed if it is not that of the user."""
        known = self.state.users.get(user)
        kept = None if known is None or known.password is None else scram.parsed(known.password)
        # What takes time is done for everybody, so that it tells nobody whether the user is there.
        if not (kept or self._mock(user)).fits(password) or kept is None:
            raise LoginFailed("the user or the password is wrong")

    def scram(self, user: str) -> list[Verifier]:
        """What a user may show by SCRAM: the verifier of its password, or else those of its tokens. They have one salt.
        For users that are not there, one that nothing fits."""
        known = self.state.users.get(user)
        if known is not None and known.password is not None:
            return [scram.parsed(known.password)]
        found = [scram.parsed(token.verifier) for _, token in self._tokens_of(user)]
        # Tokens that were made before a user's tokens had one salt: of these the newest.
        return [v for v in found if v.salt == found[0].salt] or [self._mock(user)]

    def _tokens_of(self, user: str) -> list[tuple[str, Token]]:
        """The names and tokens of a user that have not expired, the newest first."""
        found = [(n, t) for n, t in self.state.tokens.items() if t.user == user and self._valid(t)]
        return sorted(found, key=lambda each: each[1].created, reverse=True)

    def verified(self, user: str, verifier: Verifier) -> str | None:
        """The name of the token that a user has just shown by SCRAM; None: it was its password. LoginFailed if that has
        been withdrawn meanwhile."""
        known, shown = self.state.users.get(user), str(verifier)
        if known is not None and known.password is not None and known.password == shown:
            return None
        if known is not None and known.password is None:
            for name, token in self._tokens_of(user):
                if token.verifier == shown:
                    return name
        raise LoginFailed("the user or the password is wrong")

    def _mock(self, user: str) -> Verifier:
        return scram.mock(bytes.fromhex(self.state.secret), user)

    def _valid(self, token: Token) -> bool:
        return token.expires is None or token.expires > self._clock()

    def is_valid(self, user: str, token: str | None, token_id: str | None) -> bool:
        """Whether a user that has logged in, perhaps with a token, still could."""
        if user not in self.state.users:
            return False
        if token is not None:
            found = self.state.tokens.get(token)
            if found is None or found.user != user or not self._valid(found):
                return False
        return token_id is not None and self.credential(user, token) == token_id

    def credential(self, user: str, token: str | None) -> str | None:
        """By what to know a token, or without one a password, again: another one of the same name has another."""
        if token is not None:
            found = self.state.tokens.get(token)
            return None if found is None else found.digest[:16]
        known = self.state.users.get(user)
        if known is None or known.password is None:
            return None
        return hashlib.sha256(known.password.encode()).hexdigest()[:16]

    # -- what it may ----------------------------------------------------------------------------------

    def administers(self, user: str) -> bool:
        return any(Grant(each, "administer") in self.state.grants for each in self._names(user))

    def may(self, user: str, right: Right, kind: str | None = None, name: str | None = None) -> bool:
        """Whether a user has a right, itself, by a role, as the owner or since it administers."""
        if kind is not None and name is not None and self.state.owners.get((kind, name)) == user:
            return user in self.state.users
        grants = self.state.grants
        return any(
            Grant(each, right, kind, name) in grants or Grant(each, "administer") in grants
            for each in self._names(user)
        )

    def owns(self, user: str, kind: str, name: str) -> bool:
        """Whether a user may change and drop a thing: its owner may, and who administers."""
        return self.administers(user) or (
            user in self.state.users and self.state.owners.get((kind, name)) == user
        )

    def owner(self, kind: str, name: str) -> str | None:
        return self.state.owners.get((kind, name))

    def _names(self, user: str) -> tuple[str, ...]:
        found = self.state.users.get(user)
        return () if found is None else (user, *found.roles)

    # -- things ---------------------------------------------------------------------------------------

    def own(self, things: Mapping[tuple[str, str], str]) -> None:
        """Note who has defined things: (kind, name) → user."""
        with self._change() as made:
            made[0] = replace(made[0], owners={**made[0].owners, **things})

    def forget(self, things: set[tuple[str, str]]) -> None:
        """Things are gone: so are their owners and the grants on them."""
        state = self.state
        if not things & state.owners.keys() and not any((g.kind, g.name) in things for g in state.grants):
            return
        with self._change() as made:
            made[0] = replace(
                made[0],
                owners={thing: owner for thing, owner in made[0].owners.items() if thing not in things},
                grants=frozenset(g for g in made[0].grants if (g.kind, g.name) not in things),
            )

    def stopped(self, query: str, listed: Iterable[str]) -> None:
        """A query is over. Its owner still sees it in the list of those that are: ``listed``."""
        with self._change() as made:
            kept, owner = {*listed}, made[0].owners.get(("query", query))
            owners = {
                thing: who
                for thing, who in made[0].owners.items()
                if thing != ("query", query) and (thing[0] != "stopped" or thing[1] in kept)
            }
            if owner is not None:
                owners["stopped", query] = owner
            gone = (g for g in made[0].grants if (g.kind, g.name) == ("query", query))
            made[0] = replace(made[0], owners=owners, grants=made[0].grants - {*gone})

    def named(self) -> set[tuple[str, str]]:
        """All things that have an owner or a grant."""
        granted = {(g.kind, g.name) for g in self.state.grants if g.kind is not None and g.name is not None}
        return {*self.state.owners, *granted}

    # -- users, roles, tokens, grants -----------------------------------------------------------------

    def create_user(self, name: str, password: str | None = None, roles: tuple[str, ...] = ()) -> None:
        with self._change() as made:
            self._check_free(name)
            for role in roles:
                self._check_role(role)
            kept = None if password is None else str(scram.verifier(_checked(password)))
            made[0] = replace(made[0], users={**made[0].users, name: User(kept, roles)})

    def set_password(self, name: str, password: str | None) -> None:
        with self._change() as made:
            user = self._user(name)
            kept = None if password is None else str(scram.verifier(_checked(password)))
            made[0] = replace(made[0], users={**made[0].users, name: replace(user, password=kept)})

    def create_role(self, name: str) -> None:
        with self._change() as made:
            self._check_free(name)
            made[0] = replace(made[0], roles=made[0].roles | {name})

    def drop(self, kind: Literal["user", "role"], name: str) -> None:
        """A user or a role is gone, with its grants and tokens; what it owned belongs to who administers."""
        with self._change() as made:
            state = made[0]
            if kind == "role":
                self._check_role(name)
            else:
                self._user(name)
            users = {
                n: replace(u, roles=tuple(r for r in u.roles if kind == "user" or r != name))
                for n, u in state.users.items()
                if kind == "role" or n != name
            }
            tokens = {n: t for n, t in state.tokens.items() if t.user in users}
            owners = {thing: owner for thing, owner in state.owners.items() if owner in users}
            left = replace(
                state, users=users, tokens=tokens, owners=owners, roles=state.roles - {name},
                grants=frozenset(g for g in state.grants if g.to != name),
            )  # fmt: skip
            _check_administered(left)
            made[0] = left

    def put_in_role(self, user: str, role: str, *, out: bool = False) -> None:
        with self._change() as made:
            found = self._user(user)
            self._check_role(role)
            roles = tuple(r for r in found.roles if r != role) + (() if out else (role,))
            left = replace(made[0], users={**made[0].users, user: replace(found, roles=roles)})
            _check_administered(left)
            made[0] = left

    def grant(self, grant: Grant) -> None:
        with self._change() as made:
            self._check_someone(grant.to)
            made[0] = replace(made[0], grants=made[0].grants | {grant})

    def revoke(self, grant: Grant) -> None:
        with self._change() as made:
            self._check_someone(grant.to)
            if grant not in made[0].grants:
                held = sorted(str(g) for g in made[0].grants if g.to == grant.to)
                has = f"it has {', '.join(held)}" if held else "it has no grant"
                raise CatalogError(f"`{grant.to}` has not been granted {grant}", hint=has)
            left = replace(made[0], grants=made[0].grants - {grant})
            _check_administered(left)
            made[0] = left

    def create_token(self, name: str, user: str, lifetime: int | None = None) -> str:
        """A new token of a user, which is given once; ``lifetime`` in microseconds."""
        with self._change() as made:
            self._user(user)
            if name in made[0].tokens:
                raise CatalogError(f"there is a token `{name}` already", hint="DROP TOKEN it, or use another name")
            check_name(name)
            token, now = TOKEN + secrets.token_urlsafe(32), self._clock()
            others = self._tokens_of(user)
            # One salt for all of a user's tokens: a SCRAM exchange begins with it, before it is known which one comes.
            salt = scram.parsed(others[0][1].verifier).salt if others else None
            verifier = str(scram.verifier(token, salt=salt))
            kept = Token(user, _digest(token), verifier, now, None if lifetime is None else now + lifetime)
            made[0] = replace(made[0], tokens={**made[0].tokens, name: kept})
        return token

    def drop_token(self, name: str) -> None:
        with self._change() as made:
            if name not in made[0].tokens:
                raise CatalogError(f"no token `{name}`", hint=suggest(name, made[0].tokens))
            made[0] = replace(made[0], tokens={n: t for n, t in made[0].tokens.items() if n != name})

    def _user(self, name: str) -> User:
        if name not in self.state.users:
            raise CatalogError(f"no user `{name}`", hint=suggest(name, self.state.users))
        return self.state.users[name]

    def _check_role(self, name: str) -> None:
        if name not in self.state.roles:
            raise CatalogError(f"no role `{name}`", hint=suggest(name, self.state.roles) or "CREATE ROLE makes one")

    def _check_someone(self, name: str) -> None:
        known = {*self.state.users, *self.state.roles}
        if name not in known:
            raise CatalogError(f"no user or role `{name}`", hint=suggest(name, known))

    def _check_free(self, name: str) -> None:
        check_name(name)
        if name in self.state.users or name in self.state.roles:
            kind = "user" if name in self.state.users else "role"
            hint = f"DROP {kind.upper()} it, or use another name"
            raise CatalogError(f"there is a {kind} `{name}` already", hint=hint)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _checked(password: str) -> str:
    if len(password) < _SHORTEST:
        raise InputError(f"the password has {len(password)} characters", hint=f"at least {_SHORTEST} are needed")
    return password


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InputError(f"`{name}` is not a name", hint="at most 63 letters, digits and _ . @ -, a letter first")


def _check_administered(state: State) -> None:
    """Refuse what would leave nobody who administers."""
    holders = {g.to for g in state.grants if g.right == "administer"}
    if not any({name, *user.roles} & holders for name, user in state.users.items()):
        raise AccessDenied("then nobody would administer the server", hint="GRANT ADMINISTER TO another user first")
