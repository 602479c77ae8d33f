"""Standard input, pipes and files that grow on the command line; interrupting a run."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.spark.direct import directly

import penstock
from penstock.cli import run as run_module
from penstock.cli.answers import Answers
from penstock.cli.far import HowFar
from penstock.cli.main import main
from penstock.cli.watch import STEP

SCRIPT = """CREATE STREAM s (k BIGINT, v DOUBLE) TIMESTAMP BY k;
CREATE QUERY hot AS SELECT ISTREAM k, v FROM s WHERE v > 1;
"""
ROWS = "k,v\n1,0.5\n2,1.5\n3,2.5\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("q.cql").write_text(SCRIPT)
    Path("s.csv").write_text(ROWS)


@contextmanager
def pipe(text: str) -> Iterator[str]:
    """The path of a pipe with a text in it, as ``<(…)`` of a shell."""
    reading, writing = os.pipe()
    os.write(writing, text.encode())
    os.close(writing)
    yield f"/dev/fd/{reading}"
    os.close(reading)


def after_the_first_rows(monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    """A signal comes when the first rows have been pushed and answered."""
    seen: list[int] = []

    def heard(self: HowFar, name: str, rows: int, doing: str = "") -> None:
        if not doing and rows and not seen:
            seen.append(rows)
            signal.raise_signal(number)

    monkeypatch.setattr(HowFar, "__call__", heard)


# -- pipes ------------------------------------------------------------------------------------------------


def test_a_pipe_for_a_stream(capsys: pytest.CaptureFixture[str]) -> None:
    with pipe(ROWS) as path:
        assert main(["run", "q.cql", "--input", f"s={path}", "--format", "csv"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "ts,op,k,v\n2,+,2,1.5\n3,+,3,2.5\n"
    assert "rows in   s 3" in printed.err


def test_a_query_over_a_pipe_and_a_relation_from_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pipe('{"k": 1, "ts": 5}\n{"k": 2, "ts": 6}\n') as rows, pipe("k,name\n1,one\n2,two\n") as names:
        text = "SELECT ISTREAM name FROM s [NOW] JOIN names USING (k)"
        assert main(["query", text, f"s={rows}", f"names={names}", "--key", "names=k", "--format", "csv", "-q"]) == 0
    assert capsys.readouterr().out == "ts,op,name\n5,+,one\n6,+,two\n"


def test_a_query_over_a_pipe_says_what_orders_its_rows(capsys: pytest.CaptureFixture[str]) -> None:
    def said(text: str, *options: str) -> str:
        with pipe(text) as path:
            assert main(["query", "SELECT sensor FROM s", f"s={path}", "--engine", "local", *options]) == 0
        return capsys.readouterr().err

    reading = '{"sensor": "a", "t": 91}\n'
    assert "`t` orders the rows; --timestamp s=COLUMN names another column\n" in said(reading)
    assert "orders the rows" not in said(reading, "-q")
    assert "orders the rows" not in said(reading, "--timestamp", "t")
    assert "no column tells the time, so rows are stamped when they arrive" in said('{"sensor": "a", "celsius": 91}\n')
    Path("f.jsonl").write_text(reading)
    assert main(["query", "SELECT sensor FROM f", "f.jsonl", "--engine", "local"]) == 0
    assert "orders the rows" not in capsys.readouterr().err


def test_declaring_what_a_pipe_has(capsys: pytest.CaptureFixture[str]) -> None:
    with pipe('{"k": 1, "ts": 5}\n') as path:
        assert main(["declare", f"s={path}", "--type", "k=DOUBLE"]) == 0
    assert capsys.readouterr().out == "CREATE STREAM s (k DOUBLE, ts BIGINT) TIMESTAMP BY ts;\n"


def test_types_that_the_first_rows_do_not_show(capsys: pytest.CaptureFixture[str]) -> None:
    # What is there in one go is looked at: the second row comes when the first was.
    reading, writing = os.pipe()
    os.write(writing, b'{"ts": 1, "v": 1}\n')

    def more() -> None:
        os.write(writing, b'{"ts": 2, "v": 1.5}\n')
        os.close(writing)

    for option, code in ((), 2), (("--type", "v=DOUBLE"), 0):
        thread = None
        query = run_module.play_all

        def played(*args: object, query=query, **options: object) -> object:  # type: ignore[no-untyped-def]
            nonlocal thread
            thread = threading.Thread(target=more)
            thread.start()
            return query(*args, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("penstock.cli.ask.play_all", played)
            assert main(["query", "SELECT v FROM s", f"s=/dev/fd/{reading}", "--format", "csv", *option]) == code
        assert thread is not None
        thread.join()
        os.close(reading)
        printed = capsys.readouterr()
        if code:
            assert printed.out == "ts,op,v\n1,+,1\n"
            assert "types are those of the first row" in printed.err
            assert "line 2, column `v`" in printed.err
            assert "--type v=… gives the column another type" in printed.err
            reading, writing = os.pipe()
            os.write(writing, b'{"ts": 1, "v": 1}\n')
        else:
            assert printed.out == "ts,op,v\n1,+,1.0\n2,+,1.5\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "-", "--input", "s=-"], "the script and an input are standard input (-), which can be read once"),
        (["query", "SELECT 1 FROM a", "a=-", "b=-"], "two inputs are standard input (-), which can be read once"),
        (["run", "q.cql", "--input", "s=.", "--follow"], "--follow reads files and pipes, . is a folder"),
        (["query", "SELECT k FROM s", "s.csv", "--type", "k"], "--type k is not COLUMN=TYPE, such as --type"),
        (["query", "SELECT k FROM s", "s.csv", "--type", "w=INT"], "s.csv has no column `w`"),
        (["query", "SELECT k FROM s", "s.csv", "--type", "k=INTT"], "INTT"),
        (["query", "SELECT k FROM s", "s.csv", "t=s.csv", "--type", "k=INT"], "write NAME.COLUMN=TYPE with one"),
        (["query", "SELECT k FROM s", "s.csv", "--timestamp", "k", "--type", "k=INT"], "`k` orders the rows of s.csv"),
        (["run", "q.cql", "--input", "s=-", "--input-format", "parquet"], "parquet"),
    ],
)  # fmt: skip
def test_what_cannot_be(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert said in capsys.readouterr().err


# -- following --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_following_a_file_ends_in_order_when_it_is_stopped(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    after_the_first_rows(monkeypatch, number)
    before = signal.getsignal(number)
    assert main(["run", "q.cql", "--input", "s=s.csv", "--follow", "--format", "csv", "--output", "hot.csv"]) == 0
    assert signal.getsignal(number) == before
    assert Path("hot.csv").read_text() == "ts,op,k,v\n2,+,2,1.5\n3,+,3,2.5\n"
    assert "rows in   s 3\nanswers   hot 2\n" in capsys.readouterr().err
    assert not any(thread.name.startswith("penstock-read") for thread in threading.enumerate())


def test_the_answer_as_it_stands_when_it_is_stopped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    after_the_first_rows(monkeypatch, signal.SIGINT)
    text = "SELECT count(*) AS n FROM s"
    assert main(["query", text, "s.csv", "--timestamp", "k", "--follow", "--final", "--format", "csv", "-q"]) == 0
    assert capsys.readouterr().out == "n\n3\n"


def test_what_grows_is_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next row is added when the answer to the one before is in the file."""
    rows = iter(["4,4.5\n", "5,5.5\n"])
    written: list[str] = []
    drain = Answers.drain

    def drained(self: Answers, *, wait: bool = True) -> None:
        before = sum(self.counts.values())
        drain(self, wait=wait)
        if sum(self.counts.values()) > before:
            written.append(Path("out.jsonl").read_text().splitlines()[-1])
            row = next(rows, None)
            if row is None:
                signal.raise_signal(signal.SIGINT)
            else:
                with Path("s.csv").open("a") as file:
                    file.write(row)

    monkeypatch.setattr(Answers, "drain", drained)
    assert main(["run", "q.cql", "--input", "s=s.csv", "--follow", "--output", "out.jsonl", "-q"]) == 0
    assert [line.split('"k": ')[1][0] for line in written] == ["3", "4", "5"]


