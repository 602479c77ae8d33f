"""The explanation of a plan, as its user gets it."""

from __future__ import annotations

from penstock.model.shown import as_html, as_text


class Explanation(str):
    """A text that a notebook shows as a tree; otherwise a str like any other."""

    __slots__ = ()
    _repr_pretty_ = as_text
    _repr_html_ = as_html
