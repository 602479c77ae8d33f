"""The ceilings of ``scripts/house.py``: the layers, who reaches into whom, how far one row goes."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts import architecture, house


@pytest.fixture(scope="module")
def figures() -> dict[str, house.Figure]:
    return {f.name: f for f in house.figures()}


def test_the_house_keeps_its_ceilings(figures: dict[str, house.Figure]) -> None:
    too_much = {name: (f.value, f.most, f.where) for name, f in figures.items() if not f.ok}
    assert not too_much


def test_every_package_has_its_place() -> None:
    known = house.modules()
    assert {m.layer for m in known.values()} - {""} == set(house.LAYERS)


def package(folder: Path, files: dict[str, str]) -> dict[str, house.Module]:
    for name, text in files.items():
        path = folder / "penstock" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return house.modules(folder)


def test_an_import_upwards_is_found_wherever_it_stands(tmp_path: Path) -> None:
    known = package(tmp_path, {
        "model/types.py": "def f():\n    from penstock.plan import nodes\n",
        "plan/nodes.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from penstock.graph.view import G\n",
        "graph/view.py": "from penstock.model.types import f\n",
    })  # fmt: skip
    graph = house.imports(known)
    assert house.upward(known, graph) == [
        "penstock.model.types -> penstock.plan.nodes", "penstock.plan.nodes -> penstock.graph.view",
    ]  # fmt: skip
    (cycle,) = house.cycles(graph)
    assert cycle == ["penstock.graph.view", "penstock.model.types", "penstock.plan.nodes"]


def test_reaching_into_others_is_found(tmp_path: Path) -> None:
    text = "class A:\n    def __init__(self):\n        self._own = 1\n\ndef f(a, b):\n    return a._own + b._others\n"
    ours, sparks = house.reaching_in(package(tmp_path, {"model/a.py": text, "hosts/b.py": "def f(s):\n    s._jvm\n"}))
    assert ours == ["penstock.model.a:6 ._others"]
    assert sparks == ["penstock.hosts.b:2 ._jvm"]


def test_the_table_of_packages_is_up_to_date() -> None:
    wanted = architecture.page()
    assert architecture.PAGE.read_text(encoding="utf-8") == wanted, "run python scripts/architecture.py"
