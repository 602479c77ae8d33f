"""Cutting typed text into statements."""

from __future__ import annotations

_CLOSING = {"'": "'", '"': '"', "`": "`", "--": "\n", "/*": "*/"}


def split(text: str) -> tuple[list[str], str]:
    """The statements that a ``;`` ends, and the rest. Strings, quoted names and comments hide a ``;``."""
    statements, start, at = [], 0, 0
    while at < len(text):
        opening = next((o for o in _CLOSING if text.startswith(o, at)), None)
        if opening is not None:
            end = text.find(_CLOSING[opening], at + len(opening))
            if end < 0:
                break
            at = end + len(_CLOSING[opening])
            continue
        at += 1
        if text[at - 1] == ";":
            statements.append(text[start:at])
            start = at
    return [s for s in statements if not _blank(s.rstrip(";"))], text[start:]


def _blank(text: str) -> bool:
    return not text.strip()
