"""What a server is told: ``penstock.toml``, then ``PENSTOCK_*``, then options, each over what came before."""

from __future__ import annotations

import ipaddress
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from penstock.hosts.options import ENGINES
from penstock.model.amounts import parse_bound, parse_bytes, shown
from penstock.model.durations import parse_duration
from penstock.model.errors import InputError, PenstockError, suggest, typo
from penstock.scalar.zones import checked as checked_zone
from penstock.storage.store import checked_sync

FILE = "penstock.toml"
"""The file that is read where no other is named: in the directory of the database, or else in the working directory."""
PREFIX = "PENSTOCK_"


@dataclass(frozen=True)
class Settings:
    """A setting of the file has the name of its field; ``PENSTOCK_`` and the name in capitals is its variable."""

    engine: str = "spark"
    """``local`` or ``spark``."""
    master: str | None = None
    """Spark's master; by default all cores of this machine."""
    host: str = "127.0.0.1"
    """The address that the protocols listen on; only this machine reaches the default."""
    http: int | None = 7070
    """Ports; 0: a free one, None (``off``): this protocol is off."""
    flight: int | None = 7071
    postgres: int | None = 7072
    sync: str = "group"
    zone: str | None = None
    tls_cert: Path | None = None
    """A certificate and its key, in PEM, for all three protocols."""
    tls_key: Path | None = None
    tls_self_signed: bool = False
    """Make a certificate where none is named."""
    functions: bool = False
    """Whether Python functions of the directory, and of administrators, may run."""
    grace: float = 20.0
    """Seconds in which the server ends after SIGTERM or Ctrl-C; then it ends at once."""
    results: str = "16 MB"
    """What of each query's results is retained for readers, where the query does not say it itself."""
    body: int = 64_000_000
    """Bytes of one request."""
    rows: int = 1_000_000
    """Rows of one batch that is pushed."""
    statement: int = 1_000_000
    """Characters of one statement text."""
    sessions: int = 1_000
    """Sessions at a time."""
    subscriptions: int = 1_000
    """Named subscriptions at a time."""
    adhoc_seconds: float = 30.0
    """Seconds that a plain SELECT may take."""
    adhoc_memory: int = 512_000_000
    """Bytes that it may use."""
    held_memory: int = 1_000_000_000
    """Bytes that the server holds for clients, all together: answers that wait, cursors, rows on their way in."""
    user_memory: int = 500_000_000
    """Of these, bytes for one user."""
    idle: float = 3600.0
    """Seconds after which an HTTP session that nobody uses is forgotten."""
    audit: int = 10_000_000
    """Bytes of the audit log's file; then it is begun anew, and one before it is kept."""
    quota: str | None = None
    """How large the directory may become."""
    log: str = "text"
    """``text`` or ``json``."""
    traces: str | None = None
    """The address of an OpenTelemetry collector."""
    spark: Mapping[str, str] = field(default_factory=dict)
    """More settings for Spark: a table of the file."""

    @property
    def loopback(self) -> bool:
        """Whether only this machine reaches the server."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether an address is one of this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Said:
    """A value, and where it stands: a file, a variable or an option."""

    value: object
    where: str


class SettingsError(InputError):
    """What is wrong with the settings: all of it, a line for each."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


def _port(value: object) -> int | None:
    text = str(value).strip().lower()
    if value is None or value is False or text == "off":
        return None
    if isinstance(value, bool) or not text.isdigit() or int(text) > 65_535:
        raise InputError(f"{value!r} is not a port", hint="a number up to 65535, 0 for a free one, or off")
    return int(text)


def _flag(value: object) -> bool:
    known = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
    if isinstance(value, bool):
        return value
    if str(value).lower() not in known:
        raise InputError(f"{value!r} is neither true nor false")
    return known[str(value).lower()]


