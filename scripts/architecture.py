"""The table of packages in docs/concepts/architecture.md, from what each package's head says of itself.

    python scripts/architecture.py            write it
    python scripts/architecture.py --check    say whether it is up to date
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.house import LAYERS, PACKAGE, ROOT, SOURCE

PAGE = ROOT / "docs/concepts/architecture.md"
BEGIN, END = "<!-- packages -->", "<!-- end of packages -->"
_HEAD = re.compile(
    r"Owns: (?P<owns>.+?)\.\s+Must not know: (?P<not>.+?)\.\s+.*?Enter at: (?P<enter>.+?)\.(?:\s|$)", re.DOTALL
)


def table() -> str:
    """One row for each package, from the centre outwards."""
    rows = ["| package | owns | must not know | enter at |", "|---|---|---|---|"]
    for layer in LAYERS:
        folder = SOURCE / PACKAGE / layer
        path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
        doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        found = _HEAD.search(doc)
        if found is None:
            raise SystemExit(f"{path.relative_to(ROOT)}: the head does not say Owns, Must not know and Enter at")
        parts = (" ".join(found[name].split()).replace("``", "`") for name in ("owns", "not", "enter"))
        name = f"{layer}/" if folder.is_dir() else f"{layer}.py"
        rows.append(f"| `{name}` | {' | '.join(parts)} |")
    return "\n".join(rows)


def page() -> str:
    """The page with the table as it is to be."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main() -> int:
    wanted = page()
    if "--check" in sys.argv:
        return int(wanted != PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
