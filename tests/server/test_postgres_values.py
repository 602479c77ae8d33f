"""Values between PostgreSQL's forms and ours: without a server."""

from __future__ import annotations

import base64
import hashlib
import hmac
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.errors import CqlSyntaxError, InputError, LimitExceeded
from penstock.model.types import BINARY, BOOLEAN, DATE, DOUBLE, INTERVAL, STRING, TIMESTAMP, DataType, array, decimal
from penstock.server import scram
from penstock.server.postgres import copying, types
from penstock.server.postgres.errors import Refused
from penstock.server.postgres.exchange import Exchange, ScramError
from penstock.server.postgres.parameters import NAMES, Parameters
from penstock.server.postgres.statements import CopyIn, CopyOptions, CopyOut, Declare, Fetch, Other, Statement, read
from penstock.server.postgres.values import decode
from penstock.server.statements import pieces, spliced
from tests import budget

VALUES: dict[DataType, st.SearchStrategy[object]] = {
    BOOLEAN: st.booleans(),
    STRING: st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    BINARY: st.binary(max_size=40),
    DOUBLE: st.floats(allow_nan=False),
    DATE: st.dates(),
    TIMESTAMP: st.datetimes(timezones=st.just(UTC)),
    INTERVAL: st.timedeltas(timedelta(days=-100_000), timedelta(days=100_000)),
    decimal(12, 3): st.integers(-(10**12) + 1, 10**12 - 1).map(lambda n: Decimal(n).scaleb(-3)),
    decimal(38, 0): st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal),
    decimal(38, 38): st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal(n).scaleb(-38, Context(prec=40))),
}


def column(values: list[object], dtype: DataType) -> pa.ChunkedArray:
    plain = [v.replace(tzinfo=None) if isinstance(v, datetime) else v for v in values]
    return pa.chunked_array([pa.array(plain, dtype.arrow)])


@settings(max_examples=budget.examples(150), deadline=None)
@given(st.data())
def test_what_is_sent_is_read_again(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(list(VALUES)))
    value = data.draw(VALUES[dtype])
    one, several = column([value], dtype), column([value, None, value], dtype).combine_chunks()
    many = pa.chunked_array([pa.ListArray.from_arrays(pa.array([0, 3], pa.int32()), several)])
    for held, sent, sort in ((one, value, dtype), (many, [value, None, value], array(dtype))):
        for form, encoded in ((0, types.as_text(held)), (1, types.as_binary(held))):
            assert encoded[0] is not None
            assert decode(encoded[0], types.of_cql(sort)[0], form, "it") == sent


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (True, BOOLEAN, "t"),
        (b"\x00\xff", BINARY, "\\x00ff"),
        (datetime(2024, 5, 1, 10, 0, 0, 500_000), TIMESTAMP, "2024-05-01 10:00:00.500000+00"),
        (timedelta(hours=26), INTERVAL, "26:00:00"),
        (Decimal("-0.50"), decimal(10, 2), "-0.50"),
        (float("inf"), DOUBLE, "Infinity"),
    ],
)
def test_texts_are_those_of_postgresql(value: object, dtype: DataType, text: str) -> None:
    assert types.texts(column([value, None], dtype)) == [text, None]


def test_times_are_shown_in_the_zone_of_the_connection() -> None:
    held = column([datetime(2024, 7, 1, 10, 0)], TIMESTAMP)
    assert types.texts(held, "Europe/Vienna") == ["2024-07-01 12:00:00+02:00"]


