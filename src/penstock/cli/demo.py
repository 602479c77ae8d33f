"""``penstock demo``: turbines and houses, live."""

from __future__ import annotations

import signal
import sys
import threading
from typing import Annotated

import typer

from penstock.cli.interrupts import deferring
from penstock.cli.script import EngineOption, MasterOption
from penstock.cli.warm import is_cold
from penstock.connecting import connect
from penstock.demo import script
from penstock.demo.clock import RealClock
from penstock.demo.plain import Lines
from penstock.demo.run import PROFILES, Run
from penstock.demo.terminal import Terminal
from penstock.hosts.options import SparkOptions, default_engine
from penstock.model.errors import EngineError


def demo(
    engine: EngineOption = None,
    master: MasterOption = None,
    seconds: Annotated[
        float | None,
        typer.Option(min=1, max=600, help="How long rows come, once all has started: else 13 on spark, 18 on local."),
    ] = None,
    cql: Annotated[
        bool, typer.Option("--cql", help="Print the streams and queries of the demo, and do nothing else.")
    ] = False,
) -> None:
    """Watch wind turbines and smart houses through six queries, live.

    On a terminal there is a view of all queries and their graph, elsewhere lines of text; both end with a summary.

    Ctrl-C ends it early.
    """
    if cql:
        print(script.text(), end="")
        return
    name = default_engine() if engine is None else engine.value
    profile = PROFILES[name]
    terminal = Terminal()
    shown = terminal if terminal.is_able else Lines(sys.stdout)
    shown.introduce([(name, about.kind, about.sentence) for name, about in script.abouts().items()])
    if name == "spark":
        with shown.busy("starting Spark, a Java process; this takes some ten seconds", "Spark has started"):
            _start_spark(master)
    with connect(engine=name, master=master, **profile.connect) as db:
        run = Run(db, profile.scenario, profile.lasts if seconds is None else seconds, RealClock())
        if profile.configure:
            db.configure(**profile.configure)
        with shown.busy(_first_rows(name), "ready; what comes now is measured"):
            run.warm_up()
        try:
            with shown.live() as show:
                run.play(show)
        finally:
            shown.summarize(run.snapshot(look=True))


def _first_rows(engine: str) -> str:
    if is_cold():
        return "compiling kernels for this machine, which is done once"
    what = "Spark starts its Python workers" if engine == "spark" else "operators are loaded"
    return f"first rows, not measured: {what}"


def _start_spark(master: str | None) -> None:
    """The session that the database then finds running."""
    from penstock.hosts.spark.session import MASTER, session

    try:
        session(SparkOptions(master).or_environment().master or MASTER)
    except EngineError as error:
        hints = (error.hint, "`penstock demo --engine local` needs neither Spark nor Java")
        error.hint = "; ".join(hint for hint in hints if hint)
        raise
    if threading.current_thread() is threading.main_thread():
        # Spark's own would give up what runs before anybody has said goodbye.
        signal.signal(signal.SIGINT, deferring(signal.default_int_handler))
