"""The graph for people and programs: as text, JSON, a Mermaid diagram, and a picture."""

from __future__ import annotations

from penstock.graph.draw.data import to_json
from penstock.graph.draw.memory import memory_text
from penstock.graph.draw.mermaid import mermaid
from penstock.graph.draw.svg import svg
from penstock.graph.draw.text import text

__all__ = ["memory_text", "mermaid", "svg", "text", "to_json"]
