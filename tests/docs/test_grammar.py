"""docs/reference/grammar.md is the grammar of the parser: what it can write is read, and what is read is in it."""

from __future__ import annotations

import html
import random
import re
from pathlib import Path

import pytest
from scripts.grammar import (
    PAGE,
    WORDS,
    Choice,
    Malformed,
    Node,
    Optional,
    Reference,
    Repeated,
    Rules,
    Sequence,
    Terminal,
    read,
    rules,
    sections,
)
from scripts.grammar.draw import FOLDER
from sqlglot import exp

from penstock.cql import ast, dialect, parse_base, parse_queries, parse_windows, parser
from penstock.cql.text import parse

RULES = rules()
SAMPLES = {
    "name": ("a", "room", "r2", '"user id"', "größe"),
    "number": ("3", "0.5", "12"),
    "text": ("'10'",),
    "length": ("'10 minutes'", "'1 hour 30 minutes'"),
    "field": ("hour", "YEAR"),
    "unit": ("SECONDS", "minute", "MS", "h"),
}


def inner(node: Node) -> tuple[Node, ...]:
    match node:
        case Sequence(items) | Choice(items):
            return items
        case Optional(item) | Repeated(item):
            return (item,)
    return ()


def depths(grammar: Rules) -> dict[str, int]:
    """How deep the shortest text of each rule is."""
    found: dict[str, int] = dict.fromkeys(WORDS, 0)

    def depth(node: Node) -> float:
        match node:
            case Reference(rule):
                return found.get(rule, float("inf"))
            case Sequence(items):
                return max(map(depth, items))
            case Choice(items):
                return min(map(depth, items))
        return 0

    changed = True
    while changed:
        changed = False
        for name, node in grammar.items():
            now = depth(node) + 1
            if now < found.get(name, float("inf")):
                found[name], changed = int(now), True
    return found


MOST = 60
"""From so many words on a text is brought to its end by the shortest way."""