@pytest.mark.parametrize(
    ("text", "oid", "value"),
    [
        ("yes", 16, True), ("off", 16, False), ("  12 ", 23, 12), ("1 day 02:03:04.5", 1186,
        timedelta(days=1, hours=2, minutes=3, seconds=4.5)), ("-00:00:01", 1186, timedelta(seconds=-1)),
        ("0 years 0 mons 1 days 2 hours 0 mins 0.5 secs", 1186, timedelta(days=1, hours=2, seconds=0.5)),
        ("P1DT2H", 1186, timedelta(days=1, hours=2)), ("1 day, 2:03:04", 1186, timedelta(days=1, seconds=7384)),
        ("2024-05-01 12:00:00+02", 1184, datetime(2024, 5, 1, 10, tzinfo=UTC)), ("2024-02-29", 1082, date(2024, 2, 29)),
        ("\\001a\\\\", 17, b"\x01a\\"), ('{1,NULL,"2"}', 1007, [1, None, 2]), ('{"a b","c\\"d",NULL}', 1009,
        ["a b", 'c"d', None]), ("{}", 1007, []), ("NaN", 701, pytest.approx(float("nan"), nan_ok=True)),
    ],
)  # fmt: skip
def test_texts_of_other_clients_are_read(text: str, oid: int, value: object) -> None:
    assert decode(text.encode(), oid, 0, "it") == value


@pytest.mark.parametrize(
    ("data", "oid", "form"),
    [
        (b"1x", 23, 0), (b"99999999999", 23, 0), (b"\0\0", 23, 1), (b"maybe", 16, 0), (b"1 month", 1186, 0),
        (b"{1", 1007, 0), (b"{1}}", 1007, 0), (b"\xff", 25, 0), (b"a\0b", 25, 0), (b"NaN", 1700, 0), (b"", 1184, 1),
        (b"1", 99_999, 0), (b"\\x0", 17, 0), (b"2024-13-01", 1082, 0), (b"\2", 16, 1), (b"\x7f" * 8, 1184, 1),
    ],
)  # fmt: skip
def test_what_is_no_value_is_refused_with_its_place(data: bytes, oid: int, form: int) -> None:
    with pytest.raises(InputError, match=r"^parameter \$7"):
        decode(data, oid, form, "parameter $7")


@settings(max_examples=budget.examples(300), deadline=None)
@given(st.binary(max_size=60), st.sampled_from([*types.BY_OID, *types.BY_ARRAY]), st.sampled_from([0, 1]))
def test_any_bytes_are_a_value_or_an_error(data: bytes, oid: int, form: int) -> None:
    with suppress(InputError):
        decode(data, oid, form, "it")


# -- COPY ---------------------------------------------------------------------------------------------

ROWS = pa.schema([("s", pa.string()), ("x", pa.float64()), ("ok", pa.bool_())])
OPTIONS = [
    CopyOptions(), CopyOptions(delimiter="|", null=""), CopyOptions("csv", delimiter=",", null=""),
    CopyOptions("csv", header=True, delimiter=";", null="NULL", quote="'", escape="\\"), CopyOptions("binary"),
]  # fmt: skip


@settings(max_examples=budget.examples(150), deadline=None)
@given(
    st.lists(st.tuples(
        st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
        st.none() | st.floats(allow_nan=False), st.none() | st.booleans(),
    ), max_size=5), st.sampled_from(OPTIONS),
)  # fmt: skip
def test_rows_that_go_out_come_in(rows: list[tuple[object, ...]], options: CopyOptions) -> None:
    table = pa.Table.from_pylist([dict(zip(ROWS.names, row, strict=True)) for row in rows], schema=ROWS)
    if options.null == "" and options.format == "text":  # there an empty text is NULL
        table = table.set_column(0, "s", pa.array([row[0] or None for row in rows], pa.string()))
    data = copying.begin(ROWS, options) + b"".join(copying.rows_out(table, options)) + copying.end(options)
    assert copying.to_table(data, ROWS, options, "s", 100).equals(table)


