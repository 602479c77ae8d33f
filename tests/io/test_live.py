"""Texts that come bit by bit: pipes and files that grow."""

from __future__ import annotations

import gzip
import os
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.budget import examples

import penstock
from penstock.database.database import core_of
from penstock.database.play import Input, play
from penstock.io import live
from penstock.io.files import Format
from penstock.io.live import Arrivals, LiveText, is_live
from penstock.io.readers import read_rows, row_sieve
from penstock.model.errors import InputError
from penstock.model.schema import Field
from penstock.model.types import BIGINT, STRING
from penstock.rows.apart import OnError, Rows

SCHEMA = (Field("k", BIGINT), Field("name", STRING))


class Pipe:
    """Both ends of a pipe: what is written, and the rows that come out."""

    def __init__(self, on_error: OnError = "stop", format: Format | None = None) -> None:
        self.reading, self._writing = os.pipe()
        self.arrivals = Arrivals()
        self.text = LiveText(Path(f"/dev/fd/{self.reading}"), self.arrivals, format=format)
        self.sieve = row_sieve("pipe", SCHEMA, on_error=on_error)

    def write(self, data: bytes) -> None:
        os.write(self._writing, data)

    def end(self) -> None:
        os.close(self._writing)

    def pieces(self) -> list[Rows]:
        """Waits for news; what they are."""
        assert self.arrivals.wait()
        assert self.arrivals.next() is self.text
        return list(self.text.rows(self.sieve, 1_000))

    def rows(self) -> list[dict[str, object]]:
        return [row for piece in self.pieces() for row in piece.table.to_pylist()]

    def rest(self) -> list[Rows]:
        """All that comes until the end."""
        found = []
        while not self.text.over:
            found += self.pieces()
        return found


@contextmanager
def piped(on_error: OnError = "stop", format: Format | None = None) -> Iterator[Pipe]:
    pipe = Pipe(on_error, format)
    try:
        yield pipe
    finally:
        pipe.text.close()
        os.close(pipe.reading)
        assert not any(t.name.startswith("penstock-read /dev/fd") for t in threading.enumerate())


def test_rows_are_there_as_soon_as_their_lines_are() -> None:
    with piped() as pipe:
        pipe.write(b"name,k\none,1\n")
        assert pipe.rows() == [{"k": 1, "name": "one"}]
        pipe.write(b"two,")
        assert pipe.rows() == []
        pipe.write(b"2\nthr")
        assert pipe.rows() == [{"k": 2, "name": "two"}]
        pipe.write(b"ee,3")
        pipe.end()
        assert [row["name"] for rows in pipe.rest() for row in rows.table.to_pylist()] == ["three"]


def test_a_record_over_several_lines_waits_for_its_end() -> None:
    with piped() as pipe:
        pipe.write(b'name,k\n"a\n')
        assert pipe.rows() == []
        pipe.write(b'b",1\n5" pipe,2\n')
        assert pipe.rows() == [{"k": 1, "name": "a\nb"}, {"k": 2, "name": '5" pipe'}]
        pipe.end()


def test_json_lines() -> None:
    with piped() as pipe:
        pipe.write(b'\n{"k": 1}\n{"k": 2, "na')
        assert pipe.rows() == [{"k": 1, "name": None}]
        pipe.write(b'me": "two"}\n')
        assert pipe.rows() == [{"k": 2, "name": "two"}]
        pipe.end()
        assert pipe.rest() == []


def test_a_column_that_no_object_has_had_is_missing() -> None:
    with piped() as pipe:
        pipe.write(b'{"k": 1, "nam": "x"}\n')
        pipe.end()
        with pytest.raises(InputError, match="column `name`"):
            pipe.rest()


