"""``penstock bench``: starts what a clone of the project has for measuring.

Benchmarks and experiments are no part of the package. The folder ``benchmarks`` beside the source tree has the
commands, which are started by its path with the arguments that are given here.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import typer

from penstock import model
from penstock.model.errors import StateError

PASSED_ON = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


def clone() -> Path:
    """The clone of the project from which this package runs."""
    folder = Path(model.__file__).resolve().parents[3]
    if not (folder / "benchmarks" / "__main__.py").is_file():
        raise StateError(
            "benchmarks and experiments come with a clone of the project, not with the installed package",
            hint="clone the project and run `make setup` there; `.venv/bin/penstock bench` of the clone has them",
        )
    return folder


def bench(context: typer.Context) -> None:
    """Measure, on this machine; needs a clone of the project.

    Alone, it runs the project's own benchmarks. `compare` runs the same jobs on other systems, `papers` the experiments
    of the papers. `penstock bench --help` has the options.
    """
    folder = clone()
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    started = runpy.run_path(str(folder / "benchmarks" / "__main__.py"))
    raise typer.Exit(started["main"](context.args))
