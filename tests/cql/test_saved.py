"""Statements that a saved database holds are read as they were written, or refused by name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

import penstock
from penstock.cql.text import format_statement, parse
from penstock.hosts.spark.live.restore import restore


def test_names_that_need_as_are_saved_with_it() -> None:
    (statement,) = parse("CREATE VIEW v AS SELECT k AS over FROM s AS now, r AS session")
    assert format_statement(statement.tree).endswith("SELECT k AS over FROM s AS now, r AS session")


def test_what_is_refused_now_is_named() -> None:
    texts = {
        "s": "CREATE STREAM s (k INT)",
        "old": "CREATE VIEW old AS SELECT a.k FROM s AS a, s AS b JOIN s AS c ON a.k = c.k",
    }
    declared = {name: {"name": name, "text": text, "position": 0} for name, text in texts.items()}
    host = cast("Any", SimpleNamespace(journal=SimpleNamespace(model=SimpleNamespace(functions={}, declared=declared))))
    with penstock.connect(engine="reference") as db, pytest.raises(penstock.CheckpointError) as caught:
        restore(host, db)
    assert caught.value.message.startswith("`old` of this database is refused by this release: line 1, column 66: `a` ")
