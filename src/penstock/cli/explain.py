"""``penstock explain``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from penstock.cli.failures import Failure
from penstock.cli.script import run_script
from penstock.connecting import connect
from penstock.io.table_text import table_text


def explain(
    file: Annotated[Path, typer.Argument(metavar="FILE.cql", help="Declarations and queries; - is stdin.")],
    as_json: Annotated[bool, typer.Option("--json", help="The plan as JSON.")] = False,
    as_mermaid: Annotated[bool, typer.Option("--mermaid", help="The plan as a Mermaid diagram.")] = False,
) -> None:
    """Print the plan of every query of a file.

    With --json, one query gives its plan object, several an object with a plan under each query's name.
    """
    if as_json and as_mermaid:
        raise Failure("--json and --mermaid exclude each other")
    format: Literal["text", "json", "mermaid"] = "json" if as_json else "mermaid" if as_mermaid else "text"
    with connect(engine="reference") as db:  # plans are the same on every engine
        for result in run_script(db, file):
            if result.table is not None and format == "text":
                print(table_text(result.table), end="")
        plans = {name: db.explain(name, format=format) for name in db.queries}
    if not plans:
        raise Failure(f"{file} has no query to explain")
    if len(plans) == 1:
        print(next(iter(plans.values())).rstrip())
    elif as_json:
        print(json.dumps({name: json.loads(plan) for name, plan in plans.items()}, indent=2))
    else:
        mark = "%%" if as_mermaid else "--"
        print("\n\n".join(f"{mark} {name}\n{plan.rstrip()}" for name, plan in plans.items()))
