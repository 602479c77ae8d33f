"""The pages about the papers: every row has a state, and what it names exists."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields

import pytest
from experiments.papers.report import EXPERIMENTS

import penstock
from penstock.cli.main import app
from penstock.cql.keywords import KEYWORDS
from penstock.runtime.settings import THREADING, USERS, Settings
from penstock.runtime.strategies import names as strategies
from tests.docs.fences import DOCS, ROOT

FOLDER = DOCS / "concepts/papers"
PAPERS = {"streamapas": "000", "pipes": "001", "designated": "002", "mavhome": "003", "odysseus": "004"}
STATES = ("here", "differs", "not here")
HEAD = re.compile(r"\| row \| what the \w+ has \| state \| where it lives \| how to try it, or why \|")


@dataclass(frozen=True)
class Row:
    """A row of a table."""

    page: str
    number: str
    what: str
    state: str
    where: str
    how: str


def rows_of(page: str) -> Iterator[Row]:
    inside = False
    for line in (FOLDER / f"{page}.md").read_text(encoding="utf-8").splitlines():
        if HEAD.fullmatch(line):
            inside = True
        elif not line.startswith("|"):
            inside = False
        elif inside and not line.startswith("|---"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            assert len(cells) == 5, f"{page}: {line}"
            yield Row(page, *cells)


ROWS = [row for page in PAPERS for row in rows_of(page)]


def code(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def modules(text: str) -> list[str]:
    return [part for part in code(text) if re.fullmatch(r"(?:[\w-]+/)*\w+\.py|(?:[\w-]+/)+", part)]


def test_pages_are_those_of_the_papers() -> None:
    assert {path.stem for path in FOLDER.glob("*.md")} == {"index", *PAPERS}


def test_every_row_has_a_state_and_a_number_of_its_own() -> None:
    counts: Counter[tuple[str, str]] = Counter()
    for row in ROWS:
        assert row.state in STATES, row
        assert row.number.startswith(f"{PAPERS[row.page]}."), row
        assert row.what, row
        counts[row.page, row.state] += 1
    assert len({row.number for row in ROWS}) == len(ROWS)
    for page in PAPERS:
        found = ", ".join(f"{counts[page, state]} {state}" for state in STATES)
        print(f"{page}: {found}")
        assert counts[page, "here"], page
    total = {state: sum(n for (_, of), n in counts.items() if of == state) for state in STATES}
    print(f"in all: {len(ROWS)} rows, {', '.join(f'{n} {state}' for state, n in total.items())}")
    assert len(ROWS) >= 340


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.number)
def test_what_a_row_names_exists(row: Row) -> None:
    if row.state == "not here":
        assert row.where == "", "nothing lives anywhere"
        assert row.how, "it says why"
    else:
        assert modules(row.where), "it names a module"
        assert row.how, "it says how, or why"
    if row.state == "here":
        assert code(row.how) or re.search(r"\]\(", row.how), "it can be tried"
    for name in modules(row.where) + modules(row.how):
        assert any((base / name).exists() for base in (ROOT / "src/penstock", ROOT)), name
    for part in code(row.how):
        check(part)


def check(part: str) -> None:
    """Tests, commands, settings, methods and statements that a row says one can try."""
    if test := re.fullmatch(r"(tests/[\w/]+\.py)(?:::(\w+))?", part):
        path = ROOT / test[1]
        assert path.exists(), part
        assert test[2] is None or f"def {test[2]}(" in path.read_text(encoding="utf-8"), part
    elif named := re.match(r"penstock (\w+)(?: (\w+))?(?: --only (\w+))?", part):
        commands = {command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands}
        assert named[1] in commands, part
        assert named[3] is None or named[3] in EXPERIMENTS, part
    elif set_ := re.fullmatch(r"db\.configure\((.*)\)", part):
        configured(set_[1])
    elif method := re.match(r"db\.(\w+)", part):
        assert hasattr(penstock.Database, method[1]), part
    elif statement := re.match(r"([A-Z]{3,}(?: [A-Z]{2,})*)\b", part):
        assert all(word in WORDS for word in statement[1].split()), part
    elif option := re.search(r"WITH \((\w+) =", part):
        assert option[1] in OPTIONS, part


def configured(text: str) -> None:
    for name, value in re.findall(r"(\w+)=(\"[^\"]*\"|\w+)", text):
        assert name in (*USERS, "query", "experiments"), text
        if name == "threading":
            assert value.strip('"') in THREADING, text
        if name == "strategy":
            assert value.strip('"') in strategies(), text
        if name == "mode":
            assert Settings(mode=value.strip('"')), text


def reference(name: str) -> str:
    return (DOCS / "reference" / name).read_text(encoding="utf-8")


WORDS = {*re.findall(r"\b[A-Z]{2,}\b", reference("grammar.md") + reference("cql.md")), *KEYWORDS}
OPTIONS = set(re.findall(r"^\| `(\w+)`", reference("settings.md"), flags=re.MULTILINE))


@pytest.mark.parametrize("row", [row for row in ROWS if "WITH (" in row.how], ids=lambda row: row.number)
def test_options_that_a_row_shows_exist(row: Row) -> None:
    for option in re.findall(r"WITH \((\w+) =", row.how):
        assert option in OPTIONS, option


def test_values_of_experiments_that_rows_name_exist() -> None:
    known = reference("experiments.md")
    for row in ROWS:
        for value in re.findall(r"value `(\w+)`", row.how):
            assert f"`{value}`" in known, (row.number, value)
        for name in re.findall(r"the setting \[(\w+)\]", row.how):
            assert name in {f.name for f in fields(Settings)}, (row.number, name)


def test_a_row_that_names_nothing_fails() -> None:
    with pytest.raises(AssertionError):
        check("tests/docs/test_papers.py::test_that_is_not_there")
    with pytest.raises(AssertionError):
        check("penstock bench papers --only nothing")
    with pytest.raises(AssertionError):
        check('db.configure(threading="some")')
    with pytest.raises(AssertionError):
        check("db.nothing()")
    with pytest.raises(AssertionError):
        check("FORGET QUERY q")
    with pytest.raises(AssertionError):
        test_what_a_row_names_exists(Row("pipes", "001.0", "x", "here", "`runtime/nothing.py`", "`db.push`"))
