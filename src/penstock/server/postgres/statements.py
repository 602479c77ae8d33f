"""Statements that the protocol answers itself: transactions, parameters, cursors and COPY.

``read`` says what a statement is. What it does not know is CQL, or ad-hoc SQL, and goes to the service as it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from penstock.cql.positions import position_at
from penstock.model.errors import CqlSyntaxError
from penstock.model.types import INTERVAL
from penstock.rows.values import parse_text
from penstock.server.statements import Piece, Token


@dataclass(frozen=True)
class Transaction:
    """BEGIN, COMMIT, ROLLBACK and their relatives; ``tag`` is what the client is told."""

    kind: Literal["begin", "commit", "rollback", "savepoint", "back", "nothing"]
    tag: str


@dataclass(frozen=True)
class SetParameter:
    """``SET name = value``; None: its default."""

    name: str
    value: str | None
    tag: str = "SET"


@dataclass(frozen=True)
class ShowParameter:
    """``SHOW name``, ``SHOW ALL``."""

    name: str


@dataclass(frozen=True)
class Declare:
    """``DECLARE name CURSOR FOR text``; the text stands where it stands in the whole."""

    name: str
    text: str
    binary: bool = False


@dataclass(frozen=True)
class Fetch:
    """``FETCH n FROM name [WITH (timeout = '1 s')]``; ``count`` None: all that is there. ``moves``: MOVE, no rows."""

    name: str
    count: int | None
    seconds: float = 0.0
    moves: bool = False


@dataclass(frozen=True)
class Close:
    """``CLOSE name``, ``CLOSE ALL`` (None)."""

    name: str | None


@dataclass(frozen=True)
class Deallocate:
    """``DEALLOCATE name``, ``DEALLOCATE ALL`` (None), ``DISCARD ALL``."""

    name: str | None
    tag: str


@dataclass(frozen=True)
class CopyOptions:
    """How rows are written in COPY."""

    format: Literal["text", "csv", "binary"] = "text"
    header: bool = False
    delimiter: str = "\t"
    null: str = "\\N"
    quote: str = '"'
    escape: str = '"'
    encoding: str = "UTF8"


@dataclass(frozen=True)
class CopyIn:
    """``COPY name [(columns)] FROM STDIN``."""

    name: str
    columns: tuple[str, ...]
    options: CopyOptions


@dataclass(frozen=True)
class CopyOut:
    """``COPY (text) TO STDOUT``, ``COPY name [(columns)] TO STDOUT``."""

    text: str
    options: CopyOptions


@dataclass(frozen=True)
class Other:
    """Everything else: the service knows it."""

    text: str = field(repr=False)


Statement = Transaction | SetParameter | ShowParameter | Declare | Fetch | Close | Deallocate | CopyIn | CopyOut | Other


def read(piece: Piece, parameters: frozenset[str]) -> Statement:
    """What one statement is; ``parameters``: names that SHOW and SET know here."""
    words = _Words(piece)
    match words.word():
        case "begin" | "start" | "commit" | "end" | "rollback" | "abort" | "savepoint" | "release":
            return _transaction(words)
        case "set":
            return _set(words)
        case "reset":
            words.next()
            name = _parameter(words)
            return SetParameter(name, None, "RESET")
        case "show":
            words.next()
            name = _parameter(words, anything=True)
            if name in parameters or name == "all":
                return ShowParameter(name)
        case "declare":
            return _declare(words)
        case "fetch" | "move":
            return _fetch(words)
        case "close" if words.word(1) != "stream":
            words.next()
            name = words.name("a cursor")
            words.end()
            return Close(None if name == "all" else name)
        case "deallocate":
            words.next()
            words.skip("prepare")
            name = words.name("a prepared statement")
            words.end()
            return Deallocate(None if name == "all" else name, "DEALLOCATE ALL" if name == "all" else "DEALLOCATE")
        case "discard":
            return Deallocate(None, "DISCARD ALL")
        case "unlisten":
            return Transaction("nothing", "UNLISTEN")
        case "copy":
            return _copy(words)
    return Other(piece.in_place)


class _Words:
    """The tokens of a statement, one after the other."""

    def __init__(self, piece: Piece) -> None:
        self.whole = piece.whole
        self._tokens: list[Token] = []
        for token in piece.tokens:
            before = self._tokens[-1] if self._tokens else None
            if token.sort == "string" and before is not None and before.value == "e" and before.end == token.start:
                token = Token("string", _unescaped(token.value), before.start, token.end)  # E'\t'
                self._tokens.pop()
            self._tokens.append(token)
        self._at = 0

    def peek(self, ahead: int = 0) -> Token | None:
        place = self._at + ahead
        return self._tokens[place] if place < len(self._tokens) else None

    def word(self, ahead: int = 0) -> str | None:
        token = self.peek(ahead)
        return token.value if token is not None and token.sort in ("word", "mark") else None

    def next(self) -> Token | None:
        token = self.peek()
        self._at += 1
        return token

    def until_end(self, start: int) -> str:
        """The text from a place on, everything before it blank, so that positions are those in the whole."""
        return re.sub(r"[^\r\n]", " ", self.whole[:start]) + self.whole[start : self._tokens[-1].end]

    def skip(self, *words: str) -> bool:
        """Whether the next word is one of these, which is then passed."""
        if self.word() in words:
            self._at += 1
            return True
        return False

    def expect(self, word: str) -> Token:
        token = self.peek()
        if token is None or self.word() != word:
            raise self.error(f"{word.upper()} was expected here")
        self._at += 1
        return token

    def name(self, what: str) -> str:
        token = self.peek()
        if token is None or token.sort not in ("word", "quoted"):
            raise self.error(f"the name of {what} was expected here")
        self._at += 1
        return token.value

    def end(self) -> None:
        if self.peek() is not None:
            raise self.error("the statement should end here")

    def error(self, message: str, hint: str | None = None) -> CqlSyntaxError:
        token = self.peek()
        start, end = (self._tokens[-1].end,) * 2 if token is None else (token.start, token.end)
        return CqlSyntaxError(message, hint=hint, position=position_at(self.whole, start, end), text=self.whole)


def _unescaped(text: str) -> str:
    known = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
    return re.sub(r"\\(.)", lambda m: known.get(m[1], m[1]), text, flags=re.DOTALL)


def _transaction(words: _Words) -> Transaction:
    first = words.word()
    words.next()
    if first in ("begin", "start"):
        return Transaction("begin", "BEGIN" if first == "begin" else "START TRANSACTION")
    if first in ("commit", "end"):
        return Transaction("commit", "COMMIT")
    if first == "savepoint":
        return Transaction("savepoint", "SAVEPOINT")
    if first == "release":
        return Transaction("savepoint", "RELEASE")
    words.skip("work", "transaction")
    return Transaction("back" if words.skip("to") else "rollback", "ROLLBACK")


def _parameter(words: _Words, *, anything: bool = False) -> str:
    """The name of a parameter; some are several words."""
    if words.word() == "time" and words.word(1) == "zone":
        return "timezone"
    if words.word() == "transaction" and words.word(1) == "isolation":
        return "transaction_isolation"
    if words.word() == "session" and words.word(1) == "authorization":
        return "session_authorization"
    if anything and (words.peek() is None or words.peek(1) is not None):
        return ""
    name = words.name("a parameter")
    while words.skip("."):
        name += "." + words.name("a parameter")
    return name


def _set(words: _Words) -> Statement:
    words.next()
    if words.word() == "session" and words.word(1) == "characteristics":
        return Transaction("nothing", "SET")
    if words.word() in ("transaction", "constraints"):
        return Transaction("nothing", "SET")
    if not (words.word() == "session" and words.word(1) == "authorization"):
        words.skip("session", "local")
    if words.word() == "time":
        words.next()
        words.expect("zone")
        name = "timezone"
    elif words.word() == "names":
        words.next()
        name = "client_encoding"
    else:
        name = words.name("a parameter")
        while words.skip("."):
            name += "." + words.name("a parameter")
        if not words.skip("to", "="):
            raise words.error("TO or = was expected here")
    values = []
    while (token := words.next()) is not None:
        if token.sort != "mark" or token.value != ",":
            values.append(token.value)
    if not values:
        raise words.error(f"a value for {name} was expected here")
    return SetParameter(name, None if values == ["default"] else ", ".join(values))


def _declare(words: _Words) -> Declare:
    words.next()
    name = words.name("a cursor")
    binary = False
    while words.word() not in ("cursor", None):
        binary |= words.word() == "binary"
        if not words.skip("binary", "insensitive", "asensitive", "no", "scroll"):
            raise words.error("CURSOR was expected here")
    words.expect("cursor")
    if words.skip("with", "without"):
        words.expect("hold")
    words.expect("for")
    token = words.peek()
    if token is None:
        raise words.error("SELECT or SUBSCRIBE was expected here")
    return Declare(name, words.until_end(token.start), binary)


def _fetch(words: _Words) -> Fetch:
    moves = words.word() == "move"
    words.next()
    count: int | None = 1
    if words.word() in ("prior", "first", "last", "absolute", "relative", "backward"):
        raise words.error("a cursor goes forward only", "FETCH n FROM cursor, or FETCH ALL FROM cursor")
    words.skip("next", "forward")
    token = words.peek()
    if token is not None and token.sort == "number":
        words.next()
        if not token.value.isdigit():
            raise words.error("a count is a whole number")
        count = int(token.value)
    elif words.word() == "all" and words.peek(1) is not None:
        words.next()
        count = None
    words.skip("from", "in")
    name = words.name("a cursor")
    seconds = 0.0
    if words.skip("with"):
        words.expect("(")
        words.expect("timeout")
        words.skip("=")
        token = words.next()
        try:
            seconds = (parse_text(token.value, INTERVAL) or 0) / 1_000_000 if token is not None else 0.0
        except ValueError:
            raise words.error("timeout is a time, such as '1 second'") from None
        words.expect(")")
    words.end()
    return Fetch(name, count, seconds, moves)


def _copy(words: _Words) -> CopyIn | CopyOut:
    words.next()
    if words.skip("binary"):
        raise words.error("the format stands at the end", "COPY … WITH (FORMAT binary)")
    text, name = "", ""
    columns: tuple[str, ...] = ()
    opening = words.peek()
    if opening is not None and words.skip("("):
        depth, end = 1, opening.end
        while depth:
            token = words.next()
            if token is None:
                raise words.error("a closing ) was expected here")
            depth += {"(": 1, ")": -1}.get(token.value, 0) if token.sort == "mark" else 0
            end = token.start
        text = re.sub(r"[^\r\n]", " ", words.whole[: opening.end]) + words.whole[opening.end : end]
    else:
        name = words.name("a stream")
        while words.skip("."):
            schema, name = name, words.name("a stream")
            if schema not in ("public", "sys"):
                raise words.error(f"there is no schema {schema}", "there are public and sys")
            name = f"sys.{name}" if schema == "sys" else name
        columns = _columns(words)
    if words.skip("from"):
        if not name:
            raise words.error("rows go into a stream", "COPY stream FROM STDIN")
        _expect_pipe(words, "stdin")
        return CopyIn(name, columns, _options(words))
    words.expect("to")
    _expect_pipe(words, "stdout")
    if not text:
        chosen = ", ".join(map(quoted, columns)) or "*"
        text = f"SELECT {chosen} FROM {'.'.join(map(quoted, name.split('.', 1)))}"
    return CopyOut(text, _options(words))


def _expect_pipe(words: _Words, wanted: str) -> None:
    if words.word() == "program" or (words.peek() is not None and words.word() is None):
        raise words.error("files of the server are not read or written", f"use {wanted.upper()}, or psql's \\copy")
    words.expect(wanted)


def quoted(name: str) -> str:
    """A name as it can stand in a statement, whatever it is."""
    return '"' + name.replace('"', '""') + '"'


def _columns(words: _Words) -> tuple[str, ...]:
    if not words.skip("("):
        return ()
    found = [words.name("a column")]
    while words.skip(","):
        found.append(words.name("a column"))
    words.expect(")")
    return tuple(found)


def _options(words: _Words) -> CopyOptions:
    given: dict[str, str] = {}
    words.skip("with")
    if words.skip("("):
        while True:
            name = words.name("an option")
            token = words.peek()
            given[name] = "true"
            if token is not None and token.value not in (",", ")"):
                words.next()
                given[name] = token.value
            if not words.skip(","):
                break
        words.expect(")")
    else:  # the older form: WITH CSV HEADER DELIMITER ';'
        while (word := words.word()) is not None:
            words.next()
            if word in ("csv", "binary", "text"):
                given["format"] = word
            elif word == "header":
                given["header"] = "true"
            else:
                words.skip("as")
                token = words.next()
                given[word] = "" if token is None else token.value
    words.end()
    unknown = sorted(given.keys() - _KNOWN)
    if unknown:
        raise words.error(f"COPY has no option {unknown[0]}", f"there are {', '.join(sorted(_KNOWN))}")
    form = given.get("format", "text").lower()
    if form not in ("text", "csv", "binary"):
        raise words.error(f"there is no format {form}", "there are text, csv, binary")
    csv = form == "csv"
    quote = given.get("quote", '"')
    found = CopyOptions(
        form, given.get("header", "false").lower() in ("true", "on", "1", "match"),  # type: ignore[arg-type]
        given.get("delimiter", "," if csv else "\t"), given.get("null", "" if csv else "\\N"),
        quote, given.get("escape", quote), given.get("encoding", "UTF8"),
    )  # fmt: skip
    if any(len(sign) != 1 or sign in "\r\n" for sign in (found.delimiter, found.quote, found.escape)):
        raise words.error("delimiter, quote and escape are one character each")
    if found.encoding.upper().replace("-", "") != "UTF8":
        raise words.error("the encoding is UTF8")
    return found


_KNOWN = frozenset({"format", "header", "delimiter", "null", "quote", "escape", "encoding"})
