"""What `mkdocs` does besides what mkdocs.yml says: pictures stand in their pages as text.

A picture that is part of the page can be searched, copied from, and says more where the pointer rests; one that is
wider than the page is moved to and fro within it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_IMAGE = re.compile(r'<p><img alt="([^"]*)" src="([^":]+\.svg)" ?/?></p>')

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
        return f'<div class="picture" role="group" aria-label="{found[1]}">{text}</div>{more}'

    return _IMAGE.sub(inside, html)