def test_what_is_wrong_has_its_line() -> None:
    with piped("apart") as pipe:
        pipe.write(b'name,k\n"a\nb",1\n')
        pipe.rows()
        pipe.write(b"x,y\n")
        [rows] = pipe.pieces()
        assert [bad.place for bad in rows.apart] == ["pipe, line 4"]
        pipe.write(b"z,4\n\xff,5\nz,6,7\n")
        [rows] = pipe.pieces()
        assert rows.table.to_pylist() == [{"k": 4, "name": "z"}]
        assert [bad.place.rsplit(" ", 1)[1] for bad in rows.apart] == ["6", "7"]
        pipe.end()
    with piped() as pipe:
        pipe.write(b'{"k": 1, "name": "x"}\n')
        pipe.rows()
        pipe.write(b'{"k": 2, "name": "x"}\n{"k": "y", "name": "x"}\n{"k": 3}\n')
        [rows] = pipe.pieces()
        assert rows.table["k"].to_pylist() == [2]
        assert rows.stopped is not None
        assert "line 3" in str(rows.stopped)
        assert pipe.text.over
        pipe.end()


def test_a_quote_that_is_never_closed_holds_up_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_RECORD", 40)
    with piped("apart") as pipe:
        pipe.write(b'name,k\n"never,1\n' + b"".join(b"n%d,%d\n" % (i, i) for i in range(20)))
        found = pipe.pieces()
        assert [bad.reason for rows in found for bad in rows.apart] == ["a quote is opened and never closed"]
        assert [k for rows in found for k in rows.table["k"].to_pylist()] == list(range(20))
        pipe.end()


TEXTS = (
    b'k,name\n1,a\n2,"b ""x"", y"\n\n3,"c\nd\n"\n4,5" pipe\n5,"e"\r\n6,\n7,last',
    b'k;name\n1;"a;\nb"\n2;c\n',
    b'{"k": 1, "name": "a"}\n\n{"name": "b \\" }"}\n{"k": 3, "name": null}',
    b'\xef\xbb\xbfname,k\n\xc3\xa4,1\n',
)


@pytest.mark.parametrize("text", TEXTS)
@settings(max_examples=examples(40))
@given(cuts=st.lists(st.integers(0, 80), max_size=12).map(sorted))
def test_however_it_is_cut_the_rows_are_those_of_a_file(
    text: bytes, cuts: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("whole") / ("s.jsonl" if text.startswith(b"{") else "s.csv")
    path.write_bytes(text)
    wanted = pa.concat_tables([rows.table for rows in read_rows(path, SCHEMA)]).to_pylist()
    with piped() as pipe:
        found = []
        ends = [end for end in cuts if end < len(text)]
        for start, end in zip([0, *ends], [*ends, len(text)], strict=True):
            if start < end:
                pipe.write(text[start:end])
                found += pipe.rows()
        pipe.end()
        found += [row for rows in pipe.rest() for row in rows.table.to_pylist()]
    assert found == wanted


def test_first_rows_are_given_again() -> None:
    with piped() as pipe:
        pipe.write(b"k,name\n1,a\n2,b\n3,")
        piece = pipe.text.first()
        assert piece.text == b"k,name\n1,a\n2,b\n"
        assert not piece.whole
        assert [row["k"] for row in pipe.rows()] == [1, 2]
        pipe.write(b"c\n")
        pipe.end()
        assert [k for rows in pipe.rest() for k in rows.table["k"].to_pylist()] == [3]
    with piped() as pipe:
        pipe.write(b"k,name\n1,a")
        pipe.end()
        piece = pipe.text.first(patience=None)
        assert piece.text.endswith(b"1,a")
        assert piece.whole


def packed(text: bytes) -> bytes:
    return gzip.compress(text, mtime=0)


def parquet() -> bytes:
    sink = pa.BufferOutputStream()
    pa.parquet.write_table(pa.table({"k": [1]}), sink)
    return bytes(sink.getvalue())


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (packed(b"k,name\n"), "is packed; unpack it first, with zcat"),
        (parquet(), "is Parquet, which is not read bit by bit; give the path of a file"),
        (b'[{"k": 1}]\n', "this is a JSON array, one object on each line is needed; jq -c '.[]' makes such lines"),
        (b"", "is empty: a CSV file needs a header line"),
    ],
)  # fmt: skip
def test_what_cannot_be_read(data: bytes, said: str) -> None:
    with piped() as pipe:
        pipe.write(data)
        pipe.end()
        with pytest.raises(InputError) as error:
            pipe.rest()
        assert said in str(error.value)


