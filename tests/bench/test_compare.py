"""``penstock bench compare``: the jobs against a plain computation, the report from a stub, other systems."""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from benchmarks.compare import local, peers, plain_spark, runner, table, worker
from benchmarks.compare import spark as sides
from benchmarks.compare.jobs import JOBS, WINDOW, Job, Tally, times
from benchmarks.compare.runner import Comparison, Measured
from benchmarks.compare.worker import LOCAL, ON_SPARK, SPARK
from benchmarks.support import drawing
from benchmarks.support.on_spark import Run

from penstock.cli.main import main
from penstock.model.errors import InputError


class Stub:
    """What runs a job on Spark, without Spark; plain Spark loses an answer."""

    def __init__(self, expected: dict[str, Tally]) -> None:
        self.expected = expected
        self.stopped = False

    def ours(self, spark: object, job: Job, folder: Path) -> Run:
        if job.name == "join":
            raise ValueError("no join here\nat all")
        return Run([1.0, 2.0], 4.0, *self.expected[job.name])

    def plain(self, spark: object, job: Job, folder: Path, count: int | None = None) -> Run:
        seconds = 8.0 if job.name == "queries" else 6.0
        return Run([seconds], 9.0, self.expected[job.name].answers - 1, self.expected[job.name].checksum)

    def latency(self, spark: object, folder: Path, skip: int) -> tuple[list[float], Tally]:
        return [5.0, 7.0], self.expected["latency"]

    def stop(self) -> None:
        self.stopped = True


def test_the_worker_compares_both_sides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    comparison = Comparison(0.001, ["sliding", "queries", "latency", "join"])
    runner.prepare(comparison, tmp_path)
    stub = Stub(comparison.expected)
    for method in ("ours", "plain", "latency"):
        monkeypatch.setattr(sides, method, getattr(stub, method))
    waited = [1.0, 2.0, 3.0], comparison.expected["latency"]
    monkeypatch.setattr(local, "latency", lambda *about: waited)
    monkeypatch.setattr("benchmarks.support.on_spark.session", lambda: stub)
    worker.main(["spark", str(tmp_path), *comparison.jobs])
    assert stub.stopped
    for line in capsys.readouterr().out.splitlines():
        event = json.loads(line)
        if event["event"] == "measured":
            comparison.take("", event)
    sliding, queries = ([comparison.of(job, s) for s in (ON_SPARK, SPARK)] for job in ("sliding", "queries"))
    assert [(m.seconds, m.same) for m in sliding if m] == [(3.0, True), (6.0, False)]
    assert [(m.seconds, m.same) for m in queries if m] == [(4.0, True), (8.0, False)]
    ours, plain = (comparison.of("latency", s) for s in (ON_SPARK, SPARK))
    assert ours is not None
    assert plain is not None
    assert (ours.p50, plain.p50, plain.note) == (2.0, 6.0, plain_spark.PANDAS)
    failed = comparison.of("join", SPARK)
    assert failed is not None
    assert failed.why == "ValueError: no join here"


# -- the worker -------------------------------------------------------------------------------------------


def test_the_worker_tells_what_it_measures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    comparison = Comparison(0.001, ["filters", "latency"])
    runner.prepare(comparison, tmp_path)
    for stream in ("data", "warm"):  # fewer seconds of it
        (path,) = local.files(tmp_path / "latency" / stream, "s")
        pq.write_table(pq.read_table(path).slice(0, 100), path)
    worker.main(["local", str(tmp_path), *comparison.jobs])
    for line in capsys.readouterr().out.splitlines():
        comparison.take("", json.loads(line))
    filters, latency = comparison.measured
    assert (filters.system, filters.same, filters.rows) == (LOCAL, True, 1_000)
    assert filters.seconds
    assert (latency.answers, latency.same) == (100, False)  # it expected more
    assert latency.p50
    assert latency.p99


