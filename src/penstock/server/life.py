"""The life of a server: the database, the service and a listener for each protocol; signals; the banner.

It ends when it is told to (SIGTERM, Ctrl-C): listeners take no more clients and finish what is under way, then the
database ends its micro-batches and closes. What is not done within ``Settings.grace`` is cut off: everything that was
acknowledged is on disk by then. SIGHUP reads the certificate again.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Protocol, TextIO

from penstock.database.database import Database
from penstock.hosts.durable.writer import written_by
from penstock.hosts.options import Keeping, SparkOptions
from penstock.model import tracing
from penstock.model.amounts import parse_bound
from penstock.model.errors import InputError, PenstockError
from penstock.model.version import VERSION
from penstock.server import tls
from penstock.server.service import Service
from penstock.server.settings import Settings
from penstock.storage.objects import files_at, root_of
from penstock.storage.store import HEAD, checked_sync

_log = logging.getLogger("penstock.server")
_LOOK = 5.0
"""Seconds between two looks at the files of the certificate."""
_AFTER = 2.0
"""Seconds after ``grace`` in which the process itself must have ended."""
PORTS = {"http": "HTTP", "flight": "Flight SQL", "postgres": "PostgreSQL"}
MODULES = {
    "http": "penstock.server.http.listener", "flight": "penstock.server.flight.listener",
    "postgres": "penstock.server.postgres.listener",
}  # fmt: skip
"""Where ``listener()`` is, for each protocol."""


class Listener(Protocol):
    """One protocol. Its module has ``listener()``, which makes it; modules are imported only if their port is on."""

    def start(self, service: Service, settings: Settings) -> str:
        """Listen, in threads of its own, on ``settings.host`` and its port; gives the address, such as
        ``127.0.0.1:7072``. Returns when clients can connect."""

    def stop(self, deadline: float) -> None:
        """Take no more clients, let requests that are under way finish until ``deadline`` (``time.monotonic``), then
        cut the rest off; ends its threads. Called once. It may have ``reload()`` too: the certificate is another."""


def listener(name: str) -> Listener:
    """The listener of a protocol; InputError where a library is missing."""
    try:
        made: Listener = importlib.import_module(MODULES[name]).listener()
    except ModuleNotFoundError as missing:
        raise InputError(
            f"{PORTS[name]} needs the Python package `{missing.name}`, which is not installed",
            hint=f"pip install 'penstock[server]'; --{name} off starts the server without {PORTS[name]}",
        ) from None
    return made


def traced(settings: Settings) -> Callable[[], None]:
    """Let spans go where the settings say; gives what ends that. InputError where a library is missing."""
    if settings.traces is None:
        return lambda: None
    try:
        otel = importlib.import_module("penstock.server.tracing")
        made = otel.export_to(settings.traces)
    except ModuleNotFoundError as missing:
        raise InputError(
            f"traces need the Python package `{missing.name}`, which is not installed",
            hint="pip install 'penstock[tracing]'",
        ) from None
    return partial(otel.stop, made)


def open_database(directory: str, settings: Settings) -> Database:
    """The database of a server."""
    keeping = Keeping(
        checked_sync(settings.sync), settings.functions, settings.quota, parse_bound("results", settings.results)
    )
    options = SparkOptions(settings.master, spark=settings.spark)
    return Database(settings.engine, path=directory, options=options, keeping=keeping, zone=settings.zone)


class Server:
    """A server that runs, from ``start`` to ``stop``."""

    def __init__(self, directory: str, settings: Settings) -> None:
        self.directory, self.settings = directory, settings
        self.addresses: dict[str, str] = {}
        """Where each protocol listens."""
        self.token: str | None = None
        """The admin's, where the database is new."""
        self._stack = ExitStack()
        self._stopped = threading.Event()
        self._reloading = threading.Lock()
        self._stamp: object = None
        """That of the certificate in use."""
        self._listeners: dict[str, Listener] = {}
        self.service: Service | None = None

    def start(self) -> None:
        """Returns when clients can connect; leaves nothing behind where it fails."""
        settings = self.settings
        made = {name: listener(name) for name in PORTS if getattr(settings, name) is not None}
        with ExitStack() as stack:
            stack.callback(traced(settings))
            local = Path(self.directory) if "://" not in self.directory else None
            if local is not None and not local.exists():
                local.mkdir(0o700, parents=True)  # what is in it is for who runs the server
            db = stack.enter_context(open_database(self.directory, settings))
            self.settings = settings = tls.prepared(settings, local)
            self.service = service = Service(db, settings, directory=local)
            stack.callback(service.close)
            service.status = "starting"
            self.token = service.access.first_start()
            stack.callback(self._stop_listeners)
            for name, each in made.items():
                self.addresses[name] = each.start(service, settings)
                service.ports[name] = int(self.addresses[name].rpartition(":")[2])
                self._listeners[name] = each
            service.status = "ready"
            if settings.tls_cert is not None:
                self._stamp = tls.stamp(settings)
                threading.Thread(target=self._follow_certificate, name="penstock-certificate", daemon=True).start()
            self._stack = stack.pop_all()

    def reload(self) -> None:
        """The certificate may have been replaced; one that cannot be used is logged, and the one before stays."""
        with self._reloading:
            self._stamp = tls.stamp(self.settings)
            try:
                tls.reload(self.settings)
            except InputError as error:
                _log.error("the certificate cannot be used, the one before it stays: %s", error.one_line)
                return
            for each in list(self._listeners.values()):
                again: Callable[[], None] | None = getattr(each, "reload", None)
                try:
                    if again is not None:
                        again()
                except InputError as error:
                    _log.error("the certificate has been read, and it is tried again: %s", error.one_line)
                    self._stamp = None
                    return
            _log.info("the certificate has been read: new connections have it")

    def _follow_certificate(self) -> None:
        """Read it again when its files have changed. In a thread, which ``stop`` ends."""
        while not self._stopped.wait(_LOOK):
            now = tls.stamp(self.settings)
            if now is not None and now != self._stamp:
                self.reload()

    def stop(self) -> None:
        """End within ``Settings.grace``, as far as it depends on clients."""
        self._stopped.set()
        if self.service is not None:
            self.service.status = "stopping"
        self._stack.close()

    def _stop_listeners(self) -> None:
        # The database needs a part of the time for its last micro-batches.
        deadline = time.monotonic() + self.settings.grace / 2
        threads = [
            threading.Thread(target=each.stop, args=(deadline,), name=f"penstock-stop-{name}", daemon=True)
            for name, each in self._listeners.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, deadline + 1 - time.monotonic()))
        self._listeners = {}


