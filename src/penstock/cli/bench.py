"""``penstock bench``: experiments on the machine at hand."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.failures import Failure

bench = typer.Typer(
    name="bench",
    help="Measure, on this machine.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def papers(
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="An experiment; repeat for more. By default all; a wrong name lists them."),
    ] = None,
    output: Annotated[Path, typer.Option(metavar="DIR", help="Where figures and report.json are written.")] = Path(
        "bench-papers"
    ),
    scale: Annotated[float, typer.Option(min=0.001, help="1: each experiment takes up to two minutes.")] = 1.0,
    figures: Annotated[bool, typer.Option(help="Draw figures; needs matplotlib.")] = True,
) -> None:
    """Repeat the experiments of the papers on scheduling, and check their claims.

    Claims are about shape, who is faster and by how much roughly. Where one does not hold here, the report says so.
    """
    from penstock.bench import papers as experiments
    from penstock.bench.common import check_matplotlib

    names = experiments.chosen(only or [])
    if figures:
        check_matplotlib()
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise Failure(f"cannot write into {output}: {problem.strerror}") from None
    outcomes = []
    for name in names:
        outcomes.append(experiments.perform(name, scale, output if figures else None, partial(_say, name)))
        _say("", "")
        print(experiments.text(outcomes[-1]), flush=True)
        experiments.write(outcomes, scale, output / "report.json")
    held = [claim.holds for outcome in outcomes for claim in outcome.claims]
    print(f"{sum(held)} of {len(held)} claims hold; all numbers are in {output / 'report.json'}")
    print(experiments.line(outcomes))


def _say(name: str, doing: str) -> None:
    """One line that changes, where somebody watches."""
    if sys.stderr.isatty():
        print(f"\r\033[K{name}: {doing}" if name else "\r\033[K", end="", file=sys.stderr, flush=True)
