"""The parameters of a connection: SET, SHOW, RESET, and what the client is told of them."""

from __future__ import annotations

import re

import pyarrow as pa

from penstock.model.errors import InputError
from penstock.model.version import VERSION
from penstock.scalar.zones import checked
from penstock.server.postgres.errors import Refused

SERVER_VERSION = f"15.0 (Penstock {VERSION})"
_REPORTED = (
    "server_version", "server_encoding", "client_encoding", "application_name", "is_superuser",
    "session_authorization", "DateStyle", "IntervalStyle", "TimeZone", "integer_datetimes",
    "standard_conforming_strings", "default_transaction_read_only", "in_hot_standby",
)  # fmt: skip
"""Clients hear of these at the beginning and when they change."""
_FIXED = {
    "server_version": SERVER_VERSION, "server_version_num": "150000", "server_encoding": "UTF8", "integer_datetimes":
    "on", "in_hot_standby": "off", "max_identifier_length": "63", "block_size": "8192", "lc_collate": "C", "lc_ctype":
    "C", "max_index_keys": "32", "is_superuser": "off", "session_authorization": "", "ssl": "off", "wal_level":
    "replica", "max_connections": "1000",
}  # fmt: skip
_DEFAULTS = {
    "client_encoding": "UTF8", "application_name": "", "DateStyle": "ISO, MDY", "IntervalStyle": "postgres", "TimeZone":
    "UTC", "standard_conforming_strings": "on", "default_transaction_read_only": "off", "search_path":
    '"$user", public', "extra_float_digits": "1", "bytea_output": "hex", "transaction_isolation": "read committed",
    "default_transaction_isolation": "read committed", "transaction_read_only": "off", "statement_timeout": "0",
    "lock_timeout": "0", "idle_in_transaction_session_timeout": "0", "client_min_messages": "notice", "row_security":
    "on", "xmloption": "content", "jit": "off", "synchronous_commit": "on", "escape_string_warning": "on",
    "backslash_quote": "safe_encoding", "default_transaction_deferrable": "off", "transaction_deferrable": "off",
    "geqo": "on", "work_mem": "4MB", "lc_messages": "C", "lc_monetary": "C", "lc_numeric": "C", "lc_time": "C",
    "default_table_access_method": "heap", "default_tablespace": "", "check_function_bodies": "on",
    "quote_all_identifiers": "off", "max_parallel_workers_per_gather": "0", "enable_seqscan": "on",
}  # fmt: skip
_SPELLED = {name.lower(): name for name in (*_FIXED, *_DEFAULTS)}
NAMES = frozenset(_SPELLED)
"""What SHOW knows, in small letters."""
_MOST = 1_000
"""Characters of a value, and how many parameters of other programs (``myapp.user``) a connection keeps."""


class Parameters:
    """The values of one connection. Bounded by: the known names, and ``_MOST`` of other programs."""

    def __init__(self, user: str, *, admin: bool, encrypted: bool) -> None:
        self._values = _FIXED | _DEFAULTS
        self._values["session_authorization"] = user
        self._values["is_superuser"] = "on" if admin else "off"
        self._values["ssl"] = "on" if encrypted else "off"
        self._first = dict(self._values)

    def all(self) -> dict[str, str]:
        """Every parameter with its value."""
        return dict(sorted(self._values.items(), key=lambda item: item[0].lower()))

    def reported(self) -> list[tuple[str, str]]:
        """What a client is told at the beginning."""
        return [(name, self._values[name]) for name in _REPORTED]

    def get(self, name: str) -> str | None:
        """The value, or None where there is no such parameter."""
        return self._values.get(_SPELLED.get(name.lower(), name.lower()))

    def set(self, name: str, value: str | None, *, first: bool = False) -> list[tuple[str, str]]:
        """Change one (None: back to its default, ``all``: every one); gives what the client has to be told.

        ``first``: at the login, so that it is the default of this connection.
        """
        name = name.lower()
        if name == "all" and value is None:
            changed = [n for n in _REPORTED if self._values[n] != self._first[n]]
            self._values = dict(self._first)
            return [(n, self._values[n]) for n in changed]
        spelled = _SPELLED.get(name)
        if spelled is None and "." not in name:
            raise Refused("42704", f'unrecognized configuration parameter "{name}"')
        spelled = spelled or name
        if value is None:
            value = self._first.get(spelled, "")
        if spelled in _FIXED:
            if name in ("session_authorization", "is_superuser") or value != self._values[spelled]:
                raise Refused("55P02", f'parameter "{spelled}" cannot be changed')
            return []
        value = _checked(spelled, value)
        if len(value) > _MOST or (spelled not in self._values and len(self._values) > _MOST):
            raise Refused("54000", f"a value has at most {_MOST} characters, and a connection {_MOST} parameters")
        before = self._values.get(spelled)
        self._values[spelled] = value
        if first:
            self._first[spelled] = value
        return [(spelled, value)] if spelled in _REPORTED and value != before else []

    @property
    def zone(self) -> str:
        """In which times are shown as text."""
        return self._values["TimeZone"]

    @property
    def timeout(self) -> float | None:
        """Seconds that a statement may take; None: what the server allows."""
        return _seconds(self._values["statement_timeout"]) or None

    def table(self) -> pa.Table:
        """SHOW ALL."""
        held = self.all()
        return pa.table({"name": list(held), "setting": list(held.values()), "description": [""] * len(held)})


def _checked(name: str, value: str) -> str:
    match name:
        case "client_encoding":
            if value.strip("'\"").upper().replace("-", "").replace("_", "") not in ("UTF8", "UNICODE", "SQLASCII"):
                raise Refused("22023", f"client_encoding is UTF8 here, not {value}")
            return "UTF8"
        case "TimeZone":
            try:
                return checked(value, InputError)
            except InputError as error:
                raise Refused("22023", error.message, error.hint) from None
        case "standard_conforming_strings":
            if value.lower() not in ("on", "true", "1", "yes"):
                raise Refused(
                    "22023", "a backslash in a string is a backslash here", "standard_conforming_strings is on"
                )
            return "on"
        case "DateStyle":
            if not value.upper().startswith("ISO"):
                raise Refused("22023", "times are written in ISO form here", "DateStyle is ISO")
            return "ISO, MDY"
        case "IntervalStyle" | "bytea_output":
            if value.lower() != _DEFAULTS[name]:
                raise Refused("22023", f"{name} is {_DEFAULTS[name]} here")
            return value.lower()
        case "statement_timeout":
            _seconds(value)
    return value


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d{1,12}(?:\.\d+)?)\s*(us|ms|s|min|h|d)?", text.strip())
    if found is None:
        raise Refused("22023", f"{text!r} is not a time", "milliseconds, or such as 5s, 2min")
    scale = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
    return float(found[1]) * scale[found[2] or "ms"]
