"""What `mkdocs` does besides what mkdocs.yml says: pictures stand in their pages as text.

A picture that is part of the page can be copied from, says more where the pointer rests, and is dark when the page is;
one that is wider than the page is moved to and fro within it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_IMAGE = re.compile(r'<p><img alt="([^"]*)" src="([^":]+\.svg)" ?/?></p>')
_DARK = re.compile(r"@media \(prefers-color-scheme:dark\)\{(.*)\}</style>")
WIDE = 1200
"""What is wider than this many pixels can also be opened by itself."""


def on_page_content(html: str, page: Any, config: Any, **_: Any) -> str:
    """Pictures of this site are put into the page."""
    folder = Path(config["docs_dir"]) / Path(page.file.src_path).parent

    def inside(found: re.Match[str]) -> str:
        text = (folder / found[2]).resolve().read_text(encoding="utf-8")
        if 'class="penstock-' not in text:  # its rules of style might be rules for the page
            return found[0]
        width = re.search(r'width="([0-9.]+)"', text)
        wide = width is not None and float(width[1]) > WIDE
        more = f'<p class="alone"><a href="{found[2]}">The whole picture</a></p>' if wide else ""
        drawn = _DARK.sub(_with_the_page, text)
        return f'<div class="picture" role="group" aria-label="{found[1]}" data-search-exclude>{drawn}</div>{more}'

    return _IMAGE.sub(inside, html)


def _with_the_page(found: re.Match[str]) -> str:
    """Dark where the page is, not where the system is."""
    return found[1].replace(".penstock-", "[data-md-color-scheme=slate] .penstock-") + "</style>"
