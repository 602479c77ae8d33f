"""``penstock bench compare``: the same jobs here and elsewhere."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.support.options import FiguresOption, prepare
from penstock.cli.failures import FAILED, INTERRUPTED


def compare(
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="JOB", help="A job; repeat for more. By default all; a wrong name lists them."),
    ] = None,
    scale: Annotated[float, typer.Option(min=0.001, help="How many rows; 1 is the usual.")] = 1.0,
    output: Annotated[Path, typer.Option(metavar="DIR", help="Where report.json and the figure are written.")] = Path(
        "bench-compare"
    ),
    peers: Annotated[bool, typer.Option(help="Run other systems too, those that `make peers` has installed.")] = True,
    figures: FiguresOption = True,
) -> None:
    """Run the same jobs on Penstock and on plain Spark Structured Streaming, and print ratios.

    All read the same files, and their answers are compared: number and checksum. Systems besides Spark take part if
    `make peers` has installed them. Starting a system is not counted.
    """
    from benchmarks.compare import runner, table
    from benchmarks.compare.jobs import JOBS
    from benchmarks.compare.peers import PEERS, installed
    from benchmarks.support.common import machine
    from benchmarks.support.watch import Watch, print_table

    comparison = runner.Comparison(scale, runner.chosen(only or []))
    prepare(output, figures)
    where, there = machine(), installed() if peers else []
    comparison.missing = [peer.system for peer in PEERS if peer not in there]
    with tempfile.TemporaryDirectory() as folder, Watch(runner.steps(there)) as watch:
        runner.prepare(comparison, Path(folder))
        runner.perform(comparison, Path(folder), there, watch)
    for name in comparison.jobs:
        title = f"{name}: {JOBS[name].title} ({comparison.rows[name]:,} rows)"
        print_table(title, table.head(name), table.rows(comparison, name), right=(1, 2, 3, 4))
    drawn = table.draw(comparison, output / "compare.png") if figures else None
    table.write(comparison, where, [] if drawn is None else [drawn], output / "report.json")
    measured = [m for m in comparison.measured if m.cost is not None]
    equal = sum(m.same for m in measured)
    print(f"{equal} of {len(measured)} measurements have the right answers; all numbers are in {output}")
    if peers and comparison.missing:
        print(f"not installed: {', '.join(comparison.missing)}; in a clone of the project `make peers` installs them")
    print(table.line(comparison))
    if comparison.interrupted:
        raise typer.Exit(INTERRUPTED)
    if equal < len(measured) or any(m.why and m.system in runner.OURS for m in comparison.measured):
        raise typer.Exit(FAILED)
