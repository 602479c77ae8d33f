"""The house in figures: how far one pushed row goes through the tree, who imports whom, who reaches into whom.

    python scripts/house.py [--json]

Each figure has a ceiling, which the tests keep (tests/gates/test_house.py). A ceiling may only be raised with a reason
in the change that raises it.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
PACKAGE = "penstock"

LAYERS = (
    "model", "scalar", "plan", "functions", "kernels", "rows", "catalog", "cql", "io", "ingest", "operators", "graph",
    "runtime", "storage", "reference", "hosts", "spark", "database", "client", "connecting", "notebook", "testing",
    "demo", "server", "cli", "__main__",
)  # fmt: skip
"""From the centre outwards: whoever stands later may import what stands before it, and nobody the other way."""
SPARKS_OWN = "penstock.hosts.spark.internals"
"""The one module that may use what Spark does not offer to the public."""
SPARKS_DAEMON = "penstock.hosts.spark.daemon", "pyspark.daemon"
"""The other one, and all that it may use: Spark starts it by its name, and it chooses itself what it imports."""
SPARKS_PUBLIC = frozenset({
    "pyspark", "pyspark.accumulators", "pyspark.sql", "pyspark.sql.datasource", "pyspark.sql.functions",
    "pyspark.sql.readwriter", "pyspark.sql.streaming", "pyspark.sql.streaming.datasource",
    "pyspark.sql.streaming.listener", "pyspark.sql.streaming.query", "pyspark.sql.streaming.readwriter",
    "pyspark.sql.types",
})  # fmt: skip
"""Modules with what Spark's reference has. ``pyspark.cloudpickle`` is a package of its own that comes with Spark."""
TRACED = "SELECT ISTREAM avg(v) AS a FROM s [ROWS 100] WHERE v > 1"
NODES = (
    "StreamScan", "RelationScan", "QueryStream", "Window", "Filter", "Project", "Join", "SemiJoin", "Aggregate",
    "Distinct", "Prioritise", "SetOp", "TopN",
)  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """A number, and what it may be at the most."""

    name: str
    value: int
    most: int | None
    where: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.most is None or self.value <= self.most


@dataclass(frozen=True)
class Module:
    """A file of the package."""

    name: str
    path: Path

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text(encoding="utf-8"))

    @cached_property
    def lines(self) -> int:
        return len(self.path.read_text(encoding="utf-8").splitlines())

    @property
    def layer(self) -> str:
        """The package it is in, or its own name if it is in none."""
        parts = self.name.split(".")
        return parts[1] if len(parts) > 1 else ""


