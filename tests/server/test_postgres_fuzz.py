"""Bytes that nobody would send: the server answers with an error or hangs up, and goes on for everybody else."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest
from benchmarks.support.fuzz import GOOD
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import budget
from tests.server.pg import Raw, Served, serving, until


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as found:
        yield found
        until(lambda: found.sessions() == 0)  # no broken client leaves a session


def lives(served: Served) -> None:
    """The server still takes clients and answers them."""
    with Raw(served.port) as raw:
        raw.login_with_token(served.token)
        raw.send(b"Q", b"SELECT 42 AS x\0")
        found = raw.until(b"Z")
        assert [letter for letter, _ in found] == [b"T", b"D", b"C", b"Z"]
        assert b"42" in found[1][1]
        raw.send(b"X")


def swallow(client: socket.socket) -> None:
    """Read until the server hangs up or says nothing more."""
    client.shutdown(socket.SHUT_WR)
    client.settimeout(20)
    try:
        while client.recv(65_536):
            pass
    except ConnectionError:
        pass


@settings(max_examples=budget.examples(60), deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_before_the_login(served: Served, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", served.port)) as client:
        client.sendall(data)
        swallow(client)
    assert served.sessions() == 0


@st.composite
def conversations(draw: st.DrawFn) -> bytes:
    """Messages that make sense, in any order, and changed in a few places."""
    data = bytearray(b"".join(draw(st.lists(st.sampled_from(GOOD), min_size=1, max_size=8))))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data) - 1))
        match draw(st.sampled_from(["change", "insert", "delete"])):
            case "change":
                data[at] = draw(st.integers(0, 255))
            case "insert":
                data[at:at] = draw(st.binary(min_size=1, max_size=4))
            case "delete":
                del data[at : at + draw(st.integers(1, 4))]
        data = data or bytearray(b"\0")
    return bytes(data)


@settings(max_examples=budget.examples(120), deadline=None)
@given(conversations())
def test_mutated_messages(served: Served, data: bytes) -> None:
    with Raw(served.port) as raw:
        raw.login_with_token(served.token)
        raw.socket.sendall(data)
        swallow(raw.socket)


@pytest.mark.parametrize(
    "data",
    [
        b"\x7f\xff\xff\xff\0\3\0\0", b"\0\0\0\4", b"\0\0\0\x08\0\2\0\0", b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\0\1\0",
        b"\0\0\0\x09\0\3\0\0\0", b"\0\0\0\x10\0\3\0\0user\0\xff\xff\0", struct.pack("!ii", 8, 80877104) * 3,
        struct.pack("!ii", 8, 80877103) * 3, struct.pack("!ii", 12, 80877102) + b"\0\0\0\1", b"",
    ],
)  # fmt: skip
def test_wrong_beginnings(served: Served, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", served.port)) as client:
        client.sendall(data)
        swallow(client)
    lives(served)


@pytest.mark.parametrize(
    ("message", "state"),
    [
        (b"Q\x7f\xff\xff\xff", "08P01"), (b"Q\0\0\0\0", "08P01"), (b"!\0\0\0\4", "08P01"),
        (b"Q\0\0\0\x08SELE", "08P01"),
        (b"Q\0\0\0\x06\xff\0", "08P01"), (b"B\0\0\0\4", "08P01"), (b"D\0\0\0\x07Xx\0", "08P01"),
        (b"p\0\0\0\4", "08P01"),
        (b"P\0\0\0\x0a\0\0\xff\xff\0\0", "08P01"), (b"E\0\0\0\x0aX\0\0\0\0\0", "34000"), (b"D\0\0\0\x06P\0", "34000"),
    ],
)  # fmt: skip
def test_wrong_messages_say_what_is_wrong(served: Served, message: bytes, state: str) -> None:
    with Raw(served.port) as raw:
        raw.login_with_token(served.token)
        raw.socket.sendall(message)
        letter, body = raw.read()
        assert letter == b"E"
        assert f"C{state}\0".encode() in body
    lives(served)


def test_the_server_lives_after_all_that(served: Served) -> None:
    until(lambda: served.sessions() == 0)
    lives(served)
