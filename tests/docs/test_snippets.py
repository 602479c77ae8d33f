"""README and docs: what they show is what happens.

    python      run, all blocks of a file one after the other; an `output` block behind it is what it prints
    ipython     a cell of a notebook, all of a file one after the other in one shell; an `output` block behind it is
                what it prints
    console     `$ cat > FILE <<'END'` writes a file, `$ penstock …` and `$ pytest …` run; the lines behind a command
                are what it prints, where `...` stands for any text within a line
    cql         run in one database for each file; an `error` block behind it is the error it gives
    example     a case in the notation of tests/notation.py, which must hold
    sh          commands for a clone, of which the targets of make must exist
    text        a picture
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.cli.main import main
from tests import notation
from tests.conftest import ON_SPARK
from tests.docs.fences import DOCS, ROOT, Fence, fences
from tests.notebook.shells import Cells, shell
from tests.spark.direct import directly

PAGES = sorted(p for p in DOCS.rglob("*.md") if p.name != "semantics.md")
FILES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES]
LANGUAGES = {"python", "ipython", "output", "console", "cql", "error", "example", "sh", "text"}
MADE_TO_RUN = {"README.md", "python.md", "cli.md", "cql.md"}
RUN_ON_SPARK = {"README.md", "spark.md", "cluster.md", "spark-dataframes.md", "replace-a-spark-job.md"}
RUN_ON_TASKS = {"restart.md", "files.md"}
"""What is written for Spark, and shows nothing that needs more than its tasks."""


def blocks(path: Path) -> list[Fence]:
    return list(fences(path.read_text(encoding="utf-8")))


def behind(found: list[Fence], i: int, language: str) -> str | None:
    """The text of the next block, if it has this language."""
    return found[i + 1].text if i + 1 < len(found) and found[i + 1].language == language else None


def matches(got: str, shown: str) -> bool:
    """Line by line the same; ``...`` stands for any text."""
    pattern = re.escape(shown.rstrip("\n")).replace(re.escape("..."), ".*")
    return re.fullmatch(pattern, "\n".join(line.rstrip() for line in got.rstrip("\n").split("\n"))) is not None


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_every_block_is_of_a_kind_that_is_checked(path: Path) -> None:
    found = blocks(path)
    assert {block.language for block in found} <= LANGUAGES
    for i, block in enumerate(found):
        wanted = {"output": ("python", "ipython"), "error": ("cql",)}.get(block.language)
        assert wanted is None or found[i - 1].language in wanted, f"{path.name}, line {block.line}"
    if path.name in MADE_TO_RUN:
        assert any(block.language in ("python", "console", "cql") for block in found)


def with_spark(path: Path) -> object:
    """README and the pages about Spark run as a user runs them, on the engine that is the default."""
    return pytest.param(path, marks=ON_SPARK) if path.name in RUN_ON_SPARK else path


@pytest.fixture
def cells() -> Iterator[Cells]:
    with shell() as found:
        yield found


@pytest.fixture
def as_user(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    on_tasks = request.node.callspec.params["path"].name in RUN_ON_TASKS
    if request.node.get_closest_marker("xdist_group"):
        request.getfixturevalue("spark")
    elif not on_tasks:
        yield
        return
    monkeypatch.delenv("PENSTOCK_ENGINE")
    monkeypatch.delenv("PENSTOCK_TRIGGER")
    with directly() if on_tasks else contextlib.nullcontext():
        yield


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize("path", list(map(with_spark, FILES)), ids=lambda p: p.name)
def test_python(path: Path) -> None:
    found = blocks(path)
    names: dict[str, object] = {"__name__": "__main__"}
    for i, block in enumerate(found):
        if block.language != "python":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * block.line + block.text, str(path), "exec"), names)
        shown = behind(found, i, "output")
        assert matches(printed.getvalue(), shown or ""), f"line {block.line} prints\n{printed.getvalue()}"


@pytest.mark.parametrize("path", [p for p in FILES if any(b.language == "ipython" for b in blocks(p))],
                         ids=lambda p: p.name)  # fmt: skip
def test_ipython(path: Path, cells: Cells) -> None:
    found = blocks(path)
    for i, block in enumerate(found):
        if block.language == "ipython":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                cells.run(block.text)
            shown = behind(found, i, "output")
            assert matches(printed.getvalue(), shown or ""), f"line {block.line} prints\n{printed.getvalue()}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_cql(path: Path) -> None:
    found = blocks(path)
    with penstock.connect(engine="reference") as db:
        for i, block in enumerate(found):
            if block.language != "cql":
                continue
            shown = behind(found, i, "error")
            if shown is None:
                db.execute(block.text)
                continue
            with pytest.raises(penstock.PenstockError) as caught:
                db.execute(block.text)
            assert str(caught.value) == shown.rstrip("\n")


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_examples(path: Path) -> None:
    for block in blocks(path):
        if block.language == "example":
            example = notation.parse(block.text)
            for case in example.cases:
                notation.run(example, case, "local", one_by_one=True)


# -- console ----------------------------------------------------------------------------------------------


class Command:
    """A command of a console block, what is typed into it, and what it is shown to print."""

    def __init__(self, line: str, typed: str, shown: str) -> None:
        self.line, self.typed, self.shown = line, typed, shown


def commands(text: str) -> list[Command]:
    found: list[Command] = []
    lines = text.splitlines()
    while lines:
        line = lines.pop(0)
        assert line.startswith("$ "), f"a console block goes on with a command, not with {line!r}"
        command, typed = line[2:], []
        while command.endswith("\\"):
            command = command[:-1] + lines.pop(0).strip()
        if here := re.search(r" ?<<'(\w+)'$", command):
            command = command[: here.start()]
            while (line := lines.pop(0)) != here[1]:
                typed.append(line + "\n")
        shown = []
        while lines and not lines[0].startswith("$ "):
            shown.append(lines.pop(0) + "\n")
        found.append(Command(command, "".join(typed), "".join(shown)))
    return found


def carry_out(command: Command, monkeypatch: pytest.MonkeyPatch) -> str:
    """What the command prints, to stdout and stderr together."""
    program, *arguments = shlex.split(command.line)
    typed = command.typed
    if program == "cat" and arguments[1:2] == ["|"]:
        typed = Path(arguments[0]).read_text()
        program, *arguments = arguments[2:]
    if program == "cat" and arguments[0] == ">":
        Path(arguments[1]).write_text(command.typed)
        return ""
    if program == "cat":
        return Path(arguments[0]).read_text()
    if program == "pytest":
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        environment.pop("PYTEST_ADDOPTS", None)  # meant for this run, not for the reader's
        run = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
        return subprocess.run(run, env=environment, capture_output=True, text=True, check=False).stdout
    assert program == "penstock", command.line
    printed = io.StringIO()
    with tempfile.TemporaryFile("w+") as stdin:
        stdin.write(typed)
        stdin.seek(0)
        monkeypatch.setattr(sys, "stdin", stdin)
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            main(arguments)
    return printed.getvalue()


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize("path", list(map(with_spark, FILES)), ids=lambda p: p.name)
def test_console(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for block in blocks(path):
        if block.language == "console":
            for command in commands(block.text):
                printed = carry_out(command, monkeypatch)
                assert matches(printed, command.shown), f"{command.line} prints\n{printed}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_targets_of_make_exist(path: Path) -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for block in blocks(path):
        if block.language == "sh":
            assert set(re.findall(r"\bmake ([a-z]+)", block.text)) <= set(targets)


@pytest.mark.parametrize("path", [p for p in FILES if p.name == "CONTRIBUTING.md" or "contribute" in p.parts],
                         ids=lambda p: p.name)  # fmt: skip
def test_files_for_contributors_exist(path: Path) -> None:
    named = re.findall(r"`((?:src|tests|docs|benchmarks|scripts)/[\w./-]*)`", path.read_text(encoding="utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []
