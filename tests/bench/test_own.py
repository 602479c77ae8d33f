"""``penstock bench``: which benchmarks there are, running them in processes of their own, the report."""

from __future__ import annotations

import ast
import json
import os
import runpy
import signal
import subprocess
import sys
import threading
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.support import own, processes, report
from benchmarks.support.places import ROOT, python_path
from benchmarks.support.report import Report, Result, amount, options

import penstock
from penstock.cli.bench import clone
from penstock.cli.main import main
from penstock.model.errors import InputError, StateError
from tests.spark.processes import interruptible

GOOD = '''"""Something good.

    python -m benchmarks.good
"""
from benchmarks.support.report import Report, amount, options, progress

arguments = options(__doc__).parse_args()
progress("counting")
report = Report("good")
report.add("good: rows", amount(arguments, 1_000))
report.add("good: speed", 4.0, 2.0, note="here")
report.add("good: time", 3.0, 2.0, below=True)
report.finish()
'''
BAD = '''"""Something that fails half-way."""
from benchmarks.support.report import Report

Report("bad").add("first", 1.0)
raise SystemExit("answers differ: 1, 2")
'''
SLOW = '''"""Something that waits."""
import os, signal, time
from benchmarks.support.report import Report

Report("slow").add("before", 1.0)
os.kill(os.getppid(), signal.SIGINT)
time.sleep(60)
'''


@pytest.fixture
def few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Three small benchmarks instead of the real ones."""
    folder = tmp_path / "project"
    (folder / "benchmarks").mkdir(parents=True)
    for name, text in {"good": GOOD, "bad": BAD, "slow": SLOW, "__init__": ""}.items():
        (folder / "benchmarks" / f"{name}.py").write_text(text)
    (folder / "benchmarks" / "support").symlink_to(ROOT / "benchmarks" / "support")
    monkeypatch.setattr(own, "home", lambda: folder)
    own.benchmarks.cache_clear()
    yield folder
    own.benchmarks.cache_clear()


# -- the real ones ----------------------------------------------------------------------------------------


def test_every_benchmark_says_what_it_measures_and_has_the_common_options() -> None:
    found = own.benchmarks()
    assert {"operators", "state", "spark_join"} <= set(found)
    assert list(found)[-1].startswith("spark")
    for name, title in found.items():
        text = (own.home() / "benchmarks" / f"{name}.py").read_text()
        assert title
        assert "options(__doc__)" in text
        assert "[--quick] [--scale X]" in text


def test_they_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(own.benchmarks())


_ALL = """
import runpy, sys
way, folder, *names = sys.argv[1:]
sys.path.insert(0, folder)
for name in names:
    sys.argv = [name, "--help"]
    try:
        runpy.run_path(f"{folder}/{name}.py", run_name="__main__") if way == "path" else \\
            runpy.run_module(f"benchmarks.{name}", run_name="__main__")
    except SystemExit as end:
        print("ended", name, end.code)
"""


@pytest.mark.parametrize("way", ["path", "module"])
def test_every_benchmark_can_be_started_by_its_path_and_as_a_module(way: str, tmp_path: Path) -> None:
    """As ``python benchmarks/x.py`` and ``python -m benchmarks.x`` do, all in one process that imports once."""
    folder = own.home() / "benchmarks" if way == "path" else own.home()
    source = os.pathsep.join(map(str, (Path(penstock.__file__).parents[1], ROOT)))
    done = subprocess.run(
        [sys.executable, "-P", "-c", _ALL, way, str(folder), *own.benchmarks()],
        capture_output=True, text=True, check=False, cwd=tmp_path, env={**os.environ, "PYTHONPATH": source},
    )  # fmt: skip
    ended = [line for line in done.stdout.splitlines() if line.startswith("ended")]
    assert ended == [f"ended {name} 0" for name in own.benchmarks()], done.stderr


def test_a_benchmark_that_starts_itself_does_so_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (Path(penstock.__file__).parents[1], ROOT))))
    monkeypatch.chdir(tmp_path)
    buffers = runpy.run_path(str(own.home() / "benchmarks" / "buffers.py"))
    assert buffers["measured"](1_000, None, str(tmp_path))["answers"] >= 0


def test_a_cheap_one_really_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # not where the benchmarks are
    assert main(["bench", "--quick", "--only", "handoff", "--no-figures", "--output", "out"]) == 0
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert line["benchmark"] == "own"
    assert line["results"][0] == {"name": "handoff: finished", "value": 1, "bar": 1, "ok": True}
    assert len(line["results"]) > 5
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["report.json"]


def test_where_they_are_missing_the_error_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in a package that was installed from a wheel."""
    place = tmp_path / "lib" / "site-packages" / "penstock" / "model" / "__init__.py"
    monkeypatch.setattr("penstock.model.__file__", str(place))
    with pytest.raises(StateError, match="come with a clone of the project"):
        clone()
    assert main(["bench", "--list"]) == 1
    assert "run `make setup` there" in capsys.readouterr().err


