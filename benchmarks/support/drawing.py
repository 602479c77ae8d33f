"""Figures of benchmarks: each result against its bar, each job on each system."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.support.common import figure, logarithmic, save
from benchmarks.support.report import Result

MET, MISSED = "#3b7dd8", "#d8553b"
SYSTEMS = ("#1b4f9c", "#5b9bd5", "#d8853b", "#7a9a3a", "#9a6fb0", "#b05a6a", "#8a8a8a")
"""One colour for each system, those of Penstock first."""


def bars(results: Sequence[tuple[str, Result]], title: str, path: Path) -> Path | None:
    """How many times better than its bar each result is; None where nothing has a bar."""
    shown = [(name, result, result.margin) for name, result in results if result.margin is not None]
    if not shown:
        return None
    shown.reverse()  # the first one is on top
    made, (ax,) = figure(title, width=11.0, height=1.4 + 0.3 * len(shown))
    lengths = [min(max(margin or 0.0, 0.01), 100.0) for _, _, margin in shown]
    colours = [MET if result.ok else MISSED for _, result, _ in shown]
    ax.barh(range(len(shown)), [length - 1 for length in lengths], left=1, color=colours)
    for at, ((_, result, _), length) in enumerate(zip(shown, lengths, strict=True)):
        ax.text(max(length, 1) * 1.05, at, f"{result.value:,.4g}  (bar {result.said})", va="center", fontsize=7)
    ax.set_yticks(range(len(shown)), [name for name, _, _ in shown], fontsize=7)
    logarithmic(ax.xaxis)
    ax.set_xlim(min(0.5, min(lengths) / 1.5), max(lengths) * 6)
    ax.axvline(1, color="black", linewidth=1)
    ax.set_xlabel("times better than its bar (1: just met; left of the line: missed)")
    return save(made, path)


def panels(
    jobs: Mapping[str, Mapping[str, float]],
    units: Mapping[str, str],
    title: str,
    path: Path,
) -> Path:
    """A panel for each job with a bar for each system; systems have the same colour everywhere."""
    systems = list(dict.fromkeys(name for values in jobs.values() for name in values))
    colours = dict(zip(systems, SYSTEMS * math.ceil(len(systems) / len(SYSTEMS)), strict=False))
    columns = min(3, len(jobs))
    lines = math.ceil(len(jobs) / columns)
    height = 0.6 + lines * (1.2 + 0.28 * len(systems))
    made, axes = figure(title, columns, rows=lines, width=2.0 + 3.0 * columns, height=height)
    for at, (ax, (job, values)) in enumerate(zip(axes, jobs.items(), strict=False)):
        _panel(ax, values, colours, named=at % columns == 0)
        ax.set_title(job, fontsize=9)
        ax.set_xlabel(units[job], fontsize=8)
    for ax in axes[len(jobs) :]:
        ax.set_visible(False)
    return save(made, path)


def _panel(ax: Any, values: Mapping[str, float], colours: Mapping[str, str], *, named: bool) -> None:
    places = {name: len(colours) - 1 - i for i, name in enumerate(colours)}
    ax.barh([places[name] for name in values], list(values.values()), color=[colours[name] for name in values])
    for name, value in values.items():
        ax.text(value * 1.1, places[name], short(value), va="center", fontsize=7)
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter(lambda value, _: short(value))
    ax.minorticks_off()
    ax.tick_params(axis="x", labelsize=7)
    ax.set_xlim(min(values.values()) / 3, max(values.values()) * 8)
    ax.set_ylim(-0.6, len(colours) - 0.4)
    ax.set_yticks(list(places.values()), list(places) if named else [""] * len(places), fontsize=8)


def short(value: float) -> str:
    """A number with three digits that count."""
    for size, sign in ((1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:.3g}{sign}"
    return f"{value:.3g}"
