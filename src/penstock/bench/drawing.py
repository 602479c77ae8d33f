"""Figures of benchmarks: each result against its bar, each job on each system."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.bench.common import figure, logarithmic, save
from penstock.bench.report import Result

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
    lengths = [min(max(margin or 0.0, 0.01), 1000.0) for _, _, margin in shown]
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
    made, axes = figure(title, len(jobs), width=2.0 + 3.2 * len(jobs), height=1.6 + 0.35 * len(systems))
    for ax, (job, values) in zip(axes, jobs.items(), strict=True):
        _panel(ax, values, colours, systems if ax is axes[0] else None, systems)
        ax.set_title(job, fontsize=9)
        ax.set_xlabel(units[job], fontsize=8)
    return save(made, path)


def _panel(
    ax: Any,
    values: Mapping[str, float],
    colours: Mapping[str, str],
    labels: Sequence[str] | None,
    systems: Sequence[str],
) -> None:
    places = {name: len(systems) - 1 - i for i, name in enumerate(systems)}
    ax.barh([places[name] for name in values], list(values.values()), color=[colours[name] for name in values])
    for name, value in values.items():
        text = f"{value:,.3g}" if value < 1_000 else f"{value:,.0f}"
        ax.text(value * 1.08, places[name], text, va="center", fontsize=7)
    logarithmic(ax.xaxis)
    ax.tick_params(axis="x", labelsize=7)
    if values:
        ax.set_xlim(min(values.values()) / 2, max(values.values()) * 12)
    ax.set_ylim(-0.6, len(systems) - 0.4)
    ax.set_yticks([places[name] for name in labels or ()], list(labels or ()), fontsize=8)