def test_nothing_of_the_package_imports_them() -> None:
    for path in (ROOT / "src" / "penstock").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in names} & {"benchmarks", "experiments", "tests"}, path


def test_the_command_is_started_from_anywhere(tmp_path: Path) -> None:
    """With the arguments as they are, also those for help."""
    source = str(Path(penstock.__file__).parents[1])
    asked = (["--help"], 0, "compare"), (["papers", "-h"], 0, "--scale"), (["--onyl"], 2, "no such")
    for arguments, code, said in asked:
        done = subprocess.run(
            [sys.executable, "-m", "penstock.cli.main", "bench", *arguments],
            capture_output=True, text=True, check=False, cwd=tmp_path, env={**os.environ, "PYTHONPATH": source},
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        assert said in done.stdout + done.stderr


# -- small ones -------------------------------------------------------------------------------------------


def test_one_fails_and_the_others_go_on(few: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    folder = tmp_path / "new" / "folder"
    assert main(["bench", "--only", "bad", "--only", "good", "--output", str(folder)]) == 1
    captured = capsys.readouterr()
    *text, last = captured.out.splitlines()
    assert "good: Something good" in text
    assert any(line.split() == ["speed", "4.000", "≥", "2", "ok"] for line in text)
    assert any(line.split() == ["time", "3.000", "≤", "2", "MISSED"] for line in text)
    assert "1 of 2 bars are met; all numbers are in" in captured.out
    assert "bad did not come to its end: answers differ: 1, 2" in text
    assert "1 of 2  bad: begins" in captured.err
    assert "2 of 2  good: 3 results in 0:0" in captured.err
    found = {r["name"]: r for r in json.loads(last)["results"]}
    assert found["bad: finished"]["ok"] is False
    assert found["bad: first"]["value"] == 1.0
    assert found["good: rows"]["value"] == 1_000
    assert set(found["good: time"]) == {"name", "value", "bar", "ok"}
    assert (folder / "bench.png").read_bytes().startswith(b"\x89PNG")
    written = json.loads((folder / "report.json").read_text())
    assert written["figures"] == ["bench.png"]
    assert written["machine"]["processors"] >= 1
    assert [b["error"] for b in written["benchmarks"]] == ["answers differ: 1, 2", None]
    assert written["benchmarks"][1]["results"][1]["note"] == "here"


def test_sizes_are_passed_on(few: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bench", "--only", "good", "--no-figures", "--output", str(tmp_path / "o")]
    for size, rows in (["--quick"], 100), (["--scale", "0.5"], 500):
        assert main([*command, *size]) == 0
        out = capsys.readouterr().out
        found = {r["name"]: r["value"] for r in json.loads(out.splitlines()[-1])["results"]}
        assert found["good: rows"] == rows
        assert "not at this size" in out
        assert "they are meant for the usual size" in out
    assert main([*command, "--quick", "--scale", "0.5"]) == 2
    assert "give one of them" in capsys.readouterr().err


def test_ctrl_c_keeps_what_was_measured(few: Path, tmp_path: Path) -> None:
    """In a process of its own, as it is sent a signal."""
    text = (
        "import sys; from pathlib import Path; from benchmarks.support import own; from penstock.cli.main import main\n"
        f"own.home = lambda: Path({str(few)!r})\n"
        f"sys.exit(main(['bench', '--no-figures', '--output', {str(tmp_path / 'o')!r}]))"
    )
    paths = {**os.environ, "PYTHONPATH": python_path()}
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False, env=paths,
        preexec_fn=interruptible,
    )  # fmt: skip
    assert done.returncode == 130, done.stderr
    *before, slow = json.loads((tmp_path / "o" / "report.json").read_text())["benchmarks"]
    assert [b["name"] for b in before] == ["bad", "good"]
    assert slow["error"] == "interrupted"
    assert [r["name"] for r in slow["results"]] == ["before"]
    found = {r["name"]: r["ok"] for r in json.loads(done.stdout.splitlines()[-1])["results"]}
    assert (found["good: finished"], found["slow: finished"]) == (True, False)


def test_a_missing_package_is_named(few: Path) -> None:
    (few / "benchmarks" / "bad.py").write_text('"""Needs much."""\nimport no_such_package\n')
    outcome = own.Outcome("bad", "")
    own.perform("bad", [], outcome, lambda text: None)
    assert outcome.error == "ModuleNotFoundError: No module named 'no_such_package'; pip install 'penstock[bench]'"


def test_an_unknown_benchmark_lists_those_that_there_are(few: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--only", "goood"]) == 2
    error = capsys.readouterr().err
    assert "did you mean `good`?" in error
    assert "slow" in error
    with pytest.raises(InputError, match="unknown benchmark"):
        own.chosen(["x"])
    assert own.chosen([]) == ["bad", "good", "slow"]
    assert own.chosen(["slow", "bad"]) == ["bad", "slow"]


# -- results ----------------------------------------------------------------------------------------------


def test_a_margin_is_how_many_times_better_than_the_bar() -> None:
    assert Result("a", 6.0, 2.0).margin == 3.0
    assert Result("a", 1.0, 2.0, below=True).margin == 2.0
    assert Result("a", 0.0, 2.0, below=True).margin == float("inf")
    assert Result("a", 6.0).margin is None
    assert [Result("a", 6.0, 2.0, below=below).said for below in (False, True)] == ["≥ 2", "≤ 2"]
    assert Result("a", 6.0).said == ""


def test_a_figure_needs_a_bar(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.support.drawing import bars

    assert bars([("a", Result("a", 1.0))], "t", tmp_path / "a.png") is None
    shown = [Result("a", 0.0, 1.0, False), Result("b", 0.0, 1.0, below=True), Result("c", 5.0, 1.0)]
    path = bars([(result.name, result) for result in shown], "t", tmp_path / "b.png")
    assert path is not None
    assert path.read_bytes().startswith(b"\x89PNG")


def test_alone_it_speaks_to_people(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(report.EVENTS, raising=False)
    told = Report("x")
    told.add("speed", 1.0, 2.0, note="slow")
    told.add("rows", 5.0)
    report.progress("nobody watches")
    told.finish()
    first, second, last = capsys.readouterr().out.splitlines()
    assert first.split() == ["speed", "1.000", "(bar", "≥", "2:", "MISSED)", "slow"]
    assert second.split() == ["rows", "5.000"]
    speed = {"name": "speed", "value": 1.0, "bar": 2.0, "ok": False}
    rows = {"name": "rows", "value": 5.0, "bar": None, "ok": True}
    assert json.loads(last) == {"benchmark": "x", "results": [speed, rows]}


def test_amounts() -> None:
    assert amount(options(None).parse_args([]), 500) == 500
    assert amount(options(None).parse_args(["--scale", "0.1"]), 500) == 50
    assert amount(Namespace(quick=True, scale=1.0), 500) == 50
    assert amount(Namespace(quick=True, scale=1.0), 500, 7) == 7
    assert amount(Namespace(quick=True, scale=1.0), 5, least=3) == 3


def test_the_best_of_some_rounds() -> None:
    turns: list[str] = []
    times = report.best(lambda: turns.append("a"), lambda: turns.append("b"), rounds=2)
    assert turns == ["a", "b", "a", "b"]
    assert all(seconds >= 0 for seconds in times)


# -- processes --------------------------------------------------------------------------------------------


def python(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def test_events_are_told_apart_from_other_lines() -> None:
    heard: list[processes.Event] = []
    text = """import sys
print("hello")
print('{"event": "doing"}')
print("{no")
print("Error: x", file=sys.stderr)
sys.exit(3)
"""
    ended = processes.run(python(text), heard.append)
    assert heard == [{"event": "doing"}]
    assert ended.code == 3
    assert sorted(ended.said) == ["Error: x", "hello", "{no"]
    assert ended.error in ended.said


def test_who_takes_too_long_is_stopped_with_all_it_started() -> None:
    begun: list[int] = []
    text = (
        "import json, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(json.dumps({'child': child.pid}), flush=True); time.sleep(60)"
    )
    ended = processes.run(python(text), lambda e: begun.append(e["child"]), limit=3.0)
    assert ended.late
    assert ended.error is not None
    assert ended.error.startswith("stopped after")
    (child,) = begun
    gone = threading.Event()
    for _ in range(200):
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            gone.set()
            break
        if "Z" in Path(f"/proc/{child}/stat").read_text().split(")")[1][:3]:
            gone.set()
            break
        gone.wait(0.02)
    assert gone.is_set()


def test_an_end_by_a_signal_is_said() -> None:
    ended = processes.run(python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"), lambda e: None)
    assert ended.error == "ended by signal SIGKILL: it said nothing"
    assert ended.code == -signal.SIGKILL