@pytest.mark.parametrize(
    ("data", "options", "words"),
    [
        (b"a\t1\tt\nb\tx\tt\n", CopyOptions(), "line 2, column `x`: 'x' is not a DOUBLE"),
        (b"a\t1\tt\nb\t1\n", CopyOptions(), "line 2: 2 values for 3 columns"),
        (b"a\t1\tmaybe\n", CopyOptions(), "line 1, column `ok`"),
        (b'"a\nb",1,t\n"c",2,u\n', CopyOptions("csv", delimiter=",", null=""), "line 3, column `ok`"),
        (b'"a,1,t\n', CopyOptions("csv", delimiter=",", null=""), "line 1: a quote"),
        (b"a\t1\tt\n\xff\t1\tt\n", CopyOptions(), "line 2: the text is not UTF-8"),
        (b"a\t\tt\n", CopyOptions(), "line 1, column `x`: an empty text"),
        (b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\2", CopyOptions("binary"), "row 1: 2 values for 3 columns"),
        (b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\3\0\0", CopyOptions("binary"), "end in the middle"),
        (b"hello", CopyOptions("binary"), "do not begin"),
    ],
)
def test_a_bad_row_is_refused_with_its_place(data: bytes, options: CopyOptions, words: str) -> None:
    with pytest.raises(InputError) as caught:
        copying.to_table(data, ROWS, options, "s", 100)
    assert words in caught.value.message


def test_the_end_mark_and_escapes_of_the_text_format() -> None:
    table = copying.to_table(b"a\\tb\\\\\t1\tt\nx\\\ny\t\\N\tf\n\\.\nignored", ROWS, CopyOptions(), "s", 100)
    assert table.column("s").to_pylist() == ["a\tb\\", "x\ny"]
    with pytest.raises(LimitExceeded, match="at most 1 "):
        copying.to_table(b"a\t1\tt\nb\t1\tt\n", ROWS, CopyOptions(), "s", 1)


# -- statements ---------------------------------------------------------------------------------------


def statement(text: str) -> Statement:
    (piece,) = pieces(text)
    return read(piece, NAMES)


def test_statements_of_the_protocol() -> None:
    assert statement("COPY s (a, \"B c\") FROM STDIN WITH (FORMAT csv, HEADER, DELIMITER E'\\t')") == CopyIn(
        "s", ("a", "B c"), CopyOptions("csv", True, "\t", "", '"', '"')
    )
    assert statement("copy s to stdout csv header") == CopyOut(
        'SELECT * FROM "s"', CopyOptions("csv", True, ",", "", '"', '"')
    )
    out = statement("COPY (SELECT ';)' FROM (SELECT 1)) TO STDOUT")
    assert isinstance(out, CopyOut)
    assert out.text.strip() == "SELECT ';)' FROM (SELECT 1)"
    assert statement("FETCH FORWARD 10 FROM c WITH (timeout = '1.5 seconds')") == Fetch("c", 10, 1.5)
    assert statement('FETCH ALL IN "C"') == Fetch("C", None)
    declared = statement("DECLARE c NO SCROLL CURSOR WITH HOLD FOR SUBSCRIBE q FROM START")
    assert isinstance(declared, Declare)
    assert declared.text.strip() == "SUBSCRIBE q FROM START"
    assert isinstance(statement("CLOSE STREAM s"), Other)
    assert isinstance(statement("SHOW STREAMS"), Other)
    assert isinstance(statement("SHOW QUERY lately"), Other)


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("COPY s FROM '/etc/passwd'", 13), ("COPY s TO PROGRAM 'x'", 11), ("FETCH PRIOR FROM c", 7),
        ("COPY s FROM STDIN (FORMAT parquet)", 35), ("DECLARE c CURSOR", 17), ("COPY s FROM STDIN (BLA 1)", 26),
        ("CLOSE", 6), ("COPY (SELECT 1 TO STDOUT", 25),
    ],
)  # fmt: skip
def test_wrong_statements_say_where(text: str, column: int) -> None:
    with pytest.raises(CqlSyntaxError) as caught:
        statement(text)
    assert caught.value.position is not None
    assert caught.value.position.column == column


