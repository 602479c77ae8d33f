"""Colours and lengths of the picture of the graph."""

from __future__ import annotations

from penstock.graph.draw.layout import Spacing

WIDTH = 220.0
MARGIN = 16.0
HEAD = 26.0
INSET = 11.0
LINE = 15.0
CHARACTER = 0.61 * 11
SMALL = 0.61 * 9
"""The width of a character, of the small ones too: fixed-width fonts have 0.6 of their size."""
CELLS = int((WIDTH - 2 * INSET) / CHARACTER)
PORT = 20.0
"""The least distance of two lines that come into a box."""
BETWEEN = 64.0
"""From one column to the next; more where buffers stand before that."""
STUB, BUFFERED_STUB = 18.0, 56.0
"""The straight end of a line, in which a buffer has its place."""
QUEUE = (36.0, 15.0)
SPACING = Spacing(gap=14.0, frame=9.0, title=14.0)

_LIGHT = {
    "ground": "#ffffff", "frame": "#eef1f6", "rim": "#b4bfd1", "box": "#ffffff", "edge": "#5b6b82",
    "text": "#1d2530", "faint": "#566273", "queue": "#fff0c2", "flow": "#3d7ab8", "keeps": "#b86a1f",
    "source": "#2f8f5b", "query": "#8a4fb0", "trouble": "#c0392b",
}  # fmt: skip
_DARK = {
    "ground": "#14181f", "frame": "#1f2631", "rim": "#4a5870", "box": "#2a3340", "edge": "#93a4bd",
    "text": "#eef2f7", "faint": "#aab6c6", "queue": "#5c4a12", "flow": "#6aa7e0", "keeps": "#e09a52",
    "source": "#5fc48c", "query": "#c08be0", "trouble": "#ff7b6b",
}  # fmt: skip
_STRIPES = ("flow", "keeps", "source", "query")
_OF_KIND = {
    "source": "source", "intake": "source", "stream": "source", "relation": "source", "ticks": "source",
    "horizon": "source",
    "query": "query", "emit": "query",
    "window": "keeps", "windows": "keeps", "join": "keeps", "aggregate": "keeps", "distinct": "keeps",
}  # fmt: skip


def stripe(kind: str, *, keeps: bool) -> str:
    """The colour at the side of a box, by what the operator is; ``keeps``: it has something in memory now."""
    return _OF_KIND.get(kind, "keeps" if keeps else "flow")


def _rules(colors: dict[str, str]) -> str:
    rules = {
        ".ground": f"fill:{colors['ground']}",
        ".frame": f"fill:{colors['frame']};stroke:{colors['rim']}",
        ".box": f"fill:{colors['box']};stroke:{colors['edge']}",
        ".line": f"stroke:{colors['edge']}",
        ".tip": f"fill:{colors['edge']}",
        ".queue": f"fill:{colors['queue']};stroke:{colors['edge']}",
        "text": f"fill:{colors['text']}",
        ".faint": f"fill:{colors['faint']}",
        ".trouble": f"fill:{colors['trouble']}",
    }
    rules |= {f".{name}": f"fill:{colors[name]}" for name in _STRIPES}
    return "".join(f".penstock-graph {name}{{{rule}}}" for name, rule in rules.items())


STYLE = (
    ".penstock-graph text{font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;font-size:11px}"
    ".penstock-graph .strong{font-weight:bold}.penstock-graph .small{font-size:9px}"
    ".penstock-graph .line{fill:none;stroke-width:1.3}"
    ".penstock-graph .suspended .box,.penstock-graph .stopped .box{stroke-dasharray:4 3}"
    f"{_rules(_LIGHT)}@media (prefers-color-scheme:dark){{{_rules(_DARK)}}}"
)
