"""A sheet to draw on: a few shapes and texts as SVG, in colours for light and for dark surroundings.

Texts are texts, so that they can be selected and searched; every picture has its own ground, so that it can be read on
any page. Numbers are written short and in one way: the same picture is the same file.
"""

from __future__ import annotations

from xml.sax.saxutils import escape

_LIGHT = {
    "ground": "#ffffff", "text": "#1d2530", "faint": "#566273", "grid": "#dfe4ec", "line": "#5b6b82",
    "bar": "#d5e4f5", "rim": "#7da4cf", "one": "#2f6db0", "two": "#b86a1f", "alarm": "#c0392b", "plus": "#2f8f5b",
    "minus": "#c0392b", "onto": "#ffffff", "panel": "#eef1f6",
}  # fmt: skip
_DARK = {
    "ground": "#14181f", "text": "#eef2f7", "faint": "#aab6c6", "grid": "#2a3340", "line": "#93a4bd",
    "bar": "#233a56", "rim": "#5b86b8", "one": "#7db4ea", "two": "#e8a765", "alarm": "#ff8a7b", "plus": "#6bd09a",
    "minus": "#ff8a7b", "onto": "#14181f", "panel": "#1f2631",
}  # fmt: skip
_FILLED = ("ground", "bar", "one", "two", "alarm", "plus", "minus", "panel")
_STROKED = ("grid", "line", "rim")


def _rules(colors: dict[str, str]) -> str:
    rules = [f".{name}{{fill:{colors[name]}}}" for name in _FILLED]
    rules += [f".{name}{{stroke:{colors[name]}}}" for name in _STROKED]
    rules += [f".tip{{fill:{colors['line']}}}"]
    rules += [f"text{{fill:{colors['text']}}}"]
    rules += [f"text.{name}{{fill:{colors[name]}}}" for name in ("faint", "onto", "plus", "minus", "one", "two")]
    rules += [f".s-alarm{{stroke:{colors['alarm']}}}"]
    return "".join(f".penstock-picture {rule}" for rule in rules)


STYLE = (
    ".penstock-picture text{font-family:system-ui,'Segoe UI','DejaVu Sans',sans-serif;font-size:12px}"
    ".penstock-picture .mono{font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace}"
    ".penstock-picture .strong{font-weight:bold}.penstock-picture .small{font-size:10px}"
    ".penstock-picture .middle{text-anchor:middle}.penstock-picture .end{text-anchor:end}"
    ".penstock-picture .stroke{fill:none;stroke-width:1.3}.penstock-picture .dashed{stroke-dasharray:3 3}"
    f"{_rules(_LIGHT)}@media (prefers-color-scheme:dark){{{_rules(_DARK)}}}"
)


class Sheet:
    """Shapes from back to front; ``classes`` are names of colours and of kinds of text above."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._body: list[str] = []
        self.width, self.height = 0.0, 0.0

    def _reach(self, x: float, y: float) -> None:
        self.width, self.height = max(self.width, x), max(self.height, y)

    def text(self, x: float, y: float, said: str, classes: str = "", tip: str = "") -> None:
        """``y`` is the line that the text stands on."""
        more = f"<title>{escape(tip)}</title>" if tip else ""
        kind = f' class="{classes}"' if classes else ""
        self._reach(x, y + 4)
        self._body.append(f'<text{kind} x="{x:g}" y="{y:g}" xml:space="preserve">{more}{escape(said)}</text>')

    def rect(self, x: float, y: float, width: float, height: float, classes: str, round: float = 0) -> None:
        self._reach(x + width, y + height)
        corner = f' rx="{round:g}"' if round else ""
        self._body.append(
            f'<rect class="{classes}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"{corner}/>'
        )

    def line(self, points: list[tuple[float, float]], classes: str) -> None:
        """Straight from point to point."""
        for x, y in points:
            self._reach(x, y)
        path = "L".join(f"{x:g},{y:g}" for x, y in points)
        self._body.append(f'<path class="stroke {classes}" d="M{path}"/>')

    def curve(self, start: tuple[float, float], end: tuple[float, float], classes: str) -> None:
        """From above to below, leaving and arriving upright."""
        (x, y), (to, down) = start, end
        middle = (y + down) / 2
        self._body.append(
            f'<path class="stroke {classes}" d="M{x:g},{y:g}C{x:g},{middle:g} {to:g},{middle:g} {to:g},{down:g}"/>'
        )

    def arrow(self, points: list[tuple[float, float]]) -> None:
        """A line with a tip, which it reaches upright or level."""
        self.line(points, "line")
        (x, y), (x0, y0) = points[-1], points[-2]
        if x == x0:
            tip = f"M{x:g},{y:g}l-4,-7h8z" if y > y0 else f"M{x:g},{y:g}l-4,7h8z"
        else:
            tip = f"M{x:g},{y:g}l-7,-4v8z" if x > x0 else f"M{x:g},{y:g}l7,-4v8z"
        self._body.append(f'<path class="tip" d="{tip}"/>')

    def dot(self, x: float, y: float, label: str, classes: str = "one", tip: str = "") -> None:
        """A row: its letter in a circle."""
        more = f"<title>{escape(tip)}</title>" if tip else ""
        self._reach(x + 8, y + 8)
        self._body.append(
            f'<g>{more}<circle class="{classes}" cx="{x:g}" cy="{y:g}" r="8"/>'
            f'<text class="onto small strong middle" x="{x:g}" y="{y + 3.6:g}">{escape(label)}</text></g>'
        )

    def document(self, margin: float = 14) -> str:
        """The whole file."""
        width, height = self.width + margin, self.height + margin
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" class="penstock-picture" width="{width:g}" '
                f'height="{height:g}" viewBox="0 0 {width:g} {height:g}" role="img">',
                f"<title>{escape(self.title)}</title><style>{STYLE}</style>",
                f'<rect class="ground" width="{width:g}" height="{height:g}" rx="4"/>',
                *self._body,
                "</svg>",
                "",
            ]
        )