def test_a_value_never_becomes_a_comment_or_a_statement() -> None:
    assert spliced("SELECT 1 -$1, 2", [-5]).replace(" ", "") == "SELECT1--5,2"
    (one,) = pieces(spliced("SELECT 1 -$1, 2", [-5]))
    assert [t.value for t in one.tokens][-2:] == [",", "2"]
    for hostile in ("'; DROP STREAM s; --", "\\'; --", "''", "$1", "/*", "x'y"):
        (one,) = pieces(spliced("INSERT INTO s VALUES ($1, $2)", [hostile, 7]))
        assert [t.value for t in one.tokens if t.sort == "string"] == [hostile]
        assert one.tokens[-2].value == "7"


def test_parameters_of_a_connection() -> None:
    held = Parameters("me", admin=False, encrypted=False)
    assert held.set("timezone", "Europe/Vienna") == [("TimeZone", "Europe/Vienna")]
    assert held.zone == "Europe/Vienna"
    assert held.set("all", None) == [("TimeZone", "UTC")]
    held.set("statement_timeout", "2min")
    assert held.timeout == 120
    held.set("myapp.user", "x")
    assert held.get("MyApp.User") == "x"
    for name, value in (
        ("client_encoding", "LATIN1"), ("timezone", "Mars/X"), ("nonsense", "1"), ("server_version", "9"),
        ("datestyle", "German"), ("standard_conforming_strings", "off"), ("session_authorization", "admin"),
    ):  # fmt: skip
        with pytest.raises(Refused):
            held.set(name, value)


# -- SCRAM --------------------------------------------------------------------------------------------


def answer(challenge: bytes, first: str, password: str) -> tuple[bytes, bytes]:
    """The client's last message, and the server's signature that it expects."""
    fields = dict(part.split("=", 1) for part in challenge.decode().split(","))
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    key = hmac.digest(salted, b"Client Key", "sha256")
    without = f"c=biws,r={fields['r']}"
    told = f"{first},{challenge.decode()},{without}".encode()
    signature = hmac.digest(hashlib.sha256(key).digest(), told, "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
    server = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), told, "sha256")
    return f"{without},p={proof}".encode(), b"v=" + base64.b64encode(server)


def test_scram_lets_in_who_knows_the_password() -> None:
    first = "n=,r=rOprNGfwEbeRWgbNEkqO"
    for verifier, password, right in (
        (scram.verifier("pencil"), "pencil", True), (scram.verifier("pencil"), "pen", False),
        (scram.mock(b"s" * 32, "nobody"), "pencil", False),
    ):  # fmt: skip
        exchange = Exchange([verifier])
        last, expected = answer(exchange.first(b"n,," + first.encode()), first, password)
        assert exchange.final(last) == ((expected, verifier) if right else None)


def test_scram_of_the_rfc() -> None:
    """The example of RFC 7677."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    others = [scram.verifier(f"token {i}", salt=salt) for i in range(2)]
    exchange = Exchange([*others, scram.verifier("pencil", salt=salt)], nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert exchange.first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    last = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    found = exchange.final(last)
    assert found is not None
    assert found[0] == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize(
    "first", [b"", b"n,,", b"p=tls-unique,,n=,r=x", b"n,,n=,r=", b"n,,r=x", b"\xff", b"x,,n=,r=a", b"n,b=x,n=,r=a"]
)
def test_scram_refuses_what_is_none(first: bytes) -> None:
    with pytest.raises(ScramError):
        Exchange([scram.verifier("pencil")]).first(first)


@pytest.mark.parametrize("last", [b"", b"c=biws,r=x,p=", b"c=eSws,r={r},p=AAAA", b"c=biws,r={r},p=!", b"r={r},p=AAAA"])
def test_scram_refuses_another_last_message(last: bytes) -> None:
    exchange = Exchange([scram.verifier("pencil")], nonce="y")
    exchange.first(b"n,,n=,r=x")
    with pytest.raises(ScramError):
        exchange.final(last.replace(b"{r}", b"xy"))