def banner(server: Server) -> list[str]:
    """What people are told when a server has started."""
    web = "https" if server.settings.tls_cert is not None else "http"
    grpc = "grpc+tls" if server.settings.tls_cert is not None else "grpc"
    where = server.addresses
    lines = [f"penstock {VERSION} · database {server.directory} · engine {server.settings.engine}"]
    if server.token is not None and "http" in where:
        once = "(shown once, since the database is new)"
        lines.append(f"console   {web}://{where['http']}/#token={server.token}   {once}")
    elif server.token is not None:
        lines.append(f"token     {server.token}   (of user admin; shown once, since the database is new)")
    shown = {
        "http": f"HTTP      {web}://{where.get('http')}/api", "flight": f"Flight SQL  {grpc}://{where.get('flight')}",
        "postgres": f"PostgreSQL  {where.get('postgres')}",
    }  # fmt: skip
    lines.append("     ".join(text for name, text in shown.items() if name in where))
    if not server.settings.loopback and server.settings.tls_cert is None:
        lines.append(
            f"warning   {server.settings.host} is reached by other machines, and passwords and rows go there in clear; "
            "tls_cert and tls_key, or tls_self_signed, encrypt them"
        )
    return lines


def new_token(directory: str, settings: Settings) -> str:
    """A new token for the admin of a database that no server has open; Spark is not started for it."""
    root = root_of(directory)
    if HEAD not in files_at(root).names(""):
        hint = f"penstock serve {directory} makes one"
        raise InputError(f"{directory} is not the directory of a database", hint=hint)
    keeping = Keeping(checked_sync(settings.sync))
    engine = written_by(root) or "local"  # one in which nothing was declared yet opens with any
    with Database(engine, path=directory, options=SparkOptions(inline=engine == "spark"), keeping=keeping) as db:
        local = Path(directory) if "://" not in directory else None
        service = Service(db, settings, directory=local)
        try:
            token = service.access.recover()
            service.audit.write("", "new token", said="of the admin, made on the server's machine")
            return token
        finally:
            service.close()


