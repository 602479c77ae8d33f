"""The grammar of CQL, read from docs/reference/grammar.md: its `text` blocks are the one description of it.

    name = …            a rule, up to the next
    WORD, 'text'        written as they are
    other               another rule
    […] {…} (…) |       may be left out, any number of times, grouped, alternatives
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/reference/grammar.md"
WORDS = frozenset({"name", "number", "text", "length", "unit", "field"})
"""What the page explains in words."""


@dataclass(frozen=True)
class Terminal:
    """Written as it is."""

    text: str


@dataclass(frozen=True)
class Reference:
    """Another rule, or one of the words."""

    rule: str


@dataclass(frozen=True)
class Sequence:
    items: tuple[Node, ...]


@dataclass(frozen=True)
class Choice:
    items: tuple[Node, ...]


@dataclass(frozen=True)
class Optional:
    item: Node


@dataclass(frozen=True)
class Repeated:
    """Any number of times, also none."""

    item: Node


Node = Terminal | Reference | Sequence | Choice | Optional | Repeated
Rules = dict[str, Node]

_TOKEN = re.compile(r"\s*(?:'(?P<quoted>[^']+)'|(?P<word>[A-Z_]+)\b|(?P<rule>[a-z_]+)|(?P<sign>[][{}()|=]))")
_CLOSING = {"[": "]", "{": "}", "(": ")"}


class Malformed(Exception):
    """The block is not in the notation."""


def sections(text: str | None = None) -> dict[str, Rules]:
    """The rules by the heading they stand under, in lower case."""
    found: dict[str, Rules] = {}
    page = PAGE.read_text(encoding="utf-8") if text is None else text
    for part in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        for block in re.findall(r"^```text\n(.*?)^```", part, flags=re.MULTILINE | re.DOTALL):
            found[part.splitlines()[0].lower()] = read(block)
    return found


def rules() -> Rules:
    """All of them."""
    return {name: node for section in sections().values() for name, node in section.items()}


def read(block: str) -> Rules:
    """The rules of a block, or ``Malformed``."""
    reader = _Reader(block)
    found: Rules = {}
    while not reader.done:
        name = reader.rule_name()
        if name in found:
            raise Malformed(f"there are two rules `{name}`")
        found[name] = reader.choice()
    return found


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        at = 0
        while text[at:].strip():
            token = _TOKEN.match(text, at)
            if token is None:
                raise Malformed(f"this is no part of a rule: {text[at:].strip().splitlines()[0]}")
            self._tokens.append((str(token.lastgroup), str(token[str(token.lastgroup)])))
            at = token.end()
        self._at = 0

    @property
    def done(self) -> bool:
        return self._at == len(self._tokens)

    def rule_name(self) -> str:
        if not self._rule_begins():
            raise Malformed(f"a rule is `name = …`, not {self._tokens[self._at][1]}")
        self._at += 2
        return self._tokens[self._at - 2][1]

    def _rule_begins(self) -> bool:
        ahead = self._tokens[self._at : self._at + 2]
        return len(ahead) == 2 and ahead[0][0] == "rule" and ahead[1] == ("sign", "=")

    def choice(self) -> Node:
        items = [self._sequence()]
        while self._sign("|"):
            items.append(self._sequence())
        return items[0] if len(items) == 1 else Choice(tuple(items))

    def _sequence(self) -> Node:
        items: list[Node] = []
        while not self.done and not self._rule_begins():
            kind, text = self._tokens[self._at]
            if kind == "sign" and text not in _CLOSING:
                break
            self._at += 1
            match kind:
                case "sign":
                    inner = self.choice()
                    if not self._sign(_CLOSING[text]):
                        raise Malformed(f"`{text}` is never closed")
                    items.append(Optional(inner) if text == "[" else Repeated(inner) if text == "{" else inner)
                case "rule":
                    items.append(Reference(text))
                case _:
                    items.append(Terminal(text))
        if not items:
            raise Malformed("there is nothing where something is to be written")
        return items[0] if len(items) == 1 else Sequence(tuple(items))

    def _sign(self, sign: str) -> bool:
        if self.done or self._tokens[self._at] != ("sign", sign):
            return False
        self._at += 1
        return True