def _one_of(*names: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if value not in names:
            raise InputError(f"{value!r} is not one of {', '.join(names)}")
        return str(value)

    return read


def _seconds(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
        return float(value)
    try:
        found = float(value) if isinstance(value, str) else 0.0
    except ValueError:
        found = parse_duration(str(value)) / 1_000_000
    if not found > 0:
        raise InputError(f"{value!r} is not a time", hint="seconds, such as 30, or '5 minutes'")
    return found


def _count(value: object) -> int:
    text = str(value).replace("_", "").replace(",", "")
    if isinstance(value, bool) or not text.isdigit() or int(text) < 1:
        raise InputError(f"{value!r} is not a number of things", hint="a whole number, at least 1")
    return int(text)


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{value!r} is not a text")
    return value.strip()


def _path(value: object) -> Path:
    found = Path(value if isinstance(value, Path) else _text(value)).expanduser()
    if not found.is_file():
        raise InputError(f"there is no file {found}")
    return found


def _table(value: object) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        raise InputError(f"{value!r} is not a table", hint='[spark] and lines such as "spark.executor.memory" = "2g"')
    found: dict[str, str] = {}
    for name, each in value.items():  # dotted names that are not quoted are tables in tables
        found |= {f"{name}.{k}": v for k, v in _table(each).items()} if isinstance(each, Mapping) else {name: str(each)}
    return found


def _bytes(value: object) -> int:
    return parse_bytes("it", int(value) if isinstance(value, str) and value.isdigit() else value)


def _bound(value: object) -> str:
    parse_bound("it", value)
    return str(value)


def _quota(value: object) -> str:
    return shown(parse_bytes("it", value)) if isinstance(value, int) else (parse_bytes("it", value), str(value))[1]


def _address(value: object) -> str:
    found = _text(value)
    if not found.startswith(("http://", "https://")):
        raise InputError(f"{found!r} is not an address", hint="such as http://127.0.0.1:4318")
    return found


def _zone(value: object) -> str:
    return checked_zone(_text(value), InputError)


_READ: Mapping[str, Callable[[object], Any]] = {
    "engine": _one_of(*(e for e in ENGINES if e != "reference")), "master": _text, "host": _text, "http": _port,
    "flight": _port, "postgres": _port, "sync": lambda v: checked_sync(_text(v)), "zone": _zone, "tls_cert": _path,
    "tls_key": _path, "tls_self_signed": _flag, "functions": _flag, "grace": _seconds, "results": _bound,
    "body": _bytes, "rows": _count, "statement": _count, "sessions": _count, "subscriptions": _count,
    "adhoc_seconds": _seconds, "adhoc_memory": _bytes,
    "held_memory": _bytes, "user_memory": _bytes, "idle": _seconds, "audit": _bytes, "quota": _quota,
    "log": _one_of("text", "json"), "traces": _address, "spark": _table,
}  # fmt: skip


def file_of(directory: str | None, named: Path | None) -> Path | None:
    """The file of settings: the one that is named, or the one in the database's or in the working directory."""
    if named is not None:
        return named
    places = [Path(FILE)] if directory is None or "://" in directory else [Path(directory) / FILE, Path(FILE)]
    return next((place for place in places if place.is_file()), None)


def read_settings(
    file: Path | None, environment: Mapping[str, str] | None = None, options: Mapping[str, object] | None = None
) -> tuple[Settings, dict[str, Said]]:
    """The settings, and of each that is said where it stands. SettingsError names everything that is wrong."""
    said: dict[str, Said] = {}
    problems: list[str] = []
    known = [f.name for f in fields(Settings)]
    for name, value in _of_file(file, problems).items():
        place = f"{file}"
        if name in known:
            said[name] = Said(value, f"{place}, {name}")
        else:
            hint = suggest(name, known)
            problems.append(f"{place}, {name}: there is no such setting" + (f"; {hint}" if hint else ""))
    env = os.environ if environment is None else environment
    said |= {
        name: Said(env[variable], variable)
        for name in known
        if name != "spark" and env.get(variable := f"{PREFIX}{name.upper()}")
    }
    for variable in env:
        meant = typo(variable, [f"{PREFIX}{name.upper()}" for name in known if name != "spark"])
        if variable.startswith(PREFIX) and meant not in (None, variable):
            problems.append(f"{variable}: there is no such setting; did you mean `{meant}`?")
    given = {name: value for name, value in (options or {}).items() if value is not None}
    said |= {name: Said(value, f"--{name.replace('_', '-')}") for name, value in given.items()}
    values: dict[str, Any] = {}
    for name, each in said.items():
        try:
            values[name] = _READ[name](each.value)
        except PenstockError as error:
            problems.append(f"{each.where}: {error.one_line}")
    found = Settings(**values)
    problems += _together(found, said)
    if problems:
        raise SettingsError(problems)
    return found, said


def _of_file(file: Path | None, problems: list[str]) -> Mapping[str, Any]:
    if file is None:
        return {}
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as problem:
        problems.append(f"{file}: it cannot be read: {problem.strerror}")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        problems.append(f"{file}: it is not TOML: {problem}")
    return {}


def _together(found: Settings, said: Mapping[str, Said]) -> list[str]:
    """What is wrong with settings that are right one by one."""
    problems: list[str] = []
    if (found.tls_cert is None) != (found.tls_key is None):
        one, other = ("tls_cert", "tls_key") if found.tls_key is None else ("tls_key", "tls_cert")
        if one in said:
            problems.append(f"{said[one].where}: {other} is missing; a certificate and its key go together")
    ports = {name: port for name in ("http", "flight", "postgres") if (port := getattr(found, name))}
    for name, port in ports.items():
        twice = [other for other, its in ports.items() if its == port and other < name]
        problems += [f"{name} and {other} are both port {port}" for other in twice]
    if found.http is None and found.flight is None and found.postgres is None:
        problems.append("http, flight and postgres are all off: nobody could reach the server")
    return problems


def described(found: Settings, said: Mapping[str, Said]) -> list[str]:
    """All settings, a line for each, with where they stand: what ``--check`` prints."""
    lines = []
    for each in fields(Settings):
        value = getattr(found, each.name)
        shown_value = "off" if value is None and each.name in ("http", "flight", "postgres") else value
        where = said[each.name].where if each.name in said else "by default"
        lines.append(f"{each.name:16} {'' if shown_value is None else shown_value!s:24} {where}".rstrip())
    return lines
