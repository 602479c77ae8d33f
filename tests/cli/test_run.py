"""``penstock run``, as a shell script would use it."""

from __future__ import annotations

import csv
import gzip
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet
import pytest
from tests.spark.direct import directly

import penstock
from penstock.cli.main import main
from penstock.cli.run import summarize

DECLARED = """
CREATE STREAM s (k BIGINT, v DOUBLE, at BIGINT) TIMESTAMP BY at SLACK 1;
CREATE STREAM idle (k BIGINT, at BIGINT) TIMESTAMP BY at;
CREATE RELATION names (k BIGINT, name STRING) KEY (k);
"""
HOT = "CREATE QUERY hot AS SELECT ISTREAM k, v FROM s WHERE v > 1;\n"
NAMED = "CREATE QUERY named AS SELECT ISTREAM s.k, name FROM s [NOW], names WHERE s.k = names.k;\n"
ROWS = "k,v,at\n1,0.5,10\n2,1.5,20\n3,2.5,5\n3,,30\n1,9,31\n"


class Place:
    """A folder with a script and inputs, and what a run in it said."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys
        self.out = self.err = ""
        self.put("s.csv", ROWS)
        self.put("names.csv", "k,name\n1,one\n2,two\n")

    def put(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def run(self, script: str, *arguments: str) -> int:
        code = main(["run", str(self.put("q.cql", script)), *(a.replace("@", f"{self.folder}/") for a in arguments)])
        self.out, self.err = self._capsys.readouterr()
        return code


@pytest.fixture
def place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Place:
    return Place(tmp_path, capsys)


def test_answers_as_a_table_and_a_summary(place: Place) -> None:
    assert place.run(DECLARED + HOT, "--input", "s=@s.csv") == 0
    assert place.out.splitlines() == [
        "  ts  op     k       v",
        "----  --  ----  ------",
        "  20  +      2     1.5",
        "  31  +      1     9.0",
    ]
    assert place.err.splitlines()[:3] == [
        "rows in   s 5", "answers   hot 2", "late rows s 1 (by up to 14; SLACK 15 takes them)",
    ]  # fmt: skip
    assert place.err.splitlines()[3].startswith("seconds ")


def test_the_summary_says_what_results_lack() -> None:
    with penstock.connect(engine="local") as db:
        db.execute("CREATE STREAM s (t BIGINT) TIMESTAMP BY t")
        db.push("s", [(1,)])
        query = db.query("SELECT count(*) AS n FROM s [TUMBLING 50]", name="n")
        said = summarize(db, [query], {}, {}, 1.0).splitlines()[2]
        assert said.startswith("incomplete n: results from the first one to 50: rows of stream `s` that came before")


def test_quiet(place: Place) -> None:
    assert place.run(DECLARED + HOT, "--input", "s=@s.csv", "--quiet") == 0
    assert place.err == ""


def test_csv_and_json_on_stdout(place: Place) -> None:
    assert place.run(DECLARED + HOT, "--input", "s=@s.csv", "--format", "csv") == 0
    assert place.out == "ts,op,k,v\n20,+,2,1.5\n31,+,1,9.0\n"
    assert place.run(DECLARED + HOT, "--input", "S=@s.csv", "--format", "json") == 0
    assert [json.loads(line) for line in place.out.splitlines()] == [
        {"ts": 20, "op": "+", "k": 2, "v": 1.5},
        {"ts": 31, "op": "+", "k": 1, "v": 9.0},
    ]


def test_several_queries_on_stdout(place: Place) -> None:
    inputs = ("--input", "s=@s.csv", "--input", "names=@names.csv")
    assert place.run(DECLARED + HOT + NAMED, *inputs, "--format", "csv") == 0
    rows = list(csv.DictReader(io.StringIO(place.out)))
    assert {"query": "hot", "ts": "20", "op": "+", "k": "2", "v": "1.5", "name": ""} in rows
    assert {"query": "named", "ts": "31", "op": "+", "k": "1", "v": "", "name": "one"} in rows
    assert len(rows) == 5

    assert place.run(DECLARED + HOT + NAMED, *inputs, "--format", "json") == 0
    lines = [json.loads(line) for line in place.out.splitlines()]
    assert {"query": "named", "ts": 20, "op": "+", "k": 2, "name": "two"} in lines
    assert next(iter(lines[0])) == "query"

    assert place.run(DECLARED + HOT + NAMED, *inputs) == 0
    headings = [line for line in place.out.splitlines() if line.startswith("-- ")]
    assert headings[:2] == ["-- hot", "-- named"]

    assert place.run(DECLARED + HOT + NAMED, *inputs, "--format", "parquet") == 2
    assert place.err == "penstock: error: parquet on stdout takes one query, there are 2; give --output a folder\n"


def test_output_file_by_its_suffix(place: Place) -> None:
    assert place.run(DECLARED + HOT, "--input", "s=@s.csv", "--output", "@hot.parquet") == 0
    assert place.out == ""
    assert pyarrow.parquet.read_table(place.folder / "hot.parquet")["k"].to_pylist() == [2, 1]


def test_output_folder_for_several_queries(place: Place) -> None:
    inputs = ("--input", "s=@s.csv", "--input", "names=@names.csv")
    assert place.run(DECLARED + HOT + NAMED, *inputs, "--output", "@out", "--format", "json") == 0
    assert sorted(p.name for p in (place.folder / "out").iterdir()) == ["hot.jsonl", "named.jsonl"]
    assert place.run(DECLARED + HOT + NAMED, *inputs, "--output", "@out.csv") == 2
    assert "there are 2 queries, so --output is a folder" in place.err


def test_a_failed_run_leaves_no_output(place: Place) -> None:
    place.put("bad.csv", ROWS + "x,1,40\n")
    assert place.run(DECLARED + HOT, "--input", "s=@bad.csv", "--output", "@hot.csv") == 2
    assert f"penstock: error: {place.folder}/bad.csv, line 7, column `k`: 'x' is not a BIGINT\n" == place.err
    assert not list(place.folder.glob("*hot.csv*"))


def test_late_rows_go_to_a_folder(place: Place) -> None:
    assert place.run(DECLARED + HOT, "--input", "s=@s.csv", "--late", "@late") == 0
    assert (place.folder / "late" / "s.csv").read_text().splitlines()[1].startswith("3,2.5,5")
    assert place.err.splitlines()[2] == "late rows s 1 (by up to 14; SLACK 15 takes them)"


def test_row_errors_are_counted(place: Place) -> None:
    script = DECLARED + "CREATE QUERY q AS SELECT ISTREAM k DIV 0 AS z FROM s;\n"
    assert place.run(script, "--input", "s=@s.csv") == 0
    assert "row errors (NULL in the answers) q 4" in place.err


def test_a_relation_that_changes_over_time(place: Place) -> None:
    place.put("names.csv", "ts,op,k,name\n0,+,1,one\n15,-,1,one\n15,+,1,uno\n")
    assert place.run(DECLARED + NAMED, "--input", "s=@s.csv", "--input", "names=@names.csv", "--format", "csv") == 0
    assert "10,+,1,one\n" in place.out
    assert "31,+,1,uno\n" in place.out


def test_streams_are_played_side_by_side(place: Place) -> None:
    place.put("i.jsonl", '{"k": 1, "at": 12}\n{"k": 1, "at": 32}\n')
    script = DECLARED + "CREATE QUERY q AS SELECT ISTREAM s.k FROM s [RANGE 5], idle [RANGE 5] WHERE s.k = idle.k;\n"
    assert place.run(script, "--input", "s=@s.csv", "--input", "idle=@i.jsonl", "--format", "csv") == 0
    assert place.out == "ts,op,k\n12,+,1\n32,+,1\n"


def test_rows_inserted_by_the_script_need_no_input(place: Place) -> None:
    assert place.run(DECLARED + HOT + "INSERT INTO s VALUES (1, 5.0, 3);\n", "--format", "csv") == 0
    assert place.out == "ts,op,k,v\n3,+,1,5.0\n"


@pytest.mark.parametrize(
    ("script", "arguments", "said"),
    [
        (HOT, [], "query `hot` reads stream `s`; pass --input s=PATH"),
        (HOT, ["--input", "sss=@s.csv"], "there is no stream or relation `sss`"),
        (HOT, ["--input", "name=@s.csv"], "there is no stream or relation `name`; did you mean `names`?"),
        (HOT, ["--input", "s"], "--input s is not NAME=PATH, such as --input sensors=sensors.csv"),
        (HOT, ["--input", "s=@a", "--input", "s=@b"], "--input names `s` twice"),
        (HOT, ["--input", "s=@none.csv"], "there is no file or folder"),
        (HOT, ["--input", "s=@names.csv"], "no column `v`; the file has `k`, `name`"),
        (HOT, ["--input", "s=@s.csv", "--output", "@hot.xyz"], "names no format; give --format"),
        ("", [], "has no query to run"),
        ("SELECT x FROM s", ["--input", "s=@s.csv"], "no column `x`"),
        ("SELEKT", [], "q.cql, line 5, column 1: "),
        (HOT, ["--engine", "steam"], "invalid value for '--engine'"),
        (HOT, ["--wrong"], "no such option: --wrong"),
        ("CREATE STREAM d AS SELECT ISTREAM k FROM s; " + HOT, ["--input", "d=@s.csv"], "is derived from a query"),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(place: Place, script: str, arguments: list[str], said: str) -> None:
    assert place.run(DECLARED + script, *arguments) == 2
    assert place.err.startswith("penstock: error: ")
    assert said in place.err
    assert place.err.count("\n") == 1
    assert place.out == ""


def test_a_script_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["run", str(tmp_path / "none.cql")]) == 2
    assert capsys.readouterr().err == f"penstock: error: cannot read {tmp_path}/none.cql: No such file or directory\n"


def test_a_query_that_fails_is_code_1(place: Place) -> None:
    script = DECLARED + "CREATE QUERY q AS SELECT ISTREAM k DIV 0 AS z FROM s WITH (strict = true);\n"
    assert place.run(script, "--input", "s=@s.csv") == 1
    assert place.err.startswith("penstock: error: ")


def test_interrupt_is_code_130(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("penstock.cli.run.play", interrupted)
    assert place.run(DECLARED + HOT, "--input", "s=@s.csv", "--output", "@hot.csv") == 130
    assert not list(place.folder.glob("*hot.csv*"))


def test_a_file_that_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("q.cql").write_text(
        "CREATE STREAM s (t BIGINT) TIMESTAMP BY t; CREATE QUERY q AS SELECT count(*) AS n FROM s [TUMBLING 10];"
    )
    command = ["run", "q.cql", "--input", "s=s.csv", "--database", "db", "--output", "out", "--engine", "spark"]

    def run(times: list[int], *options: str) -> list[str]:
        Path("s.csv").write_text("t\n" + "".join(f"{t}\n" for t in times))
        with directly():
            assert main([*command, *options]) == 0
        return Path("out/q.csv").read_text().splitlines()[1:]

    assert run([1, 2], "--keep-open") == []
    assert run([1, 2, 3, 12], "--keep-open") == ["10,+,3"]
    assert "closed" not in capsys.readouterr().err
    assert run([1, 2, 3, 12, 25]) == ["10,+,3", "20,+,1", "30,+,1"]
    assert len(run([1, 2, 3, 12, 25, 45])) == 3
    assert "penstock: `s` was closed by an earlier run, at the end of its file; what has come since is not read" in (
        capsys.readouterr().err
    )


@pytest.fixture
def growing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Runs a query with --keep-open over the folder ``s``; the numbers it has answered so far."""
    monkeypatch.chdir(tmp_path)
    Path("s").mkdir()
    Path("r.csv").write_text("t\n5\n")
    Path("q.cql").write_text(
        "CREATE STREAM s (t BIGINT) TIMESTAMP BY t; CREATE RELATION r (t BIGINT); CREATE QUERY q AS SELECT t FROM s;"
    )
    fixed = ["--input", "r=r.csv", "--database", "db", "--output", "out", "--engine", "spark"]

    def run(*options: str, code: int = 0, path: str = "s") -> list[str]:
        with directly():
            assert main(["run", "q.cql", "--input", f"s={path}", *fixed, *(options or ("--keep-open",))]) == code
        return [line.split(",")[2] for line in Path("out/q.csv").read_text().splitlines()[1:]]

    return run


