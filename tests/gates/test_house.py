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


def test_what_spark_does_not_offer_is_found_however_it_is_reached(tmp_path: Path) -> None:
    text = """from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from pyspark.sql.readwriter import DataFrameWriter
from pyspark.sql.streaming.listener import JStreamingQueryListener
import pyspark.daemon

class W(DataFrameWriter):
    def __init__(self, query):
        self._own = query.streamingQuery()

    def name(self):
        return self._own, self._spark

class Other:
    def __init__(self, spark):
        self._spark = spark

def f(writer):
    return writer._spark
"""
    daemon = "from pyspark.daemon import manager\nfrom pyspark.java_gateway import launch_gateway\n"
    known = package(tmp_path, {
        "hosts/spark/a.py": text, "hosts/spark/internals.py": text, "hosts/spark/daemon.py": daemon,
    })  # fmt: skip
    ours, sparks = house.reaching_in(known)
    assert not ours
    assert sorted(place.removeprefix("penstock.hosts.spark.") for place in sparks) == [
        "a:1 pyspark.java_gateway", "a:19 ._spark", "a:4 pyspark.sql.streaming.listener.JStreamingQueryListener",
        "a:5 pyspark.daemon", "a:9 .streamingQuery", "daemon:2 pyspark.java_gateway",
    ]  # fmt: skip


def test_the_table_of_packages_is_up_to_date() -> None:
    wanted = architecture.page()
    assert architecture.PAGE.read_text(encoding="utf-8") == wanted, "run python scripts/architecture.py"