def serve(directory: str, settings: Settings, out: TextIO | None = None) -> int:
    """Run a server until it is told to end; the exit code. Called in the main thread, whose signals it takes."""
    out = sys.stdout if out is None else out
    logs(settings)
    server, told = Server(directory, settings), threading.Event()
    heard, say = os.pipe()
    os.set_blocking(say, False)

    def watch() -> None:
        """In a thread, which goes with the process, or with a server that cannot start."""
        end: float | None = None
        while True:
            ready, _, _ = select.select([heard], [], [], None if end is None else max(0.0, end - time.monotonic()))
            if not ready:
                _too_late(settings.grace)
            numbers = os.read(heard, 64)
            if not numbers:
                os.close(heard)
                return
            for number in numbers:
                if number == signal.SIGHUP:
                    threading.Thread(target=server.reload, name="penstock-reload", daemon=True).start()
                elif number not in (signal.SIGTERM, signal.SIGINT):
                    continue  # another module has a handler for it
                elif end is not None:
                    os.write(2, b"penstock: told twice to end: it ends at once\n")
                    os._exit(1)
                else:
                    end = time.monotonic() + settings.grace
                    # Also for what Python does after its last line, when no thread of Python's runs any more.
                    faulthandler.dump_traceback_later(settings.grace + _AFTER, exit=True)
                    told.set()

    threading.Thread(target=watch, name="penstock-watch", daemon=True).start()
    # The system gives a signal to any thread of the process, and Python runs handlers in the main thread alone, which
    # nobody wakes for it. So handlers do nothing: Python writes the signal's number to the pipe, in whatever thread.
    before_pipe = signal.set_wakeup_fd(say, warn_on_full_buffer=False)
    before: Mapping[int, object] = {
        number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    }
    try:
        server.start()
        for line in banner(server):
            print(line, file=out, flush=True)
        told.wait()
        print(f"penstock ends, within {settings.grace:g} seconds", file=out, flush=True)
    finally:
        server.stop()
        for number, handler in before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        signal.set_wakeup_fd(before_pipe)
        os.close(say)
    return 0


def _too_late(grace: float) -> None:
    _log.error("the server has not ended within %g seconds: what is under way is cut off", grace)
    os._exit(1)


class _Json(logging.Formatter):
    """A JSON object for each line; what a caller gives with ``extra={"facts": {…}}`` is in it."""

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {"at": f"{at}.{int(record.msecs):03}Z", "level": record.levelname.lower(), "logger": record.name,
                "message": record.getMessage(), **getattr(record, "facts", {})}  # fmt: skip
        if "trace" not in line and (trace := tracing.trace_id()) is not None:
            line["trace"] = trace
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def logs(settings: Settings) -> None:
    """Let the log go to the standard error output, as text or as JSON."""
    handler = logging.StreamHandler()
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(_Json() if settings.log == "json" else text)
    root = logging.getLogger("penstock")
    root.handlers, root.propagate = [handler], False
    root.setLevel(logging.INFO if settings.log == "json" else logging.WARNING)


def problems(settings: Settings) -> list[str]:
    """What would stop a server with these settings: libraries that are missing, a certificate that is none."""
    found = []
    try:
        tls.reload(settings)
    except InputError as error:
        found.append(error.one_line)
    for name in PORTS:
        if getattr(settings, name) is not None:
            try:
                listener(name)
            except PenstockError as error:
                found.append(error.one_line)
    try:
        traced(settings)()
    except PenstockError as error:
        found.append(error.one_line)
    return found
