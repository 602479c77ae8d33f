"""Messages of Flight SQL against bytes as Protocol Buffers write them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import InputError
from penstock.server.flight import wire

# As ADBC's driver sends them.
STATEMENT = b"\nCtype.googleapis.com/arrow.flight.protocol.sql.CommandStatementQuery\x12\n\n\x08SELECT 1"
APPEND = (
    b"\nDtype.googleapis.com/arrow.flight.protocol.sql.CommandStatementIngest"
    b"\x12\n\n\x04\x08\x02\x10\x02\x12\x02\xc3\xa9"
)
CREATE = (
    b"\nDtype.googleapis.com/arrow.flight.protocol.sql.CommandStatementIngest"
    b"\x12\x12\n\x04\x08\x01\x10\x01\x12\x02\xc3\xa9\x1a\x06public"
)
TABLES = b"\n>type.googleapis.com/arrow.flight.protocol.sql.CommandGetTables\x12\x05\x1a\x01t(\x01"
# CommandGetSqlInfo {info: [0, 1, 300]}, packed, and unpacked as older writers do
PACKED, UNPACKED = b"\n\x04\x00\x01\xac\x02", b"\x08\x00\x08\x01\x08\xac\x02"


def test_a_command() -> None:
    name, found = wire.command(STATEMENT)
    assert (name, wire.as_text(found, 1)) == ("CommandStatementQuery", "SELECT 1")
    assert wire.packed(name, wire.message(f1="SELECT 1")) == STATEMENT


@pytest.mark.parametrize("data", [PACKED, UNPACKED])
def test_repeated_numbers(data: bytes) -> None:
    assert wire.all_ints(wire.fields(data), 1) == [0, 1, 300]


def test_ingest() -> None:
    name, found = wire.command(APPEND)
    assert name == "CommandStatementIngest"
    assert wire.Ingest.of(found) == wire.Ingest("é", None, False, 2, False)
    assert wire.Ingest.of(wire.command(CREATE)[1]) == wire.Ingest("é", "public", True, 1, False)


def test_tables() -> None:
    name, found = wire.command(TABLES)
    assert (name, wire.as_text(found, 1), wire.as_text(found, 3), wire.as_int(found, 5)) == (
        "CommandGetTables",
        None,
        "t",
        1,
    )


def test_negative_and_unknown_fields() -> None:
    assert wire.message(f1=-1) == b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    assert wire.as_int(wire.fields(wire.message(f1=-1)), 1) == 2**64 - 1
    found = wire.fields(b"\x09\1\2\3\4\5\6\7\x08\x15\1\2\3\4\x1a\x01a")
    assert wire.as_text(found, 3) == "a"


@pytest.mark.parametrize(
    "data",
    [
        b"\n",
        b"\n\x05a",
        b"\x08",
        b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x0b",
        b"\x00\x00",
        STATEMENT[:-1],
    ],
)
def test_what_is_no_message(data: bytes) -> None:
    with pytest.raises(InputError):
        wire.command(data)


@given(st.binary(max_size=80))
def test_random_bytes(data: bytes) -> None:
    for read in (wire.fields, wire.command):
        with contextlib.suppress(InputError):
            read(data)


@given(st.data())
def test_mutated_commands(data: st.DataObject) -> None:
    mutated = bytearray(STATEMENT)
    for _ in range(data.draw(st.integers(1, 4))):
        mutated[data.draw(st.integers(0, len(mutated) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(InputError):
        _, found = wire.command(bytes(mutated))
        wire.as_text(found, 1)
        wire.Ingest.of(found)


@given(st.text(max_size=20), st.integers(0, 2**64 - 1), st.binary(max_size=300))
def test_there_and_back(text: str, number: int, data: bytes) -> None:
    found = wire.fields(wire.message(f1=text, f2=number, f300=data))
    assert (wire.as_text(found, 1), wire.as_int(found, 2), wire.as_bytes(found, 300)) == (text, number, data)
