"""Statements that a saved database holds are read as they were written, or refused by name."""

from __future__ import annotations

import pytest

import penstock
from penstock.cql.declarations import definition_again
from penstock.cql.text import format_statement, parse
from penstock.database.database import core_of
from penstock.hosts.durable.picture import declare_again
from penstock.plan.meanings import NUMBER


def test_names_that_need_as_are_saved_with_it() -> None:
    (statement,) = parse("CREATE VIEW v AS SELECT k AS over FROM s AS now, r AS session")
    assert format_statement(statement.tree).endswith("SELECT k AS over FROM s AS now, r AS session")


def test_what_is_refused_now_is_named() -> None:
    with penstock.connect(engine="reference") as db:
        db.execute("CREATE STREAM s (k INT)")
        text = "CREATE VIEW old AS SELECT a.k FROM s AS a, s AS b JOIN s AS c ON a.k = c.k"
        assert definition_again(text, "old", None, NUMBER, db.catalog) is None
        with pytest.raises(penstock.CatalogError, match=r"`old`.* `a` stands before a comma") as caught:
            db.query("SELECT k FROM old")
        assert "view" in caught.value.message
        db.execute("CREATE OR REPLACE VIEW old AS SELECT k FROM s")
        assert db.query("SELECT k FROM old").status == "running"


def test_a_stream_that_is_refused_now_stops_the_opening() -> None:
    record = {
        "kind": "declare", "name": "s", "text": "CREATE STREAM s (k NOTHING)", "position": 0, "meanings": NUMBER,
        "next": 1,
    }  # fmt: skip
    with penstock.connect(engine="reference") as db, pytest.raises(penstock.StorageError) as caught:
        declare_again(core_of(db), record)
    assert caught.value.message.startswith("`s` of this database is refused by this release: line 1, column 20: ")
