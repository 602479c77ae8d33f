"""A service over a database in this process, without protocols, and a clock that tests move."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock import Database, connect
from penstock.server.service import Service
from penstock.server.session import Outcome, Session
from penstock.server.settings import Settings

DAY = 86_400_000_000


class Clock:
    """Microseconds since 1970, as a test says."""

    def __init__(self, now: int = 1_700_000_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


class Served:
    """A service, its database and a session of the admin."""

    def __init__(self, db: Database, service: Service, clock: Clock, token: str | None) -> None:
        self.db, self.service, self.clock, self.token = db, service, clock, token
        self.admin = service.login_token(token, protocol="python", remote="test") if token is not None else None

    def run(self, text: str, session: Session | None = None, *parameters: object) -> list[Outcome]:
        """What statements give, by default for the admin."""
        who = session or self.admin
        assert who is not None
        return self.service.execute(who, text, parameters)

    def user(self, name: str, *grants: str) -> Session:
        """A new user with these rights, logged in."""
        self.run(f"CREATE USER {name} PASSWORD '{name}-password'")
        for grant in grants:
            self.run(f"GRANT {grant} TO {name}")
        return self.login(name)

    def login(self, name: str) -> Session:
        return self.service.login(name, f"{name}-password", protocol="python", remote="test")


@contextmanager
def served(path: Path | None = None, settings: Settings | None = None, clock: Clock | None = None) -> Iterator[Served]:
    """One that ends with the block. With a directory it is the same one again."""
    time = clock or Clock()
    with connect(path, engine="local") as db:
        service = Service(db, settings or Settings(), directory=path, clock=time)
        try:
            yield Served(db, service, time, service.access.first_start())
        finally:
            service.close()
