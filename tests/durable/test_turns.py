"""Threads take turns more often while a state is written, and only then."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import penstock
from penstock.database.database import core_of
from penstock.hosts.turns import brief_turns
from penstock.storage.store import Store


def test_the_interval_is_set_back_by_who_leaves_last() -> None:
    before = sys.getswitchinterval()
    with brief_turns():
        brief = sys.getswitchinterval()
        assert brief < before
        with brief_turns():
            assert sys.getswitchinterval() == brief
        assert sys.getswitchinterval() == brief
    assert sys.getswitchinterval() == before


def test_an_interval_that_is_shorter_already_stays() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with brief_turns():
            assert sys.getswitchinterval() == pytest.approx(1e-5)
    finally:
        sys.setswitchinterval(before)


def test_turns_are_brief_while_a_state_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, seen, save = sys.getswitchinterval(), [], Store.save

    def looked(self: Store, *given: object) -> object:
        seen.append(sys.getswitchinterval())
        return save(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Store, "save", looked)
    with penstock.connect(tmp_path / "db", engine="local") as db:
        db.execute("CREATE STREAM s (a BIGINT)")
        core_of(db).host.abilities().save()
        assert sys.getswitchinterval() == before
    assert seen
    assert all(interval < before for interval in seen)
    assert sys.getswitchinterval() == before