def modules(source: Path = SOURCE) -> dict[str, Module]:
    """All files of the package, by the name under which they are imported."""
    found: dict[str, Module] = {}
    for path in sorted((source / PACKAGE).rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = Module(name, path)
    return found


def imports(known: Mapping[str, Module]) -> dict[str, set[str]]:
    """Who imports whom, inside functions and for type checkers too."""
    found: dict[str, set[str]] = {}
    for name, module in known.items():
        targets: set[str] = set()
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == PACKAGE:
                for alias in node.names:
                    deeper = f"{node.module}.{alias.name}"
                    targets.add(deeper if deeper in known else node.module)
            elif isinstance(node, ast.Import):
                targets |= {alias.name for alias in node.names if alias.name.split(".")[0] == PACKAGE}
        found[name] = targets & known.keys() - {name}
    return found


def upward(known: Mapping[str, Module], graph: Mapping[str, Iterable[str]]) -> list[str]:
    """Imports of what stands further out, and of the package's own head by its parts."""
    places = {layer: i for i, layer in enumerate(LAYERS)}
    found: list[str] = []
    for name, targets in graph.items():
        mine = known[name].layer
        if mine in ("", "__main__"):
            continue  # the head of the package stands above all
        for target in sorted(targets):
            other = known[target].layer
            if other == mine:
                continue
            if mine not in places or other not in places or places[other] > places[mine]:
                found.append(f"{name} -> {target}")
    return found


def cycles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Sets of modules that need each other, the largest first (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in graph[name]:
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            at = stack.index(name)
            found.append(sorted(stack[at:]))
            del stack[at:]

    for name in graph:
        if name not in index:
            visit(name)
    return sorted((c for c in found if len(c) > 1), key=len, reverse=True)


def reaching_in(known: Mapping[str, Module]) -> tuple[list[str], list[str]]:
    """Accesses to private attributes of objects whose class is not in the same file: ours, and Spark's, with all else
    that Spark does not offer to the public."""
    ours: list[str] = []
    sparks: list[str] = []
    for module in known.values():
        own = set(_private_names(module.tree))
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.Attribute) or not _is_private(node.attr):
                continue
            named = node.attr.startswith(("_j", "_active_spark", "_gateway", "_instantiated", "_spark", "_sc"))
            if node.attr in own and not named:
                continue
            if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls", "parser"):
                continue  # what a base class has; a parser of sqlglot is one of ours there
            place = f"{module.name}:{node.lineno} .{node.attr}"
            spark = named or "pyspark" in ast.unparse(node.value)
            (sparks if spark else ours).append(place)
        sparks += _unoffered(module)
    return ours, [place for place in sparks if not place.startswith(f"{SPARKS_OWN}:")]


_CALLS_OF_JAVA = frozenset({"streamingQuery", "queryExecution", "analyzedPlan", "resolvedCheckpointRoot"})
"""What only objects of Java have, however they came there."""


def _unoffered(module: Module) -> Iterator[str]:
    """Imports of what Spark does not offer to the public, and of Py4J; calls of objects of Java; and what a class of
    Spark calls private and one made from it uses."""
    own = set(_private_names(module.tree))
    imports_spark = False
    for node in ast.walk(module.tree):
        found: list[str] = []
        match node:
            case ast.Import(names=names):
                found = [n.name for n in names if _is_sparks(n.name) and n.name not in SPARKS_PUBLIC]
                imports_spark |= any(_is_sparks(n.name) for n in names)
            case ast.ImportFrom(module=str(home), names=names) if _is_sparks(home):
                imports_spark = True
                if home not in SPARKS_PUBLIC:
                    found = [home]
                found += [f"{home}.{n.name}" for n in names if _is_private(n.name) or re.match("J[A-Z]", n.name)]
            case ast.Attribute(attr=name) if name in _CALLS_OF_JAVA:
                found = [f".{name}"]
        yield from (f"{module.name}:{node.lineno} {f}" for f in found if (module.name, f) != SPARKS_DAEMON)  # type: ignore[attr-defined]
    for kind in ast.walk(module.tree) if imports_spark else ():
        if isinstance(kind, ast.ClassDef):
            for node in ast.walk(kind):
                match node:
                    case ast.Attribute(value=ast.Name(id="self"), attr=name) if _is_private(name) and name not in own:
                        yield f"{module.name}:{node.lineno} self.{name}"


def _is_sparks(module: str) -> bool:
    return module.split(".")[0] in ("pyspark", "py4j")


_PUBLIC = frozenset({"_replace", "_make", "_asdict", "_fields", "_getframe", "_exit", "_render_traceback_"})
"""Names that begin so and are meant for everybody: of named tuples, of ``sys`` and ``os``, of IPython."""


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in _PUBLIC


def _private_names(tree: ast.Module) -> Iterator[str]:
    """What the classes and functions of a file call private themselves."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                yield name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                yield name


def dispatching(known: Mapping[str, Module]) -> dict[str, list[str]]:
    """For each class of plan nodes, the files that ask whether something is of it."""
    found: dict[str, list[str]] = defaultdict(list)
    for module in known.values():
        asked: set[str] = set()
        for node in ast.walk(module.tree):
            match node:
                case ast.Call(func=ast.Name(id="isinstance"), args=[_, kinds]):
                    asked |= {n.id for n in ast.walk(kinds) if isinstance(n, ast.Name)}
                    asked |= {n.attr for n in ast.walk(kinds) if isinstance(n, ast.Attribute)}
                case ast.MatchClass(cls=ast.Name(id=name)) | ast.MatchClass(cls=ast.Attribute(attr=name)):
                    asked.add(name)
        if not any("plan.nodes" in ast.unparse(n) for n in _imports_of(module)):
            asked = set()
        for name in asked & set(NODES):
            found[name].append(module.name)
    return found


def _imports_of(module: Module) -> Iterator[ast.AST]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node


@dataclass(frozen=True)
class Trace:
    """What one call ran."""

    files: Counter[str]
    hops: int
    calls: int


def trace_push() -> Trace:
    """The way of one row through ``db.push`` on the local engine: one filter and a sliding average, warmed up."""
    import penstock

    with penstock.connect(engine="local") as db:
        db.execute("CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t")
        query = db.query(TRACED)
        for i in range(200):
            db.push("s", [(i, i)])
        query.fetch()
        files: Counter[str] = Counter()
        hops = calls = 0
        stack: list[str] = []
        ours = str(SOURCE)

        def traced(frame: FrameType, event: str, arg: Any) -> None:
            nonlocal hops, calls
            if event == "call":
                name = frame.f_code.co_filename
                if name.startswith(ours):
                    files[str(Path(name).relative_to(SOURCE))] += 1
                    calls += 1
                    before = next((s for s in reversed(stack) if s.startswith(ours)), "")
                    hops += name != before
                stack.append(name)
            elif event == "return" and stack:
                stack.pop()

        sys.setprofile(traced)
        try:
            db.push("s", [(200, 200)])
        finally:
            sys.setprofile(None)
    return Trace(files, hops, calls)


def settings() -> tuple[str, ...]:
    """What ``db.configure`` takes on the local engine."""
    from dataclasses import fields

    from penstock.runtime import settings as found

    names = getattr(found, "USERS", None)
    return tuple(names) if names is not None else tuple(f.name for f in fields(found.Settings) if f.name != "queries")


def members() -> list[str]:
    """What users see of a database."""
    from penstock import Database

    instance = {"engine"}
    return sorted(instance | {name for name in vars(Database) if not name.startswith("_")})


def figures() -> list[Figure]:
    """All of them."""
    known = modules()
    graph = imports(known)
    trace = trace_push()
    touched = sorted(trace.files)
    across = [c for c in cycles(graph) if len({known[name].layer for name in c}) > 1]
    ours, sparks = reaching_in(known)
    asked = dispatching(known)
    most = max(asked, key=lambda name: len(asked[name]))
    fast = [n for n, ts in graph.items() if not n.startswith(("penstock.reference", "penstock.hosts.reference"))
            and any(t.startswith("penstock.reference") for t in ts)]  # fmt: skip
    loose = [m.name for m in known.values() if m.path.parent == SOURCE / PACKAGE and m.path.name != "__init__.py"]
    longest = max((known[_name(f)].lines for f in touched), default=0)
    return [
        Figure("files that one pushed row touches on local", len(touched), 30, tuple(touched)),
        Figure("hops between files for it", trace.hops, 120),
        Figure("calls for it", trace.calls, None),
        Figure("lines of the longest file for it", longest, 700),
        Figure("imports upwards, lazy and for type checkers too", len(found := upward(known, graph)), 0, tuple(found)),
        Figure("modules in cycles across packages", sum(map(len, across)), 0, tuple(map(str, across))),
        Figure("accesses to private attributes of others", len(ours), 0, tuple(ours)),
        Figure("accesses to Spark's internals outside one module", len(sparks), 0, tuple(sparks)),
        Figure("public members of Database", len(names := members()), 25, tuple(names)),
        Figure("fast modules that import the reference", len(fast), 0, tuple(fast)),
        Figure("loose modules at the top level", len(loose), 5, tuple(loose)),
        Figure(f"files that dispatch on one plan node ({most})", len(asked[most]), 10, tuple(asked[most])),
        # 8, not 6: users choose the partitions of hybrid scheduling and where its buffers stand.
        Figure("settings of configure", len(chosen := settings()), 8, chosen),
    ]


def _name(file: str) -> str:
    parts = Path(file).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def main() -> int:
    parser = argparse.ArgumentParser(description="the house in figures")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--where", action="store_true", help="with the places behind each figure")
    chosen = parser.parse_args()
    sys.path.insert(0, str(SOURCE))
    found = figures()
    if chosen.json:
        print(json.dumps({f.name: {"value": f.value, "most": f.most} for f in found}, indent=2))
        return 0
    for figure in found:
        most = "" if figure.most is None else f"  (at most {figure.most})"
        print(f"{figure.value:6,}  {'' if figure.ok else 'TOO MUCH  '}{figure.name}{most}")
        for place in figure.where if chosen.where else ():
            print(f"          {place}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
