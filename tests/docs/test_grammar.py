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


def ways(node: Node) -> int:
    """Between how many ways one has to choose here."""
    match node:
        case Choice(items):
            return len(items)
        case Optional(_):
            return 2
        case Repeated(_):
            return 3
    return 0


def paths() -> dict[int, list[Node]]:
    """The shortest way from a statement to each node, the node included."""
    start = RULES["statement"]
    found: dict[int, list[Node]] = {id(start): [start]}
    waiting = [start]
    for node in waiting:
        below = inner(node)
        if isinstance(node, Reference) and node.rule not in WORDS:
            below = (RULES[node.rule],)
        for child in below:
            if id(child) not in found:
                found[id(child)] = [*found[id(node)], child]
                waiting.append(child)
    return found


class Writer:
    """Texts: along a path, and elsewhere by the shortest way or, as long as there is ``luck``, at random."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._depths = depths(RULES)
        self._luck = 0

    def along(self, path: list[Node], way: int) -> str:
        """A text that comes to the end of the path, and goes this way there."""
        self._luck = 0
        return self._write(RULES["statement"], path, way)

    def at_random(self, luck: int) -> str:
        self._luck = luck
        return self._write(RULES["statement"], [], 0)

    def _write(self, node: Node, path: list[Node], way: int) -> str:
        if path and path[0] is not node:
            path = []
        rest = path[1:]
        match node:
            case Terminal(text):
                return text
            case Reference(rule) if rule in WORDS:
                return self._random.choice(SAMPLES[rule])
            case Reference(rule):
                return self._write(RULES[rule], rest, way)
            case Sequence(items):
                return " ".join(filter(None, (self._write(item, rest, way) for item in items)))
            case Choice(items):
                item = rest[0] if rest else items[way if path else self._chosen([self._needs(i) for i in items])]
                return self._write(item, rest, way)
            case Optional(item) | Repeated(item):
                usual = [0] + [self._needs(item)] * (ways(node) - 1)
                times = 1 if rest else way if path else self._chosen(usual)
                return " ".join(self._write(item, rest if i == 0 else [], way) for i in range(times))

    def _needs(self, node: Node) -> int:
        match node:
            case Reference(rule):
                return self._depths[rule]
            case Choice(items):
                return min(map(self._needs, items))
            case Sequence(items):
                return max(map(self._needs, items))
        return 0

    def _chosen(self, needs: list[int]) -> int:
        if self._luck > 0 and self._random.random() < 0.7:
            self._luck -= 1
            return self._random.randrange(len(needs))
        return needs.index(min(needs))


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """One for each way that can be gone, and some at random."""
    writer = Writer(1)
    found = [writer.along(path, way) for path in paths().values() for way in range(ways(path[-1]))]
    return [*found, *(writer.at_random(luck % 40) for luck in range(200))]


def test_every_way_through_the_grammar_is_read(texts: list[str]) -> None:
    for text in texts:
        assert len(parse(text)) == 1, text


def test_every_rule_can_be_reached() -> None:
    reached = paths()
    waiting: list[Node] = list(RULES.values())
    while waiting:
        node = waiting.pop()
        waiting.extend(inner(node))
        assert id(node) in reached, node


def test_everything_that_the_parser_makes_is_in_the_grammar(texts: list[str]) -> None:
    made: set[type[exp.Expr]] = set()
    given: set[tuple[type[exp.Expr], str]] = set()
    kinds: set[str] = set()
    for text in texts:
        for tree in (statement.tree for statement in parse(text)):
            for node in tree.walk():
                made.add(type(node))
                given |= {(type(node), name) for name, value in node.args.items() if value}
                if isinstance(node, ast.StreamWindow):
                    kinds.add(node.args["kind"])
    classes = [c for c in vars(ast).values() if isinstance(c, type) and issubclass(c, exp.Expression)]
    own = {c for c in classes if c.__module__ == ast.__name__}
    assert own <= made
    elsewhere: set[tuple[type[exp.Expr], str]] = {
        (ast.CreateRelation, "options"),  # read, and always refused: a relation has none
        (ast.Emit, "with_"),  # two ways that are gone one by one
    }
    assert {(c, name) for c in own for name in c.arg_types} - given == elsewhere
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
    words = {word for text in known for word in text.split()}
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