class Writer:
    """Texts at random, those ways first that have not been gone yet."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._depths = depths(RULES)
        self.gone: set[tuple[int, int]] = set()
        self._words = 0

    def statement(self, room: int) -> str:
        self._words = 0
        return self.write(RULES["statement"], room)

    def write(self, node: Node, room: int) -> str:
        room = room if self._words < MOST else 0
        match node:
            case Terminal(text):
                self._words += 1
                return text
            case Reference(rule) if rule in WORDS:
                return self._random.choice(SAMPLES[rule])
            case Reference(rule):
                return self.write(RULES[rule], room - 1)
            case Sequence(items):
                return " ".join(filter(None, (self.write(item, room) for item in items)))
            case Choice(items):
                return self.write(items[self._way(node, [self._needs(i) for i in items], room)], room)
            case Optional(item):
                return self.write(item, room) if self._way(node, [0, self._needs(item)], room) else ""
            case Repeated(item):
                times = self._way(node, [0, self._needs(item), self._needs(item)], room)
                return " ".join(self.write(item, room) for _ in range(times))

    def _needs(self, node: Node) -> int:
        match node:
            case Reference(rule):
                return self._depths[rule]
            case Choice(items):
                return min(map(self._needs, items))
            case Sequence(items):
                return max(map(self._needs, items))
        return 0

    def _way(self, node: Node, needs: list[int], room: int) -> int:
        fits = [i for i, need in enumerate(needs) if need <= room] if room > 0 else []
        new = [i for i in fits if (id(node), i) not in self.gone]
        if not fits or (not new and not isinstance(node, Choice) and self._random.random() < 0.7):
            way = needs.index(min(needs))
        else:
            way = self._random.choice(new or fits)
        self.gone.add((id(node), way))
        return way

    def ways(self) -> set[tuple[int, int]]:
        """All there are."""
        found: set[tuple[int, int]] = set()
        waiting: list[Node] = list(RULES.values())
        while waiting:
            node = waiting.pop()
            waiting.extend(inner(node))
            count = {Choice: len(inner(node)), Optional: 2, Repeated: 3}.get(type(node), 0)
            found |= {(id(node), i) for i in range(count)}
        return found


@pytest.fixture(scope="module")
def written() -> tuple[Writer, list[str]]:
    writer = Writer(1)
    ways = writer.ways()
    texts: list[str] = []
    while len(texts) < 200 or (writer.gone != ways and len(texts) < 3000):
        texts.append(writer.statement(room=16 + len(texts) % 24))
    return writer, texts


def test_every_way_through_the_grammar_is_read(written: tuple[Writer, list[str]]) -> None:
    writer, texts = written
    for text in texts:
        assert len(parse(text)) == 1, text
    assert writer.gone == writer.ways()


def test_everything_that_the_parser_makes_is_in_the_grammar(written: tuple[Writer, list[str]]) -> None:
    made: set[type[exp.Expr]] = set()
    kinds: set[str] = set()
    for text in written[1]:
        for tree in (statement.tree for statement in parse(text)):
            for node in tree.walk():
                made.add(type(node))
                if isinstance(node, ast.StreamWindow):
                    kinds.add(node.args["kind"])
    classes = [c for c in vars(ast).values() if isinstance(c, type) and issubclass(c, exp.Expression)]
    assert {c for c in classes if c.__module__ == ast.__name__} <= made
    assert kinds == set(re.findall(r'kind="(\w+)"', Path(parse_windows.__file__).read_text(encoding="utf-8")))


def terminals(grammar: Rules) -> set[str]:
    found: set[str] = set()
    waiting: list[Node] = list(grammar.values())
    while waiting:
        node = waiting.pop()
        waiting.extend(inner(node))
        if isinstance(node, Terminal):
            found.add(node.text)
    return found


def test_every_word_of_the_parser_is_in_the_grammar() -> None:
    known = [
        *dialect._WORDS, *dialect._TYPES, *dialect._OPERATORS, *parser._SHOWN, *parser._KINDS, *parser._FORMATS,
        *parse_queries._CLAUSES.values(), *parse_base.EMITS, *re.findall(r"[A-Z]+", parse_windows._FORMS),
    ]  # fmt: skip
    words = {word for text in known for word in text.split()} - {"NATURAL"}  # which is refused, with a hint
    assert words <= terminals(RULES)


def test_every_rule_is_there_and_used() -> None:
    used: set[str] = set()
    waiting: list[Node] = list(RULES.values())
    while waiting:
        node = waiting.pop()
        waiting.extend(inner(node))
        if isinstance(node, Reference):
            used.add(node.rule)
    assert used == (RULES.keys() - {"statement"}) | WORDS
    assert sum(len(section) for section in sections().values()) == len(RULES)


@pytest.mark.parametrize(
    "block", ["x = [a", "x = a | | b", "x = a ]", "= a", "x = a\nx = b", "x = #", "x = (a}", "a"]
)
def test_a_block_that_is_not_in_the_notation_is_refused(block: str) -> None:
    with pytest.raises(Malformed):
        read(block)


def test_every_section_has_its_picture() -> None:
    assert {path.stem for path in FOLDER.glob("*.svg")} == set(sections())
    page = PAGE.read_text(encoding="utf-8")
    assert all(f"(../pictures/grammar/{name}.svg)" in page for name in sections())


def test_pictures_are_those_of_the_grammar() -> None:
    pytest.importorskip("railroad", reason="railroad-diagrams is installed by `make docs` alone")
    from scripts.grammar.draw import pictures

    for name, text in pictures().items():
        assert (FOLDER / f"{name}.svg").read_text(encoding="utf-8") == text, "make it anew: python -m scripts.grammar"


@pytest.mark.parametrize("name", sorted(sections()))
def test_a_picture_names_every_rule_and_word_of_its_section(name: str) -> None:
    picture = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    shown = {html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", picture)}
    assert sections()[name].keys() | terminals(sections()[name]) <= shown
