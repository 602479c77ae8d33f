"""The figures and tables of docs/reference/benchmarks.md and experiments.md, from what ``penstock bench`` has measured.

    penstock bench compare --output build/compare
    penstock bench --output build/bench
    penstock bench papers --output build/papers
    python -m scripts.benchmarks build/compare build/bench build/papers

Any may be left out; what is on the pages then stays.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "benchmarks.md"
EXPERIMENTS = ROOT / "docs" / "reference" / "experiments.md"
TITLES = {"compare": "The same jobs on each system", "own": "Benchmarks against their bars"}
PICTURES = ROOT / "docs" / "pictures" / "benchmarks"


def placed(page: str, name: str, text: str) -> str:
    """The page with a text between the marks of this name."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    found, count = re.subn(f"{begin}.*?{end}", lambda _: f"{begin}\n\n{text}\n\n{end}", page, flags=re.DOTALL)
    if count != 1:
        raise SystemExit(f"the page has no place for {name}")
    return found


def compared(report: dict[str, Any]) -> str:
    """A table for each job."""
    parts = [_where(report)]
    for job in report["jobs"]:
        latency = job["name"] == "latency"
        columns = "p50 ms | p99 ms" if latency else "seconds | rows/s"
        size = f"{job['rows']:,} rows, {job['expected']['answers']:,} answers"
        parts.append(f"**{job['name']}**: {job['title']}; {size}")
        parts.append(f"| system | {columns} | against plain Spark | answers | |\n|---|---|---|---|---|---|")
        parts[-1] += "".join(f"\n{_line(system, latency)}" for system in job["systems"])
    return "\n\n".join(parts)


def _line(m: dict[str, Any], latency: bool) -> str:
    if m["why"]:
        return f"| {m['system']} | – | – | – | – | {m['why']} |"
    if latency:
        numbers = f"{m['p50']:,.2f} | {m['p99']:,.2f}"
    else:
        numbers = f"{m['seconds']:,.2f} | {m['rows'] / m['seconds']:,.0f}"
    times = m["against plain Spark"]
    ratio = "–" if times is None else f"{times:,.2f} ×"
    return f"| {m['system']} | {numbers} | {ratio} | {'equal' if m['same'] else 'different'} | {m['note']} |"


def own(report: dict[str, Any]) -> str:
    """One table: results that have a bar."""
    lines = [_where(report), "| benchmark | result | value | bar | |\n|---|---|---|---|---|"]
    for benchmark in report["benchmarks"]:
        for r in benchmark["results"]:
            if r["bar"] is not None:
                bar = f"{'≤' if r['below'] else '≥'} {r['bar']:g}"
                met = "met" if r["ok"] else "missed"
                lines[-1] += f"\n| {benchmark['name']} | {r['name']} | {r['value']:,.4g} | {bar} | {met} |"
    return "\n\n".join(lines)


def papers(report: dict[str, Any]) -> str:
    """A table of claims for each experiment."""
    where, found = report["machine"], report["experiments"]
    claims = [claim for one in found for claim in one["claims"]]
    counts = {holds: sum(claim["holds"] is holds for claim in claims) for holds in VERDICTS}
    rounds, disturbed = (sum(one[name] for one in found) for name in ("rounds", "disturbed"))
    seconds = sum(one["seconds"] for one in found)
    parts = [
        f"Measured on {where['time'][:10]} with Penstock {where['penstock']}, Python {where['python']} and "
        f"{where['processors']} processors, in {seconds:.0f} seconds: {counts[True]} claims hold, "
        f"{counts[False]} do not, {counts[None]} were not judged.",
    ]
    if disturbed:
        parts[0] += f" Other processes disturbed {disturbed} of {rounds} rounds."
    for one in found:
        title = f"**{one['title']}** (`{one['name']}`, {one['seconds']:.0f} s)"
        rows = [title, "", "| claim | metric | here | numbers |", "|---|---|---|---|"]
        for claim in one["claims"]:
            cells = claim["claim"], claim["metric"], VERDICTS[claim["holds"]], claim["detail"]
            rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        parts.append("\n".join(rows))
    return "\n\n".join(parts)


VERDICTS = {True: "holds", False: "does not hold", None: "not judged"}


def _where(report: dict[str, Any]) -> str:
    about = report["machine"]
    size = report.get("size", f"scale {report.get('scale', 1):g}")
    busy = " Other processes may have kept the machine busy while systems ran one after the other: where ratios are "
    busy += "small they say nothing."
    return (
        f"Penstock {about['penstock']}, Python {about['python']}, {about['processors']} processors, {size}; "
        f"load before it began: {about['load']}."
    ) + (busy if (about["load"] or 0) > about["processors"] / 2 else "")


def main(folders: list[str]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    PICTURES.mkdir(parents=True, exist_ok=True)
    for folder in map(Path, folders):
        report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        name = report["benchmark"]
        if name == "papers":
            text = placed(EXPERIMENTS.read_text(encoding="utf-8"), name, papers(report))
            EXPERIMENTS.write_text(text, encoding="utf-8")
            continue
        parts = [compared(report) if name == "compare" else own(report)]
        for figure in report["figures"]:
            shutil.copy(folder / figure, PICTURES / figure)
            parts.insert(0, f"![{TITLES[name]}](../pictures/benchmarks/{figure})")
        page = placed(page, name, "\n\n".join(parts))
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
