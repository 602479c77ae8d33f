"""Texts of clients: cut into statements, parameters put in, and the statements that only a server knows.

    SUBSCRIBE query [FROM START | FROM NOW | FROM n] [AS name]
    CREATE SUBSCRIPTION name FOR query [FROM START | FROM NOW | FROM n]     DROP SUBSCRIPTION name     CONFIRM name AT n
    CREATE USER name [PASSWORD '…'] [IN ROLE role, …]     ALTER USER name PASSWORD '…' | NO PASSWORD     DROP USER name
    CREATE ROLE name     DROP ROLE name     GRANT ROLE role TO user     REVOKE ROLE role FROM user
    GRANT right [ON kind name] TO user | role     REVOKE right [ON kind name] FROM user | role
    CREATE TOKEN name FOR user [EXPIRES '30 days']     DROP TOKEN name
    SHOW USERS | ROLES | GRANTS | TOKENS | SUBSCRIPTIONS | SESSIONS
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Literal

from penstock.cql.positions import position_at
from penstock.model.durations import parse_duration
from penstock.model.errors import BindError, CqlSyntaxError, InputError, PenstockError
from penstock.server.access import RIGHTS, Grant
from penstock.server.session import Start

Sort = Literal["word", "quoted", "string", "number", "parameter", "mark"]
_WORD = re.compile(r"[^\W\d][\w$]*")
_NUMBER = re.compile(r"\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?")
_PARAMETER = re.compile(r"\$\d+|\?")


@dataclass(frozen=True)
class Token:
    """A piece of a text; ``value``: a name in lower case unless it was quoted, a string without its quotes."""

    sort: Sort
    value: str
    start: int
    end: int

    @property
    def upper(self) -> str:
        return self.value.upper() if self.sort == "word" else ""


def tokens(text: str) -> Iterator[Token]:
    """The tokens of a text without comments. One that is not closed goes to the end of the text."""
    at = 0
    while at < len(text):
        c = text[at]
        if c.isspace():
            at += 1
        elif text.startswith("--", at):
            at = min((i for i in (text.find("\n", at), text.find("\r", at)) if i >= 0), default=len(text))
        elif text.startswith("/*", at):
            depth, at = 1, at + 2
            while depth and at < len(text):
                step = {"/*": 1, "*/": -1}.get(text[at : at + 2], 0)
                depth, at = depth + step, at + (2 if step else 1)
        elif c in "'\"":
            end = at + 1
            while (end := text.find(c, end)) >= 0 and text.startswith(c, end + 1):
                end += 2
            end = len(text) if end < 0 else end + 1
            value = text[at + 1 : end - 1].replace(c + c, c)
            yield Token("string" if c == "'" else "quoted", value, at, end)
            at = end
        elif found := _WORD.match(text, at):
            yield Token("word", found[0].lower(), at, found.end())
            at = found.end()
        elif found := _NUMBER.match(text, at):
            yield Token("number", found[0], at, found.end())
            at = found.end()
        elif found := _PARAMETER.match(text, at):
            yield Token("parameter", found[0], at, found.end())
            at = found.end()
        else:
            yield Token("mark", c, at, at + 1)
            at += 1


@dataclass(frozen=True)
class Piece:
    """One statement of a text."""

    whole: str
    tokens: tuple[Token, ...]

    @property
    def start(self) -> int:
        return self.tokens[0].start

    @property
    def end(self) -> int:
        return self.tokens[-1].end

    @property
    def text(self) -> str:
        """The statement alone."""
        return self.whole[self.start : self.end]

    @property
    def in_place(self) -> str:
        """The statement where it stands in the whole text, everything before it blank: so positions are right."""
        blank = re.sub(r"[^\r\n]", " ", self.whole[: self.start])
        return blank + self.text

    @property
    def words(self) -> tuple[str, ...]:
        """Its first two words, in capitals."""
        return tuple(t.upper for t in self.tokens[:2])


def pieces(text: str) -> list[Piece]:
    """The statements of a text, which ``;`` separates."""
    found: list[Piece] = []
    some: list[Token] = []
    for token in tokens(text):
        if token.sort == "mark" and token.value == ";":
            if some:
                found.append(Piece(text, tuple(some)))
            some = []
        else:
            some.append(token)
    if some:
        found.append(Piece(text, tuple(some)))
    return found


# -- parameters -----------------------------------------------------------------------------------------


def parameter_count(text: str) -> int:
    """How many parameters a text has: ``$1``, ``$2`` … or ``?``."""
    found = [t.value for t in tokens(text) if t.sort == "parameter"]
    numbers = [int(p[1:]) for p in found if p != "?"]
    return max([*numbers, found.count("?")], default=0)


def spliced(text: str, parameters: Sequence[object]) -> str:
    """The text with values in the places of its parameters, as CQL writes them."""
    if not parameters:
        return text
    parts: list[str] = []
    at = asked = 0
    for token in tokens(text):
        if token.sort != "parameter":
            continue
        asked += token.value == "?"
        number = asked if token.value == "?" else int(token.value[1:])
        if not 1 <= number <= len(parameters):
            raise BindError(
                f"there is no value for parameter {token.value}", hint=f"{len(parameters)} were given",
                position=position_at(text, token.start, token.end), text=text,
            )  # fmt: skip
        # A minus before a negative number must not become a comment, nor letters behind a number a part of it.
        before = "" if text[token.start - 1 : token.start] in ("", " ", "(", ",") else " "
        after = "" if text[token.end : token.end + 1] in ("", " ", ")", ",") else " "
        parts += [text[at : token.start], before, literal(parameters[number - 1]), after]
        at = token.end
    return "".join([*parts, text[at:]])


def literal(value: object) -> str:
    """A value as CQL writes it."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value)
        case float() if not math.isfinite(value):
            return f"CAST('{value}' AS DOUBLE)"
        case float():
            return repr(value) if "e" in repr(value) else f"{value!r}e0"
        case Decimal():
            return f"{value:f}"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case bytes():
            return f"unhex('{value.hex()}')"
        case datetime():
            return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
        case date():
            return f"DATE '{value.isoformat()}'"
        case time():
            return f"'{value.isoformat()}'"
        case timedelta():
            return f"INTERVAL '{(value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds}' MICROSECOND"
    raise InputError(f"a {type(value).__name__} cannot be a parameter of this statement")


