"""``penstock serve``: one database for many clients."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.failures import Failure
from penstock.cli.warm import announce


def serve(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="The directory of the database; made if need be.")],
    engine: Annotated[str | None, typer.Option(metavar="ENGINE", help="local, or spark (the default).")] = None,
    master: Annotated[str | None, typer.Option(metavar="URL", help="Spark's master.")] = None,
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="By default 127.0.0.1: only this machine reaches the server.")
    ] = None,
    http: Annotated[str | None, typer.Option(metavar="PORT", help="7070; 0 is a free one, off is none.")] = None,
    flight: Annotated[str | None, typer.Option(metavar="PORT", help="7071, for Arrow Flight SQL.")] = None,
    postgres: Annotated[str | None, typer.Option(metavar="PORT", help="7072, for the PostgreSQL protocol.")] = None,
    sync: Annotated[str | None, typer.Option(metavar="WAY", help="off, group (the default) or always.")] = None,
    zone: Annotated[str | None, typer.Option(metavar="ZONE", help="The time zone, such as Europe/Vienna.")] = None,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="A certificate, in PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its key.")] = None,
    tls_self_signed: Annotated[bool, typer.Option("--tls-self-signed", help="Make a certificate.")] = False,
    grace: Annotated[str | None, typer.Option(metavar="SECONDS", help="In which it ends; 20.")] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Instead of penstock.toml.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Say all settings, and what is wrong with them.")] = False,
    new_token: Annotated[
        bool, typer.Option("--new-token", help="Make a new token for the admin, whose old ones end, and print it.")
    ] = False,
) -> None:
    """Serve a database over HTTP, Arrow Flight SQL and the PostgreSQL protocol, until SIGTERM or Ctrl-C.

    Settings come from penstock.toml, then from PENSTOCK_*, then from these options.
    """
    from penstock.server import life
    from penstock.server.settings import SettingsError, described, file_of, read_settings

    options = {
        "engine": engine, "master": master, "host": host, "http": http, "flight": flight, "postgres": postgres,
        "sync": sync, "zone": zone, "tls_cert": tls_cert, "tls_key": tls_key,
        "tls_self_signed": tls_self_signed or None, "grace": grace,
    }  # fmt: skip
    try:
        settings, said = read_settings(file_of(directory, config), options=options)
    except SettingsError as error:
        if not check:
            raise Failure("; ".join(error.problems)) from None
        for problem in error.problems:
            print(f"wrong     {problem}")
        raise Failure(f"{len(error.problems)} of the settings cannot be") from None
    if check:
        for line in described(settings, said):
            print(line)
        if missing := life.problems(settings):
            raise Failure("; ".join(missing))
        return
    if new_token:
        print(life.new_token(directory, settings))
        return
    announce(sys.stderr)
    raise typer.Exit(life.serve(directory, settings))
