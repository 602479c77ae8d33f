"""Files that are awkward: broken, packed wrongly, with columns that come late or names over several lines."""

from __future__ import annotations

import cProfile
import gzip
import os
import pstats
from pathlib import Path

import pytest

import penstock
from penstock.database.declare import declaration
from penstock.io.files import open_text
from penstock.io.readers import read_batches
from penstock.model.errors import InputError
from penstock.model.schema import Field
from penstock.model.types import BIGINT, STRING, TIMESTAMP

AB = (Field("a", BIGINT), Field("b", BIGINT))


def rows(path: Path, schema: tuple[Field, ...] = AB, **options: int) -> int:
    return sum(table.num_rows for table in read_batches(path, schema, **options))  # type: ignore[arg-type]


def test_a_key_that_comes_late(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": 1}\n' * 2_000 + '{"a": 1, "b": 2}\n')
    assert "b BIGINT" in str(declaration("x", path))
    assert rows(path, batch_rows=500) == 2_001
    assert sum(table["b"].null_count for table in read_batches(path, AB, batch_rows=500)) == 2_000


def test_a_key_of_some_files(tmp_path: Path) -> None:
    for name, text in (("1", '{"a": 1}\n'), ("2", '{"a": 1, "B": 2}\n'), ("3", '{"a": 3}\n')):
        (tmp_path / f"{name}.jsonl").write_text(text)
    assert rows(tmp_path) == 3
    (tmp_path / "2.jsonl").unlink()
    with pytest.raises(InputError, match=r"1.jsonl: no column `b`; the file has `a`"):
        rows(tmp_path)


def test_a_packed_file_that_is_broken(tmp_path: Path) -> None:
    whole = gzip.compress(b"a,b\n" + b"".join(b"%d,%d\n" % (i, i * 7919 % 10_007) for i in range(50_000)))
    for data in (whole[: len(whole) // 2], b"a,b\n1,2\n", whole[:100] + b"x" * 100 + whole[200:]):
        (tmp_path / "x.csv.gz").write_bytes(data)
        for read in (rows, lambda path: declaration("x", path)):
            with pytest.raises(InputError, match=r"x.csv.gz cannot be read"):
                read(tmp_path / "x.csv.gz")
    (tmp_path / "x.jsonl.gz").write_bytes(b'{"a": 1, "b": 2}\n')
    with pytest.raises(InputError, match=r"x.jsonl.gz cannot be read: .*packed with gzip"):
        rows(tmp_path / "x.jsonl.gz")


def test_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.csv")
    with pytest.raises(InputError, match=r"x.csv is a pipe or a device, and is read more than once here"):
        read_batches(tmp_path / "x.csv", AB)


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: "):
        open_text(tmp_path)


def test_names_over_several_lines(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('"a\n\nb";t\n1;2\n')
    (table,) = read_batches(path, (Field("a\n\nb", BIGINT), Field("t", BIGINT)))
    assert table.to_pylist() == [{"a\n\nb": 1, "t": 2}]
    path.write_text('5" pipe;t\n1;2\n')
    assert rows(path, (Field('5" pipe', BIGINT), Field("t", BIGINT))) == 1


@pytest.mark.parametrize(("line", "message"), [
    ('{"a": ' + "9" * 5_000 + "}", "line 2: a number has too many digits"),
    ('{"a": "\\ud800"}', "line 2, column .a.: .* is not a STRING"),
])  # fmt: skip
def test_what_json_can_write_and_nobody_can_hold(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": "x"}\n' + line + "\n")
    with pytest.raises(InputError, match=message):
        declaration("x", path)
    with pytest.raises(InputError, match="line 2"):
        rows(path, (Field("a", STRING),))


def test_times_are_read_as_text_too(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": "2024-05-31"}\n{"a": 1717156800}\n')
    assert rows(path, (Field("a", TIMESTAMP),)) == 2


def test_lines_longer_than_what_is_read_at_once(tmp_path: Path) -> None:
    path, left = tmp_path / "x.jsonl", list[Path]()
    lines = b"".join(b'{"a": "%s"}\n' % (b"x" * size) for size in (10, 200_000, 70_000, 1))
    path.write_bytes(lines + b'{"a": "' + b"y" * 100_000)
    with open_text(path, left.append) as source:
        assert source.read() == lines
    assert left == [path]
    path.write_bytes(lines + b"  ")
    with open_text(path, left.append) as source:
        assert source.read() == lines
    assert len(left) == 1


def test_work_grows_with_the_columns_of_a_file_not_with_their_square(tmp_path: Path) -> None:
    def calls(width: int) -> int:
        path = tmp_path / f"x{width}.csv"
        path.write_text(",".join(f"c{i}" for i in range(width)) + "\n" + ",".join("7" * width) + "\n")
        profile = cProfile.Profile()
        with penstock.connect(engine="local") as db:
            profile.enable()
            db.declare("x", path, timestamp="c0")
            stream = db.catalog.streams["x"]
            assert sum(t.num_rows for t in read_batches(path, stream.schema)) == 1
            profile.disable()
        return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]

    calls(200)  # what is made once
    assert calls(1_600) < 3 * calls(800)
