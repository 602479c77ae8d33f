"""The site hangs together: every page is in the navigation, links and anchors lead somewhere, nothing comes from
elsewhere. (`make docs` builds it, which needs packages that tests do not have.)"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from scripts import site

from tests.docs.fences import DOCS, ROOT

PAGES = sorted(DOCS.rglob("*.md"))
CONFIG = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(path: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(path: Path) -> set[str]:
    """What headings can be linked as; the same heading again gets a number."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", prose(path), flags=re.MULTILINE):
        words = re.sub(r"[^\w\s-]", "", heading.replace("`", ""), flags=re.ASCII).strip().lower()
        anchor = base = re.sub(r"[-\s]+", "-", words)
        number = 0
        while anchor in found:
            number += 1
            anchor = f"{base}_{number}"
        found.add(anchor)
    return found


def links(path: Path) -> Iterator[tuple[str, str]]:
    """(file, anchor) of each link that stays here."""
    text = re.sub(r"`[^`\n]*`", "", prose(path))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" not in target:
            file, _, anchor = target.partition("#")
            yield file, anchor


@pytest.mark.parametrize("path", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES], ids=name)
def test_links_lead_somewhere(path: Path) -> None:
    for file, anchor in links(path):
        target = (path.parent / file).resolve() if file else path
        assert target.exists(), file
        assert not anchor or anchor in anchors(target), f"{file}#{anchor}"


def test_links_of_the_site_stay_in_it() -> None:
    for path in PAGES:
        for file, _ in links(path):
            assert not file or (path.parent / file).resolve().is_relative_to(DOCS), f"{name(path)}: {file}"


def test_every_page_is_in_the_navigation_once() -> None:
    found = re.findall(r"^ +- [^:\n]+: (\S+\.md)$", CONFIG, flags=re.MULTILINE)
    assert sorted(found) == sorted(str(path.relative_to(DOCS)) for path in PAGES)


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_a_page_begins_with_its_title(path: Path) -> None:
    assert len(re.findall(r"^# ", prose(path), flags=re.MULTILINE)) == 1
    assert path.read_text(encoding="utf-8").startswith("# ")


def test_nothing_comes_from_elsewhere() -> None:
    assert "font: false" in CONFIG
    assert not re.search(r"https?://", CONFIG)
    for path in [*DOCS.rglob("*.css"), *DOCS.rglob("*.js"), *DOCS.rglob("*.html")]:
        assert not re.search(r"https?://|//[a-z]+\.", path.read_text(encoding="utf-8")), path.name
    for path in PAGES:
        assert not re.search(r"!\[[^\]]*\]\(https?:|<script|<iframe|<img", prose(path)), path.name


def test_a_picture_becomes_part_of_its_page(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures/a.svg").write_text('<svg class="penstock-a">here</svg>')
    page = SimpleNamespace(file=SimpleNamespace(src_path="concepts/page.md"))
    inline, alone = ('<img alt="no" src="../pictures/a.svg" />', '<img alt="A picture" src="../pictures/a.svg" />')
    html = f"<p>Before {inline}</p><p>{alone}</p>"
    made = site.on_page_content(html, page=page, config={"docs_dir": str(tmp_path)})
    assert made.count(">here</svg>") == 1
    assert 'aria-label="A picture"' in made
    assert inline in made
    assert "alone" not in made
    (tmp_path / "pictures/a.svg").write_text('<svg class="penstock-a" width="2000" height="10"></svg>')
    assert '<a href="../pictures/a.svg">' in site.on_page_content(html, page=page, config={"docs_dir": str(tmp_path)})
    dark = "<style>.penstock-a{x:y}@media (prefers-color-scheme:dark){.penstock-a{x:z}}</style>"
    (tmp_path / "pictures/a.svg").write_text(f'<svg class="penstock-a">{dark}</svg>')
    made = site.on_page_content(html, page=page, config={"docs_dir": str(tmp_path)})
    assert "<style>.penstock-a{x:y}[data-md-color-scheme=slate] .penstock-a{x:z}</style>" in made
    (tmp_path / "pictures/a.svg").write_text('<svg width="2000" height="10"></svg>')
    assert site.on_page_content(html, page=page, config={"docs_dir": str(tmp_path)}) == html


@pytest.mark.parametrize("path", [DOCS / "concepts/architecture.md", DOCS / "reference/experiments.md"],
                         ids=lambda p: p.name)  # fmt: skip
def test_modules_that_are_named_exist(path: Path) -> None:
    for module in set(re.findall(r"`((?:[a-z_]+/)*[a-z_]+(?:\.py|/))`", path.read_text(encoding="utf-8"))):
        # The way of a row on Spark says that names without a folder are of hosts/spark/parts.
        bases = (ROOT / "src/penstock", ROOT, ROOT / "src/penstock/hosts/spark/parts")
        assert any((base / module).exists() for base in bases), module


def test_every_part_of_the_package_has_its_place_in_the_architecture() -> None:
    text = (DOCS / "concepts/architecture.md").read_text(encoding="utf-8")
    for path in sorted((ROOT / "src/penstock").iterdir()):
        if path.name.startswith(("_", ".")) or (path.is_file() and path.suffix != ".py"):
            continue
        name = f"{path.name}/" if path.is_dir() else path.name
        assert re.search(rf"(?<![\w/]){re.escape(name)}", text), name
