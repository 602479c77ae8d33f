"""Java's regular expressions, which are Spark's, by Python's ``re``.

What both have is taken as it is, what Python writes otherwise is rewritten, and the rest is refused: no pattern means
something else here than in Spark. Classes like ``\\d`` and ``(?i)`` know ASCII only, as in Java.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

from penstock.scalar.context import RowError

_ENDS = r"\n\r\x85\u2028\u2029"
_END = rf"(?:\r\n|[{_ENDS}])"
_BLANK = r" \t\xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000"
_NOT_INSIDE = r"(?<!\r(?=\n))"
# Escapes by their letter: as they are outside of a class, and inside of one (None: not there).
_KEPT = "dDwWsStnrfa"
_ESCAPES: dict[str, tuple[str, str | None]] = {
    **{c: (f"\\{c}", f"\\{c}") for c in _KEPT},
    "b": (r"\b", None),
    "B": (r"\B", None),
    "A": (r"\A", None),
    "z": (r"\Z", None),
    "Z": (rf"(?={_END}?\Z){_NOT_INSIDE}", None),
    "R": (r"(?:\r\n|[\n\v\f\r\x85\u2028\u2029])", None),
    "h": (f"[{_BLANK}]", _BLANK),
    "v": (r"[\n\v\f\r\x85\u2028\u2029]", r"\n\v\f\r\x85\u2028\u2029"),
    "e": (r"\x1b", r"\x1b"),
}  # fmt: skip
_POSIX = {
    "Lower": "a-z", "Upper": "A-Z", "ASCII": r"\x00-\x7f", "Alpha": "a-zA-Z", "Digit": "0-9", "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~", "Graph": "!-~", "Print": " -~", "Blank": r" \t", "Cntrl": r"\x00-\x1f\x7f",
    "XDigit": "0-9a-fA-F", "Space": r"\s",
}  # fmt: skip
_QUANTIFIER = re.compile(r"\{[0-9]+(,[0-9]*)?\}")
_FLAGS = re.compile(r"\(\?([a-zA-Z]*)(-[a-zA-Z]*)?([:)])")
_NAME = re.compile(r"<([a-zA-Z][a-zA-Z0-9]*)>")


class RegexpError(Exception):
    """A text that is no pattern, or none that Python can match."""


def _no(what: str) -> RegexpError:
    return RegexpError(f"{what} is not supported")


@dataclass
class _Translation:
    """A pattern on its way, and for each open group whether ``.`` and ``$`` look beyond a line in it."""

    pattern: str
    at: int = 0
    out: list[str] = field(default_factory=list)
    groups: list[tuple[bool, bool]] = field(default_factory=lambda: [(False, False)])
    closing: list[int] = field(default_factory=lambda: [0])
    fresh: bool = True
    """Nothing of the group, or of the pattern, has been read."""

    def run(self) -> str:
        while self.at < len(self.pattern):
            fresh, self.fresh = self.fresh, False
            self._one(self.pattern[self.at], fresh)
        self.out.append(")" * self.closing[0])
        return "".join(self.out)

    def _one(self, c: str, fresh: bool) -> None:
        dot_all, lines = self.groups[-1]
        self.at += 1
        match c:
            case "\\":
                self._escape()
            case "[":
                self._class()
            case "(":
                self._group(fresh)
            case ")":
                self.out.append(")" * (1 + (self.closing.pop() if len(self.closing) > 1 else 0)))
                if len(self.groups) > 1:
                    self.groups.pop()
            case ".":
                self.out.append("(?s:.)" if dot_all else f"[^{_ENDS}]")
            case "$":
                self.out.append((rf"(?={_END}|\Z)" if lines else rf"(?={_END}?\Z)") + _NOT_INSIDE)
            case "^" if lines:
                self.out.append(rf"(?:\A|(?<=[{_ENDS}])(?!\Z){_NOT_INSIDE})")
            case "{":
                found = _QUANTIFIER.match(self.pattern, self.at - 1)
                if found is None:
                    raise RegexpError("`{` is not followed by how often; write `\\{` for the character")
                self.out.append(found[0])
                self.at = found.end()
            case _:
                self.out.append(c)

    def _group(self, fresh: bool) -> None:
        rest = self.pattern[self.at :]
        here = self.groups[-1]
        if not rest.startswith("?"):
            self._open("(", 0, here)
        elif rest.startswith(("?=", "?!", "?>")):
            self._open(f"({rest[:2]}", 2, here)
        elif rest.startswith(("?<=", "?<!")):
            self._open(f"({rest[:3]}", 3, here)
        elif rest.startswith("?<") and (named := _NAME.match(rest, 1)):
            self._open(f"(?P<{named[1]}>", named.end(), here)
        elif found := _FLAGS.match(self.pattern, self.at - 1):
            self._flags(found, fresh)
        else:
            raise _no(f"`({rest[:3]}`")

    def _open(self, text: str, skip: int, flags: tuple[bool, bool]) -> None:
        self.out.append(text)
        self.at += skip
        self.groups.append(flags)
        self.closing.append(0)
        self.fresh = True

    def _flags(self, found: re.Match[str], fresh: bool) -> None:
        """``(?i)`` and ``(?i:…)``. Python has the first form only at the beginning, so it becomes the second."""
        on, off, end = found[1], (found[2] or "")[1:], found[3]
        if other := set(on + off) - set("ims"):
            raise _no(f"the flag `{min(other)}`")
        dot_all, lines = self.groups[-1]
        dot_all, lines = (dot_all or "s" in on) and "s" not in off, (lines or "m" in on) and "m" not in off
        case = ("i" if "i" in on else "") + ("-i" if "i" in off else "")
        self.at = found.end() - 1
        if end == ":":
            self._open(f"(?{case}:", 1, (dot_all, lines))
            return
        if not fresh:
            raise _no(f"`{found[0]}` in the middle of a pattern")
        self.at += 1
        self.out.append(f"(?{case}:")
        self.closing[-1] += 1
        self.groups[-1] = dot_all, lines
        self.fresh = True

    def _escape(self) -> None:
        text, _ = self._escaped(inside=False)
        self.out.append(text)

    def _escaped(self, inside: bool) -> tuple[str, bool]:
        """What stands after a backslash, and whether it is one character."""
        c = self.pattern[self.at : self.at + 1]
        if not c:
            raise RegexpError("the pattern ends with a backslash")
        self.at += 1
        rest = self.pattern[self.at :]
        if c == "Q":
            quoted, end, _ = rest.partition("\\E")
            self.at += len(quoted) + len(end)
            return re.escape(quoted), False
        if c in _ESCAPES:
            outer, inner = _ESCAPES[c]
            if inside and inner is None:
                raise _no(f"`\\{c}` in a class")
            return (inner or "" if inside else outer), c in "tnrfae"
        if c in "pP" and (found := re.match(r"\{(\w+)\}", rest)):
            if found[1] not in _POSIX or (inside and c == "P"):
                raise _no(f"`\\{c}{found[0]}`")
            self.at += found.end()
            members = _POSIX[found[1]]
            return (members if inside else f"[{'^' if c == 'P' else ''}{members}]"), False
        if c == "k" and not inside and (named := _NAME.match(rest)):
            self.at += named.end()
            return f"(?P={named[1]})", False
        if c in "123456789" and not inside:
            if rest[:1].isdigit():
                raise _no(f"`\\{c}{rest[:1]}`, a group of two digits,")
            return f"(?:\\{c})", False
        for form, base in ((r"x([0-9a-fA-F]{2})", 16), (r"x\{([0-9a-fA-F]{1,6})\}", 16), (r"u([0-9a-fA-F]{4})", 16),
                           (r"0([0-3][0-7]{2}|[0-7]{1,2})", 8)):  # fmt: skip
            if found := re.match(form, c + rest):
                self.at += found.end() - 1
                code = int(found[1], base)
                if code > 0x10FFFF:
                    raise RegexpError(f"there is no character `\\{found[0]}`")
                return re.escape(chr(code)), True
        if c.isascii() and c.isalnum():
            raise _no(f"`\\{c}`")
        return re.escape(c), True

    def _class(self) -> None:
        out = ["["]
        if self.pattern[self.at : self.at + 1] == "^":
            self.at += 1
            out.append("^")
        if self.pattern[self.at : self.at + 1] == "]":
            raise RegexpError("a class cannot be empty; write `\\]` for the character")
        while (c := self.pattern[self.at : self.at + 1]) != "]":
            if not c:
                raise RegexpError("a class that nothing closes")
            if c == "[" or self.pattern.startswith("&&", self.at):
                raise _no("a class inside a class" if c == "[" else "`&&` in a class")
            self.at += 1
            if c == "\\":
                out.append(self._escaped(inside=True)[0])
            else:
                out.append(f"\\{c}" if c in "~|&" else c)
        self.at += 1
        self.out.append("".join(out) + "]")


@lru_cache(maxsize=512)
def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern, ready to match; raises ``RegexpError`` where it cannot be."""
    try:
        return re.compile(_Translation(pattern).run(), re.ASCII)
    except (re.error, OverflowError, RecursionError) as e:
        raise RegexpError(str(e)) from None


