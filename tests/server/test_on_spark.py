"""``penstock serve DIR`` as a new user starts it: on Spark, with all protocols, and a kill of it with its Spark."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Any

import psycopg
from benchmarks.support.served import Served, below, until

import penstock
from penstock.hosts.options import SparkOptions
from penstock.server.service import Service
from penstock.server.settings import Settings
from tests.conftest import ON_SPARK
from tests.server.over_http import Events
from tests.server.over_http import Served as Address
from tests.server.process import listening
from tests.server.serving import Clock
from tests.server.serving import Served as Here


def connected(served: Served) -> psycopg.Connection[Any]:
    return psycopg.connect(
        host="127.0.0.1", port=served.postgres, user="admin", password=served.token, dbname="x", autocommit=True
    )


@ON_SPARK
def test_what_a_new_user_does(tmp_path: Path) -> None:
    settings = tmp_path / "penstock.toml"
    settings.write_text("adhoc_seconds = 250  # Spark's first micro-batch is slow where the machine has other work\n")
    served = Served(tmp_path / "db", "spark", "--config", str(settings), errors=tmp_path / "errors", postgres=True)
    served.start()
    try:
        served.wait()
        with connected(served) as database:
            database.execute("CREATE STREAM readings (room STRING, v DOUBLE)")
            database.execute("CREATE QUERY top AS SELECT room, max(v) AS v FROM readings GROUP BY room")
            database.execute("CREATE QUERY hot AS SELECT room, v FROM readings WHERE v > 30")
            database.execute("INSERT INTO readings VALUES ('hall', 20), ('attic', 31)")
            found = database.execute("SELECT room, v FROM top ORDER BY v").fetchall()
            assert found == [("hall", 20.0), ("attic", 31.0)]
            with database.transaction():
                database.execute("DECLARE c CURSOR FOR SUBSCRIBE hot FROM START")
                (row,) = database.execute("FETCH 1 FROM c").fetchall()
                assert row[-2:] == ("attic", 31.0)
            database.execute("CREATE SUBSCRIPTION mine FOR hot FROM START")
            database.execute("CONFIRM mine AT 1")
        here = Address(None, served.url, served.token, [])  # type: ignore[arg-type]
        events = Events(here, "/api/queries/hot/answers?from=start")
        ((last, result),) = events.rows(1)
        assert (last, result["room"]) == (1, "attic")
        addresses = listening(served.pid)
        assert len(addresses) > 5, "three protocols, and Spark's own"
        near = [ipaddress.ip_address(each.split()[0].removeprefix("::ffff:")).is_loopback for each in addresses]
        assert all(near), addresses
        before = below(served.pid)
        assert len(before) > 1, "Spark's processes"
        served.kill()
        served.start()
        served.wait()
        served.ask("POST", "/api/streams/readings/rows", [{"room": "cellar", "v": 40.0}])
        again = Events(here, "/api/queries/hot/answers", last=last)
        ((last, result),) = again.rows(1)
        assert (last, result["room"]) == (2, "cellar")
        again.cut()
        with connected(served) as database, database.transaction():
            database.execute("DECLARE c CURSOR FOR SUBSCRIBE hot AS mine")
            (row,) = database.execute("FETCH 1 FROM c").fetchall()
            assert row[-2:] == ("cellar", 40.0), "what was confirmed before the kill does not come again"
        assert served.sql("SELECT count(*) AS n FROM top")[0]["rows"] == [[3]]
        processes = below(served.pid)
        assert served.end() == 0, (tmp_path / "errors").read_text()
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in [*before, *processes]))
        assert not re.search(r"Traceback", (tmp_path / "errors").read_text())
    finally:
        served.close()


def test_administrators_see_what_parts_took_last(tmp_path: Path) -> None:
    with penstock.Database("spark", path=tmp_path, options=SparkOptions(inline=True, trigger=0.0)) as db:
        service = Service(db, Settings())
        here = Here(db, service, Clock(), service.access.first_start())
        here.run("CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t")
        here.run("CREATE QUERY q AS SELECT v FROM s; CREATE QUERY r AS SELECT v FROM s WHERE v > 1")
        here.run("CREATE QUERY urgent AS SELECT v FROM s WITH (priority = 9)")
        db.push("s", [(1, 7)])
        db.settle()
        table = here.run("SELECT * FROM sys.parts ORDER BY part")[0].table
        assert table is not None
        assert here.admin is not None
        found = table.to_pylist()
        shown = [(p["part"], p["queries"], p["priority"], p["rows"], p["waiting"]) for p in found]
        assert shown == [(0, "q, r", 5, 1, 0), (1, "urgent", 9, 1, 0)]
        assert all(p["rows_per_second"] == 1 / p["seconds"] for p in found)
        bob = here.user("bob", "READ ON QUERY q")
        assert service.sys_table(bob, "parts").num_rows == 0
        assert service.sys_table(bob, "parts").schema == service.sys_table(here.admin, "parts").schema
        service.close()
