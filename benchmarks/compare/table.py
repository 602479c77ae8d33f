"""What a comparison says: tables, JSON, a figure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.compare.jobs import JOBS
from benchmarks.compare.runner import Comparison, Measured
from benchmarks.compare.worker import SPARK
from benchmarks.support.drawing import panels

LATENCY = ("system", "p50 ms", "p99 ms", f"times less than {SPARK}", "answers", "", "")
THROUGHPUT = ("system", "seconds", "rows/s", f"times the speed of {SPARK}", "answers", "", "")


def head(job: str) -> tuple[str, ...]:
    """The columns of a job's table."""
    return LATENCY if job == "latency" else THROUGHPUT


def ratio(comparison: Comparison, measured: Measured) -> float | None:
    """How many times better than plain Spark; None where that was not measured."""
    spark = comparison.of(measured.job, SPARK)
    if spark is None or not spark.cost or not measured.cost:
        return None
    return spark.cost / measured.cost


def rows(comparison: Comparison, job: str) -> list[tuple[str, ...]]:
    """A line for each system."""
    return [_row(comparison, measured) for measured in comparison.measured if measured.job == job]


def _row(comparison: Comparison, m: Measured) -> tuple[str, ...]:
    if m.cost is None:
        return (m.system, "–", "–", "–", "–", "", m.why)
    if m.seconds is not None:
        numbers = (f"{m.seconds:,.2f}", f"{m.rows / m.seconds:,.0f}")
    else:
        numbers = (f"{m.p50:,.2f}", f"{m.p99:,.2f}")
    times = ratio(comparison, m)
    expected = comparison.expected[m.job]
    note = m.note if m.same else f"{expected.answers:,} answers, checksum {expected.checksum:,.3f} were right; {m.note}"
    return (m.system, *numbers, "–" if times is None else f"{times:,.2f}", f"{m.answers:,}",
            "equal" if m.same else "DIFFERENT", note.rstrip("; "))  # fmt: skip


def line(comparison: Comparison) -> str:
    """For programs: one line of JSON. A result is ok if its answers are those that there are."""
    results: list[dict[str, object]] = []
    for m in comparison.measured:
        if m.cost is None:
            continue
        values = {"seconds": m.seconds, "p50 ms": m.p50, "p99 ms": m.p99, f"against {SPARK}": ratio(comparison, m)}
        for what, value in values.items():
            if value is not None:
                name = f"{m.job}: {m.system}: {what}"
                results.append({"name": name, "value": round(value, 4), "bar": None, "ok": m.same})
    return json.dumps({"benchmark": "compare", "results": results}, ensure_ascii=False)


def write(comparison: Comparison, where: dict[str, object], figures: Sequence[Path], path: Path) -> None:
    """``report.json``: what was measured, and where."""
    report = {
        "benchmark": "compare",
        "scale": comparison.scale,
        "machine": where,
        "missing": comparison.missing,
        "interrupted": comparison.interrupted,
        "figures": [figure.name for figure in figures],
        "jobs": [
            {
                "name": job,
                "title": JOBS[job].title,
                "rows": comparison.rows[job],
                "expected": comparison.expected[job]._asdict(),
                "systems": [
                    {**asdict(m), f"against {SPARK}": ratio(comparison, m)}
                    for m in comparison.measured
                    if m.job == job
                ],
            }
            for job in comparison.jobs
        ],
    }
    path.write_text(json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def draw(comparison: Comparison, path: Path) -> Path | None:
    """Rows in a second for each job and system, and the latency."""
    jobs: dict[str, dict[str, float]] = {}
    units = {}
    for job in comparison.jobs:
        found = [m for m in comparison.measured if m.job == job and m.cost]
        if not found:
            continue
        jobs[job] = {m.system: m.rows / m.seconds if m.seconds else m.p50 or 0.0 for m in found}
        units[job] = "ms to the answer, median (less is better)" if job == "latency" else "rows/s (more is better)"
    return panels(jobs, units, "The same jobs on each system", path) if jobs else None
