"""Railroad diagrams of the grammar, one picture for each section of its page. Needs the package railroad-diagrams."""

from __future__ import annotations

import importlib
import io
import re
from pathlib import Path
from typing import Any

from scripts.grammar import Choice, Node, Optional, Reference, Repeated, Rules, Sequence, Terminal, sections

FOLDER = Path(__file__).parents[2] / "docs/pictures/grammar"

_LIGHT = {"ground": "#ffffff", "text": "#1d2530", "line": "#5b6b82", "word": "#d5e4f5", "rule": "#eef1f6"}
_DARK = {"ground": "#14181f", "text": "#eef2f7", "line": "#93a4bd", "word": "#233a56", "rule": "#1f2631"}


def _colors(colors: dict[str, str]) -> str:
    rules = (
        f".ground{{fill:{colors['ground']}}}", f"text{{fill:{colors['text']}}}", f"path{{stroke:{colors['line']}}}",
        f"rect{{stroke:{colors['line']};fill:{colors['rule']}}}", f".terminal rect{{fill:{colors['word']}}}",
    )  # fmt: skip
    return "".join(f".penstock-grammar {rule}" for rule in rules)


_STYLE = (
    ".penstock-grammar text{font:12px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;text-anchor:middle}"
    ".penstock-grammar .rule-name{font-weight:bold;text-anchor:start}.penstock-grammar path{fill:none;stroke-width:1.5}"
    f".penstock-grammar rect{{stroke-width:1}}{_colors(_LIGHT)}"
    f".penstock-grammar .ground{{stroke:none}}@media (prefers-color-scheme:dark){{{_colors(_DARK)}}}"
)


def pictures() -> dict[str, str]:
    """The SVG text of each section."""
    return {name: _picture(name, rules) for name, rules in sections().items()}


def write(folder: Path = FOLDER) -> int:
    """All of them; how many."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = pictures()
    for name, text in drawn.items():
        (folder / f"{name}.svg").write_text(text, encoding="utf-8")
    return len(drawn)


def _picture(section: str, rules: Rules) -> str:
    """The diagrams below each other, each under the name of its rule."""
    railroad = importlib.import_module("railroad")
    body: list[str] = []
    width, top = 0.0, 8.0
    for name, node in rules.items():
        diagram = railroad.Diagram(_drawn(node, railroad), type="complex")
        diagram.format(8)
        out = io.StringIO()
        diagram.writeSvg(out.write)
        inner = re.sub(r"^<svg[^>]*>|</svg>\s*$", "", out.getvalue().strip())
        inner = re.sub(r"\s*\n\s*", "", inner)
        body.append(f'<text class="rule-name" x="10" y="{top + 16:g}">{name}</text>')
        body.append(f'<g transform="translate(8 {top + 20:g})">{inner}</g>')
        top += 20 + float(diagram.attrs["height"]) + 8
        width = max(width, float(diagram.attrs["width"]) + 16)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="penstock-grammar" width="{width:g}" height="{top:g}" '
            f'viewBox="0 0 {width:g} {top:g}" role="img">',
            f"<title>CQL: {section}</title><style>{_STYLE}</style>",
            f'<rect class="ground" width="{width:g}" height="{top:g}" rx="4"/>',
            *body,
            "</svg>",
            "",
        ]
    )


def _drawn(node: Node, railroad: Any) -> Any:
    """The diagram of a part of a rule; what is long goes over several lines."""
    match node:
        case Terminal(text):
            return railroad.Terminal(text)
        case Reference(rule):
            return railroad.NonTerminal(rule)
        case Choice(items):
            return railroad.Choice(0, *(_drawn(item, railroad) for item in items))
        case Optional(item):
            return railroad.Optional(_drawn(item, railroad))
        case Repeated(item):
            return railroad.ZeroOrMore(_drawn(item, railroad))
        case Sequence(items):
            lines = [railroad.Sequence(*_parts(line, railroad)) for line in _lines(items)]
            return lines[0] if len(lines) == 1 else railroad.Stack(*lines)


def _parts(items: tuple[Node, ...], railroad: Any) -> list[Any]:
    """The diagrams of a line; `x {',' x}` is a loop through the comma."""
    parts: list[Any] = []
    for before, item in zip((None, *items), items, strict=False):
        match item:
            case Repeated(Sequence((Terminal(comma), again))) if again == before:
                parts[-1] = railroad.OneOrMore(parts[-1], railroad.Terminal(comma))
            case _:
                parts.append(_drawn(item, railroad))
    return parts


def _lines(items: tuple[Node, ...], most: int = 70) -> list[tuple[Node, ...]]:
    """The items in lines of about so many characters."""
    lines: list[list[Node]] = [[]]
    length = 0
    for item in items:
        size = _length(item)
        if lines[-1] and length + size > most and not isinstance(item, Repeated):
            lines.append([])
            length = 0
        lines[-1].append(item)
        length += size
    return [tuple(line) for line in lines]


def _length(node: Node) -> int:
    match node:
        case Terminal(text) | Reference(text):
            return len(text) + 4
        case Choice(items):
            return max(map(_length, items)) + 5
        case Sequence(items):
            return sum(map(_length, items))
        case Optional(item) | Repeated(item):
            return _length(item) + 5
