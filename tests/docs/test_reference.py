"""The reference is complete: what can be called, set or raised stands in it, with the defaults that the code has."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import experiments
import pytest
import typer.main
from benchmarks.support.command import bench

import penstock
import penstock.spark
from penstock.cli.main import app
from penstock.cql import declarations
from penstock.cql.words import AFTER_SOURCE, AFTER_VALUE
from penstock.graph.masters import MASTERS
from penstock.hosts.spark.session import LOCAL_SETTINGS, SETTINGS
from penstock.model import errors
from penstock.runtime import settings
from penstock.runtime.buffer import BUFFERS
from penstock.runtime.lanes import LANES
from penstock.runtime.owners import ARCHITECTURES
from penstock.runtime.placement import PLACEMENTS
from penstock.runtime.settings import EXPERIMENTS, PER_QUERY, USERS, Settings
from penstock.runtime.strategies import STRATEGIES
from tests.docs.fences import DOCS, ROOT

SETTINGS_PAGE, EXPERIMENTS_PAGE, PYTHON, ERRORS, CLI = (
    (DOCS / f"reference/{name}.md").read_text(encoding="utf-8")
    for name in ("settings", "experiments", "python", "errors", "cli")
)


def sections(text: str) -> dict[str, str]:
    """What stands under each heading of the second level."""
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def rows(text: str) -> Iterator[list[str]]:
    """The cells of tables."""
    for line in re.findall(r"^\| `.*\|$", text, flags=re.MULTILINE):
        yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def table(text: str) -> dict[str, list[str]]:
    """Rows by the name in their first cell."""
    return {row[0].strip("`"): row[1:] for row in rows(text)}


def shown(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


# -- settings ---------------------------------------------------------------------------------------------


def test_every_argument_of_connect_is_explained_with_its_default() -> None:
    said = table(sections(SETTINGS_PAGE)["Arguments of connect"])
    parameters = inspect.signature(penstock.connect).parameters
    assert said.keys() == parameters.keys()
    assert all(len(cells) == 3 and all(cells) for cells in said.values())
    for name, parameter in parameters.items():
        if name != "clock":
            assert said[name][0] == f"`{shown(parameter.default)}`", name


def test_every_setting_of_configure_is_explained_with_its_default() -> None:
    defaults = {name: getattr(Settings(), name) for name in (*USERS, *EXPERIMENTS)}
    said = table(sections(SETTINGS_PAGE)["Settings of configure"])
    assert list(said) == [*USERS, "query", "experiments"]
    others = table(sections(EXPERIMENTS_PAGE)["Settings"])
    assert list(others) == [*EXPERIMENTS, "operator"]
    for name, default in defaults.items():
        assert {**said, **others}[name][0] == f"`{shown(default)}`", name
    assert re.findall(r"`(\w+)`", said["query"][1]) == [name for name in PER_QUERY if name in USERS]
    told = re.search(r"with `query`: (.*)\.", sections(EXPERIMENTS_PAGE)["Settings"])
    assert told is not None
    assert re.findall(r"`(\w+)`", told[1]) == [name for name in PER_QUERY if name in EXPERIMENTS]


def test_every_value_of_a_setting_is_named() -> None:
    """Those that ``experiments`` adds stand on the page about it, the others where users look."""
    said = table(sections(SETTINGS_PAGE)["Settings of configure"])
    others = table(sections(EXPERIMENTS_PAGE)["Settings"])
    added = table(sections(EXPERIMENTS_PAGE)["What can be compared"])
    more: dict[str, Collection[str]] = {"strategy": experiments.strategies.STRATEGIES, "mode": experiments.lanes.MODES}
    users: dict[str, Collection[str]] = {"threading": settings.THREADING, "mode": LANES, "strategy": STRATEGIES}
    for name, values in users.items():
        own = [value for value in values if value not in more.get(name, ())]
        assert {value for value in own if f"`{value}`" not in said[name][1]} == set(), name
        assert {value for value in more.get(name, ()) if f"`{value}`" not in added[name][0]} == set(), name
        assert {value for value in more.get(name, ()) if f"`{value}`" in said[name][1]} == set(), name
    compared: dict[str, Collection[str]] = {
        "architecture": ARCHITECTURES, "placement": PLACEMENTS, "buffer": BUFFERS, "masters": MASTERS,
        "on_lag": settings.ON_LAG, "when_full": settings.WHEN_FULL,
    }  # fmt: skip
    for name, values in compared.items():
        text = others[name][1] + added.get(name, [""])[0]
        assert {value for value in values if f"`{value}`" not in text} == set(), name


def test_what_has_been_a_setting_has_a_hint_that_works() -> None:
    with penstock.connect(engine="local") as db:
        db.execute("CREATE STREAM s (a INT)")
        values: dict[str, Any] = {f.name: f.default for f in dataclasses.fields(Settings)}
        values |= {"lag": "5 rows", "quantum": 100}
        for i, name in enumerate(EXPERIMENTS):
            with pytest.raises(penstock.InputError, match=f"`{name}` is no setting") as wrong:
                db.configure(**{name: values[name]})
            hint = str(wrong.value.hint)
            if "db.configure" in hint:
                exec(hint[hint.index("db.") :], {"db": db})
            elif "WITH" in hint:
                db.execute(f"CREATE QUERY q{i} AS SELECT a FROM s {hint[hint.index('WITH') :]}")
            else:
                exec(f"{hint[hint.index('penstock.') :]}.close()", {"penstock": penstock})
        for wrong_one in ({"operator": 3}, {"experiments": 5}, {"experiments": {"threading": "graph"}}, {"fast": True}):
            with pytest.raises(penstock.InputError) as wrong:
                db.configure(**wrong_one)
            assert wrong.value.hint


def test_every_option_of_streams_and_queries_is_explained() -> None:
    parts = sections(SETTINGS_PAGE)["Options in WITH"].split("Of a query")
    known = re.findall(r'"(\w+)": _\w+_option', inspect.getsource(declarations))
    of_streams, of_queries = (table(part) for part in parts)
    assert sorted([*of_streams, *of_queries]) == sorted(known)
    with penstock.connect(engine="reference") as db:
        for name in of_streams:
            with pytest.raises(penstock.PenstockError) as wrong:
                db.execute(f"CREATE STREAM s (a INT) WITH ({name} = TRUE)")
            assert "no option" not in wrong.value.message
        for name in of_queries:
            with pytest.raises(penstock.PenstockError) as wrong:
                db.execute(f"CREATE QUERY q AS SELECT a FROM s WITH ({name} = 'x')")
            assert "no option" not in wrong.value.message


def test_every_environment_variable_is_explained() -> None:
    paths = [path for folder in ("src", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    code = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    said = table(sections(SETTINGS_PAGE)["Environment variables"])
    assert {name for name in said if name.startswith("PENSTOCK_")} == set(re.findall(r"PENSTOCK_[A-Z_]+", code))
    assert all(name in code for name in said)


def test_settings_of_spark_are_those_of_a_session() -> None:
    said = table(sections(SETTINGS_PAGE)["What Penstock sets in Spark"])
    every = {**SETTINGS, **LOCAL_SETTINGS}
    assert said.keys() == every.keys()
    for name, value in every.items():
        assert value.endswith(said[name][0].strip("`…")), name


def test_every_argument_for_dataframes_is_explained_with_its_default() -> None:
    said = table(sections(SETTINGS_PAGE)["Arguments of penstock.spark"])
    for call in (penstock.spark.sql, penstock.spark.pipeline):
        named = [p for p in inspect.signature(call).parameters.values() if p.kind is p.KEYWORD_ONLY]
        assert {p.name: f"`{shown(p.default)}`" for p in named} == {n: cells[0] for n, cells in said.items()}


# -- Python -----------------------------------------------------------------------------------------------


def public(thing: type) -> list[str]:
    return [name for name in vars(thing) if not name.startswith("_")]


@pytest.mark.parametrize("name", penstock.__all__)
def test_every_name_of_the_package_is_explained(name: str) -> None:
    assert re.search(rf"\b{name}\b", PYTHON)


@pytest.mark.parametrize("name", [*public(penstock.Database), "engine", "catalog", "clock"])
def test_every_method_of_a_database_is_explained(name: str) -> None:
    assert re.search(rf"`(db\.)?{name}\b", PYTHON)


@pytest.mark.parametrize(
    "name", [*public(penstock.Query), "name", "plan", "schema", "reads", "options", "text", "error", "answered"]
)
def test_every_method_of_a_query_is_explained(name: str) -> None:
    assert f"`q.{name}" in PYTHON


@pytest.mark.parametrize("name", penstock.spark.__all__)
def test_every_name_for_dataframes_is_explained(name: str) -> None:
    assert re.search(rf"`(ps\.)?{name}\b", PYTHON)


def test_every_name_of_a_module_for_users_is_in_the_docs() -> None:
    docs = "\n".join(path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md"))
    for name in ("penstock", "penstock.spark", "penstock.testing", "penstock.notebook"):
        if importlib.util.find_spec(name) is not None:
            names = getattr(importlib.import_module(name), "__all__", ())
            assert {n for n in names if not re.search(rf"\b{n}\b", docs)} == set(), name


@pytest.mark.parametrize("path", [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))], ids=lambda p: p.stem)
def test_what_pages_call_is_there(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    known = {
        "db": {*dir(penstock.Database), "engine", "catalog", "clock"},
        "q": {*dir(penstock.Query), "name", "plan", "schema", "reads", "options", "text", "error", "answered"},
        "query": {*dir(penstock.Query), "name", "plan", "schema", "reads", "options", "text", "error", "answered"},
        "ps": set(dir(penstock.spark)),
    }
    for name, attributes in known.items():
        called = set(re.findall(rf"(?<![\w.\\/]){name}\.([a-z]\w*)", text)) - {"py", "cql", "csv", "md"}
        assert called <= attributes, name
    modules = {path.stem for path in Path(penstock.__file__).parent.iterdir()}
    others = {"incomplete", "page", "position", "stream", "toml", "audit"}  # in metadata, a file, a logger
    assert set(re.findall(r"(?<![\w./])penstock\.([A-Za-z]\w*)", text)) <= {*dir(penstock), *modules, *others}


# -- the language -----------------------------------------------------------------------------------------


def test_every_word_that_needs_as_is_listed() -> None:
    said = (DOCS / "reference/cql.md").read_text(encoding="utf-8").partition("### Names and reserved words")[2]
    behind_sources, behind_values = said.partition("Behind a value")[::2]
    listed = re.findall(r"[A-Z_]{2,}", "".join(re.findall(r"^>.*$", behind_sources, flags=re.MULTILINE)))
    assert listed == sorted(word for word in AFTER_SOURCE if " " not in word)
    assert set(re.findall(r"[A-Z]{2,}", behind_values.partition("are names")[0])) == AFTER_VALUE


# -- errors -----------------------------------------------------------------------------------------------


def error_classes() -> list[type[errors.PenstockError]]:
    return [
        thing for thing in vars(errors).values() if isinstance(thing, type) and issubclass(thing, errors.PenstockError)
    ]


def test_every_error_has_its_section() -> None:
    assert set(sections(ERRORS)) == {f"{c.code} {c.__name__}" for c in error_classes()}
    assert len({c.code for c in error_classes()}) == len(error_classes())


# -- the command line -------------------------------------------------------------------------------------


def options() -> Iterator[tuple[str, str]]:
    """Each command with each of its options."""

    def walk(path: list[str], command: Any) -> Iterator[tuple[str, str]]:
        for child in getattr(command, "commands", {}).values():
            yield from walk([*path, child.name], child)
        for parameter in command.params:
            for option in (*parameter.opts, *parameter.secondary_opts):
                if option.startswith("--") and option != "--help":
                    yield " ".join(path), option

    yield from walk([], typer.main.get_command(app))
    yield from walk(["bench"], typer.main.get_command(bench))


@pytest.mark.parametrize(("command", "option"), list(options()))
def test_every_option_of_a_command_is_explained(command: str, option: str) -> None:
    headings = sections(CLI).items()
    section = next((s for heading, s in headings if command.split()[0] in heading.split()), "") if command else CLI
    assert f"`{option}" in section


def test_every_command_is_in_the_table() -> None:
    root: Any = typer.main.get_command(app)
    there: set[str] = set()
    for name, command in root.commands.items():
        there |= {f"{name} {child}" for child in getattr(command, "commands", {})} or {name}
    measuring: Any = typer.main.get_command(bench)
    there |= {f"bench {name}" for name in measuring.commands}
    said = {found.strip() for found in re.findall(r"^\| `penstock ((?:[a-z]+ ?)+)", CLI, flags=re.MULTILINE)}
    assert there == said
