"""One client: from its first byte to its last.

Messages are taken one after the other, answers are gathered and written when the client waits for them or when there
are enough; a client that does not read them stops its own connection and nothing else. Whatever asks the service does
so in the server's pool, waiting for results does not.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import shlex
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from penstock.model.errors import LimitExceeded, LoginFailed, PenstockError
from penstock.server.postgres import errors, messages
from penstock.server.postgres.catalog import Catalog
from penstock.server.postgres.dialogue import Dialogue
from penstock.server.postgres.errors import Refused
from penstock.server.postgres.exchange import MECHANISM, Exchange, ScramError
from penstock.server.postgres.messages import FULL, Body, Bound, Incoming, Malformed, Parsed
from penstock.server.postgres.parameters import Parameters
from penstock.server.service import Service, Session
from penstock.server.stop import Stop

T = TypeVar("T")
BY_TOKEN = "token"
"""The user name with which any token is a password."""
STARTUP_SECONDS = 20.0
"""How long a client may take to say who it is."""
STALLED_SECONDS = 120.0
"""How long a client may take for the rest of a message that it has begun, and to read what it has asked for."""
_log = logging.getLogger("penstock.server.postgres")


class Server(Protocol):
    """What a connection needs of the listener."""

    service: Service
    catalog: Catalog

    async def call(self, function: Callable[..., T], *args: object, **named: object) -> T:
        """Call the service in the pool."""

    async def encrypt(self, writer: asyncio.StreamWriter) -> None:
        """Go on with TLS."""

    @property
    def has_tls(self) -> bool:
        """Whether it can."""

    def enter(self, connection: Connection) -> int:
        """A number for a connection, under which it can be cancelled."""

    def cancel(self, number: int, secret: int) -> None:
        """Cancel what runs in a connection, if the secret is its."""


class Connection:
    """One client's connection. Bounded by: what is gathered for it (``FULL`` and one batch of rows)."""

    def __init__(self, server: Server, reader: Incoming, writer: asyncio.StreamWriter) -> None:
        self.server, self.reader, self.writer = server, reader, writer
        self.service = server.service
        self.number = 0
        self.secret = secrets.randbits(31)
        self.encrypted = False
        self.ending = False
        self.idle = True
        """Whether it waits for the client's next message."""
        self.stuck = False
        """Whether the client did not read what it was sent."""
        self._cancelled = asyncio.Event()
        self._out = bytearray()
        peer = writer.get_extra_info("peername")
        host = "" if not isinstance(peer, tuple) else f"[{peer[0]}]" if ":" in peer[0] else peer[0]
        self.remote = f"{host}:{peer[1]}" if host else "unknown"
        self.near = isinstance(peer, tuple) and peer[0] in ("127.0.0.1", "::1", "::ffff:127.0.0.1")

    async def run(self) -> None:
        """Talk until the client goes, or the server ends the connection."""
        session: Session | None = None
        dialogue: Dialogue | None = None
        try:
            async with asyncio.timeout(STARTUP_SECONDS):
                found = await self._startup()
                if found is None:
                    return
                session, dialogue = await self._login(found)
            await self._serve(dialogue)
        except Malformed as error:
            await self._last(Refused("08P01", str(error), fatal=True))
        except Refused as error:
            await self._last(error)
        except LoginFailed:
            await self._last(Refused("28P01", "the login failed", fatal=True))
        except LimitExceeded as error:
            await self._last(Refused("53300", error.message, error.hint, fatal=True))
        except PenstockError as error:
            await self._last(Refused(errors.state_of(error), error.message, error.hint, fatal=True))
        except asyncio.CancelledError:
            await self._last(Refused("57P01", "the server ends", fatal=True))
        except TimeoutError:
            self.stuck = True  # it does not go on, or does not read
        except (asyncio.IncompleteReadError, OSError):
            pass  # it has gone
        finally:
            if dialogue is not None:
                dialogue.end()
            if session is not None:
                await asyncio.shield(self.server.call(self.service.logout, session))

    async def _last(self, error: Refused) -> None:
        """Tell the client why the connection ends, if it listens."""
        self.send(messages.notice(b"E", errors.fields(error)))
        try:
            async with asyncio.timeout(1):
                await self.flush()
        except (OSError, TimeoutError):
            self.stuck = True

    # -- beginning ------------------------------------------------------------------------------------

    async def _startup(self) -> dict[str, str] | None:
        """The parameters of a client that wants to log in; None for one that only cancels another."""
        asked: set[int] = set()
        while True:
            code, body = await self.reader.startup()
            if code in (messages.SSL_REQUEST, messages.GSSENC_REQUEST) and code not in asked and not self.encrypted:
                asked.add(code)
                await self._answer_encryption(code)
            elif code == messages.CANCEL_REQUEST:
                self.server.cancel(body.int32(), body.int32())
                return None
            elif code >> 16 == 3:
                return self._options(code, body)
            else:
                raise Refused("0A000", f"protocol {code >> 16}.{code & 0xFFFF} is not spoken here, 3.0 is", fatal=True)

    async def _answer_encryption(self, code: int) -> None:
        if code == messages.GSSENC_REQUEST or not self.server.has_tls:
            self.send(b"N")
            await self.flush()
            return
        if self.reader.waiting:
            raise Malformed("something stands behind the request for TLS that is not encrypted")
        self.send(b"S")
        await self.flush()
        if self.reader.waiting:
            raise Malformed("something stands behind the request for TLS that is not encrypted")
        await self.server.encrypt(self.writer)
        self.encrypted = True

    def _options(self, code: int, body: Body) -> dict[str, str]:
        found: dict[str, str] = {}
        while name := body.text():
            found[name] = body.text()
        body.end()
        if not found.get("user"):
            raise Refused("28000", "no user name stands in the startup packet", fatal=True)
        if "replication" in found and found["replication"].lower() not in ("false", "off", "no", "0"):
            raise Refused(
                "0A000", "there is no replication protocol here", "COPY (SUBSCRIBE query) TO STDOUT", fatal=True
            )
        newer = [name for name in found if name.startswith("_pq_.")]
        if code & 0xFFFF or newer:
            told = b"".join(map(messages.text, newer))
            head = messages.PROTOCOL_3.to_bytes(4, "big") + len(newer).to_bytes(4, "big")
            self.send(messages.message(b"v", head, told))
        return {name: value for name, value in found.items() if name not in newer}

    async def _login(self, given: dict[str, str]) -> tuple[Session, Dialogue]:
        user = given.pop("user")
        if self.server.has_tls and not self.encrypted:
            said = "this server has a certificate, and is reached with TLS only"
            raise Refused("28000", said, "sslmode=require", fatal=True)
        session = await (self._by_token() if user == BY_TOKEN else self._by_scram(user))
        try:
            parameters = Parameters(session.user, admin=session.admin, encrypted=self.encrypted)
            database = given.pop("database", user)
            for name, value in _startup_settings(given):
                parameters.set(name, value, first=True)
            self.number = self.server.enter(self)
            self.send(messages.authentication(0))
            for name, value in parameters.reported():
                self.send(messages.parameter_status(name, value))
            self.send(messages.backend_key(self.number, self.secret))
            self.send(messages.ready(b"I"))
            await self.flush()
            return session, Dialogue(self, self.service, self.server.catalog, session, parameters, database)
        except BaseException:
            await asyncio.shield(self.server.call(self.service.logout, session))
            raise

    async def _by_scram(self, user: str) -> Session:
        verifiers = await self.server.call(self.service.scram, user, remote=self.remote)
        self.send(messages.authentication(10, messages.text(MECHANISM) + b"\0"))
        body = await self._password()
        mechanism = body.text()
        if mechanism != MECHANISM:
            raise Refused("28000", f"there is {MECHANISM}, not {mechanism}", fatal=True)
        exchange = Exchange(verifiers)
        try:
            self.send(messages.authentication(11, exchange.first(body.value() or b"")))
            found = exchange.final((await self._password()).rest())
        except ScramError as error:
            raise Malformed(str(error)) from None
        signature, shown = found or (b"", None)
        try:
            session = await self.server.call(
                self.service.login_verified, user, shown, protocol="postgres", remote=self.remote
            )
        except LoginFailed:
            raise Refused("28P01", f'password authentication failed for user "{user}"', fatal=True) from None
        self.send(messages.authentication(12, signature))
        return session

    async def _by_token(self) -> Session:
        """A token is checked as a whole, so the client must send it: only where nobody listens in."""
        if not (self.encrypted or self.near):
            raise Refused("28000", f"user {BY_TOKEN} sends its token, which needs TLS", "sslmode=require", fatal=True)
        self.send(messages.authentication(3))
        token = (await self._password()).text()
        return await self.server.call(self.service.login_token, token, protocol="postgres", remote=self.remote)

    async def _password(self) -> Body:
        await self.flush()
        letter, body = await self.reader.message(messages.MOST_UNKNOWN)
        if letter != b"p":
            raise Malformed(f"a password was expected, not {letter!r}")
        return body

    # -- messages -------------------------------------------------------------------------------------

    async def _serve(self, dialogue: Dialogue) -> None:
        skipping = False
        while True:
            self.idle = True
            letter, body = await self.message()
            self.idle = False
            if letter == b"X":
                return
            if skipping and letter != b"S":
                continue
            skipping = False
            self._cancelled.clear()
            try:
                await self._answer(dialogue, letter, body)
            except (Malformed, asyncio.IncompleteReadError, OSError):
                raise
            except Refused as error:
                if error.fatal:
                    raise
                skipping = self._failed(dialogue, error, letter)
            except LoginFailed as error:  # the session is over: its token expired, its user is gone
                raise Refused("57P01", error.message, error.hint, fatal=True) from None
            except Exception as error:
                if not isinstance(error, PenstockError | TimeoutError):
                    _log.exception("a statement of %s failed", self.remote)
                skipping = self._failed(dialogue, error, letter)
            if letter == b"Q":
                self.send(messages.ready(dialogue.status))
            if skipping or letter == b"Q":
                await self.flush()
            if self.ending:
                raise Refused("57P01", "the server ends", fatal=True)

    def _failed(self, dialogue: Dialogue, error: Exception, letter: bytes) -> bool:
        """Tell the client; whether what follows is to be skipped until Sync."""
        dialogue.fail()
        self.send(messages.notice(b"E", errors.fields(error, dialogue.text)))
        return letter != b"Q"

    async def _answer(self, dialogue: Dialogue, letter: bytes, body: Body) -> None:
        match letter:
            case b"Q":
                text = body.text()
                body.end()
                await dialogue.simple(text)
            case b"P":
                await dialogue.parse(Parsed.read(body))
            case b"B":
                await dialogue.bind(Bound.read(body))
            case b"D":
                await dialogue.describe(body.take(1), body.text())
            case b"E":
                await dialogue.execute(body.text(), body.int32())
            case b"C":
                dialogue.close(body.take(1), body.text())
            case b"S":
                dialogue.sync()
                self.send(messages.ready(dialogue.status))
                await self.flush()
            case b"H":
                await self.flush()
            case b"F":
                raise Refused("0A000", "functions are called in statements here")
            case b"p":
                raise Malformed("a password was not asked for")
            case _:
                pass  # rows of a COPY that has failed already

    async def message(self) -> tuple[bytes, Body]:
        """The next message. It may be long in coming, but not long under way."""
        await self.spill()
        return await self.reader.message(self.service.settings.body, STALLED_SECONDS)

    async def call(self, function: Callable[..., T], *args: object, **named: object) -> T:
        """Call the service in the pool."""
        return await self.server.call(function, *args, **named)

    async def reading(self, function: Callable[..., T], *args: object, **named: object) -> T:
        """The same for what changes nothing: it is given up as soon as the client cancels it or goes."""
        stop = Stop()
        try:
            return await self.unless_cancelled(self.server.call(function, *args, stop=stop, **named))
        finally:
            stop.set()

    def send(self, data: bytes) -> None:
        """Gather what goes to the client."""
        self._out += data

    async def spill(self) -> None:
        """Write if enough has been gathered."""
        if len(self._out) >= FULL:
            await self.flush()

    async def flush(self) -> None:
        """Write what was gathered, and wait until the client has taken most of it."""
        if self._out:
            self.writer.write(bytes(self._out))
            self._out.clear()
        async with asyncio.timeout(STALLED_SECONDS):
            await self.writer.drain()

    # -- cancelling -----------------------------------------------------------------------------------

    def cancel(self) -> None:
        """Another connection of the client asks to end what runs here."""
        self._cancelled.set()

    def end(self) -> None:
        """The server ends: so does this connection, after the statement that runs. One that waits for results, or that
        can be given up, ends at once."""
        self.ending = True
        self._cancelled.set()

    async def unless_cancelled(self, work: Awaitable[T]) -> T:
        """The result of the work, or an error as soon as the client cancels it or goes."""
        task = asyncio.ensure_future(work)
        stops = [asyncio.ensure_future(self._cancelled.wait()), asyncio.ensure_future(self.reader.gone.wait())]
        try:
            await asyncio.wait([task, *stops], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            if stops[1].done():
                raise ConnectionResetError("the client has gone")
            if self.ending:
                raise Refused("57P01", "the server ends", fatal=True)
            raise Refused("57014", "canceling statement due to user request")
        finally:
            for other in (task, *stops):
                other.cancel()


def _startup_settings(given: dict[str, str]) -> list[tuple[str, str]]:
    """Parameters of the startup packet, those in ``options`` (``-c name=value``, ``--name=value``) first."""
    found: list[tuple[str, str]] = []
    try:
        words = shlex.split(given.get("options", ""))
    except ValueError:
        raise Refused("22023", "the options of the startup packet cannot be read", fatal=True) from None
    pairs = iter(words)
    for word in pairs:
        said = next(pairs, "") if word == "-c" else word.removeprefix("-c").removeprefix("--")
        name, equals, value = said.partition("=")
        if not equals:
            raise Refused("22023", f"the option {word!r} is not known", "-c name=value", fatal=True)
        found.append((name.replace("-", "_"), value))
    return [*found, *((n, v) for n, v in given.items() if n not in ("options", "replication"))]
