"""``penstock bench``: the commands that measure, on the machine at hand."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from benchmarks.support.comparing import compare
from benchmarks.support.options import FiguresOption, prepare
from penstock.cli.failures import FAILED, INTERRUPTED, Failure
from penstock.cli.main import carried_out, piped

if TYPE_CHECKING:
    from benchmarks.support.own import Outcome

bench = typer.Typer(
    name="bench",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    return carried_out(bench, "penstock bench", arguments)


@bench.callback(invoke_without_command=True)
@piped
def own(
    context: typer.Context,
    listed: Annotated[bool, typer.Option("--list", help="Only say which benchmarks there are.")] = False,
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A benchmark; repeat for more. By default all.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Little data, to see them run.")] = False,
    scale: Annotated[float, typer.Option(min=0.001, help="How much data; bars are for 1, the usual.")] = 1.0,
    output: Annotated[Path, typer.Option(metavar="DIR", help="Where report.json and the figure are written.")] = Path(
        "bench"
    ),
    figures: FiguresOption = True,
) -> None:
    """Measure, on this machine.

    Alone, it runs the project's own benchmarks, each in a process of its own, and compares each result with the bar
    that it has to meet. `compare` runs the same jobs on other systems, `papers` the experiments of the papers.
    """
    if context.invoked_subcommand is not None:
        return
    from benchmarks.support import own as benchmarks
    from benchmarks.support.common import machine

    if listed:
        width = max(map(len, benchmarks.benchmarks()))
        for name, title in benchmarks.benchmarks().items():
            print(f"{name:{width}s}  {title}")
        return
    if quick and scale != 1.0:
        raise Failure("--quick and --scale both say how much data; give one of them")
    names = benchmarks.chosen(only or [])
    prepare(output, figures)
    size = ["--quick"] if quick else ["--scale", f"{scale:g}"]
    where = machine()
    outcomes: list[Outcome] = []
    interrupted = _run_all(names, size, outcomes)
    usual = not quick and scale == 1.0
    _tables(outcomes, "MISSED" if usual else "not at this size")
    drawn = _draw(outcomes, output) if figures else []
    benchmarks.write(outcomes, "quick" if quick else f"scale {scale:g}", where, drawn, output / "report.json")
    judged = [result for outcome in outcomes for result in outcome.results if result.bar is not None]
    apart = "" if usual else " (they are meant for the usual size, --scale 1)"
    print(f"{sum(result.ok for result in judged)} of {len(judged)} bars are met{apart}; all numbers are in {output}")
    for outcome in outcomes:
        if outcome.error:
            print(f"{outcome.name} did not come to its end: {outcome.error}")
    print(benchmarks.line(outcomes))
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    if any(outcome.error for outcome in outcomes):
        raise typer.Exit(FAILED)


def _run_all(names: list[str], size: list[str], outcomes: list[Outcome]) -> bool:
    """Run one after the other; whether somebody interrupted."""
    from benchmarks.support import own as benchmarks
    from benchmarks.support.watch import Watch
    from penstock.cli.watch import clock

    with Watch(len(names)) as watch:
        for name in names:
            watch.begin(name)
            outcome = benchmarks.Outcome(name, benchmarks.benchmarks()[name])
            outcomes.append(outcome)
            try:
                benchmarks.perform(name, size, outcome, watch.doing, watch.tick)
            except KeyboardInterrupt:
                outcome.error = "interrupted"
            took = f"{len(outcome.results)} results in {clock(outcome.seconds)}"
            watch.end(f"{took}, then it failed: {outcome.error}" if outcome.error else took)
            if outcome.error == "interrupted":
                return True
    return False


def _tables(outcomes: list[Outcome], missed: str) -> None:
    from benchmarks.support.own import rows
    from benchmarks.support.watch import print_table

    for outcome in outcomes:
        if outcome.results:
            title = f"{outcome.name}: {outcome.title}"
            print_table(title, ("result", "value", "bar", ""), rows(outcome, missed), right=(1,))


def _draw(outcomes: list[Outcome], folder: Path) -> list[Path]:
    from benchmarks.support.drawing import bars
    from benchmarks.support.own import named

    shown = [(f"{o.name}: {name}", result) for o in outcomes for name, result in named(o)]
    drawn = bars(shown, "Benchmarks against their bars", folder / "bench.png")
    return [] if drawn is None else [drawn]


bench.command()(piped(compare))


@bench.command()
@piped
def papers(
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="An experiment; repeat for more. By default all; a wrong name lists them."),
    ] = None,
    output: Annotated[Path, typer.Option(metavar="DIR", help="Where figures and report.json are written.")] = Path(
        "bench-papers"
    ),
    scale: Annotated[float, typer.Option(min=0.001, help="1: all experiments take up to a quarter of an hour.")] = 1.0,
    figures: FiguresOption = True,
) -> None:
    """Repeat the experiments of the papers on scheduling, and check their claims.

    A claim is judged by the metric that it names, in at least five rounds with a sign test; otherwise it is not judged.
    """
    from experiments.papers import report as experiments

    names = experiments.chosen(only or [])
    prepare(output, figures)
    outcomes = []
    for name in names:
        outcomes.append(experiments.perform(name, scale, output if figures else None, partial(_say, name)))
        _say("", "")
        print(experiments.text(outcomes[-1]), flush=True)
        experiments.write(outcomes, scale, output / "report.json")
    print(f"{experiments.summary(outcomes)}; all numbers are in {output / 'report.json'}")
    print(experiments.line(outcomes))


def _say(name: str, doing: str) -> None:
    """One line that changes, where somebody watches."""
    if sys.stderr.isatty():
        print(f"\r\033[K{name}: {doing}" if name else "\r\033[K", end="", file=sys.stderr, flush=True)
