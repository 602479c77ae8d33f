"""Ways around rights that were open once."""

from __future__ import annotations

import json

import pytest

from penstock import LoginFailed, PenstockError
from tests.server.serving import served

HIDDEN = """
CREATE STREAM "Secret" (t BIGINT, v BIGINT) TIMESTAMP BY t;
CREATE QUERY "Hot" AS SELECT v FROM "Secret" [ROWS 3];
CREATE QUERY payroll AS SELECT v FROM "Secret" [ROWS 3]
"""
OWN = "CREATE STREAM secret (t BIGINT, v BIGINT) TIMESTAMP BY t; CREATE QUERY hot AS SELECT v FROM secret [ROWS 3]"


@pytest.mark.parametrize(
    "text",
    [
        'INSERT INTO "Secret" VALUES (1, 1)', 'STOP QUERY "Hot"', 'SUSPEND QUERY "Hot"', 'DROP STREAM "Secret"',
        'ALTER QUERY "Hot" SET (priority = 1)', 'DESCRIBE STREAM "Secret"', 'DESCRIBE QUERY "Hot"', 'EXPLAIN "Hot"',
        'CREATE QUERY x AS SELECT v FROM "Secret" [ROWS 2]', 'SUBSCRIBE "Hot"',
    ],
)  # fmt: skip
def test_a_name_of_ones_own_in_other_letters_opens_nothing(text: str) -> None:
    with served() as it:
        it.run(HIDDEN)
        bob = it.user("bob", "DEFINE")
        it.run(OWN, bob)
        if text.startswith("SUBSCRIBE"):
            (found,) = it.run(text, bob)
            assert found.subscribe is not None
            assert found.subscribe.query == "hot"
        else:
            with pytest.raises(PenstockError):
                it.run(text, bob)
        assert it.db.queries["Hot"].status == "running"
        assert it.db.stream("Secret").given == 0


def named(plan: object) -> object:
    """A plan whose scans are names alone."""
    if isinstance(plan, list):
        return [named(each) for each in plan]
    if not isinstance(plan, dict):
        return plan
    if plan.get("node") == "StreamScan":
        return {"node": "StreamScan", "stream": "Secret"}
    return {key: named(value) for key, value in plan.items()}


def test_a_plan_reads_what_its_user_may_read() -> None:
    with served() as it:
        it.run(HIDDEN)
        bob = it.user("bob", "DEFINE")
        it.run(OWN, bob)
        plan = json.loads(it.service.explain(bob, "SELECT v FROM secret [ROWS 3]", "json"))
        made = it.service.create_query(bob, plan=named(plan))
        assert it.db.queries[made.name].reads == {"secret"}
        it.run('INSERT INTO "Secret" VALUES (1, 42)')
        assert it.db.queries[made.name].fetch().num_rows == 0


def test_a_query_belongs_to_who_defined_it_whatever_streams_are_called() -> None:
    with served() as it:
        it.run("CREATE STREAM busy (t BIGINT) TIMESTAMP BY t")
        bob = it.user("bob", "DEFINE")
        it.run(OWN, bob)
        it.run("CREATE QUERY busy AS SELECT v FROM secret [ROWS 3]", bob)
        assert it.service.query(bob, "busy").owner == "bob"
        it.run("STOP QUERY busy", bob)


def test_a_query_that_is_there_already_is_not_shown() -> None:
    with served() as it:
        it.run(HIDDEN)
        bob = it.user("bob", "DEFINE")
        it.run(OWN, bob)
        with pytest.raises(PenstockError):
            it.service.create_query(bob, text="CREATE QUERY IF NOT EXISTS payroll AS SELECT v FROM secret [ROWS 2]")


def test_a_session_ends_with_its_password() -> None:
    with served() as it:
        bob = it.user("bob")
        it.run("ALTER USER bob PASSWORD 'another-password'")
        with pytest.raises(LoginFailed):
            it.run("SHOW STREAMS", bob)
        again = it.service.login("bob", "another-password", protocol="python", remote="test")
        it.run("SHOW STREAMS", again)
        it.run("DROP USER bob; CREATE USER bob PASSWORD 'another-password'; GRANT ADMINISTER TO bob")
        with pytest.raises(LoginFailed):
            it.run("SHOW STREAMS", again)


def test_keys_of_two_users_are_two() -> None:
    with served() as it:
        it.run("CREATE STREAM s (t BIGINT) TIMESTAMP BY t")
        bob = it.user("bob", "WRITE ON STREAM s")
        assert it.admin is not None
        for who in (bob, it.admin, bob):
            it.service.push(who, "s", [{"t": 1}], key=("sensor", 1))
        assert it.db.stream("s").given == 2


@pytest.mark.parametrize("option", ["name", "plan", "text"])
def test_options_that_are_none_are_refused(option: str) -> None:
    with served() as it:
        it.run("CREATE STREAM s (t BIGINT) TIMESTAMP BY t")
        assert it.admin is not None
        with pytest.raises(PenstockError, match="no option"):
            it.service.create_query(it.admin, text="SELECT t FROM s [NOW]", options={option: None})