@pytest.mark.parametrize("packed", [False, True])
def test_a_line_without_an_end_is_left_for_later(
    growing: Callable[..., list[str]], capsys: pytest.CaptureFixture[str], packed: bool
) -> None:
    path = Path("s/a.csv.gz" if packed else "s/a.csv")
    parts: list[bytes] = []

    def add(text: bytes) -> None:
        parts.append(gzip.compress(text) if packed else text)
        path.write_bytes(b"".join(parts))

    add(b"t\n1\n2")
    assert growing() == ["1"]
    assert f"penstock: {path}: the last line has no end yet, so it is left for the next run" in capsys.readouterr().err
    add(b"1\n30\n")
    assert growing() == ["1", "21", "30"]
    assert "no end" not in capsys.readouterr().err
    add(b"4")
    Path("s/b.csv").write_text("t\n50")
    add(b"0")
    assert growing() == ["1", "21", "30", "40"]  # that a is over shows by b
    assert growing("--quiet") == ["1", "21", "30", "40", "50"]


@pytest.mark.parametrize(("change", "message"), [
    (lambda: Path("s/b.csv").write_text("t\n7\n"), "of s/b.csv, which is not as it was; so it is not known where"),
    (lambda: Path("s/b.csv").write_text("t\n9\n9\n9\n"), "of s/b.csv, which is not as it was"),
    (lambda: Path("s/b.csv").write_text("t\n"), "of s/b.csv, which is not as it was"),
    (lambda: Path("s/b.csv").unlink(), "of b.csv in s, which is not there any more"),
    (lambda: Path("s/a.csv").unlink(), "of a.csv in s, which is not there any more"),
    (lambda: Path("s/aa.csv").write_text("t\n7\n"), "of b.csv, and s/aa.csv has come since, with a name before it"),
    (lambda: Path("s/a.csv").write_text("t\n1\n2\n"), "of s/a.csv, which is not as it was (b.csv after it has been"),
    (lambda: Path("r.csv").write_text("t\n5\n6\n"), "relation `r`: an earlier run has read r.csv, which has changed"),
])  # fmt: skip
def test_files_that_are_not_as_they_were(
    growing: Callable[..., list[str]], capsys: pytest.CaptureFixture[str], change: Callable[[], object], message: str
) -> None:
    Path("s/a.csv").write_text("t\n1\n")
    Path("s/b.csv").write_text("t\n3\n4\n")
    assert growing() == ["1", "3", "4"]
    change()
    assert growing(code=2) == ["1", "3", "4"]
    assert message in capsys.readouterr().err