def test_a_database_goes_on_where_following_was_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["run", "q.cql", "--input", "s=s.csv", "--follow", "--engine", "spark", "--database", "db", "-q"]
    with directly():
        for row in ("", "4,4.5\n"):
            with Path("s.csv").open("a") as file:
                file.write(row)
            with pytest.MonkeyPatch.context() as patch:
                after_the_first_rows(patch, signal.SIGINT)
                assert main([*arguments, "--output", "out"]) == 0
    assert Path("out/hot.csv").read_text() == "ts,op,k,v\n2,+,2,1.5\n3,+,3,2.5\n4,+,4,4.5\n"


_SOURCE = {**os.environ, "PYTHONPATH": str(Path(penstock.__file__).parents[1])}


def lines_of(command: list[str], rows: list[bytes], ends: signal.Signals | None, environment: dict[str, str]) -> None:
    """Writes a row, waits for its answer, then the next."""
    with subprocess.Popen(
        [sys.executable, "-m", "penstock.cli.main", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env=environment,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        for number, row in enumerate(rows, 1):
            process.stdin.write(row)
            process.stdin.flush()
            assert f'"n": {number}' in process.stdout.readline().decode()
        if ends is None:
            process.stdin.close()
        else:
            process.send_signal(ends)
        said = process.stderr.read().decode()
        assert process.wait() == 0, said
        assert f"rows in   stdin {len(rows)}" in said


TEXT = "SELECT ISTREAM count(*) AS n FROM stdin [RANGE UNBOUNDED]"
OBJECTS = [b'{"ts": 1, "v": 2.5}\n', b'{"ts": 2, "v": 3}\n', b'{"v": 1, "ts": 3}\n']


@pytest.mark.parametrize("ends", [None, signal.SIGINT, signal.SIGTERM])
def test_each_row_of_standard_input_is_answered_when_it_comes(ends: signal.Signals | None) -> None:
    arguments = [] if ends is None else ["--follow"]
    lines_of(["query", TEXT, "-", "--engine", "local", "--format", "json", *arguments], OBJECTS, ends, _SOURCE)


@pytest.mark.xdist_group("spark")
def test_each_row_of_standard_input_is_answered_when_it_comes_on_spark() -> None:
    environment = {name: value for name, value in _SOURCE.items() if name != "PENSTOCK_TRIGGER"}
    command = ["query", TEXT, "-", "--engine", "spark", "--master", "local[1]", "--format", "json", "--follow"]
    lines_of(command, OBJECTS[:2], signal.SIGINT, environment)


# -- interrupting -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_says_what_it_did_and_what_is_kept(
    number: signal.Signals, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    after_the_first_rows(monkeypatch, number)
    assert main(["run", "q.cql", "--input", "s=s.csv", "--format", "csv"]) == code
    printed = capsys.readouterr()
    assert printed.out.startswith("ts,op,k,v\n2,+,2,1.5\n")
    first, second = printed.err.splitlines()
    assert re.fullmatch(r"penstock: interrupted after \d+:\d\d: rows in s 3; answers hot 2", first)
    assert second == "penstock: the answers that are printed are those of these rows; nothing else is kept"

    after_the_first_rows(monkeypatch, number)
    assert main(["run", "q.cql", "--input", "s=s.csv", "--output", "hot.csv"]) == code
    assert "penstock: hot.csv is not written, since it would not be whole\n" in capsys.readouterr().err
    assert not list(Path().glob("*hot.csv*"))

    after_the_first_rows(monkeypatch, number)
    assert main(["query", "SELECT count(*) AS n FROM s", "s.csv", "--timestamp", "k", "--final", "-q"]) == code
    assert capsys.readouterr().err.splitlines()[1] == "penstock: nothing is kept"


def test_an_interrupted_run_with_a_database_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["run", "q.cql", "--input", "s=s.csv", "--engine", "spark", "--database", "db", "--output", "out"]
    with directly():
        with pytest.MonkeyPatch.context() as patch:
            after_the_first_rows(patch, signal.SIGINT)
            assert main(arguments) == 130
        said = capsys.readouterr().err
        assert "rows in s 3" in said
        assert "penstock: everything up to there is in db; the same command goes on from it\n" in said
        assert main(arguments) == 0
    assert Path("out/hot.csv").read_text() == "ts,op,k,v\n2,+,2,1.5\n3,+,3,2.5\n"


# -- how far ----------------------------------------------------------------------------------------------


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_without_a_terminal_a_long_run_says_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    time = Time()
    with HowFar(terminal=False, now=time) as far:
        for seconds, rows in ((1, 10), (STEP, 1_000_000), (STEP + 1, 1_100_000), (3 * STEP, 3_000_000)):
            time.now = seconds
            far("s", rows, " read" if seconds == STEP else "")
    assert capsys.readouterr().err.splitlines() == [
        "penstock: s 1,000,000 rows read after 0:15", "penstock: s 3,000,000 rows after 0:45",
    ]  # fmt: skip
    with HowFar(terminal=False, quiet=True, now=time) as far:
        time.now += 2 * STEP
        far("s", 1)
    assert capsys.readouterr().err == ""


def test_on_a_terminal_it_makes_room_for_answers(capsys: pytest.CaptureFixture[str]) -> None:
    time = Time()
    with HowFar(terminal=True, beside_answers=True, now=time) as far:
        far("s", 10)
        assert capsys.readouterr().err == ""
        time.now = 2.0
        far("s[1]", 1_234_567)
        assert far._lines is not None
        far.hide()
        assert far._lines is None
        time.now = 2.5
        far("s", 20)
        assert far._lines is None
    said = capsys.readouterr().err
    assert "1,234,567 rows" in said
    with HowFar(terminal=True, now=time) as far:
        far("s", 10)
        far.hide()
        assert far._lines is not None


def test_reading_a_file_before_its_rows_are_taken_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int, str]] = []
    monkeypatch.setattr(HowFar, "__call__", lambda self, name, rows, doing="": seen.append((name, rows, doing)))
    assert main(["run", "q.cql", "--input", "s=s.csv", "-q", "--format", "csv"]) == 0
    assert seen[0] == ("s", 3, " read")
    assert seen[-1] == ("s", 3, "")


# -- version and completion -------------------------------------------------------------------------------


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"penstock {penstock.__version__}\n"


def test_completion(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for typed, at, wanted in (("penstock que", 1, "query"), ("penstock run --fol", 2, "--follow")):
        with monkeypatch.context() as patch:
            patch.setenv("_PENSTOCK_COMPLETE", "complete_bash")
            patch.setenv("COMP_WORDS", typed)
            patch.setenv("COMP_CWORD", str(at))
            with pytest.raises(SystemExit):
                main([])
        assert capsys.readouterr().out.split() == [wanted]