def test_other_systems_read_the_same_rows(tmp_path: Path) -> None:
    comparison = Comparison(0.001, ["join"])
    runner.prepare(comparison, tmp_path)
    about = json.loads((tmp_path / "join" / "job.json").read_text())
    assert (about["job"], about["window"], about["rows_of_stream"]) == ("join", WINDOW, 1_000)
    first, *lines = (tmp_path / "join" / "s.csv").read_text().splitlines()
    assert first == '"ts","k","v"'
    assert (tmp_path / "join" / "s.plain.csv").read_text().splitlines() == lines
    assert [int(line.split(",")[0]) * 1_000 for line in lines] == times(JOBS["join"].tables(1_000)["s"]).tolist()


# -- processes and other systems --------------------------------------------------------------------------


class Silent:
    """Watches, and remembers what ended how."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    def begin(self, name: str) -> None: ...

    def doing(self, text: str) -> None: ...

    def tick(self, seconds: float) -> None: ...

    def end(self, text: str) -> None:
        self.ended.append(text)


SYSTEM = """
import json, sys, time
name = json.load(open(sys.argv[1] + "/job.json"))["job"]
if name == "filters":
    print(json.dumps({"event": "measured", "job": name, "seconds": 2.0, "answers": 3, "checksum": 4.0}))
elif name == "join":
    print(json.dumps({"event": "measured", "job": name, "why": "it has no joins"}))
else:
    raise SystemExit("out of memory")