# -- what only a server knows -----------------------------------------------------------------------------


@dataclass(frozen=True)
class SubscribeTo:
    query: str
    start: Start | None
    name: str | None = None


@dataclass(frozen=True)
class CreateSubscription:
    name: str
    query: str
    start: Start


@dataclass(frozen=True)
class DropSubscription:
    name: str


@dataclass(frozen=True)
class Confirm:
    name: str
    position: int


@dataclass(frozen=True)
class CreateUser:
    name: str
    password: str | None
    roles: tuple[str, ...]


@dataclass(frozen=True)
class AlterUser:
    name: str
    password: str | None


@dataclass(frozen=True)
class CreateRole:
    name: str


@dataclass(frozen=True)
class DropWho:
    kind: Literal["user", "role"]
    name: str


@dataclass(frozen=True)
class GrantRight:
    grant: Grant
    revoke: bool = False


@dataclass(frozen=True)
class GrantRole:
    role: str
    user: str
    revoke: bool = False


@dataclass(frozen=True)
class CreateToken:
    name: str
    user: str
    lifetime: int | None
    """In microseconds."""


@dataclass(frozen=True)
class DropToken:
    name: str


@dataclass(frozen=True)
class ShowServer:
    what: str
    """``users``, ``roles``, ``grants``, ``tokens``, ``subscriptions`` or ``sessions``."""