def test_files_that_go_on(growing: Callable[..., list[str]]) -> None:
    Path("s/a.csv").write_text("t\n" + "".join(f"{i}\n" for i in range(3_000)))
    assert len(growing(path="s/a.csv")) == 3_000
    assert len(growing()) == 3_000
    with Path("s/a.csv").open("a") as file:
        file.write("5000\n")
    Path("s/b.csv").write_text("t\n6000\n")
    assert growing()[2_999:] == ["2999", "5000", "6000"]


# -- rows that do not fit -------------------------------------------------------------------------------

BAD = "k,v,at\n1,1.5,10\n2,warm,20\n3,2.5,\n1,9,31\n"


def test_rows_apart_are_told_of_and_written(place: Place) -> None:
    declared = DECLARED.replace("SLACK 1;", "SLACK 1 WITH (on_error = 'apart');")
    place.put("s.csv", BAD)
    assert place.run(declared + HOT, "--input", "s=@s.csv", "--format", "csv") == 0
    assert place.out == "ts,op,k,v\n10,+,1,1.5\n31,+,1,9.0\n"
    said = f"{place.folder}/s.csv, line 3, column `v`: 'warm' is not a DOUBLE; --apart FOLDER writes them"
    assert place.err.splitlines()[:3] == ["rows in   s 4", "answers   hot 2", f"apart     s 2 ({said})"]
    assert place.run(declared + HOT, "--input", "s=@s.csv", "--format", "csv", "--apart", "@apart") == 0
    assert place.err.splitlines()[2] == "apart     s 2"
    with (place.folder / "apart" / "s.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["column"] for row in rows] == ["v", "at"]
    assert json.loads(rows[0]["row"]) == {"k": "2", "v": "warm", "at": "20"}


def test_an_input_that_stops(place: Place) -> None:
    place.put("s.csv", BAD)
    declared = DECLARED.replace("SLACK 1;", "SLACK 1 WITH (on_error = 'stop');")
    assert place.run(declared + HOT, "--input", "s=@s.csv", "--format", "csv", "--output", "@out.csv") == 2
    assert place.err.splitlines()[0] == "rows in   s 1"
    said = f"{place.folder}/s.csv, line 3, column `v`: 'warm' is not a DOUBLE; the rows before it are kept"
    assert place.err.splitlines()[-1] == f"penstock: error: {said}"


def test_a_run_goes_on_where_its_input_has_stopped(place: Place) -> None:
    declared = DECLARED.replace("SLACK 1;", "WITH (on_error = 'stop');")
    arguments = ["--engine", "spark", "--input", "s=@s.csv", "--database", "@db", "--output", "@answers", "--keep-open"]
    with directly():
        place.put("s.csv", "k,v,at\n1,1.5,10\n1,2.5,20\n2,warm\n")
        assert place.run(declared + HOT, *arguments) == 2
        assert place.err.splitlines()[0] == "rows in   s 2"
        place.put("s.csv", "k,v,at\n1,1.5,10\n1,2.5,20\n2,3.5,30\n3,4.5,40\n")
        assert place.run(declared + HOT, *arguments) == 0
    with next((place.folder / "answers").glob("*.csv")).open() as file:
        assert [row["v"] for row in csv.DictReader(file)] == ["1.5", "2.5", "3.5", "4.5"]


def test_an_unclosed_quote_ends_a_run_with_its_error(place: Place) -> None:
    """Nothing of what reads the files is still at work when the interpreter ends, which would abort the process."""
    place.put("s.csv", "k,v,at\n" + "1,0.5,10\n" * 50_000 + '1,"2.5,20\n' + "1,0.5,30\n" * 50_000)
    place.put("idle.csv", "k,at\n" + "".join(f"1,{i}\n" for i in range(100_000)))
    inputs = [f"--input={name}={place.folder}/{name}.csv" for name in ("idle", "s")]
    for on_error in ("refuse", "stop"):
        declared = DECLARED.replace("SLACK 1;", f"SLACK 1 WITH (on_error = '{on_error}');")
        script = place.put("q.cql", declared + HOT)
        command = [sys.executable, "-m", "penstock.cli.main", "run", str(script), "--engine", "local", "--quiet"]
        done = subprocess.run([*command, *inputs], capture_output=True, text=True, check=False)
        said = f"penstock: error: {place.folder}/s.csv, line 50002: a quote is opened and never closed"
        assert done.stderr.startswith(said), done.stderr
        assert done.returncode == 2
