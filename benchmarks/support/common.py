"""What the experiments share: rounds, plots, and a database to experiment on.

An experiment is a module with ``TITLE``, ``run(scale, say)``, ``check(results)`` and ``draw(results, folder)``.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import penstock
from penstock.model.errors import StateError

if TYPE_CHECKING:
    from penstock.database.database import Database

Say = Callable[[str], None]
clock = time.perf_counter

MISSING = "figures need matplotlib"
INSTALL = "pip install 'penstock[bench]', or go on without figures: --no-figures"


def quiet(text: str) -> None:
    """Where nobody watches."""


def rounds(budget: float, most: int, least: int = 1) -> Iterator[int]:
    """0, 1, …: as many rounds as fit into so many seconds, ``least`` at least and ``most`` at most."""
    begun = clock()
    for i in range(max(least, most)):
        yield i
        used = clock() - begun
        if i + 1 >= least and used + used / (i + 1) > budget:
            return


def median(values: Sequence[float]) -> float:
    """The middle one."""
    return float(statistics.median(values))


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean."""
    return statistics.fmean(values)


def geometric(values: Sequence[float]) -> float:
    """The geometric mean: the same factor counts the same at small and at large values."""
    return statistics.geometric_mean([max(v, 1e-9) for v in values])


def database(*streams: str) -> Database:
    """On the local engine, with streams ``s (ts, v)`` of these names, of integers, in order of ``ts``."""
    db = penstock.connect(engine="local")
    for name in streams:
        db.execute(f"CREATE STREAM {name} (ts BIGINT, v BIGINT) TIMESTAMP BY ts")
    return db


def batches(values: np.ndarray[Any, Any], rows: int, first: int = 0) -> list[pa.Table]:
    """Values as tables of a few rows each, with ``ts`` from ``first`` on."""
    ts = np.arange(first, first + len(values), dtype=np.int64)
    table = pa.table({"ts": ts, "v": values})
    return [table.slice(i, rows) for i in range(0, len(values), rows)]


def wait_until(moment: float) -> None:
    """Sleep up to a moment of ``clock``; not at all when it is past."""
    ahead = moment - clock()
    if ahead > 0:
        time.sleep(ahead)


class Others:
    """How many processors other processes keep busy, on average since this was made; None where nobody can tell."""

    def __init__(self) -> None:
        self._before = _times()

    @property
    def processors(self) -> float | None:
        if self._before is None:
            return None
        now = _times()
        assert now is not None, "it could be told before"
        wall, busy, own = (b - a for a, b in zip(self._before, now, strict=True))
        return max(0.0, (busy - own) / max(wall, 0.01))


def disturbed(others: float | None) -> bool:
    """Whether elapsed times say more about other processes than about what was measured: who has more threads gets
    more of the processors. Then processor times are compared."""
    return others is not None and others > 0.2


def _times() -> tuple[float, float, float] | None:
    """Now, and the seconds that all processes and this one have used of processors so far."""
    try:
        first = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0]
    except OSError:
        return None
    user, nice, system, _idle, _wait, *more = map(int, first.split()[1:9])
    return clock(), (user + nice + system + sum(more)) / os.sysconf("SC_CLK_TCK"), time.process_time()


def machine() -> dict[str, object]:
    """Where it was measured, and how busy that was at the time."""
    return {
        "processors": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "penstock": penstock.__version__,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


# -- figures ----------------------------------------------------------------------------------------------


def check_matplotlib() -> None:
    """Say what to install, before anything is measured."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise StateError(MISSING, hint=INSTALL) from None


def figure(
    title: str, columns: int = 1, *, rows: int = 1, width: float = 8.0, height: float = 5.0
) -> tuple[Any, list[Any]]:
    """A figure and its axes, side by side and, with more ``rows``, below each other."""
    check_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    made = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(made)
    made.suptitle(title, fontsize=12)
    axes = made.subplots(rows, columns, squeeze=False).ravel()
    for ax in axes:
        ax.grid(True, alpha=0.3)
    return made, list(axes)


def save(made: Any, path: Path) -> Path:
    """Write it as PNG."""
    made.savefig(path, dpi=120)
    return path


def logarithmic(axis: Any) -> None:
    """An axis with a logarithmic scale, and numbers that one can read."""
    axis.axes.set_yscale("log") if axis.axis_name == "y" else axis.axes.set_xscale("log")
    axis.set_major_formatter(lambda v, _: f"{v:,g}")
    axis.set_minor_formatter(lambda v, _: f"{v:,g}" if f"{v:e}"[0] in "25" else "")


MARKERS = "os^Dvp*XhP<>"


def lines(ax: Any, series: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> None:
    """One line with its marker for each name."""
    for (name, (x, y)), marker in zip(series.items(), MARKERS, strict=False):
        ax.plot(x, y, marker=marker, markersize=5, label=name)
    ax.legend(fontsize=8)