Statement = (
    SubscribeTo | CreateSubscription | DropSubscription | Confirm | CreateUser | AlterUser | CreateRole | DropWho
    | GrantRight | GrantRole | CreateToken | DropToken | ShowServer
)  # fmt: skip
SHOWN = ("USERS", "ROLES", "GRANTS", "TOKENS", "SUBSCRIPTIONS", "SESSIONS")


class _Reader:
    """Goes through the tokens of one statement."""

    def __init__(self, piece: Piece) -> None:
        self._piece, self._tokens, self._at = piece, piece.tokens, 0

    def fail(self, expected: str, token: Token | None = None) -> PenstockError:
        here = token or (self._tokens[self._at] if self._at < len(self._tokens) else None)
        whole = self._piece.whole
        start, end = (self._piece.end, self._piece.end) if here is None else (here.start, here.end)
        there = "the end of the statement" if here is None else f"`{whole[start:end]}`"
        return CqlSyntaxError(
            f"{there} is not expected here", hint=f"expected {expected}", position=position_at(whole, start, end),
            text=whole,
        )  # fmt: skip

    def word(self, *words: str) -> bool:
        """Whether these words come next; they are passed then."""
        found = [t.upper for t in self._tokens[self._at : self._at + len(words)]]
        if found != list(words):
            return False
        self._at += len(words)
        return True

    def expect(self, *words: str) -> None:
        if not self.word(*words):
            raise self.fail(" ".join(words))

    def _take(self, sorts: tuple[Sort, ...], expected: str) -> Token:
        token = self._tokens[self._at] if self._at < len(self._tokens) else None
        if token is None or token.sort not in sorts:
            raise self.fail(expected)
        self._at += 1
        return token

    def name(self, what: str) -> str:
        return self._take(("word", "quoted"), what).value

    def string(self, what: str) -> str:
        return self._take(("string",), what).value

    def number(self, what: str) -> int:
        token = self._take(("number",), what)
        if not token.value.isdigit():
            raise self.fail("a whole number", token)
        return int(token.value)

    def comma(self) -> bool:
        token = self._tokens[self._at] if self._at < len(self._tokens) else None
        if token is None or token.value != "," or token.sort != "mark":
            return False
        self._at += 1
        return True

    def duration(self, what: str) -> int:
        token = self._take(("string",), what)
        try:
            found = parse_duration(token.value)
        except PenstockError as error:
            raise error.at(position_at(self._piece.whole, token.start, token.end), self._piece.whole) from None
        if found <= 0:
            raise self.fail("a time that is not over", token)
        return found

    def start(self) -> Start | None:
        if not self.word("FROM"):
            return None
        if self.word("START"):
            return "start"
        if self.word("NOW"):
            return "now"
        return self.number("START, NOW or a position")

    def end(self) -> None:
        if self._at < len(self._tokens):
            raise self.fail("the end of the statement")


def server_statement(piece: Piece) -> Statement | None:
    """What a statement is that only a server knows; None: it is one of CQL."""
    first, second = (*piece.words, "")[:2]
    if first in ("SUBSCRIBE", "CONFIRM", "GRANT", "REVOKE"):
        read = _BEGIN[first]
    elif (first, second) in _TWO:
        read = _TWO[first, second]
    elif first == "SHOW" and second in SHOWN:
        read = _show
    else:
        return None
    reader = _Reader(piece)
    found = read(reader)
    reader.end()
    return found


def _subscribe(read: _Reader) -> Statement:
    read.expect("SUBSCRIBE")
    read.word("TO")
    query = read.name("the name of a query")
    start = read.start()
    return SubscribeTo(query, start, read.name("the name of a subscription") if read.word("AS") else None)


def _create_subscription(read: _Reader) -> Statement:
    read.expect("CREATE", "SUBSCRIPTION")
    name = read.name("the name of the subscription")
    read.expect("FOR")
    query = read.name("the name of a query")
    start = read.start()
    return CreateSubscription(name, query, "now" if start is None else start)