"""


def test_a_system_that_fails_does_not_end_the_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = Comparison(0.001, ["filters", "join", "hopping"])
    runner.prepare(comparison, tmp_path)
    comparison.expected["filters"] = Tally(3, 4.0)
    (tmp_path / "job.py").write_text(SYSTEM)
    monkeypatch.setattr(peers.Peer, "python", Path(sys.executable))
    monkeypatch.setattr(peers.Peer, "script", tmp_path / "job.py")
    monkeypatch.setattr(runner, "_ours", lambda *about: None)
    watch = Silent()
    runner.perform(comparison, tmp_path, [peers.Peer("Other", "other")], watch)
    assert [(m.job, m.same, m.why) for m in comparison.measured] == [
        ("filters", True, ""), ("join", False, "it has no joins"), ("hopping", False, "out of memory"),
    ]  # fmt: skip
    assert len(watch.ended) == 1


class Impatient(Silent):
    """Presses Ctrl-C while a job runs."""

    def __init__(self, job: str) -> None:
        super().__init__()
        self.job, self.at = job, ""

    def doing(self, text: str) -> None:
        self.at = text

    def tick(self, seconds: float) -> None:
        if self.at == self.job:
            signal.raise_signal(signal.SIGINT)


def test_an_interrupt_keeps_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = Comparison(0.001, ["filters", "join"])
    runner.prepare(comparison, tmp_path)
    comparison.expected["filters"] = Tally(3, 4.0)
    (tmp_path / "job.py").write_text(SYSTEM.replace('"why": "it has no joins"}))', '"seconds": time.sleep(600)}))'))
    monkeypatch.setattr(peers.Peer, "python", Path(sys.executable))
    monkeypatch.setattr(peers.Peer, "script", tmp_path / "job.py")
    monkeypatch.setattr(runner, "_ours", lambda *about: None)
    watch = Impatient("join")
    # A run of the tests in the background does not hear Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        runner.perform(comparison, tmp_path, [peers.Peer("Other", "other"), peers.Peer("Next", "next")], watch)
    finally:
        signal.signal(signal.SIGINT, before)
    assert comparison.interrupted
    assert watch.ended == ["interrupted"]
    assert [(m.system, m.job, m.same, m.seconds) for m in comparison.measured] == [("Other", "filters", True, 2.0)]


def test_systems_are_where_make_peers_puts_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(peers.FOLDER, str(tmp_path))
    assert peers.installed() == []
    python = tmp_path / "bytewax" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    assert [peer.system for peer in peers.installed()] == ["bytewax"]
    monkeypatch.delenv(peers.FOLDER)
    assert peers.folder().name == ".peers"
    for peer in peers.PEERS:
        assert peer.script.is_file()


# -- the report -------------------------------------------------------------------------------------------


@pytest.fixture
def stub() -> Comparison:
    made = Comparison(1.0, ["filters", "latency"], {"filters": Tally(5, 6.0), "latency": Tally(1, 1.0)})
    made.rows = {"filters": 1_000, "latency": 10}
    made.measured = [
        Measured("filters", LOCAL, 1_000, 0.5, answers=5, checksum=6.0, same=True),
        Measured("filters", SPARK, 1_000, 2.0, answers=4, checksum=6.0, note="lost one"),
        Measured("filters", "Other", 1_000, why="no filters"),
        Measured("latency", LOCAL, 10, p50=1.0, p99=2.0, answers=1, checksum=1.0, same=True),
    ]
    return made


def test_a_table_has_ratios_and_whether_answers_are_right(stub: Comparison) -> None:
    ours, spark, other = table.rows(stub, "filters")
    assert ours == (LOCAL, "0.50", "2,000", "4.00", "5", "equal", "")
    assert spark[:6] == (SPARK, "2.00", "500", "1.00", "4", "DIFFERENT")
    assert spark[6] == "5 answers, checksum 6.000 were right; lost one"
    assert other == ("Other", "–", "–", "–", "–", "", "no filters")
    assert table.rows(stub, "latency") == [(LOCAL, "1.00", "2.00", "–", "1", "equal", "")]
    assert len(table.head("filters")) == len(table.head("latency")) == 7


def test_for_programs(stub: Comparison, tmp_path: Path) -> None:
    found = {r["name"]: r for r in json.loads(table.line(stub))["results"]}
    assert found[f"filters: {LOCAL}: against {SPARK}"] == {
        "name": f"filters: {LOCAL}: against {SPARK}", "value": 4.0, "bar": None, "ok": True,
    }  # fmt: skip
    assert found[f"filters: {SPARK}: seconds"]["ok"] is False
    table.write(stub, {"processors": 2}, [Path("a/b.png")], tmp_path / "report.json")
    written = json.loads((tmp_path / "report.json").read_text())
    assert written["figures"] == ["b.png"]
    assert [len(job["systems"]) for job in written["jobs"]] == [3, 1]
    assert written["jobs"][0]["systems"][0][f"against {SPARK}"] == 4.0


def test_a_picture(stub: Comparison, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = table.draw(stub, tmp_path / "a.png")
    assert path is not None
    assert path.read_bytes().startswith(b"\x89PNG")
    assert table.draw(Comparison(1.0, ["filters"]), tmp_path / "b.png") is None
    many = {str(i): {"a": 10.0**i, "b": 2.0} for i in range(4)}
    path = drawing.panels(many, dict.fromkeys(many, "rows"), "t", tmp_path / "c.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert [drawing.short(v) for v in (0.1234, 12.0, 1_234.0, 2_500_000.0)] == ["0.123", "12", "1.23 k", "2.5 M"]


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stub: Comparison
) -> None:
    """With systems that measure nothing themselves."""
    monkeypatch.setenv(peers.FOLDER, str(tmp_path / "none"))

    def perform(comparison: Comparison, folder: Path, there: object, watch: object) -> None:
        assert Counter(p.name for p in (folder / "filters").iterdir())["job.json"] == 1
        comparison.measured = [m for m in stub.measured if m.job == "filters" and m.system in systems]

    monkeypatch.setattr(runner, "perform", perform)
    command = ["bench", "compare", "--only", "filters", "--scale", "0.001", "--no-figures"]
    command += ["--output", str(tmp_path / "o")]
    systems = [LOCAL]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "filters: five filters and a projection (1,000 rows)" in out
    assert "1 of 1 measurements have the right answers" in out
    assert "not installed: PyFlink, Pathway, bytewax, streamz; in a clone of the project `make peers`" in out
    assert json.loads(out.splitlines()[-1])["benchmark"] == "compare"
    systems = [LOCAL, SPARK]
    assert main(command) == 1
    assert "DIFFERENT" in capsys.readouterr().out


def test_an_unknown_job_lists_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "compare", "--only", "filter"]) == 2
    error = capsys.readouterr().err
    assert "did you mean `filters`?" in error
    assert "hopping" in error
    with pytest.raises(InputError, match="unknown job"):
        runner.chosen(["x"])
    assert runner.chosen(["join", "filters"]) == ["filters", "join"]
