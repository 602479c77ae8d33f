"""``penstock``: the commands, and what becomes of their errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Annotated, ParamSpec

import typer

from penstock.cli.ask import declare, query
from penstock.cli.bench import PASSED_ON, bench
from penstock.cli.connected import push, watch
from penstock.cli.demo import demo
from penstock.cli.explain import explain
from penstock.cli.failures import INTERRUPTED, OK, USAGE, Failure, failure, report
from penstock.cli.graph import graph
from penstock.cli.keeping import backup, check
from penstock.cli.run import run
from penstock.cli.serve import serve
from penstock.cli.sql import sql
from penstock.model.errors import PenstockError
from penstock.model.version import VERSION

app = typer.Typer(
    name="penstock",
    help="Continuous queries over data streams.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_UsageError = typer.BadParameter.__mro__[1]
P = ParamSpec("P")


class _Unread(Exception):
    """Whoever reads the answers has enough of them."""


def piped(function: Callable[P, None]) -> Callable[P, None]:
    """Typer has its own idea of a closed pipe; it must not see one."""

    @wraps(function)
    def command(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
            sys.stdout.flush()
        except BrokenPipeError:
            raise _Unread from None

    return command


def _command(function: Callable[P, None]) -> Callable[P, None]:
    """Make a command of a function."""
    return app.command()(piped(function))


_command(query)
_command(declare)
_command(run)
_command(explain)
_command(graph)
_command(sql)
_command(check)
_command(backup)
_command(serve)
_command(push)
_command(watch)
_command(demo)
app.command(context_settings=PASSED_ON)(bench)  # whose commands see to closed pipes themselves


@_command
def version() -> None:
    """Print the version."""
    print(f"penstock {VERSION}")


def _print_version(asked: bool) -> None:
    if asked:
        version()
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    return carried_out(app, "penstock", arguments)


def carried_out(commands: typer.Typer, name: str, arguments: Sequence[str] | None) -> int:
    """Run one of some commands and report its errors; the exit code."""
    try:
        given = None if arguments is None else list(arguments)
        code = commands(args=given, prog_name=name, standalone_mode=False)
        return code if isinstance(code, int) else OK
    except Failure as failed:
        report(failed, sys.stderr)
        return failed.code
    except PenstockError as error:
        shown = failure(error)
        report(shown, sys.stderr)
        return shown.code
    except typer.Exit as exit:
        return exit.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except _Unread:
        # What is still buffered must not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except Exception as error:
        if not isinstance(error, _UsageError):
            raise
        message: str = error.format_message()  # type: ignore[attr-defined]
        if message:
            report(Failure(message[0].lower() + message[1:].rstrip(".")), sys.stderr)
        return USAGE


if __name__ == "__main__":
    sys.exit(main())
