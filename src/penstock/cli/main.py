"""``penstock``: the commands, and what becomes of their errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.metadata import version as package_version

import typer

from penstock.cli.demo import demo
from penstock.cli.explain import explain
from penstock.cli.failures import INTERRUPTED, OK, USAGE, Failure, failure, report
from penstock.cli.run import run
from penstock.cli.sql import sql
from penstock.errors import PenstockError

app = typer.Typer(
    name="penstock",
    help="Continuous queries over data streams.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(run)
app.command()(explain)
app.command()(sql)
app.command()(demo)

_UsageError = typer.BadParameter.__mro__[1]


@app.command()
def version() -> None:
    """Print the version."""
    print(f"penstock {package_version('penstock')}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    try:
        code = app(args=None if arguments is None else list(arguments), standalone_mode=False)
        sys.stdout.flush()
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
    except BrokenPipeError:
        # Whoever reads the answers has enough. What is still buffered must not complain at exit.
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
