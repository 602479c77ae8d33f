"""What the commands have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.support.common import check_matplotlib
from penstock.cli.failures import Failure

FiguresOption = Annotated[bool, typer.Option(help="Draw figures; needs matplotlib.")]


def prepare(output: Path, figures: bool) -> None:
    """Find out before anything is measured what would fail at the end."""
    if figures:
        check_matplotlib()
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise Failure(f"cannot write into {output}: {problem.strerror}") from None
