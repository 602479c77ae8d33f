"""``explain``, ``sql``, ``version``, and the process around them."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from tests.spark.direct import directly

import penstock
from penstock.cli.failures import Failure, report
from penstock.cli.main import main
from penstock.cli.script import open_database
from penstock.cli.shell import Shell
from penstock.cli.sql import NameCompleter, history_file
from penstock.cql.splitting import split
from penstock.model.errors import PenstockError

STREAM = "CREATE STREAM s (k BIGINT, at BIGINT) TIMESTAMP BY at;"
SOURCE = Path(penstock.__file__).parent


def process(
    *arguments: str, stdin: str = "", stdout: int | io.IOBase = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", *arguments],
        input=stdin,
        stdout=stdout,  # type: ignore[arg-type]
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE.parent)},
        check=False,
    )


# -- explain --------------------------------------------------------------------------------------------


def explained(tmp_path: Path, capsys: pytest.CaptureFixture[str], script: str, *options: str) -> str:
    file = tmp_path / "q.cql"
    file.write_text(script)
    assert main(["explain", str(file), *options]) == 0
    return capsys.readouterr().out


def test_explain_one_query(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = STREAM + "SELECT k FROM s WHERE k > 1"
    assert "s" in explained(tmp_path, capsys, script)
    assert isinstance(json.loads(explained(tmp_path, capsys, script, "--json")), dict)
    assert explained(tmp_path, capsys, script, "--mermaid").startswith(("graph", "flowchart"))


def test_explain_several_queries(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = STREAM + "CREATE QUERY a AS SELECT k FROM s; CREATE QUERY b AS SELECT at FROM s;"
    text = explained(tmp_path, capsys, script)
    assert text.startswith("-- a\n")
    assert "\n\n-- b\n" in text
    assert list(json.loads(explained(tmp_path, capsys, script, "--json"))) == ["a", "b"]


def test_explain_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "q.cql"
    file.write_text(STREAM)
    assert main(["explain", str(file)]) == 2
    assert capsys.readouterr().err == f"penstock: error: {file} has no query to explain\n"
    assert main(["explain", str(file), "--json", "--mermaid"]) == 2
    assert capsys.readouterr().err == "penstock: error: --json and --mermaid exclude each other\n"


# -- the shell ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "statements", "rest"),
    [
        ("a; b", ["a;"], " b"),
        ("a 'x;y''z' ; b;", ["a 'x;y''z' ;", " b;"], ""),
        ('"q;" `r;`;', ['"q;" `r;`;'], ""),
        ("a -- c;\n b;", ["a -- c;\n b;"], ""),
        ("a /* ; */;", ["a /* ; */;"], ""),
        ("a 'open;", [], "a 'open;"),
        (";;", [], ""),
    ],
)
def test_statements_end_with_a_semicolon_that_is_none_of_a_text(
    text: str, statements: list[str], rest: str
) -> None:
    assert split(text) == (statements, rest)


def talk(*lines: str) -> str:
    out = io.StringIO()
    with penstock.connect(engine="reference") as db:
        shell = Shell(db, out)
        for line in lines:
            shell.feed(line)
        shell.finish()
    return out.getvalue()


def test_answers_come_after_an_insert() -> None:
    said = talk(STREAM, "CREATE QUERY big AS", "SELECT ISTREAM k FROM s WHERE k > 1;", "INSERT INTO s VALUES (2, 7);")
    assert said.endswith("-- big\n  ts  op     k\n----  --  ----\n   7  +      2\n")


def test_describe() -> None:
    said = talk(STREAM, "CREATE RELATION r (n STRING);", "CREATE QUERY q AS SELECT k FROM s;", "\\d", "\\d S", "\\d q")
    lines = [line.split() for line in said.splitlines()]
    assert ["s", "stream"] in lines
    assert ["r", "relation"] in lines
    assert ["q", "query,", "running"] in lines
    assert lines.count(["k", "BIGINT"]) == 2
    assert ["at", "BIGINT"] in lines
    assert "CREATE QUERY q AS SELECT k FROM s" in said.splitlines()
    assert "nothing is declared yet" in talk("\\d")


def test_load_and_close(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("k,at\n5,1\n6,2\n")
    query = "CREATE QUERY q AS SELECT DSTREAM k FROM s [RANGE 10];"
    said = talk(STREAM, query, f"\\load s {tmp_path}/s.csv", "\\close s")
    assert "2 rows into s" in said
    assert [line.split() for line in said.splitlines()[-2:]] == [["11", "+", "5"], ["12", "+", "6"]]


def test_declare_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("k,at\n5,1\n6,2\n")
    said = talk(f"\\declare s {tmp_path}/s.csv", "SELECT k FROM s;", f"\\load s {tmp_path}/s.csv")
    assert said.startswith("CREATE STREAM s (k BIGINT, at BIGINT) TIMESTAMP BY at;\n")
    assert said.endswith("2 rows into s\n")


@pytest.mark.parametrize("word", ["quit", "exit;", "EXIT"])
def test_words_of_other_shells(word: str) -> None:
    assert talk("help").startswith("Statements end with ;")
    with penstock.connect(engine="reference") as db:
        shell = Shell(db, io.StringIO())
        shell.feed(word)
        assert shell.done


def test_include_and_help(tmp_path: Path) -> None:
    (tmp_path / "x.cql").write_text(STREAM)
    assert ["s", "stream"] in [line.split() for line in talk(f"\\i {tmp_path}/x.cql", "\\d").splitlines()]
    assert "\\load NAME PATH" in talk("\\?")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("\\x", r"there is no command \\x"),
        ("\\d t", "no stream, relation, view, query or function `t`"),
        ("\\load s", "takes a name and a path"),
        ("\\declare s", "takes a name and a path"),
        ("\\declare s nowhere.csv", "there is no file or folder nowhere.csv"),
        ("\\load t x.csv", "there is no stream or relation `t`"),
        ("\\close", "takes the name of a stream"),
        ("\\i", "takes the path of a file"),
    ],
)
def test_shell_errors(line: str, said: str) -> None:
    with pytest.raises(PenstockError, match=said):
        talk(STREAM, line)


def test_an_error_forgets_the_statement_but_not_the_catalog() -> None:
    out = io.StringIO()
    with penstock.connect(engine="reference") as db:
        shell = Shell(db, out)
        shell.feed(STREAM)
        with pytest.raises(PenstockError):
            shell.feed("SELECT x FROM s;")
        assert not shell.pending
        shell.feed("SELECT k")
        assert shell.pending
        shell.forget()
        assert not shell.pending
        assert list(db.catalog.streams) == ["s"]


def test_sql_from_a_pipe() -> None:
    done = process("sql", stdin=f"{STREAM}\nSELECT k FROM s;\nINSERT INTO s VALUES (4, 2)")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].split() == ["2", "+", "4"]
    failed = process("sql", stdin=f"{STREAM}\nSELECT nope FROM s;\nSELECT k FROM s;\n")
    assert failed.returncode == 2
    assert failed.stderr.startswith("penstock: error: ")
    assert failed.stderr.count("\n") == 1


def test_completion_knows_keywords_and_what_is_declared() -> None:
    def offered(typed: str) -> list[str]:
        found = completer.get_completions(Document(typed), CompleteEvent())
        return [completion.text for completion in found]

    with penstock.connect(engine="reference") as db:
        completer = NameCompleter(db)
        db.execute("CREATE STREAM sensors (temperature DOUBLE); CREATE QUERY tempo AS SELECT * FROM sensors;")
        assert offered("SEL") == ["SELECT"]
        assert offered("sel") == ["select"]
        assert offered("SELECT temp") == ["tempo", "temperature"]
        assert "sensors" in offered("FROM se")
        assert offered("FROM ") == []


def test_history_is_kept_where_state_belongs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert history_file() == tmp_path / "penstock" / "history"


# -- errors, version ------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_caret_is_for_people_only() -> None:
    failed = Failure("line 1, column 8: no", picture=("  SELECT x", "         ^"))
    pipe, terminal = io.StringIO(), Terminal()
    report(failed, pipe)
    report(failed, terminal)
    assert pipe.getvalue() == "penstock: error: line 1, column 8: no\n"
    assert terminal.getvalue() == pipe.getvalue() + "  SELECT x\n         ^\n"


def test_somebody_at_a_terminal_is_told_why_it_takes_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    for engine, times in (("spark", 1), ("local", 0)):
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setenv("PENSTOCK_ENGINE", engine)
        with directly(), open_database(None, None, None) as db:
            assert db.engine == engine
        said = "penstock: starting Spark, some seconds; --engine local starts at once\n"
        assert terminal.getvalue().count(said) == times


def test_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("k,at\n" + "".join(f"{i},{i}\n" for i in range(20_000)))
    (tmp_path / "q.cql").write_text(STREAM + "SELECT ISTREAM k FROM s [NOW];")
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as broken:
        done = process("run", str(tmp_path / "q.cql"), "--input", f"s={tmp_path}/s.csv", stdout=broken)
    assert (done.returncode, done.stderr) == (0, "")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"penstock {penstock.__version__}\n"
