"""The store: versions on disk, what is written, what is found to be wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs

from penstock.model.errors import CheckpointError
from penstock.operators.state import Piece, Saved, State
from penstock.storage.versions import StateStore, fingerprint
from tests.state.programs import plan


def table(*values: int) -> pa.Table:
    return pa.table({"x": pa.array(values, pa.int64())})


def first(*values: int) -> State:
    return {"a/b": Saved({"n": 1, "deep": {"x": [1, None, "é"]}}, (Piece("0", table(*values)), Piece("1", table(9))))}


def pieces_of(root: Path) -> set[str]:
    return {p.name for p in (root / "pieces").iterdir()}


@pytest.fixture(params=["local", "other"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> object:
    """Opens the store in ``tmp_path`` anew, memory-mapped or read."""
    if request.param == "local":
        return lambda query="": StateStore(str(tmp_path), query=query)
    return lambda query="": StateStore("", fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), query=query)


def test_a_state_comes_back_as_it_was(opened) -> None:  # type: ignore[no-untyped-def]
    opened().commit(3, first(1, 2, 3))
    state = opened().load(3)
    assert state["a/b"].meta == {"n": 1, "deep": {"x": [1, None, "é"]}}
    assert {name: t.column("x").to_pylist() for name, t in state["a/b"].tables.items()} == {"0": [1, 2, 3], "1": [9]}


def test_what_is_not_there(opened) -> None:  # type: ignore[no-untyped-def]
    assert opened().versions() == []
    assert opened().load(1) is None
    opened().forget(5)


def test_only_new_pieces_are_written(opened, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    store = opened()
    store.commit(1, first(1))
    before, written = pieces_of(tmp_path), store.written
    store.commit(2, {"a/b": Saved({}, (Piece("0"), Piece("2", table(7))))})
    assert len(pieces_of(tmp_path) - before) == 1
    assert 0 < store.written - written < written
    state = opened().load(2)
    assert [t.column("x").to_pylist() for t in state["a/b"].tables.values()] == [[1], [7]]
    assert opened().versions() == [1, 2]


def test_a_store_goes_on_from_what_it_loaded(opened) -> None:  # type: ignore[no-untyped-def]
    opened().commit(1, first(1))
    fresh = opened()
    with pytest.raises(CheckpointError, match="piece `0` of `a/b` was saved elsewhere"):
        fresh.commit(2, {"a/b": Saved({}, (Piece("0"),))})
    fresh.load(1)
    fresh.commit(2, {"a/b": Saved({}, (Piece("0"),))})
    assert opened().load(2)["a/b"].tables["0"].column("x").to_pylist() == [1]


def test_two_attempts_at_a_version_do_not_mix(opened) -> None:  # type: ignore[no-untyped-def]
    opened().commit(1, first(1))
    one, other = opened(), opened()
    one.load(1)
    other.load(1)
    one.commit(2, {"a/b": Saved({"by": "one"}, (Piece("0"), Piece("5", table(10))))})
    loaded = opened().load(2)
    other.commit(2, {"a/b": Saved({"by": "other"}, (Piece("0"), Piece("5", table(20))))})
    assert loaded["a/b"].tables["5"].column("x").to_pylist() == [10]
    state = opened().load(2)
    assert (state["a/b"].meta["by"], state["a/b"].tables["5"].column("x").to_pylist()) == ("other", [20])


def test_forgetting_keeps_what_a_kept_version_has(opened, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    store = opened()
    store.commit(1, first(1))
    store.commit(2, {"a/b": Saved({}, (Piece("0"), Piece("2", table(7))))})
    store.commit(3, {"a/b": Saved({}, (Piece("2"), Piece("3", table(8))))})
    assert len(pieces_of(tmp_path)) == 3
    store.forget(3)
    assert store.versions() == [3]
    assert len(pieces_of(tmp_path)) == 2
    assert [t.column("x").to_pylist() for t in opened().load(3)["a/b"].tables.values()] == [[7], [8]]
    store.commit(4, {"a/b": Saved({}, (Piece("2"), Piece("3")))})
    assert opened().load(4) is not None


def test_an_attempt_under_way_keeps_its_pieces(opened, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    opened().commit(1, first(1))
    (tmp_path / "pieces" / f"{2:012d}-{'ab' * 16}-0.arrow").write_bytes(b"being written")
    opened().forget(2)
    assert pieces_of(tmp_path) == {f"{2:012d}-{'ab' * 16}-0.arrow"}
    opened().forget(3)
    assert pieces_of(tmp_path) == set()


def test_a_manifest_that_was_not_finished_is_no_version(opened, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    opened().commit(1, first(1))
    (tmp_path / f"manifest-{2:012d}.json.abc.part").write_text("{")
    assert opened().versions() == [1]


def _largest(root: Path) -> Path:
    return max((root / "pieces").iterdir(), key=lambda p: p.stat().st_size)


def test_a_missing_piece_is_named(opened, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    opened().commit(1, first(*range(100)))
    gone = _largest(tmp_path)
    gone.unlink()
    state = opened().load(1)
    with pytest.raises(CheckpointError, match=f"{gone.name}: a piece of the saved state is missing"):
        state["a/b"].tables["0"]
    with pytest.raises(CheckpointError, match=gone.name):
        opened().load(1, verify=True)


@pytest.mark.parametrize("place", [0.0, 0.5, 0.99])
def test_a_damaged_piece_is_named(opened, tmp_path: Path, place: float) -> None:  # type: ignore[no-untyped-def]
    opened().commit(1, first(*range(100)))
    bad = _largest(tmp_path)
    data = bytearray(bad.read_bytes())
    data[int(place * len(data))] ^= 0xFF
    bad.write_bytes(data)
    with pytest.raises(CheckpointError, match=f"{bad.name}: damaged, its checksum"):
        dict(opened().load(1)["a/b"].tables)


def test_a_piece_cut_short_is_named(opened, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    opened().commit(1, first(*range(100)))
    bad = _largest(tmp_path)
    bad.write_bytes(bad.read_bytes()[:-10])
    with pytest.raises(CheckpointError, match=f"{bad.name}: damaged, .* bytes instead of"):
        dict(opened().load(1)["a/b"].tables)
    bad.write_bytes(b"")
    with pytest.raises(CheckpointError, match=bad.name):
        opened().load(1)["a/b"].tables["0"]


def test_damage_inside_a_large_piece_is_found_when_asked(opened, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    opened().commit(1, first(*range(300_000)))
    bad = _largest(tmp_path)
    data = bytearray(bad.read_bytes())
    data[len(data) // 2] ^= 0xFF
    bad.write_bytes(data)
    with pytest.raises(CheckpointError, match=bad.name):
        opened().load(1, verify=True)


@pytest.mark.parametrize("text", ["", "{}", "[1]", "not JSON", '{"crc":1,"state":{}}'])
def test_a_damaged_manifest_is_named(opened, tmp_path: Path, text: str) -> None:  # type: ignore[no-untyped-def]
    opened().commit(1, first(1))
    path = tmp_path / f"manifest-{1:012d}.json"
    path.write_text(text)
    with pytest.raises(CheckpointError, match=f"{path.name}: damaged"):
        opened().load(1)


def test_another_format_is_refused(opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    with monkeypatch.context() as patch:
        patch.setattr("penstock.storage.versions.FORMAT", 9)
        opened().commit(1, first(1))
    with pytest.raises(CheckpointError, match="written in format 9, this is format 5"):
        opened().load(1)


def test_the_state_of_another_query_is_refused(opened) -> None:  # type: ignore[no-untyped-def]
    one, other = plan("SELECT k FROM s [ROWS 5]"), plan("SELECT k FROM s [ROWS 6]")
    opened(fingerprint(one)).commit(1, first(1))
    assert opened(fingerprint(plan("SELECT k FROM s [ROWS 5]"))).load(1) is not None
    with pytest.raises(CheckpointError, match="this is the state of another query; use another directory"):
        opened(fingerprint(other)).load(1)


def test_state_knows_no_case_of_names_but_that_of_texts() -> None:
    assert fingerprint(plan("SELECT k AS theK, count(*) FROM s GROUP BY k")) == fingerprint(
        plan("SELECT K AS THEK, count(*) FROM s GROUP BY k")
    )
    assert fingerprint(plan("SELECT k FROM s WHERE 'a' < 'B'")) != fingerprint(plan("SELECT k FROM s WHERE 'a' < 'b'"))


def test_a_manifest_is_plain_json(opened, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    opened().commit(1, first(1))
    content = json.loads((tmp_path / f"manifest-{1:012d}.json").read_text())["state"]
    piece = content["operators"]["a/b"]["pieces"]["0"]
    assert (content["format"], content["version"], piece["rows"]) == (5, 1, 1)
    last = content["operators"]["a/b"]["pieces"]["1"]
    assert piece["start"] == 0
    assert last["start"] >= piece["bytes"]
    assert last["start"] + last["bytes"] == (tmp_path / "pieces" / piece["file"]).stat().st_size
    assert [version for version, _ in content["lineage"]] == [1]


def test_small_pieces_share_a_file(opened, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    large = table(*range(200_000))
    state: State = {
        "a": Saved({}, (Piece("0", table(1)), Piece("1", table(2, 3)))),
        "b": Saved({}, (Piece("0", large), Piece("1", table()))),
    }
    store = opened()
    store.commit(1, state)
    assert sorted(name.rsplit(".", 1)[1] for name in pieces_of(tmp_path)) == ["arrow", "pieces"]
    found = opened().load(1, verify=True)
    assert {(path, name): t.column("x").to_pylist() for path in found for name, t in found[path].tables.items()} == {
        ("a", "0"): [1], ("a", "1"): [2, 3], ("b", "0"): list(range(200_000)), ("b", "1"): [],
    }  # fmt: skip
    store.commit(2, {"a": Saved({}, (Piece("1"),)), "b": Saved()})
    store.forget(2)
    assert [name.rsplit(".", 1)[1] for name in pieces_of(tmp_path)] == ["pieces"], "one of them is still needed"
    assert opened().load(2)["a"].tables["1"].column("x").to_pylist() == [2, 3]
    store.commit(3, {"a": Saved(), "b": Saved()})
    store.forget(3)
    assert pieces_of(tmp_path) == set()
