"""``penstock check`` and ``penstock backup``: what is damaged is found, and a copy has what was acknowledged."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock
from penstock.cli.main import main
from penstock.database.database import core_of
from penstock.hosts.durable.contents import surveyed
from penstock.storage import backup as copying
from penstock.storage.backup import backup
from penstock.storage.checking import check
from penstock.storage.store import Store

SCRIPT = """
CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t;
CREATE STREAM "a/b" (t BIGINT, v BIGINT) TIMESTAMP BY t;
CREATE RELATION r (k BIGINT, v STRING) KEY (k);
CREATE VIEW w AS SELECT v FROM s;
CREATE QUERY q AS SELECT sum(v) AS total FROM s [ROWS 3]
"""


def twice(x: int) -> int:
    return 2 * x


def saved(db: penstock.Database) -> None:
    core_of(db).host.abilities().save()


def made(path: Path) -> Path:
    """A directory with two versions of the state, and entries behind them."""
    with penstock.connect(path, engine="local") as db:
        db.execute(SCRIPT)
        db.create_function("twice", twice, args=["BIGINT"], returns="BIGINT")
        db.query("SELECT twice(v) AS two FROM s [NOW]", name="doubled")
        for t in range(5):
            db.push("s", [(t, t)])
            if t % 2:
                saved(db)
        db.push("r", [(1, "one"), (2, "two")])
        db.execute("CREATE VIEW late AS SELECT v FROM s")
        db.push("a/b", [(1, 1)])
        copy = path.with_name(f"{path.name} killed")
        shutil.copytree(path, copy)  # as a process that is killed now leaves it
    return copy


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return made(tmp_path / "db")


def all_bytes(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def test_a_sound_directory_is_described_and_not_changed(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = all_bytes(directory)
    assert main(["check", str(directory)]) == 0
    printed = capsys.readouterr().out
    assert "format     1\nepoch      1, not open\n" in printed
    assert "streams    2: s, a/b\nrelations  1: r\nqueries    2: q, doubled\n" in printed
    assert "since the saved state; the last is 15\n" in printed
    assert "with entry 11\n" in printed
    assert printed.endswith("sound\n")
    assert all_bytes(directory) == before


def test_every_file_counts(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A byte of any file that is read is missed, and said where."""
    for file in sorted(all_bytes(directory)):
        if file == "owner":
            continue
        path = directory / file
        content = path.read_bytes()
        path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
        code = main(["check", str(directory)])
        printed = capsys.readouterr()
        assert code == 1, file
        assert f"damaged    {file}: " in printed.out, file
        assert "penstock: error:" in printed.err
        assert "restore the directory from a backup" in printed.err
        path.write_bytes(content)
    assert main(["check", str(directory)]) == 0


@pytest.mark.parametrize("kind", ["streams", "catalog", "state", "functions", "epochs", "penstock.json"])
def test_what_is_missing_is_missed(directory: Path, kind: str) -> None:
    gone = [f for f in sorted(all_bytes(directory)) if f.startswith(kind) and not f.endswith(".version")]
    (directory / gone[-1]).unlink()
    report, _ = surveyed(directory)
    assert report.damage, gone[-1]


def test_without_the_newest_state_the_one_before_and_the_logs_say_the_same(directory: Path, tmp_path: Path) -> None:
    shutil.copytree(directory, tmp_path / "whole")
    max((directory / "state").glob("*.version")).unlink()
    report, _ = surveyed(directory)
    assert report.damage == []
    assert report.saved == 9
    assert everything(directory) == everything(tmp_path / "whole")