# -- files that grow --------------------------------------------------------------------------------------


@contextmanager
def followed(path: Path) -> Iterator[tuple[LiveText, Arrivals]]:
    arrivals = Arrivals()
    text = LiveText(path, arrivals, follow=True)
    with closing(text):
        yield text, arrivals


def test_a_file_that_grows(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_bytes(b"k,name\n1,a\n2,")
    sieve = row_sieve("s", SCHEMA)
    with followed(path) as (text, arrivals):
        assert text.grows
        found = []
        for more in (b"b\n3,c\n", b"4,d\n", None):
            while not (some := [k for rows in text.rows(sieve, 10) for k in rows.table["k"].to_pylist()]):
                assert arrivals.wait()
            found.append(some)
            if more is not None:
                with path.open("ab") as file:
                    file.write(more)
        assert found == [[1], [2, 3], [4]]


def test_a_file_that_becomes_shorter_or_another(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    sieve = row_sieve("s", SCHEMA)

    def read() -> None:
        while not text.over:
            arrivals.wait()
            list(text.rows(sieve, 10))

    path.write_bytes(b"k,name\n1,a\n")
    with followed(path) as (text, arrivals):
        text.first()
        path.write_bytes(b"")
        with pytest.raises(InputError, match="has become shorter than what has been read of it"):
            read()
    path.write_bytes(b"k,name\n1,a\n")
    with followed(path) as (text, arrivals):
        text.first()
        (tmp_path / "t.csv").write_bytes(b"k,name\n2,a\n")
        (tmp_path / "t.csv").replace(path)
        with pytest.raises(InputError, match="is another file now"):
            read()


def test_what_is_read_bit_by_bit(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text("k,name\n")
    os.mkfifo(tmp_path / "pipe")
    assert is_live(Path("-"), follow=False)
    assert is_live(tmp_path / "pipe", follow=False)
    assert not is_live(path, follow=False)
    assert is_live(path, follow=True)
    assert not is_live(tmp_path, follow=True)
    assert not is_live(tmp_path / "none", follow=True)
    with pytest.raises(InputError, match="is packed, so it cannot be read bit by bit"):
        LiveText(tmp_path / "s.csv.gz", Arrivals(), follow=True)
    with pytest.raises(InputError, match="CSV and JSON lines are read bit by bit, and nothing else"):
        LiveText(tmp_path / "s.parquet", Arrivals(), follow=True)


def test_a_named_pipe_that_is_followed_has_no_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "s.csv")
    with followed(tmp_path / "s.csv") as (text, arrivals):
        sieve = row_sieve("s", SCHEMA)
        found = []
        for line in (b"k,name\n1,a\n", b"2,b\n"):
            with (tmp_path / "s.csv").open("wb") as pipe:
                pipe.write(line)
            assert arrivals.wait()
            found += [k for rows in text.rows(sieve, 10) for k in rows.table["k"].to_pylist()]
        assert found == [1, 2]
        assert not text.over


# -- into a database --------------------------------------------------------------------------------------


DECLARED = "CREATE STREAM s (k BIGINT, name STRING) TIMESTAMP BY k; CREATE STREAM t (k BIGINT) TIMESTAMP BY k"


@pytest.mark.parametrize("engine", ["reference", "local"])
def test_each_row_is_answered_before_the_next_is_waited_for(engine: str) -> None:
    with penstock.connect(engine=engine) as db, piped() as pipe:
        db.execute(DECLARED)
        query = db.query("SELECT ISTREAM k FROM s")
        lines = iter([b"k,name\n1,a\n", b"2,b\n", b"3,c\n", None])
        seen: list[list[int]] = []

        def idle() -> None:
            seen.append(query.fetch()["k"].to_pylist())
            line = next(lines)
            pipe.end() if line is None else pipe.write(line)

        assert play(core_of(db), {"s": pipe.text}, on_idle=idle, arrivals=pipe.arrivals) == {}
        assert seen == [[], [1], [2], [3]]
        assert query.status == "ended"


def test_beside_a_file_the_stream_that_is_least_far_goes_on(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("k\n" + "".join(f"{k}\n" for k in range(100)))
    with penstock.connect(engine="local") as db, piped() as pipe:
        db.execute(DECLARED)
        db.query("SELECT s.k FROM s [RANGE 5], t [RANGE 5]")
        lines = iter([b"k,name\n20,a\n", b"50,b\n", None])
        far: list[float] = []

        def idle() -> None:
            far.append(db.stream("t").progress)
            line = next(lines)
            pipe.end() if line is None else pipe.write(line)

        inputs: dict[str, Input] = {"s": pipe.text, "t": tmp_path / "t.csv"}
        play(core_of(db), inputs, on_idle=idle, arrivals=pipe.arrivals, chunk_rows=10)
        assert far == [float("-inf"), 29, 59]
        assert db.stream("t").progress == float("inf")


def test_what_is_stopped_closes_nothing() -> None:
    with penstock.connect(engine="local") as db, piped() as pipe:
        db.execute(DECLARED)
        query = db.query("SELECT ISTREAM k FROM s")
        pipe.write(b"k,name\n1,a\n")

        def idle() -> None:
            if query.fetch().num_rows:
                pipe.arrivals.stop()

        assert play(core_of(db), {"s": pipe.text}, on_idle=idle, arrivals=pipe.arrivals) == {}
        assert query.status == "running"
        assert db.stream("s").progress == 1
        pipe.end()


def test_rows_before_one_that_does_not_fit_are_taken_however_they_come() -> None:
    for cut in (b"", b"\n"):
        with penstock.connect(engine="local") as db, piped() as pipe:
            db.execute(DECLARED)
            query = db.query("SELECT ISTREAM k FROM s")
            pipe.write(b"k,name\n1,a\n2,b\n" + cut)
            rest = partial(pipe.write, b"x,c\n4,d\n")
            stopped = play(core_of(db), {"s": pipe.text}, on_idle=rest, arrivals=pipe.arrivals)
            assert "line 4" in str(stopped["s"]) or "line 5" in str(stopped["s"])
            assert query.fetch()["k"].to_pylist() == [1, 2]
            pipe.end()


def test_a_relation_is_read_to_its_end() -> None:
    with penstock.connect(engine="local") as db, piped() as pipe:
        db.execute("CREATE RELATION r (k BIGINT, name STRING)")
        query = db.query("SELECT name FROM r")
        pipe.write(b"k,name\n1,a\n2,b\n")
        pipe.end()
        play(core_of(db), {"r": pipe.text}, arrivals=pipe.arrivals)
        assert sorted(query.fetch()["name"].to_pylist()) == ["a", "b"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"a,b\n", "no column `k`; the file has `a`, `b`"),
        (b"a,b", "no column `k`; the file has `a`, `b`"),
        (b"\xff\xfe\n", "line 1: the text is not UTF-8"),
        (b"k,n\xffame\n", "line 1: the text is not UTF-8"),
        (b"k,name,K\n", "column `k` is there 2 times"),
    ],
)
def test_a_header_is_wrong_though_no_row_follows(data: bytes, said: str) -> None:
    pipe = Pipe()
    with closing(pipe.text):
        pipe.write(data)
        pipe.end()
        with pytest.raises(InputError, match=said):
            pipe.rest()