@lru_cache(maxsize=512)
def replacement(pattern: str, new: str) -> tuple[str | int, ...]:
    """What a match is replaced with, as texts and groups (``$1``, ``${name}``); a backslash quotes a character."""
    groups = compiled(pattern)
    parts: list[str | int] = []
    at = 0
    while at < len(new):
        c, at = new[at], at + 1
        if c == "\\":
            if at == len(new):
                raise RegexpError(f"the replacement '{new}' ends with a backslash")
            parts.append(new[at])
            at += 1
        elif c != "$":
            parts.append(c)
        elif named := re.compile(r"\{([a-zA-Z][a-zA-Z0-9]*)\}").match(new, at):
            if named[1] not in groups.groupindex:
                raise RegexpError(f"'{pattern}' has no group `{named[1]}`")
            parts.append(groups.groupindex[named[1]])
            at = named.end()
        else:
            if new[at : at + 1] not in tuple("0123456789"):
                raise RegexpError(f"`$` in the replacement '{new}' is not followed by a group; write `\\$`")
            number, at = int(new[at]), at + 1
            if number > groups.groups:
                raise RegexpError(f"'{pattern}' has no group {number}, but {groups.groups}")
            while new[at : at + 1] in tuple("0123456789") and number * 10 + int(new[at]) <= groups.groups:
                number, at = number * 10 + int(new[at]), at + 1
            parts.append(number)
    return tuple(parts)


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return compiled(pattern)
    except RegexpError as e:
        raise RowError(f"'{pattern}' is not a regular expression: {e}") from None


def regexp_like(text: str, pattern: str) -> bool:
    return _compiled(pattern).search(text) is not None


def regexp_replace(text: str, pattern: str, new: str) -> str:
    """Every match replaced."""
    expression = _compiled(pattern)
    try:
        parts = replacement(pattern, new)
    except RegexpError as e:
        raise RowError(str(e)) from None
    return expression.sub(lambda m: "".join(p if isinstance(p, str) else m[p] or "" for p in parts), text)


def regexp_extract(text: str, pattern: str, group: int = 1) -> str:
    """The group of the first match; empty where nothing matches."""
    found = _compiled(pattern).search(text)
    try:
        check_group(pattern, group)
    except RegexpError as e:
        raise RowError(str(e)) from None
    return (found[group] or "") if found else ""


def check_group(pattern: str, group: int) -> None:
    groups = compiled(pattern).groups
    if not 0 <= group <= groups:
        raise RegexpError(f"'{pattern}' has no group {group}, but {groups}; group 0 is the whole match")