def test_several_damages_are_all_told(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = [next(iter(sorted(directory.glob(p)))) for p in ("state/*.version", "functions/*", "relations/r/*")]
    for path in broken:
        path.write_bytes(path.read_bytes()[:-70] + b"x" * 70)
    assert main(["check", str(directory)]) == 1
    printed = capsys.readouterr()
    for path in broken:
        assert f"damaged    {path.relative_to(directory)}: " in printed.out
    assert "3 files are damaged" in printed.err


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(data=st.data())
def test_what_check_finds_sound_opens(directory: Path, data: st.DataObject) -> None:
    files = {f: c for f, c in all_bytes(directory).items() if f != "owner"}
    file = data.draw(st.sampled_from(sorted(files)))
    at = data.draw(st.integers(0, 1 << 20)) % len(files[file])
    path = directory / file
    path.write_bytes(
        files[file][:at] + bytes([files[file][at] ^ (1 << data.draw(st.integers(0, 7)))]) + files[file][at + 1 :]
    )
    report, _ = surveyed(directory)
    copy = directory.with_name("copy")
    try:
        if not report.damage:
            shutil.copytree(directory, copy)
            with penstock.connect(copy, engine="local", functions=True) as db:
                assert db.stream("s").given == 5
    finally:
        path.write_bytes(files[file])
        shutil.rmtree(copy, ignore_errors=True)


def test_an_end_that_was_never_finished_is_no_damage(directory: Path) -> None:
    newest = max((directory / "streams" / "s").glob("*.segment"))
    content = newest.read_bytes()
    frame = content.rindex(b"FRAM")
    for length in (1, 63, 100):
        newest.write_bytes(content + content[frame : frame + length])
        assert check(directory).damage == []
    with newest.open("r+b") as file:
        file.truncate(len(content) - 10)
    report = check(directory)
    # An entry in the middle of others was acknowledged, and is missing: that is damage.
    assert [str(d) for d in report.damage] == [f".: entry {report.last - 3} is missing, and there are later ones"]


def refused(*arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(list(arguments)) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    return printed.err.removeprefix("penstock: error: ").rstrip("\n")


@pytest.mark.parametrize("command", ["check", "backup"])
def test_what_is_no_database(command: str, tmp_path: Path, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def told(path: Path) -> str:
        return refused(command, str(path), *([str(tmp_path / "to")] if command == "backup" else []), capsys=capsys)

    assert told(tmp_path / "none").startswith(f"{tmp_path}/none: there is no such directory")
    (tmp_path / "file").write_text("x")
    assert told(tmp_path / "file").startswith(f"{tmp_path}/file is not a directory")
    (tmp_path / "empty").mkdir()
    assert told(tmp_path / "empty").startswith(f"{tmp_path}/empty: there is no database in it")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "letter.txt").write_text("x")
    foreign = told(tmp_path / "foreign")
    assert "foreign is not empty and not a database: it has `letter.txt`; name the directory of a database" in foreign
    (tmp_path / "old" / "journal").mkdir(parents=True)
    (tmp_path / "old" / "lock").write_text("")
    assert "old: a database of release 0.1, which this release does not open" in told(tmp_path / "old")
    newer = directory / "penstock.json"
    newer.unlink()
    from penstock.storage.files import Disk
    from penstock.storage.records import put_record

    put_record(Disk(directory), "penstock.json", {"penstock": "database", "format": 2}, sync=False)
    assert "written in format 2; this release reads format 1; use the release of Penstock" in told(directory)
    assert not (tmp_path / "to").exists()


# -- while another process goes on ----------------------------------------------------------------------

_BUSY = """
import sys, time
import penstock
from penstock.database.database import core_of
from penstock.hosts.durable import keeper

keeper.SECONDS = 0.05
db = penstock.connect(sys.argv[1], engine="local")
db.execute("CREATE STREAM a (t BIGINT, v STRING) TIMESTAMP BY t; CREATE STREAM b (t BIGINT, v STRING) TIMESTAMP BY t")
db.query("SELECT count(*) AS n FROM a [ROWS 100]", name="q")
print("ready", flush=True)
began = time.monotonic()
t = 0
while time.monotonic() - began < float(sys.argv[2]):
    for name in "ab":
        db.push(name, [(t, "x" * (t % 700))])
    t += 1
    if t % 50 == 0:
        db.execute(f"CREATE STREAM s{t} (t BIGINT) TIMESTAMP BY t; DROP STREAM s{t}")
        db.queries["q"].fetch()
        print(t, flush=True)
print("done", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    environment = {**os.environ, "PYTHONPATH": str(Path(penstock.__file__).parents[1])}
    path = tmp_path / "busy"
    process = subprocess.Popen(
        [sys.executable, "-c", _BUSY, str(path), "15"], env=environment, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield path, process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_directory_that_is_being_written_is_sound_and_said_to_be_open(
    busy: tuple[Path, subprocess.Popen[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    path, process = busy
    numbers = []
    for _ in range(12):
        assert main(["check", str(path)]) == 0, capsys.readouterr().out
        printed = capsys.readouterr().out
        assert f"open in process {process.pid} on " in printed
        numbers.append(int(printed.partition("the last is ")[2].split("\n")[0].replace(",", "")))
    assert numbers == sorted(numbers)
    assert numbers[-1] > numbers[0]


def test_a_backup_has_what_was_acknowledged_before(busy: tuple[Path, subprocess.Popen[str]], tmp_path: Path) -> None:
    path, process = busy
    assert process.stdout is not None
    for i in range(5):
        acknowledged = int(process.stdout.readline())
        copy = tmp_path / f"copy {i}"
        last = backup(path, copy)
        report, contents = surveyed(copy)
        assert report.damage == []
        assert report.last == last
        assert contents.streams[:2] == ["a", "b"]
        with penstock.connect(copy, engine="local") as db:
            given = [db.stream(name).given for name in "ab"]
            assert given[0] - given[1] in (0, 1)  # as they were at one moment
            assert given[1] >= acknowledged
            assert db.queries["q"].status == "running"
            db.push("a", [(1_000_000, "more")])
        assert surveyed(copy)[0].damage == []


# -- copies -----------------------------------------------------------------------------------------------


def everything(path: Path) -> tuple[object, ...]:
    with penstock.connect(path, engine="local", functions=True) as db:
        core = core_of(db)
        return (
            db.stream("s"), db.stream("a/b"), core.relations["r"].rows, list(db.queries),
            [db.queries[name].fetch().to_pylist() for name in db.queries],
        )  # fmt: skip


def test_a_copy_says_the_same(directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = all_bytes(directory)
    assert main(["backup", str(directory), str(tmp_path / "far" / "copy")]) == 0
    assert capsys.readouterr().out.startswith(f"{tmp_path}/far/copy: 2 streams, 2 queries, all up to entry 15, ")
    assert all_bytes(directory) == before
    (tmp_path / "empty").mkdir()
    assert main(["backup", str(tmp_path / "far" / "copy"), str(tmp_path / "empty")]) == 0  # a copy of the copy
    expected = everything(directory)
    assert everything(tmp_path / "far" / "copy") == expected
    assert everything(tmp_path / "empty") == expected


def test_a_copy_of_a_database_without_entries(tmp_path: Path) -> None:
    penstock.connect(tmp_path / "db", engine="local").close()
    assert backup(tmp_path / "db", tmp_path / "copy") == 0
    with penstock.connect(tmp_path / "copy", engine="local") as db:
        assert list(db.queries) == []


def test_targets_that_are_refused(directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "x").write_text("x")
    for target, message in (
        (full, "is not empty: it has `x`; name an empty directory"),
        (full / "x", "is not a directory; name an empty directory"),
        (directory / "copy", "is in the directory that is copied"),
        (Path("/proc/penstock/copy"), "cannot be written"),
    ):
        assert message in refused("backup", str(directory), str(target), capsys=capsys)
    assert not (directory / "copy").exists()
    assert all_bytes(full) == {"x": b"x"}


def test_a_damaged_directory_is_not_copied(directory: Path, tmp_path: Path) -> None:
    newest = max((directory / "state").glob("*.version"))
    newest.write_bytes(b"x" + newest.read_bytes())
    with pytest.raises(penstock.StorageError, match="damaged"):
        backup(directory, tmp_path / "new" / "copy")
    assert not (tmp_path / "new").exists()


def test_a_copy_is_begun_again_when_files_go(directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copyfile, tries = shutil.copyfile, [0]

    def removed(source: str, target: str) -> None:
        tries[0] += 1
        if tries[0] < 4:
            raise FileNotFoundError(source)
        copyfile(source, target)

    monkeypatch.setattr(shutil, "copyfile", removed)
    monkeypatch.setattr(copying, "_PAUSE", 0)
    assert backup(directory, tmp_path / "copy") == 15
    assert surveyed(tmp_path / "copy")[0].damage == []


def test_after_a_restart_of_the_machine_what_did_not_reach_the_disk_does_not_count(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = max((directory / "relations" / "r").glob("*.segment"))
    first.unlink()
    assert [d.file for d in check(directory).damage] == ["."]
    monkeypatch.setattr("penstock.storage.files.BOOT", tmp_path / "boot")
    (tmp_path / "boot").write_text("another")
    report = check(directory)
    assert report.damage == []
    assert "the machine was restarted; entry 13 had not reached the disk" in report.remarks[0]
    assert report.last == 12
    assert backup(directory, tmp_path / "copy") == 12
    with penstock.connect(tmp_path / "copy", engine="local", functions=True) as db:
        assert db.stream("s").given == 5


def test_looking_keeps_nobody_out(tmp_path: Path) -> None:
    began = time.monotonic()
    with penstock.connect(tmp_path, engine="local"):
        pass
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys\nfrom penstock.storage.files import Disk\n"
         "from penstock.storage.owners import holder\nwhile True: holder(Disk(sys.argv[1]))", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(Path(penstock.__file__).parents[1])},
    )  # fmt: skip
    try:
        while time.monotonic() - began < 3:
            Store.open(tmp_path).close()
    finally:
        process.kill()
        process.wait()
