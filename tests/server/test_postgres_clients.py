"""Real clients of the PostgreSQL protocol: psql, asyncpg, SQLAlchemy, pgjdbc, and the questions of Grafana."""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.docs.fences import ROOT, fences
from tests.server.pg import PASSWORD, Served, serving, until

START = datetime(2024, 5, 1, 10, tzinfo=UTC)
DRIVER = Path("/usr/share/java/postgresql.jar")


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as found:
        row = (START, "a", 31.5, *[None] * 8)
        found.db.push("readings", [row])
        found.db.execute("INSERT INTO rooms VALUES ('r1', 2)")
        yield found
        until(lambda: found.sessions() == 0)


# -- psql -----------------------------------------------------------------------------------------------


def psql(served: Served, *commands: str, stdin: str = "", expect: int = 0) -> str:
    program = shutil.which("psql")
    if program is None:
        pytest.skip("psql is not installed")
    given = [word for command in commands for word in ("-c", command)]
    done = subprocess.run(
        [program, "-X", "-h", "127.0.0.1", "-p", str(served.port), "-U", "admin", "-v", "ON_ERROR_STOP=1", "plant",
         *given],
        env={**os.environ, "PGPASSWORD": PASSWORD, "PAGER": "", "PGCLIENTENCODING": "UTF8", "LC_ALL": "C.UTF-8"},
        input=stdin, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == expect, done.stderr
    return done.stdout + done.stderr


def test_psql_runs_statements(served: Served) -> None:
    assert "INSERT 0 1" in psql(served, "INSERT INTO readings (at, sensor) VALUES ('2024-05-01 10:00:01', 'ä')")
    found = psql(served, "SELECT sensor, n FROM lately ORDER BY sensor")
    assert [line.strip() for line in found.splitlines()][2:4] == ["a      | 1", "ä      | 1"]
    assert "LINE 1: SELECT nonsense FROM lately\n               ^" in psql(
        served, "SELECT nonsense FROM lately", expect=1
    )
    rows = "at,sensor,v\n2024-05-01 10:00:02,p,40\n2024-05-01 10:00:03,q,\n"
    assert "COPY 2" in psql(served, "\\copy readings (at, sensor, v) FROM STDIN (FORMAT csv, HEADER)", stdin=rows)
    assert "p,40.0" in psql(served, "\\copy (SELECT sensor, v FROM hot) TO STDOUT (FORMAT csv)")


def test_psql_describes_what_is_there(served: Served) -> None:
    assert "public | lately   | materialized view | admin" in psql(served, "\\d")
    tables = psql(served, "\\dt")
    assert "rooms" in tables
    assert "lately" not in tables
    stream = psql(served, "\\d readings")
    assert 'Table "public.readings"' in stream
    assert " d      | numeric(10,2)            |" in stream
    relation = psql(served, "\\d rooms")
    assert " room   | text    |           | not null | " in relation
    assert '"rooms_pkey" PRIMARY KEY, btree ("room")' in relation
    query = psql(served, "\\d+ lately")
    assert 'Materialized view "public.lately"' in query
    assert "FROM readings [ROWS 3] GROUP BY sensor" in query
    assert " plant | admin | UTF8 " in psql(served, "\\l")
    assert " admin     | Superuser" in psql(served, "\\du")
    psql(served, "CREATE ROLE readers", "CREATE USER eve PASSWORD 'password of eve' IN ROLE readers")
    users = psql(served, "\\du")
    assert " eve       |                        | {readers}" in users
    assert " readers   | Cannot login           | {}" in users
    psql(served, "DROP USER eve", "DROP ROLE readers")
    assert "queries" in psql(served, "\\dt sys.*")
    assert 'Did not find any relation named "nowhere"' in psql(served, "\\d nowhere", expect=1)
    for other in (
        "\\dn",
        "\\dn+",
        "\\dv",
        "\\dm",
        "\\di",
        "\\df",
        "\\dT",
        "\\dp",
        "\\dx",
        "\\db",
        "\\ds",
        "\\l+",
        "\\du+",
        "\\dt+",
    ):
        psql(served, other)


def test_the_session_of_the_docs() -> None:
    page = (ROOT / "docs" / "reference" / "postgres.md").read_text(encoding="utf-8")
    shown = next(block.text for block in fences(page) if "plant=>" in block.text).split("plant=> ")[1:]
    *said, (follow, results) = [part.split("\n", 1) for part in shown]
    with serving(script="") as served:
        for command, answer in said:
            lines = [line.rstrip() for line in psql(served, command).strip("\n").splitlines()]
            assert lines == answer.strip("\n").splitlines()
        psycopg = pytest.importorskip("psycopg", reason="psycopg is not there")
        with psycopg.connect(**served.uri()) as client, client.cursor().copy(follow.rstrip(";")) as rows:
            assert bytes(next(iter(rows))).decode() == results.splitlines()[0] + "\n"
            client.cancel_safe()
            with pytest.raises(psycopg.errors.QueryCanceled):
                next(iter(rows))


# -- asyncpg --------------------------------------------------------------------------------------------


def test_asyncpg(served: Served) -> None:
    asyncpg = pytest.importorskip("asyncpg", reason="asyncpg is not there")
    row = (
        START + timedelta(seconds=10), "bö'x", 31.5, 2**40, Decimal("3.25"), b"\x00\xff", True,
        timedelta(hours=26, microseconds=5), date(2024, 2, 29), 0.5, -7,
    )  # fmt: skip
    columns = "at, sensor, v, n, d, b, ok, i, day, r, k"

    async def talk() -> None:
        client = await asyncpg.connect(**served.uri(), database="plant")
        await client.execute(f"CREATE QUERY by_asyncpg AS SELECT ISTREAM {columns} FROM readings [NOW]")
        places = ", ".join(f"${i}" for i in range(1, 12))
        assert await client.execute(f"INSERT INTO readings ({columns}) VALUES ({places})", *row) == "INSERT 0 1"
        more = [(row[0] + timedelta(seconds=i), "m", 40.0 + i) for i in range(1, 4)]
        await client.executemany("INSERT INTO readings (at, sensor, v) VALUES ($1, $2, $3)", more)
        found = await client.fetch(
            'SELECT "at", sensor, v, n, d, b, ok, i, day, r, k FROM by_asyncpg WHERE n = $1', 2**40
        )
        assert [tuple(r) for r in found] == [row]
        assert (
            await client.fetchval("SELECT count(*) FROM by_asyncpg WHERE v > $1::DOUBLE AND sensor = $2", 41.5, "m")
            == 2
        )
        with pytest.raises(asyncpg.DataError):
            await client.execute("INSERT INTO readings (at, v) VALUES ($1, $2)", row[0], "x")
        async with client.transaction():
            taken: list[Any] = []
            async for each in client.cursor("SUBSCRIBE by_asyncpg FROM START", prefetch=3):
                taken.append(each["position"])
                if len(taken) == 4:
                    break
            assert taken == [0, 1, 2, 3]
        records = [(row[0] + timedelta(minutes=1, seconds=i), "c", 50.0) for i in range(3)]
        assert (
            await client.copy_records_to_table("readings", records=records, columns=["at", "sensor", "v"]) == "COPY 3"
        )
        out = io.BytesIO()
        await client.copy_from_query("SELECT sensor, n FROM lately", output=out, format="csv", header=True)
        assert out.getvalue() == b"sensor,n\nc,3\n"
        with pytest.raises(asyncio.TimeoutError):
            await client.copy_from_query("SUBSCRIBE lately", output=io.BytesIO(), timeout=0.5)
        assert await client.fetchval("SELECT version()") == await client.fetchval("SELECT pg_catalog.version()")
        tables = await client.fetch(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = $1", "public"
        )
        assert {"readings", "rooms", "lately"} <= {r["table_name"] for r in tables}
        await client.reset()
        await client.close()
        async with asyncpg.create_pool(**served.uri(), min_size=1, max_size=3) as pool:
            assert await asyncio.gather(*(pool.fetchval("SELECT $1::BIGINT", i) for i in range(9))) == list(range(9))

    asyncio.run(talk())


# -- SQLAlchemy -----------------------------------------------------------------------------------------


def test_sqlalchemy_reflects_and_reads(served: Served) -> None:
    sa = pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not there")
    pytest.importorskip("psycopg", reason="psycopg is not there")
    url = sa.URL.create("postgresql+psycopg", "admin", PASSWORD, "127.0.0.1", served.port, "plant")
    engine = sa.create_engine(url)
    with engine.connect() as client:
        look = sa.inspect(client)
        assert set(look.get_table_names()) == {"readings", "rooms"}
        assert {"lately", "hot"} <= set(look.get_materialized_view_names())
        assert look.get_view_names() == []
        assert set(look.get_schema_names()) == {"information_schema", "public", "sys"}
        assert "queries" in look.get_table_names(schema="sys")
        types = {c["name"]: (str(c["type"]), c["nullable"]) for c in look.get_columns("readings")}
        assert types["d"] == ("NUMERIC(10, 2)", True)
        assert types["sensor"] == ("TEXT", True)
        assert look.get_pk_constraint("rooms")["constrained_columns"] == ["room"]
        assert look.get_foreign_keys("rooms") == look.get_indexes("rooms") == look.get_unique_constraints("rooms") == []
        assert look.get_check_constraints("rooms") == []
        assert (look.has_table("rooms"), look.has_table("nowhere")) == (True, False)
        assert "ROWS 3" in look.get_view_definition("lately")
        meta = sa.MetaData()
        meta.reflect(client, views=True)
        assert {"hot", "lately", "readings", "rooms"} <= set(meta.tables)
        rooms = meta.tables["rooms"]
        client.execute(rooms.insert(), [{"room": "r2", "floor": 3}, {"room": "r3", "floor": None}])
        client.commit()
        assert client.execute(sa.select(rooms).where(rooms.c.floor > 2)).all() == [("r2", 3)]
        assert client.execute(sa.select(sa.func.count()).select_from(rooms)).scalar() == 3
    engine.dispose()


# -- pgjdbc ---------------------------------------------------------------------------------------------


def test_jdbc(served: Served) -> None:
    java = shutil.which("java")
    if java is None or not DRIVER.exists():
        pytest.skip("Java or Debian's libpostgresql-jdbc-java is not installed")
    source = Path(__file__).with_name("Talk.java")
    done = subprocess.run(
        [java, "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", str(DRIVER), str(source), str(served.port), PASSWORD],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert "table lately MATERIALIZED VIEW" in said
    assert "table rooms TABLE" in said
    assert "column d numeric 2" in said
    assert "key room" in said
    assert "index rooms_pkey" in said
    assert "catalog plant" in said
    assert said.count("inserted 1") == 8
    assert said.count("batch [1, 1, 1, 1]") == said.count("copied 2") == said.count("empty false") == 2
    assert len([line for line in said if line.startswith("error 42")]) == 2
    assert [int(line.split()[1]) >= 4 for line in said if line.startswith("rows ")] == [True, True], "several fetches"


# -- Grafana --------------------------------------------------------------------------------------------

_PATH = """SELECT CASE WHEN trim(s[i]) = '"$user"' THEN user ELSE trim(s[i]) END FROM generate_series(
    array_lower(string_to_array(current_setting('search_path'),','),1),
    array_upper(string_to_array(current_setting('search_path'),','),1)) as i,
    string_to_array(current_setting('search_path'),',') s"""
GRAFANA = {
    "SELECT 1": [(1,)],
    "SELECT current_setting('server_version_num')::int/100 as version": [(1500,)],
    f"""SELECT CASE WHEN quote_ident(table_schema) IN ({_PATH}) THEN quote_ident(table_name)
        ELSE quote_ident(table_schema) || '.' || quote_ident(table_name) END AS "table"
        FROM information_schema.tables
        WHERE quote_ident(table_schema) NOT IN ('information_schema', 'pg_catalog', 'sys')
        AND table_type IN ('BASE TABLE', 'VIEW') AND table_name IN ('rooms', 'hot')
        ORDER BY CASE WHEN quote_ident(table_schema) = 'public' THEN 0 ELSE 1 END, 1""": [("hot",), ("rooms",)],
    f"""SELECT quote_ident(column_name) AS "column", data_type AS "type" FROM information_schema.columns WHERE
        CASE WHEN array_length(parse_ident('rooms'),1) = 2
        THEN quote_ident(table_schema) = (parse_ident('rooms'))[1]
        AND quote_ident(table_name) = (parse_ident('rooms'))[2]
        ELSE quote_ident(table_name) = 'rooms' AND quote_ident(table_schema) IN ({_PATH}) END""":
        [("room", "text"), ("floor", "integer")],
    "SELECT extversion FROM pg_extension WHERE extname = 'timescaledb'": [],
}  # fmt: skip


@pytest.mark.parametrize("text", GRAFANA)
def test_questions_of_grafana(served: Served, text: str) -> None:
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not there")
    with psycopg.connect(**served.uri()) as client:
        assert client.execute(text).fetchall() == GRAFANA[text]


def test_the_catalogs_let_nobody_out(served: Served) -> None:
    """Questions about the catalogs reach DuckDB: no file, no setting, nothing of this process."""
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not there")
    secret = "seen"  # noqa: F841 - a Python variable that a replacement scan would find
    with psycopg.connect(**served.uri(), autocommit=True) as client:
        for text in (
            "SELECT * FROM pg_class, read_csv('/etc/passwd')", "SELECT * FROM pg_class, '/etc/passwd'",
            "SELECT * FROM pg_class, secret", "SELECT pg_backend_pid(), getenv('PATH')",
            "SELECT * FROM pg_class, read_text('/etc/passwd')", "SELECT * FROM pg_class, glob('/*')",
            "SELECT relname FROM pg_class; ATTACH '/tmp/x'", "SELECT * FROM pg_catalog.pg_class INTO OUTFILE '/tmp/x'",
            "COPY (SELECT relname FROM pg_class) TO '/tmp/x'", "SELECT version(), * FROM duckdb_secrets() WHERE pg_x()",
            "SELECT pg_read_file('/etc/passwd')", "SELECT * FROM pg_catalog.pg_nothing",
        ):  # fmt: skip
            with pytest.raises(psycopg.Error):
                client.execute(text)
        assert client.execute("SELECT count(*) FROM pg_catalog.pg_type WHERE typname = 'int4'").fetchone() == (1,)