def _drop_subscription(read: _Reader) -> Statement:
    read.expect("DROP", "SUBSCRIPTION")
    return DropSubscription(read.name("the name of a subscription"))


def _confirm(read: _Reader) -> Statement:
    read.expect("CONFIRM")
    name = read.name("the name of a subscription")
    read.expect("AT")
    return Confirm(name, read.number("a position"))


def _create_user(read: _Reader) -> Statement:
    read.expect("CREATE", "USER")
    name = read.name("the name of the user")
    password = read.string("the password in quotes") if read.word("PASSWORD") else None
    roles: list[str] = []
    if read.word("IN", "ROLE"):
        roles.append(read.name("the name of a role"))
        while read.comma():
            roles.append(read.name("the name of a role"))
    return CreateUser(name, password, tuple(dict.fromkeys(roles)))


def _alter_user(read: _Reader) -> Statement:
    read.expect("ALTER", "USER")
    name = read.name("the name of a user")
    if read.word("NO", "PASSWORD"):
        return AlterUser(name, None)
    read.expect("PASSWORD")
    return AlterUser(name, read.string("the password in quotes"))


def _create_role(read: _Reader) -> Statement:
    read.expect("CREATE", "ROLE")
    return CreateRole(read.name("the name of the role"))


def _drop_user(read: _Reader) -> Statement:
    read.expect("DROP", "USER")
    return DropWho("user", read.name("the name of a user"))


def _drop_role(read: _Reader) -> Statement:
    read.expect("DROP", "ROLE")
    return DropWho("role", read.name("the name of a role"))


def _grant(read: _Reader) -> Statement:
    revoke = not read.word("GRANT")
    if revoke:
        read.expect("REVOKE")
    preposition = "FROM" if revoke else "TO"
    if read.word("ROLE"):
        role = read.name("the name of a role")
        read.expect(preposition)
        return GrantRole(role, read.name("the name of a user"), revoke)
    right = next((r for r in RIGHTS if read.word(r.upper())), None)
    if right is None:
        raise read.fail(", ".join(r.upper() for r in RIGHTS) + " or ROLE")
    kind = name = None
    if RIGHTS[right]:
        read.expect("ON")
        kind = next((k for k in RIGHTS[right] if read.word(k.upper())), None)
        if kind is None:
            raise read.fail(" or ".join(k.upper() for k in RIGHTS[right]))
        name = read.name(f"the name of a {kind}")
    read.expect(preposition)
    return GrantRight(Grant(read.name("the name of a user or role"), right, kind, name), revoke)


def _create_token(read: _Reader) -> Statement:
    read.expect("CREATE", "TOKEN")
    name = read.name("the name of the token")
    read.expect("FOR")
    user = read.name("the name of a user")
    lifetime = read.duration("a time such as '30 days'") if read.word("EXPIRES") else None
    return CreateToken(name, user, lifetime)


def _drop_token(read: _Reader) -> Statement:
    read.expect("DROP", "TOKEN")
    return DropToken(read.name("the name of a token"))


def _show(read: _Reader) -> Statement:
    read.expect("SHOW")
    return ShowServer(read.name("what to show"))


_BEGIN: dict[str, Callable[[_Reader], Statement]] = {
    "SUBSCRIBE": _subscribe, "CONFIRM": _confirm, "GRANT": _grant, "REVOKE": _grant,
}  # fmt: skip
_TWO: dict[tuple[str, str], Callable[[_Reader], Statement]] = {
    ("CREATE", "SUBSCRIPTION"): _create_subscription, ("DROP", "SUBSCRIPTION"): _drop_subscription,
    ("CREATE", "USER"): _create_user, ("ALTER", "USER"): _alter_user, ("DROP", "USER"): _drop_user,
    ("CREATE", "ROLE"): _create_role, ("DROP", "ROLE"): _drop_role,
    ("CREATE", "TOKEN"): _create_token, ("DROP", "TOKEN"): _drop_token,
}  # fmt: skip
